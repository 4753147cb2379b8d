//! The admin API on one key: look, reset, ban, grant, with counters in memory.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::harness::api::{ask, good};
use crate::harness::fleet_config::{AT_ONCE, Plan, client, of, request, statuses_of};
use crate::harness::{Backend, Client, Gateway, eventually, get_with};

fn start(lines: &str) -> (Backend, Gateway) {
    let backend = Backend::ok();
    let gateway = Gateway::start(&plan(&backend, lines));
    (backend, gateway)
}

fn plan(backend: &Backend, lines: &str) -> String {
    Plan::to(backend).route("/*", "limits = [\"one\"]").limit("one", lines).alone()
}

fn passed(gateway: &Gateway, name: &str, count: usize) -> usize {
    statuses_of(gateway, "/", name, count).into_iter().filter(|status| *status == 200).count()
}

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64()
}

/// The requests in the queue are its use, and it is empty when the last of them has left.
#[test]
fn a_full_leaky_bucket_tells_when_it_is_empty() {
    let (_backend, gateway) =
        start("algorithm = \"leaky-bucket\"\nrate = \"6/min\"\nqueue = 3\nmax_wait = \"1h\"");
    let send = |_| {
        let mut waiting = Client::connect(gateway.addr());
        waiting.write(request("/", "a"));
        waiting
    };
    let _waiting: Vec<_> = (0..4).map(send).collect();
    let seen = eventually("one to leave and three to wait", || {
        let seen = good(&gateway, "GET limits/one/keys/a", "");
        (seen["policies"][0]["remaining"] == 0).then_some(seen)
    });
    let policy = &seen["policies"][0];
    assert_eq!((&seen["verdict"], &policy["used"]), (&json!("refused"), &json!(3)), "{seen}");
    let [next, full] = ["next_ms", "full_ms"].map(|name| policy[name].as_u64().expect("a number"));
    assert!(next <= 10_000, "{seen}");
    assert_eq!(full, next + 30_000, "{seen}");
}

#[test]
fn a_key_is_looked_at_reset_and_given_units_back() {
    for algorithm in AT_ONCE {
        let (_backend, gateway) = start(&format!("{}\nreveal = true", of(algorithm, 5)));
        assert_eq!(passed(&gateway, "a", 9), 5, "{algorithm}");
        let seen = good(&gateway, "GET limits/one/keys/a", "");
        let id = seen["id"].as_str().unwrap().to_owned();
        assert!(id.strip_prefix("id:").is_some_and(|digits| digits.len() == 32), "{seen}");
        let policy = &seen["policies"][0];
        assert_eq!((policy["quota"].as_u64(), policy["remaining"].as_u64()), (Some(5), Some(0)), "{seen}");
        assert!(
            policy["next_ms"].as_u64() > Some(1_000)
                && policy["full_ms"].as_u64() >= policy["next_ms"].as_u64(),
            "{seen}"
        );
        assert_eq!(seen["verdict"], "refused");
        for (field, value) in [("requests", 9), ("admitted", 5), ("refused", 4)] {
            assert_eq!(seen[field], value, "{algorithm}: {field}");
        }
        assert_eq!(seen["banned_until"], Value::Null);
        assert_eq!(
            (&seen["limit"], &seen["mode"], &seen["key"]),
            (&json!("one"), &json!("enforce"), &json!(["a"]))
        );

        let seen = good(&gateway, "POST limits/one/keys/a/grant", r#"{"units": 3}"#);
        assert_eq!(
            (&seen["granted"], &seen["policies"][0]["remaining"]),
            (&json!(3), &json!(3)),
            "{algorithm}"
        );
        assert_eq!(passed(&gateway, "a", 9), 3, "{algorithm}");
        let seen = good(&gateway, "POST limits/one/keys/a/grant", r#"{"units": 1000}"#);
        assert_eq!(
            (&seen["granted"], &seen["policies"][0]["remaining"]),
            (&json!(5), &json!(5)),
            "{algorithm}"
        );
        assert_eq!(passed(&gateway, "a", 9), 5, "{algorithm}");

        let seen = good(&gateway, &format!("DELETE limits/one/keys/{id}"), "");
        assert_eq!(
            (&seen["verdict"], &seen["policies"][0]["remaining"]),
            (&json!("admitted"), &json!(5)),
            "{algorithm}"
        );
        assert_eq!((&seen["key"], &seen["policies"][0]["full_ms"]), (&json!(["a"]), &json!(0)));
        assert_eq!(passed(&gateway, "a", 9), 5, "{algorithm}");
        // No other key changed.
        assert_eq!(good(&gateway, "GET limits/one/keys/b", "")["policies"][0]["remaining"], 5);
        for words in ["resets id:", "gives 3 of 3 units back to id:", "gives 5 of 1000 units back to id:"] {
            gateway.wait_for_log(words);
        }
        // What is asked for again changes nothing, and says so.
        assert_eq!(seen["changed"], true, "{algorithm}");
        for (key, changed) in [(&*id, true), (&id, false), ("a", false), ("unknown", false)] {
            let seen = good(&gateway, &format!("DELETE limits/one/keys/{key}"), "");
            assert_eq!(seen["changed"], changed, "{algorithm}: {key}");
        }
    }
}

#[test]
fn a_queue_is_looked_at_and_reset() {
    let (_backend, gateway) =
        start("algorithm = \"leaky-bucket\"\nrate = \"1/day\"\nqueue = 3\nmax_wait = \"366day\"");
    let seen = good(&gateway, "GET limits/one/keys/a", "");
    assert_eq!((&seen["verdict"], &seen["policies"][0]["remaining"]), (&json!("admitted"), &json!(3)));
    assert_eq!(passed(&gateway, "a", 1), 1);
    let seen = good(&gateway, "GET limits/one/keys/a", "");
    assert_eq!(seen["verdict"], "delayed", "{seen}");
    let seen = good(&gateway, "POST limits/one/keys/a/grant", r#"{"units": 9}"#);
    assert_eq!((&seen["verdict"], &seen["granted"]), (&json!("admitted"), &json!(1)));
    assert_eq!(passed(&gateway, "a", 1), 1);
    good(&gateway, "DELETE limits/one/keys/a", "");
    assert_eq!(passed(&gateway, "a", 1), 1);
}

#[test]
fn a_ban_refuses_everywhere_and_ends() {
    let backend = Backend::ok();
    let toml = Plan::to(&backend)
        .route("/both/*", "name = \"both\"\nlimits = [\"one\", \"watched\"]")
        .route("/watched/*", "limits = [\"watched\"]\nname = \"watched\"")
        .route("/free/*", "name = \"free\"\nlimits = [{ name = \"watched\", cost = 0 }]")
        .limit("one", &of("gcra", 100))
        .limit("watched", &format!("{}\nmode = \"shadow\"", of("sliding-log", 2)))
        .alone();
    let gateway = Gateway::start(&toml);
    let before = now();
    let seen = good(&gateway, "POST limits/watched/keys/a/ban", r#"{"for": "1h"}"#);
    let until = seen["banned_until"].as_f64().unwrap();
    assert!(until >= before + 3_599.9 && until <= now() + 3_600.1, "{seen}");
    assert_eq!((&seen["verdict"], &seen["mode"]), (&json!("banned"), &json!("shadow")));
    assert_eq!(good(&gateway, "GET status", "")["bans"], 1);
    for path in ["/both/x", "/watched/x"] {
        for _ in 0..3 {
            let refused = get_with(gateway.addr(), path, &client("a")).expect(429);
            let wait: u64 = refused.header("retry-after").unwrap().parse().unwrap();
            assert!((3_500..=3_600).contains(&wait), "{wait}");
            assert!(refused.header("ratelimit").unwrap().contains(";r=0;"), "{refused:?}");
            assert!(refused.text().contains("client banned for another 60 minutes"), "{}", refused.text());
        }
    }
    assert_eq!(statuses_of(&gateway, "/free/x", "a", 1), [200]);
    assert_eq!(statuses_of(&gateway, "/both/x", "b", 1), [200]);
    // Nothing was charged.
    assert_eq!(good(&gateway, "GET limits/one/keys/a", "")["policies"][0]["remaining"], 100);
    assert_eq!(good(&gateway, "GET limits/watched/keys/a", "")["policies"][0]["remaining"], 2);
    let banned = gateway.metric("tollgate_decisions_total", &["limit=\"watched\"", "decision=\"banned\""]);
    assert!((banned - 6.0).abs() < 0.1, "{banned}");
    let log = gateway.access_log(6);
    assert_eq!(
        (&log[0]["limit"], &log[0]["decision"], &log[0]["error"]),
        (&json!("watched"), &json!("banned"), &Value::Null)
    );

    // A reset leaves it, another replaces it, and the rest of that one is told.
    assert_eq!(good(&gateway, "DELETE limits/watched/keys/a", "")["verdict"], "banned");
    good(&gateway, "POST limits/watched/keys/a/ban", r#"{"for": "2s"}"#);
    let wait = get_with(gateway.addr(), "/both/x", &client("a"))
        .expect(429)
        .header("retry-after")
        .unwrap()
        .to_owned();
    assert!(wait == "2" || wait == "1", "{wait}");
    eventually("the end of the ban", || (statuses_of(&gateway, "/both/x", "a", 1) == [200]).then_some(()));
    eventually("it to be forgotten", || (good(&gateway, "GET status", "")["bans"] == 0).then_some(()));

    good(&gateway, "POST limits/one/keys/a/ban", r#"{"for": "1day"}"#);
    assert_eq!(statuses_of(&gateway, "/both/x", "a", 2), [429, 429]);
    assert_eq!(statuses_of(&gateway, "/watched/x", "a", 1), [200]);
    for changed in [true, false] {
        let seen = good(&gateway, "DELETE limits/one/keys/a/ban", "");
        assert_eq!((&seen["banned_until"], &seen["changed"]), (&Value::Null, &json!(changed)));
        assert_eq!(statuses_of(&gateway, "/both/x", "a", 1), [200]);
    }
}

#[test]
fn an_exemption_is_stronger_than_a_ban_and_a_refusal_has_its_own_look() {
    let lines = format!(
        "{}\nexempt = [\"header:x-vip=yes\"]\nreject = {{ status = 403, body = \"no\" }}",
        of("gcra", 5)
    );
    let (_backend, gateway) = start(&lines);
    good(&gateway, "POST limits/one/keys/a/ban", r#"{"for": "1h"}"#);
    let refused = get_with(gateway.addr(), "/", &client("a")).expect(403);
    assert_eq!((refused.text().as_str(), refused.header("retry-after")), ("no", Some("3600")));
    get_with(gateway.addr(), "/", &format!("{}x-vip: yes\r\n", client("a"))).expect(200);
}

#[test]
fn keys_of_several_parts_are_named_by_their_values() {
    let backend = Backend::ok();
    let toml = Plan::to(&backend)
        .route("/*", "limits = [\"pair\", \"all\"]")
        .table_of("pair", "key = [\"ip\", \"path\", \"header:x-client\"]\nreveal = true", &of("gcra", 2))
        .table_of("all", "key = \"global\"", &of("gcra", 100))
        .alone();
    let gateway = Gateway::start(&toml);
    let get = |path: &str| get_with(gateway.addr(), path, &client("a,b/c")).status;
    assert_eq!([get("/x/y"), get("/x/y"), get("/x/y")], [200, 200, 429]);
    let key = "limits/pair/keys/127.0.0.1,%2Fx%2Fy,a%2Cb%2Fc";
    assert_eq!(good(&gateway, &format!("GET {key}"), "")["key"], json!(["127.0.0.1", "/x/y", "a,b/c"]));
    assert_eq!(good(&gateway, &format!("DELETE {key}"), "")["policies"][0]["remaining"], 2);
    assert_eq!([get("/x/y"), get("/x/y"), get("/x/y"), get("/x/z")], [200, 200, 429, 200]);
    assert_eq!(good(&gateway, "GET limits/all/keys/everyone", "")["policies"][0]["remaining"], 95);
    let (status, told) = ask(&gateway, "GET limits/all/keys/global", "");
    assert_eq!((status, &told["detail"]), (400, &json!("the limit has one key for all: write `everyone`")));
}

#[test]
fn what_can_not_be_is_told() {
    let (_backend, gateway) = start(&of("gcra", 5));
    for (line, body, status, word) in [
        ("GET limits/two/keys/a", "", 404, "there is no limit `two`"),
        ("GET limits/one/keys/a,b", "", 400, "another number of parts"),
        ("GET limits/one/keys/id:12", "", 400, "32 hexadecimal digits"),
        ("GET limits/one/keys/id%3A+9f86d081884c7d659a2feaa0c55ad01", "", 400, "32 hexadecimal digits"),
        ("GET limits/one/keys/%FF", "", 400, "UTF-8"),
        ("GET limits/one/keys/a/ban", "", 405, "POST, DELETE"),
        ("PUT limits/one/keys/a", "", 405, "GET, HEAD, DELETE"),
        ("POST limits/one/keys/a/ban", "{}", 400, "`for` is how long"),
        ("POST limits/one/keys/a/ban", r#"{"for": "1m"}"#, 400, "`for` is how long"),
        ("POST limits/one/keys/a/ban", r#"{"for": "999ms"}"#, 400, "`for` is how long"),
        ("POST limits/one/keys/a/ban", r#"{"for": "367day"}"#, 400, "`for` is how long"),
        ("POST limits/one/keys/a/ban", r#"{"for": "1h", "why": ""}"#, 400, "unknown field `why`"),
        ("POST limits/one/keys/a/grant", r#"{"units": 0}"#, 400, "`units` is how many"),
        ("POST limits/one/keys/a/grant", r#"{"units": 1.5}"#, 400, "`units` is how many"),
        ("POST limits/one/keys/a/grant", r#"{"units": 1000000001}"#, 400, "`units` is how many"),
        ("DELETE limits/one/key/a", "", 404, "unknown API path"),
    ] {
        let (found, value) = ask(&gateway, line, body);
        assert!(found == status && value.to_string().contains(word), "{line} {body}: {found} {value}");
    }
}

#[test]
fn bans_are_listed_those_that_end_first_first() {
    let backend = Backend::ok();
    let toml = Plan::to(&backend)
        .route("/*", "limits = [\"one\", \"address\", \"all\", \"shown\"]")
        .limit("one", &of("gcra", 100))
        .table_of("address", "key = \"ip\"\nmode = \"shadow\"", &of("gcra", 100))
        .table_of("all", "key = \"global\"", &of("gcra", 100))
        .table_of("shown", "key = [\"header:x-client\", \"path\"]\nreveal = true", &of("gcra", 100))
        .alone();
    let gateway = Gateway::start(&toml);
    assert_eq!(good(&gateway, "GET bans", "")["total"], 0);
    assert_eq!(good(&gateway, "GET bans", "")["bans"], json!([]));
    // Known by its id alone: a request had it.
    assert_eq!(statuses_of(&gateway, "/", "followed-by-id", 1), [200]);
    let id = good(&gateway, "GET limits/one/keys/followed-by-id", "")["id"].as_str().unwrap().to_owned();
    for (key, span) in [
        ("one/keys/a-secret-of-a-client", "4h"),
        ("address/keys/203.0.113.7", "1h"),
        ("shown/keys/a-client,%2Fsearch", "3h"),
        (&*format!("one/keys/{id}"), "2h"),
        ("all/keys/everyone", "5h"),
        ("one/keys/id:9f86d081884c7d659a2feaa0c55ad015", "6h"),
    ] {
        good(&gateway, &format!("POST limits/{key}/ban"), &json!({ "for": span }).to_string());
    }
    let told = good(&gateway, "GET bans", "");
    assert_eq!(told["total"], 6);
    let bans = told["bans"].as_array().unwrap();
    // The label itself, if it is masked so.
    let masked = |ban: &Value, begin: &str| {
        let label = ban["key"][0].as_str().unwrap_or_default().to_owned();
        assert!(label.strip_prefix(begin).is_some_and(|id| id.len() == 4), "{ban}");
        label
    };
    let names: Vec<Value> = bans.iter().map(|ban| json!([ban["limit"], ban["mode"], ban["key"]])).collect();
    assert_eq!(
        names,
        [
            json!(["address", "shadow", ["203.0.113.7"]]),
            json!(["one", "enforce", [masked(&bans[1], "… #")]]),
            json!(["shown", "enforce", ["a-client", "/search"]]),
            json!(["one", "enforce", [masked(&bans[3], "…ient #")]]),
            json!(["all", "enforce", []]),
            json!(["one", "enforce", null]),
        ]
    );
    assert_eq!(bans[1]["id"], *id);
    for (hours, ban) in [1.0, 2.0, 3.0, 4.0, 5.0, 6.0].into_iter().zip(bans) {
        let left = ban["banned_until"].as_f64().unwrap() - told["time"].as_f64().unwrap();
        assert!((left - hours * 3_600.0).abs() < 30.0, "{ban}");
    }
    let two = good(&gateway, "GET bans?top=2", "");
    assert_eq!((&two["total"], two["bans"].as_array().unwrap().len()), (&json!(6), 2));
    for wrong in ["0", "1001", "x"] {
        let (status, fault) = ask(&gateway, &format!("GET bans?top={wrong}"), "");
        assert!(status == 400 && fault.to_string().contains("1 to 1000"), "{fault}");
    }
    assert_eq!(ask(&gateway, "POST bans", "{}").0, 405);

    // A lifted ban is gone from the list, and a key that is banned by its values is named by them.
    let id = bans[3]["id"].as_str().unwrap();
    assert_eq!(good(&gateway, &format!("GET limits/one/keys/{id}"), "")["key"], bans[3]["key"]);
    let listed = good(&gateway, "GET limits/one/keys", "");
    let listed = listed["keys"].as_array().unwrap().iter().find(|key| key["id"] == id).unwrap();
    assert_eq!(listed["key"], bans[3]["key"]);
    good(&gateway, &format!("DELETE limits/one/keys/{id}/ban"), "");
    let left = good(&gateway, "GET bans", "");
    assert_eq!(left["total"], 5);
    assert!(left["bans"].as_array().unwrap().iter().all(|ban| ban["id"] != id), "{left}");
}

#[test]
fn bans_outlive_a_reload_as_long_as_their_limit_does() {
    let backend = Backend::ok();
    let gateway = Gateway::start(&plan(&backend, &of("gcra", 5)));
    good(&gateway, "POST limits/one/keys/a/ban", r#"{"for": "1h"}"#);
    let reload = |lines: &str| {
        let count = || gateway.metric("tollgate_config_reloads_total", &["result=\"success\""]);
        let before = count();
        gateway.write_config(&plan(&backend, lines));
        gateway.signal(Signal::HUP);
        eventually("the reload", || (count() > before).then_some(()));
    };
    reload(&of("gcra", 9));
    assert_eq!(statuses_of(&gateway, "/", "a", 1), [429]);
    reload(&of("fixed-window", 9));
    assert_eq!(
        (statuses_of(&gateway, "/", "a", 1), good(&gateway, "GET status", "")["bans"].clone()),
        (vec![200], json!(0))
    );
    assert_eq!(good(&gateway, "GET bans", "")["bans"], json!([]));
}

#[test]
fn resets_among_requests_admit_no_more_than_they_give() {
    const QUOTA: u32 = 50;
    for algorithm in AT_ONCE {
        let (_backend, gateway) = start(&of(algorithm, QUOTA));
        // Each client asks on until what comes after the reset and the grant was asked for, too.
        let over = AtomicBool::new(false);
        let ask = || {
            let mut connection = crate::harness::Client::connect(gateway.addr());
            let (mut admitted, mut left) = (0, 100);
            while left > 0 {
                left -= u32::from(over.load(Ordering::SeqCst));
                connection.write(format!("GET / HTTP/1.1\r\nhost: test\r\n{}\r\n", client("a")));
                admitted += usize::from(connection.read().status == 200);
            }
            admitted
        };
        let admitted: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(ask)).collect();
            std::thread::sleep(Duration::from_millis(5));
            good(&gateway, "DELETE limits/one/keys/a", "");
            good(&gateway, "POST limits/one/keys/a/grant", r#"{"units": 7}"#);
            over.store(true, Ordering::SeqCst);
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        let min = QUOTA as usize;
        assert!((min..=2 * min + 7).contains(&admitted), "{algorithm}: {admitted}");
        // What came after all that was still bounded.
        assert_eq!(passed(&gateway, "a", 3), 0);
    }
}
