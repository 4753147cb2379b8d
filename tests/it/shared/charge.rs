//! Charges by hand of keys whose counters stand in a shared store.

use std::thread;

use serde_json::{Value, json};

use crate::harness::api::{ask, ask_with, good};
use crate::harness::fleet_config::{AT_ONCE, PATIENT, Plan, is_up, of, statuses, statuses_of};
use crate::harness::{Backend, Cluster, Fleet, Gateway, Redis, eventually};

fn plan(backend: &Backend, lines: &str) -> Plan {
    let other = of("gcra", 100);
    let limits = "limits = [\"one\", \"other\"]";
    Plan::to(backend).quiet().route("/*", limits).limit("one", lines).limit("other", &other)
}

/// A charge with this idempotency key.
fn charge(gateway: &Gateway, place: &str, key: &str, units: u64) -> (u16, Value) {
    let body = json!({ "units": units }).to_string();
    ask_with(gateway, &format!("POST limits/{place}/charge"), &format!("idempotency-key: {key}\r\n"), &body)
}

fn used(gateway: &Gateway, place: &str) -> Value {
    good(gateway, &format!("GET limits/{place}"), "")["policies"][0]["used"].clone()
}

#[test]
fn a_charge_holds_for_all_gateways() {
    let (backend, redis) = (Backend::ok(), Redis::start());
    for algorithm in AT_ONCE {
        let fleet = Fleet::start(&plan(&backend, &of(algorithm, 6)).on(&redis));
        let [one, other] = &fleet.gateways;
        let name = format!("a-{algorithm}");
        assert_eq!(statuses(&fleet, "/", &name, 2), [200; 2], "{algorithm}");
        let key = format!("one/keys/{name}");
        let (status, seen) = charge(one, &key, &name, 9);
        assert_eq!(
            (status, &seen["charged"], &seen["repeated"]),
            (200, &json!(9), &json!(false)),
            "{algorithm}"
        );
        for gateway in [one, other] {
            let seen = good(gateway, &format!("GET limits/{key}"), "");
            let policy = &seen["policies"][0];
            assert_eq!((&policy["used"], &policy["remaining"]), (&json!(11), &json!(0)), "{algorithm}");
            assert_eq!(statuses_of(gateway, "/", &name, 2), [429; 2], "{algorithm}");
        }
        let (status, seen) = charge(other, &key, &name, 9);
        assert_eq!(
            (status, &seen["repeated"], used(one, &key)),
            (200, &json!(true), json!(11)),
            "{algorithm}"
        );
        let seen = good(other, &format!("POST limits/{key}/grant"), r#"{"units": 8}"#);
        assert_eq!((&seen["granted"], used(one, &key)), (&json!(8), json!(3)), "{algorithm}");
    }
}

#[test]
fn of_twenty_at_once_at_two_gateways_one_is_made() {
    let (backend, redis) = (Backend::ok(), Redis::start());
    let fleet = Fleet::start(&plan(&backend, &of("token-bucket", 100)).on(&redis));
    is_up(&fleet);
    for round in 0..5 {
        let key = format!("round-{round}");
        let send = |number: usize| charge(&fleet.gateways[number % 2], "one/keys/a", &key, 3);
        let answers: Vec<_> = thread::scope(|scope| {
            let sent: Vec<_> = (0..20).map(|number| scope.spawn(move || send(number))).collect();
            sent.into_iter().map(|answer| answer.join().unwrap()).collect()
        });
        assert!(answers.iter().all(|(status, _)| *status == 200), "{answers:?}");
        assert_eq!(answers.iter().filter(|(_, value)| value["repeated"] == false).count(), 1, "{answers:?}");
        assert_eq!(used(&fleet.gateways[0], "one/keys/a"), 3 * (round + 1));
    }
}

#[test]
fn a_gateway_that_is_killed_and_started_again_repeats_no_charge() {
    let (backend, redis) = (Backend::ok(), Redis::start());
    let toml = plan(&backend, &of("fixed-window", 5)).on(&redis);
    let first = Gateway::start(&toml);
    assert_eq!(charge(&first, "one/keys/a", "job", 4).1["repeated"], false);
    // Dropped, it is killed.
    drop(first);
    let second = Gateway::start(&toml);
    let (status, seen) = charge(&second, "one/keys/a", "job", 4);
    assert_eq!((status, &seen["repeated"], used(&second, "one/keys/a")), (200, &json!(true), json!(4)));
    assert_eq!(statuses_of(&second, "/", "a", 2), [200, 429]);
    // Two names for one idempotency key, both for a day at most.
    let records: Vec<_> = redis.keys().into_iter().filter(|key| key.contains(":charge")).collect();
    assert_eq!(records.len(), 2, "{records:?}");
    for key in &records {
        let left = redis.command(["PTTL", key.as_str()]).integer();
        assert!((86_000_000..=86_400_000).contains(&left), "{key}: {left} ms");
        assert!(!key.contains("job"), "{key}");
    }
}

#[test]
fn an_idempotency_key_is_for_one_charge_in_the_whole_fleet() {
    let (backend, redis) = (Backend::ok(), Redis::start());
    let fleet = Fleet::start(&plan(&backend, &of("gcra", 50)).on(&redis));
    is_one_charge(&fleet);
    let (backend, cluster) = (Backend::ok(), Cluster::start());
    let store = format!("url = {}\n{PATIENT}", cluster.urls());
    is_one_charge(&Fleet::start(&plan(&backend, &of("sliding-log", 50)).store(&store)));
}

fn is_one_charge(fleet: &Fleet) {
    let [one, other] = &fleet.gateways;
    is_up(fleet);
    assert_eq!(charge(one, "one/keys/a", "job", 4).0, 200);
    // The keys are in different slots of a cluster.
    for (place, units) in [
        ("one/keys/a", 5),
        ("other/keys/a", 4),
        ("one/keys/b", 4),
        ("one/keys/c", 4),
        ("one/keys/d", 4),
        ("other/keys/e", 9),
    ] {
        let (status, seen) = charge(other, place, "job", units);
        assert_eq!(status, 422, "{place}: {seen}");
        assert!(seen["detail"].as_str().unwrap().starts_with("this idempotency key was used for another"));
    }
    assert_eq!(charge(other, "one/keys/a", "job", 4).1["repeated"], true);
    for (place, units) in [("one/keys/a", 4), ("one/keys/b", 0), ("one/keys/c", 0), ("other/keys/a", 0)] {
        assert_eq!(used(one, place), units, "{place}");
    }
}

#[test]
fn without_the_store_nothing_is_charged_and_a_debt_is_kept() {
    let (backend, mut redis) = (Backend::ok(), Redis::start());
    let gateway = Gateway::start(&plan(&backend, &of("gcra", 3)).on(&redis));
    assert_eq!(charge(&gateway, "one/keys/a", "first", 9).0, 200);
    redis.kill();
    eventually("the store to be away", || (gateway.metric("tollgate_store_up", &[]) < 0.5).then_some(()));
    for (status, value) in [
        charge(&gateway, "one/keys/b", "second", 9),
        ask(&gateway, "POST limits/one/keys/b/charge", r#"{"units": 9}"#),
    ] {
        assert_eq!((status, &value["detail"]), (503, &json!("the shared store is unreachable")));
    }
    // The gateway counts on from what it knows.
    assert_eq!(statuses_of(&gateway, "/", "a", 2), [429; 2]);
    assert_eq!(statuses_of(&gateway, "/", "b", 2), [200; 2]);
    redis.restart();
    eventually("the store to be back", || (gateway.metric("tollgate_store_up", &[]) > 0.5).then_some(()));
    // What was refused with 503 was not remembered.
    let (status, seen) = charge(&gateway, "one/keys/c", "second", 9);
    assert_eq!((status, &seen["repeated"]), (200, &json!(false)), "{seen}");
}
