//! The admin API charges keys by hand, with counters in memory.

use std::collections::BTreeMap;
use std::thread;

use serde_json::{Value, json};

use crate::harness::api::{ask, ask_with, good};
use crate::harness::fleet_config::{AT_ONCE, Plan, client, of, statuses_of};
use crate::harness::{Backend, Gateway, get_with};

const CHARGE: &str = "POST limits/one/keys/a/charge";

fn plan(backend: &Backend, lines: &str) -> String {
    let other = of("fixed-window", 100);
    let limits = "limits = [\"one\", \"other\"]";
    Plan::to(backend).quiet().route("/*", limits).limit("one", lines).limit("other", &other).alone()
}

fn passed(gateway: &Gateway, count: usize) -> usize {
    statuses_of(gateway, "/", "a", count).into_iter().filter(|status| *status == 200).count()
}

/// A charge with this idempotency key.
fn charge(gateway: &Gateway, line: &str, key: &str, units: u64) -> (u16, Value) {
    ask_with(gateway, line, &format!("idempotency-key: {key}\r\n"), &json!({ "units": units }).to_string())
}

fn used(gateway: &Gateway) -> Value {
    good(gateway, "GET limits/one/keys/a", "")["policies"][0]["used"].clone()
}

#[test]
fn a_charge_is_the_counterpart_of_a_grant() {
    let backend = Backend::ok();
    for algorithm in AT_ONCE {
        let gateway = Gateway::start(&plan(&backend, &of(algorithm, 5)));
        assert_eq!(passed(&gateway, 2), 2, "{algorithm}");
        let seen = good(&gateway, CHARGE, r#"{"units": 2}"#);
        let own = json!({ "charged": 2, "repeated": false, "changed": true });
        for (field, value) in own.as_object().unwrap() {
            assert_eq!(&seen[field], value, "{algorithm}: {field}");
        }
        let policy = &seen["policies"][0];
        assert_eq!((&policy["used"], &policy["remaining"]), (&json!(4), &json!(1)), "{algorithm}");
        assert_eq!(passed(&gateway, 3), 1, "{algorithm}");

        // Into debt.
        let seen = good(&gateway, CHARGE, r#"{"units": 10}"#);
        let policy = &seen["policies"][0];
        assert_eq!((&policy["used"], &policy["remaining"]), (&json!(15), &json!(0)), "{algorithm}");
        assert_eq!((&seen["verdict"], passed(&gateway, 3)), (&json!("refused"), 0), "{algorithm}");
        let seen = good(&gateway, "POST limits/one/keys/a/grant", r#"{"units": 11}"#);
        let policy = &seen["policies"][0];
        assert_eq!((&policy["used"], &policy["remaining"]), (&json!(4), &json!(1)), "{algorithm}");
        assert_eq!(passed(&gateway, 3), 1, "{algorithm}");
        gateway.wait_for_log(" charges 2 units to id:");
        gateway.wait_for_log(" charges 10 units to id:");
    }
}

#[test]
fn retry_after_tells_how_long_the_debt_is() {
    let backend = Backend::ok();
    for (algorithm, hours) in [
        ("algorithm = \"token-bucket\"\nrate = \"1/h\"\nburst = 5", 4..=4),
        ("algorithm = \"gcra\"\nrate = \"1/h\"\nburst = 5", 4..=4),
        ("algorithm = \"sliding-log\"\nrate = \"5/day\"", 24..=24),
        ("algorithm = \"fixed-window\"\nrate = \"5/day\"", 0..=24),
        ("algorithm = \"sliding-window\"\nrate = \"5/day\"", 0..=48),
    ] {
        let gateway = Gateway::start(&plan(&backend, algorithm));
        let seen = good(&gateway, CHARGE, r#"{"units": 8}"#);
        let told = seen["policies"][0]["next_ms"].as_u64().unwrap();
        let refused = get_with(gateway.addr(), "/", &client("a")).expect(429);
        let wait: u64 = refused.header("retry-after").unwrap().parse().unwrap();
        assert!((wait * 1_000).abs_diff(told) < 60_000, "{algorithm}: {wait} s, {told} ms");
        assert!(hours.contains(&wait.div_ceil(3_600)), "{algorithm}: {wait} s");
    }
}

#[test]
fn all_rates_of_a_limit_are_charged() {
    let backend = Backend::ok();
    let lines = "algorithm = \"fixed-window\"\nrate = [\"5/day\", \"100/366day\"]";
    let gateway = Gateway::start(&plan(&backend, lines));
    let seen = good(&gateway, CHARGE, r#"{"units": 7}"#);
    let policies: Vec<_> = seen["policies"]
        .as_array()
        .unwrap()
        .iter()
        .map(|policy| (&policy["used"], &policy["remaining"]))
        .collect();
    assert_eq!(policies, [(&json!(7), &json!(0)), (&json!(7), &json!(93))]);
    // No other limit and no other key.
    for key in ["limits/other/keys/a", "limits/one/keys/b"] {
        assert_eq!(good(&gateway, &format!("GET {key}"), "")["policies"][0]["used"], 0, "{key}");
    }
}

#[test]
fn a_charge_with_an_idempotency_key_is_made_once() {
    let backend = Backend::ok();
    let toml = plan(&backend, &of("gcra", 100));
    let gateway = Gateway::start(&toml);
    for repeated in [false, true, true] {
        let (status, seen) = charge(&gateway, CHARGE, "job-1", 7);
        assert_eq!((status, &seen["charged"], &seen["repeated"]), (200, &json!(7), &json!(repeated)));
        assert_eq!((&seen["changed"], &used(&gateway)), (&json!(!repeated), &json!(7)));
    }
    for (line, units) in
        [(CHARGE, 8), ("POST limits/one/keys/b/charge", 7), ("POST limits/other/keys/a/charge", 7)]
    {
        let (status, seen) = charge(&gateway, line, "job-1", units);
        let detail = "this idempotency key was used for another limit, key or number of units within the last 24 hours";
        assert_eq!((status, &seen["detail"]), (422, &json!(detail)), "{line}");
    }
    assert_eq!(used(&gateway), 7);
    // By its id it is the same key; and what did not succeed has not used the idempotency key.
    let id = good(&gateway, "GET limits/one/keys/a", "")["id"].as_str().unwrap().to_owned();
    assert_eq!(
        charge(&gateway, &format!("POST limits/one/keys/{id}/charge"), "job-1", 7).1["repeated"],
        true
    );
    assert_eq!(charge(&gateway, "POST limits/unknown/keys/a/charge", "job-2", 1).0, 404);
    assert_eq!(charge(&gateway, CHARGE, "job-2", 0).0, 400);
    assert_eq!(charge(&gateway, CHARGE, "job-2", 1).1["repeated"], false);
    // Without one each is made; a reload forgets none.
    good(&gateway, CHARGE, r#"{"units": 1}"#);
    good(&gateway, CHARGE, r#"{"units": 1}"#);
    gateway.reload(&toml.replace("100/366day", "101/366day"), "reloaded: ");
    assert_eq!(charge(&gateway, CHARGE, "job-1", 7).1["repeated"], true);
    assert_eq!(used(&gateway), 10);
    gateway.wait_for_log(" charges 7 units to id:");
    gateway.wait_for_log(" has charged 7 units to id:");
}

#[test]
fn of_twenty_at_once_one_is_made() {
    let backend = Backend::ok();
    let gateway = Gateway::start(&plan(&backend, &of("token-bucket", 100)));
    let send = || charge(&gateway, CHARGE, "at-once", 3);
    let answers: Vec<_> = thread::scope(|scope| {
        let sent: Vec<_> = (0..20).map(|_| scope.spawn(send)).collect();
        sent.into_iter().map(|answer| answer.join().unwrap()).collect()
    });
    let mut effects = BTreeMap::new();
    for (status, value) in answers {
        assert_eq!(status, 200, "{value}");
        *effects.entry(value["repeated"].as_bool()).or_insert(0) += 1;
    }
    assert_eq!(effects, BTreeMap::from([(Some(false), 1), (Some(true), 19)]));
    assert_eq!(used(&gateway), 3);
}

#[test]
fn faults_of_a_charge_charge_nothing() {
    let backend = Backend::ok();
    let toml = Plan::to(&backend)
        .route("/*", "limits = [\"one\", \"places\"]")
        .limit("one", &of("gcra", 5))
        .limit("places", "algorithm = \"concurrency\"\nmax = 3")
        .alone();
    let gateway = Gateway::start(&toml);
    for (line, body, status, words) in [
        (CHARGE, "", 400, "`units` is how many are charged: a whole number, 1 to 1000000000"),
        (CHARGE, r#"{"units": 0}"#, 400, "`units` is how many are charged"),
        (CHARGE, r#"{"units": -1}"#, 400, "`units` is how many are charged"),
        (CHARGE, r#"{"units": 1.5}"#, 400, "`units` is how many are charged"),
        (CHARGE, r#"{"units": "1"}"#, 400, "`units` is how many are charged"),
        (CHARGE, r#"{"units": 1000000001}"#, 400, "`units` is how many are charged"),
        (CHARGE, r#"{"units": 1, "cost": 1}"#, 400, "unknown field `cost`, expected `units`"),
        ("POST limits/none/keys/a/charge", r#"{"units": 1}"#, 404, "there is no limit `none`"),
        ("POST limits/places/keys/a/charge", r#"{"units": 1}"#, 409, "counts requests in flight"),
        ("GET limits/one/keys/a/charge", "", 405, "only POST is understood here"),
    ] {
        let (found, value) = ask(&gateway, line, body);
        assert_eq!(found, status, "{line} {body}: {value}");
        assert!(value["detail"].as_str().unwrap().contains(words), "{line} {body}: {value}");
    }
    let long = "k".repeat(256);
    let fields = |key: &str| format!("idempotency-key: {key}\r\n");
    for fields in
        [fields(""), fields("a b"), fields("\u{fc}"), fields(&long), fields("a\tb"), fields("a").repeat(2)]
    {
        let (status, value) = ask_with(&gateway, CHARGE, &fields, r#"{"units": 1}"#);
        assert_eq!(status, 400, "{fields}: {value}");
        assert!(value["detail"].as_str().unwrap().contains("1 to 255 visible ASCII"), "{fields}: {value}");
    }
    assert_eq!(used(&gateway), 0);
    assert_eq!(charge(&gateway, CHARGE, &long[1..], 1).0, 200);
    assert_eq!(used(&gateway), 1);
}

#[test]
fn the_use_of_places_and_queues_is_told() {
    let backend = Backend::ok();
    let toml = Plan::to(&backend)
        .route("/*", "limits = [\"queue\", \"places\"]")
        .limit("queue", "algorithm = \"leaky-bucket\"\nrate = \"1/day\"\nqueue = 3\nmax_wait = \"366day\"")
        .limit("places", "algorithm = \"concurrency\"\nmax = 3")
        .alone();
    let gateway = Gateway::start(&toml);
    // One of the two leaves, and one is in the queue.
    let seen = good(&gateway, "POST limits/queue/keys/a/charge", r#"{"units": 2}"#);
    assert_eq!((&seen["policies"][0]["used"], &seen["verdict"]), (&json!(1), &json!("delayed")), "{seen}");
    let seen = good(&gateway, "GET limits/places/keys/a", "");
    assert_eq!((&seen["policies"][0]["used"], &seen["policies"][0]["remaining"]), (&json!(0), &json!(3)));
}
