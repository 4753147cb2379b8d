//! A limit that changes while its counters stand in the store: by a reload, and during a rollout.

use rustix::process::Signal;

use crate::harness::fleet_config::{AT_ONCE, PATIENT, Plan, client, of, statuses, statuses_of};
use crate::harness::{Backend, Fleet, Gateway, Redis, eventually, get_with};

fn plan(backend: &Backend) -> Plan {
    Plan::to(backend).route("/*", "limits = [\"per-client\"]")
}

fn reload(gateway: &Gateway, toml: &str) {
    let count = || gateway.metric("tollgate_config_reloads_total", &["result=\"success\""]);
    let before = count();
    gateway.write_config(toml);
    gateway.signal(Signal::HUP);
    eventually("the reload", || (count() > before).then_some(()));
}

fn remaining(gateway: &Gateway, name: &str) -> String {
    let response = get_with(gateway.addr(), "/", &client(name)).expect(200);
    response.header("x-ratelimit-remaining").expect("the field").to_owned()
}

fn changed_numbers_apply_at_once(algorithm: &str) {
    let (backend, redis) = (Backend::ok(), Redis::start());
    let with = |count| plan(&backend).limit("per-client", &of(algorithm, count)).on(&redis);
    let fleet = Fleet::start(&with(10));
    for (number, left) in ["9", "8", "7", "6"].into_iter().enumerate() {
        assert_eq!(remaining(&fleet.gateways[number % 2], "a"), left);
    }
    fleet.gateways.iter().for_each(|gateway| reload(gateway, &with(6)));
    assert_eq!(remaining(&fleet.gateways[0], "a"), "1", "{algorithm}: four of now six were spent");
    assert_eq!(remaining(&fleet.gateways[1], "a"), "0");
    assert_eq!(statuses(&fleet, "/", "a", 4), [429; 4]);
    fleet.gateways.iter().for_each(|gateway| reload(gateway, &with(20)));
    // At once, though both remember that they refused.
    assert_eq!(remaining(&fleet.gateways[1], "a"), "13", "{algorithm}: six of now twenty were spent");
    assert_eq!(remaining(&fleet.gateways[0], "a"), "12");
}

#[test]
fn a_limit_of_windows_or_a_log_that_is_lowered_and_raised_applies_at_once() {
    for algorithm in ["fixed-window", "sliding-window", "sliding-log"] {
        changed_numbers_apply_at_once(algorithm);
    }
}

/// What is used of a bucket is kept as a part of it or as a count; either way a smaller one has room for no more than it holds.
#[test]
fn a_bucket_that_is_lowered_and_raised_applies_at_once() {
    for algorithm in ["token-bucket", "gcra"] {
        let (backend, redis) = (Backend::ok(), Redis::start());
        let with = |count| plan(&backend).limit("per-client", &of(algorithm, count)).on(&redis);
        let fleet = Fleet::start(&with(10));
        assert_eq!(statuses(&fleet, "/", "a", 8), [200; 8]);
        fleet.gateways.iter().for_each(|gateway| reload(gateway, &with(4)));
        let passed = statuses(&fleet, "/", "a", 8).iter().filter(|status| **status == 200).count();
        assert!(passed <= 1, "{algorithm}: at least eight of ten, or of four, were spent: {passed}");
        assert_eq!(statuses(&fleet, "/", "new", 5), [200, 200, 200, 200, 429], "{algorithm}");
        fleet.gateways.iter().for_each(|gateway| reload(gateway, &with(40)));
        assert_eq!(statuses(&fleet, "/", "a", 4), [200; 4], "{algorithm}: at once");
    }
}

#[test]
fn another_algorithm_or_key_starts_afresh() {
    let (backend, redis) = (Backend::ok(), Redis::start());
    let gateway = Gateway::start(&plan(&backend).limit("per-client", &of("fixed-window", 1)).on(&redis));
    assert_eq!(statuses_of(&gateway, "/", "a", 2), [200, 429]);
    for algorithm in ["token-bucket", "gcra", "sliding-window", "sliding-log"] {
        reload(&gateway, &plan(&backend).limit("per-client", &of(algorithm, 1)).on(&redis));
        assert_eq!(statuses_of(&gateway, "/", "a", 2), [200, 429], "{algorithm}");
    }
    for key in ["header:x-other", "ip", "global"] {
        let plan = plan(&backend).limit_by(key, "per-client", &of("sliding-log", 1));
        reload(&gateway, &plan.on(&redis));
        assert_eq!(statuses_of(&gateway, "/", "a", 2), [200, 429], "{key}");
    }
}

/// A rollout: one gateway has the new numbers, the other not yet. Neither spoils what the other counts.
#[test]
fn old_and_new_gateways_stand_side_by_side() {
    for algorithm in AT_ONCE {
        let (backend, redis) = (Backend::ok(), Redis::start());
        let limit = |count| of(algorithm, count) + "\non_error = \"deny\"";
        let with = |count| plan(&backend).quiet().limit("per-client", &limit(count)).on(&redis);
        let fleet = Fleet::start_each(&with(50), &with(80));
        let told = statuses(&fleet, "/", "a", 300);
        assert!(told.iter().all(|status| [200, 429].contains(status)), "{algorithm}: {told:?}");
        let passed = told.iter().filter(|status| **status == 200).count();
        assert!((50..=80).contains(&passed), "{algorithm}: {passed} passed");
        let errors = fleet.metric("tollgate_store_errors_total", &[]);
        assert!(errors < 0.5, "{algorithm}: {errors} errors");
        // The new one rolled out everywhere goes on with what is there.
        reload(&fleet.gateways[0], &with(80));
        let more = statuses(&fleet, "/", "a", 100).iter().filter(|status| **status == 200).count();
        assert!(passed + more <= 80, "{algorithm}: {passed} and {more} passed");
    }
}

/// Another algorithm during a rollout: each counts for itself, and neither resets the other.
#[test]
fn gateways_with_different_algorithms_leave_each_others_states_alone() {
    let (backend, redis) = (Backend::ok(), Redis::start());
    let with = |algorithm: &str| plan(&backend).limit("per-client", &of(algorithm, 5)).on(&redis);
    let fleet = Fleet::start_each(&with("token-bucket"), &with("sliding-log"));
    assert_eq!(statuses(&fleet, "/", "a", 14), [[200; 10].as_slice(), &[429; 4]].concat());
    assert_eq!(redis.keys().len(), 2);
}

/// The store itself moves: what is counted from then on stands in the new one.
#[test]
fn a_reload_may_name_another_store() {
    let (backend, one, other) = (Backend::ok(), Redis::start(), Redis::start());
    let on = |redis: &Redis| plan(&backend).limit("per-client", &of("token-bucket", 2)).on(redis);
    let gateway = Gateway::start(&on(&one));
    assert_eq!(statuses_of(&gateway, "/", "a", 3), [200, 200, 429]);
    gateway.write_config(&on(&other));
    gateway.signal(Signal::HUP);
    // Either it moves, or it says that this takes a restart; never does it do neither.
    let moved = eventually("the reload to be told", || {
        let moved = gateway.metric("tollgate_config_reloads_total", &["result=\"success\""]) > 0.5;
        let told =
            gateway.stderr_lines().iter().any(|line| line.contains("store") && line.contains("restart"));
        (moved || told).then_some(!told)
    });
    if moved {
        assert_eq!(statuses_of(&gateway, "/", "b", 3), [200, 200, 429]);
        assert_eq!(other.keys().len(), 1);
        eventually("the old connections to be closed", || (one.connections() == 0).then_some(()));
    }
}

/// Passwords change: connections that are open stay, new ones need the new one, and a reload brings it.
#[test]
fn a_reload_brings_a_new_password() {
    let (backend, redis) = (Backend::ok(), Redis::start());
    redis.set(&["CONFIG", "SET", "requirepass", "old"]);
    let with = |password: &str| {
        let url = format!("redis://:{password}@{}", redis.addr());
        let limits = plan(&backend).limit("per-client", &of("token-bucket", 2));
        limits.store(&format!("url = \"{url}\"\n{PATIENT}"))
    };
    let gateway = Gateway::start(&with("old"));
    assert_eq!(statuses_of(&gateway, "/", "a", 3), [200, 200, 429]);
    redis.set(&["CONFIG", "SET", "requirepass", "new"]);
    reload(&gateway, &with("new"));
    redis.command(["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    let before = redis.calls_of("evalsha");
    for name in 0..10 {
        assert_eq!(statuses_of(&gateway, "/", &format!("b{name}"), 3), [200, 200, 429]);
    }
    assert!(redis.calls_of("evalsha") >= before + 20);
    assert!(gateway.metric("tollgate_store_errors_total", &[]) < 0.5, "{}", gateway.stderr());
}

/// From memory into a store, into another one, and back: each time where the file says, and afresh there.
#[test]
fn a_reload_moves_the_counters() {
    let (backend, first, second) = (Backend::ok(), Redis::start(), Redis::start());
    let limits = plan(&backend).limit("per-client", &of("fixed-window", 2));
    let alone = limits.clone().alone();
    let gateway = Gateway::start(&alone);
    assert_eq!(statuses_of(&gateway, "/", "a", 3), [200, 200, 429]);
    let calls = || gateway.metric("tollgate_store_calls_total", &[]);
    for (redis, counted) in [(&first, 3.0), (&second, 6.0)] {
        reload(&gateway, &limits.clone().on(redis));
        assert_eq!(statuses_of(&gateway, "/", "a", 2), [200, 200]);
        assert_eq!(redis.keys().len(), 1);
        // A refusal may be remembered by the worker that asked.
        assert_eq!(statuses_of(&gateway, "/", "a", 1), [429]);
        assert!((calls() - counted).abs() < 0.5, "what was counted before is not forgotten: {}", calls());
    }
    reload(&gateway, &alone);
    let before = second.calls_of("evalsha");
    assert_eq!(statuses_of(&gateway, "/", "b", 3), [200, 200, 429]);
    assert_eq!(second.calls_of("evalsha"), before);
}
