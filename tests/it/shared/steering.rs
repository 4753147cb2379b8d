//! The admin API on keys whose counters stand in a shared store: what one gateway changes holds for all.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::api::{ask, good};
use crate::harness::fleet_config::{AT_ONCE, PATIENT, Plan, client, is_up, of, statuses, statuses_of};
use crate::harness::{Backend, Cluster, Fleet, Gateway, Redis, eventually, get_with};

fn plan(backend: &Backend, lines: &str) -> Plan {
    Plan::to(backend).quiet().route("/*", "limits = [\"one\"]").limit("one", lines)
}

/// Waits until this client passes there, which may take as long as a refusal is remembered.
#[track_caller]
fn passes(gateway: &Gateway, name: &str) {
    let started = Instant::now();
    eventually("the client to pass", || (statuses_of(gateway, "/", name, 1) == [200]).then_some(()));
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
}

#[track_caller]
fn is_refused(gateway: &Gateway, name: &str) {
    let started = Instant::now();
    eventually("the client to be refused", || (statuses_of(gateway, "/", name, 1) == [429]).then_some(()));
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
}

#[test]
fn a_reset_and_a_gift_hold_for_all_gateways() {
    let (backend, redis) = (Backend::ok(), Redis::start());
    for algorithm in AT_ONCE {
        let fleet = Fleet::start(&plan(&backend, &of(algorithm, 6)).on(&redis));
        let [one, other] = &fleet.gateways;
        let name = format!("a-{algorithm}");
        assert_eq!(statuses(&fleet, "/", &name, 8), [200, 200, 200, 200, 200, 200, 429, 429], "{algorithm}");
        let key = format!("limits/one/keys/{name}");
        let [seen, same] = [one, other].map(|gateway| good(gateway, &format!("GET {key}"), ""));
        assert_eq!((&seen["id"], &seen["policies"][0]["remaining"]), (&same["id"], &json!(0)), "{algorithm}");

        let seen = good(other, &format!("POST {key}/grant"), r#"{"units": 3}"#);
        assert_eq!(
            (&seen["granted"], &seen["policies"][0]["remaining"]),
            (&json!(3), &json!(3)),
            "{algorithm}"
        );
        passes(one, &name);
        // Each worker may remember a refusal of before, or not.
        eventually("both more to pass", || {
            statuses(&fleet, "/", &name, 2);
            (good(one, &format!("GET {key}"), "")["policies"][0]["remaining"] == 0).then_some(())
        });
        let seen = good(one, &format!("DELETE {key}"), "");
        assert_eq!(
            (&seen["verdict"], &seen["policies"][0]["remaining"]),
            (&json!("admitted"), &json!(6)),
            "{algorithm}"
        );
        for gateway in [other, one] {
            passes(gateway, &name);
        }
        assert_eq!(good(other, &format!("GET {key}"), "")["policies"][0]["remaining"], 4, "{algorithm}");
        let all = good(one, &format!("POST {key}/grant"), r#"{"units": 1000000000}"#);
        assert_eq!((&all["granted"], &all["policies"][0]["full_ms"]), (&json!(2), &json!(0)), "{algorithm}");
    }
}

#[test]
fn a_ban_holds_for_all_gateways_until_one_ends_it() {
    let (backend, redis) = (Backend::ok(), Redis::start());
    let fleet = Fleet::start(&plan(&backend, &of("gcra", 1_000)).on(&redis));
    let [one, other] = &fleet.gateways;
    is_up(&fleet);
    let seen = good(one, "POST limits/one/keys/a/ban", r#"{"for": "10min"}"#);
    assert_eq!(seen["verdict"], "banned");
    // At once where it was made.
    assert_eq!(statuses_of(one, "/", "a", 4), [429; 4]);
    is_refused(other, "a");
    let wait: u64 = get_with(other.addr(), "/", &client("a")).header("retry-after").unwrap().parse().unwrap();
    assert!((590..=600).contains(&wait), "{wait}");
    assert_eq!(good(other, "GET status", "")["bans"], 1);
    let difference = seen["banned_until"].as_f64().unwrap()
        - good(other, "GET limits/one/keys/a", "")["banned_until"].as_f64().unwrap();
    assert!(difference.abs() < 2.0, "{difference}");
    // Both list it, under one id.
    for gateway in [one, other] {
        let told = good(gateway, "GET bans", "");
        let ban = &told["bans"][0];
        assert_eq!((&told["total"], &ban["limit"], &ban["id"]), (&1.into(), &"one".into(), &seen["id"]));
        let difference = seen["banned_until"].as_f64().unwrap() - ban["banned_until"].as_f64().unwrap();
        assert!(difference.abs() < 2.0, "{difference}");
    }
    // A gateway that comes later knows of it, too.
    let third = Gateway::start(&plan(&backend, &of("gcra", 1_000)).on(&redis));
    is_refused(&third, "a");
    assert_eq!(good(other, "DELETE limits/one/keys/a/ban", "")["banned_until"], Value::Null);
    assert_eq!(good(other, "GET bans", "")["total"], 0);
    assert_eq!(statuses_of(other, "/", "a", 4), [200; 4]);
    passes(one, "a");
    passes(&third, "a");
    assert_eq!(redis.keys().iter().filter(|key| key.contains(":bans:")).count(), 0);

    good(other, "POST limits/one/keys/a/ban", r#"{"for": "2s"}"#);
    good(one, "POST limits/one/keys/b/ban", r#"{"for": "10min"}"#);
    is_refused(other, "b");
    passes(other, "a");
    passes(one, "a");
    assert_eq!(statuses_of(&third, "/", "b", 1), [429]);
}

#[test]
fn without_the_store_nothing_is_changed_and_known_bans_go_on() {
    let (backend, mut redis) = (Backend::ok(), Redis::start());
    let gateway = Gateway::start(&plan(&backend, &of("gcra", 3)).on(&redis));
    good(&gateway, "POST limits/one/keys/a/ban", r#"{"for": "10min"}"#);
    redis.kill();
    eventually("the store to be away", || (gateway.metric("tollgate_store_up", &[]) < 0.5).then_some(()));
    for (line, body) in [
        ("GET limits/one/keys/b", ""),
        ("DELETE limits/one/keys/b", ""),
        ("POST limits/one/keys/b/grant", r#"{"units": 1}"#),
        ("POST limits/one/keys/b/ban", r#"{"for": "1h"}"#),
        ("DELETE limits/one/keys/a/ban", ""),
    ] {
        let (status, value) = ask(&gateway, line, body);
        assert_eq!((status, &value["detail"]), (503, &json!("the shared store is unreachable")), "{line}");
    }
    std::thread::sleep(Duration::from_millis(2_500));
    assert_eq!(statuses_of(&gateway, "/", "a", 3), [429; 3]);
    assert_eq!(statuses_of(&gateway, "/", "b", 4), [200, 200, 200, 429]);
    // One that has lost its data has lost its bans.
    redis.restart();
    passes(&gateway, "a");
}

/// Bans of unused keys for an hour, in the server's layout.
fn write_bans(redis: &Redis, count: u64) {
    let seconds: f64 = redis.command(["TIME"]).list()[0].text().parse().unwrap();
    let mut text = 1.0_f64.to_le_bytes().to_vec();
    for number in 0..count {
        text.extend([[7; 16], u128::from(number).to_le_bytes()].concat());
        text.extend(((seconds + 3_600.0) * 1e6).to_le_bytes());
    }
    redis.command([b"SET".as_slice(), b"tollgate:bans:{bans}", &text]);
}

#[test]
fn there_are_no_more_than_ten_thousand_bans() {
    let (backend, redis) = (Backend::ok(), Redis::start());
    write_bans(&redis, 9_999);
    let fleet = Fleet::start(&plan(&backend, &of("gcra", 100)).on(&redis));
    let [one, other] = &fleet.gateways;
    let ban = |gateway: &Gateway, name: &str| {
        ask(gateway, &format!("POST limits/one/keys/{name}/ban"), r#"{"for": "1h"}"#)
    };
    assert_eq!(ban(one, "a").0, 200);
    let (status, value) = ban(other, "b");
    assert_eq!((status, &value["detail"]), (409, &json!("there are 10000 bans, and there can be no more")));
    // Among all those the other finds the one that concerns it; and one that is there may be replaced.
    is_refused(other, "a");
    assert_eq!((ban(other, "a").0, statuses_of(other, "/", "b", 1)), (200, vec![200]));
    good(other, "DELETE limits/one/keys/a/ban", "");
    assert_eq!(ban(one, "b").0, 200);
    is_refused(other, "b");
}

#[test]
fn a_cluster_does_it_too() {
    let (backend, cluster) = (Backend::ok(), Cluster::start());
    let store = format!("url = {}\n{PATIENT}", cluster.urls());
    let fleet = Fleet::start(&plan(&backend, &of("sliding-log", 2)).store(&store));
    let [one, other] = &fleet.gateways;
    for name in ["a", "b", "c", "d"] {
        assert_eq!(statuses(&fleet, "/", name, 3), [200, 200, 429]);
        good(one, &format!("DELETE limits/one/keys/{name}"), "");
        passes(other, name);
        assert_eq!(good(one, &format!("POST limits/one/keys/{name}/grant"), r#"{"units": 5}"#)["granted"], 1);
        good(one, &format!("POST limits/one/keys/{name}/ban"), r#"{"for": "1h"}"#);
        is_refused(other, name);
    }
}
