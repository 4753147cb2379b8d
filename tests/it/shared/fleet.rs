//! The gateways of a fleet know of each other.

use std::process::Command;

use rustix::process::Signal;
use serde_json::Value;

use crate::harness::api::{api, ask};
use crate::harness::fleet_config::{Plan, is_up, of};
use crate::harness::{Backend, FakeClock, Fleet, Gateway, Redis, binary, eventually, free_address};

fn plan(backend: &Backend) -> Plan {
    Plan::to(backend).route("/*", "limits = [\"x\"]").limit("x", &of("token-bucket", 2))
}

/// The gateways that this one lists: addresses that end with a port, and whether each is gone.
fn listed(gateway: &Gateway) -> Vec<(String, bool)> {
    let fleet = api(gateway, "fleet");
    assert_eq!(fleet["shared"], true);
    let of = |one: &Value| (one["address"].as_str().unwrap().to_owned(), one["gone"].as_bool().unwrap());
    fleet["gateways"].as_array().unwrap().iter().map(of).collect()
}

/// Waits until this one lists gateways with these ports, by whether they are gone.
#[track_caller]
fn lists(gateway: &Gateway, expected: &[(u16, bool)]) {
    let is_it = |(address, gone): &(String, bool)| {
        expected.iter().any(|(port, expected)| address.ends_with(&format!(":{port}")) && gone == expected)
    };
    eventually(&format!("the gateways {expected:?}"), || {
        let listed = listed(gateway);
        (listed.len() == expected.len() && listed.iter().all(is_it)).then_some(())
    });
}

/// Waits until the status has a problem of this kind, or none.
#[track_caller]
fn has_problem(gateway: &Gateway, kind: &str, words: Option<&str>) {
    eventually(&format!("the problem {kind}: {words:?}"), || {
        let status = api(gateway, "status");
        let problems = status["problems"].as_array().unwrap();
        let found = problems.iter().find(|problem| problem["kind"] == kind);
        let text = found.map(|problem| problem["text"].as_str().unwrap());
        match words {
            Some(words) => text?.contains(words).then_some(()),
            None => text.is_none().then_some(()),
        }
    });
}

/// What Redis knows is from so many seconds ago.
fn age(redis: &Redis, seconds: u32) {
    let script = "for _, one in ipairs(redis.call('ZRANGE', KEYS[1], 1, -1)) do \
                  redis.call('ZINCRBY', KEYS[1], -tonumber(ARGV[1]), one) end return redis.status_reply('OK')";
    redis.set(&["EVAL", script, "1", "tollgate:fleet:{fleet}", &format!("{seconds}000000")]);
}

fn port(gateway: &Gateway) -> u16 {
    gateway.addr().port()
}

#[test]
fn gateways_list_each_other_until_they_leave() {
    let (backend, redis) = (Backend::ok(), Redis::start());
    let Fleet { gateways: [one, mut other] } = Fleet::start(&plan(&backend).on(&redis));
    for gateway in [&one, &other] {
        lists(gateway, &[(port(&one), false), (port(&other), false)]);
        let fleet = api(gateway, "fleet");
        let (status, gateways) = (api(gateway, "status"), fleet["gateways"].as_array().unwrap().clone());
        let own: Vec<_> = gateways.iter().filter(|one| one["this"] == true).collect();
        assert_eq!(own.len(), 1);
        assert!(own[0]["address"].as_str().unwrap().ends_with(&format!(":{}", port(gateway))));
        assert_eq!(own[0]["file_hash"], status["config"]["version"]);
        assert_eq!((&own[0]["version"], &own[0]["leased_units"]), (&status["version"], &Value::from(0)));
        let seconds = |value: &Value| value.as_f64().unwrap();
        assert!((seconds(&own[0]["since"]) - seconds(&status["started"])).abs() < 1.0, "{fleet}");
        assert!(seconds(&own[0]["last_seen"]) > seconds(&own[0]["since"]) - 60.0, "{fleet}");
        assert!(seconds(&own[0]["clock_ahead_ms"]).abs() < 60_000.0);
        has_problem(gateway, "gateway_gone", None);
        eventually("the gauge", || {
            (gateway.metric("tollgate_fleet_gateways", &["state=\"live\""]) > 1.5).then_some(())
        });
    }
    let top = Command::new(binary())
        .args(["top", "--once", "--fleet", "--url", &format!("http://{}", one.admin_addr())])
        .output()
        .expect("it starts");
    let text = String::from_utf8_lossy(&top.stdout).into_owned();
    assert!(text.starts_with("Fleet\n") && text.contains("live, this one"), "{text}");
    assert!([&one, &other].iter().all(|gateway| text.contains(&format!(":{} ", port(gateway)))), "{text}");
    other.signal(Signal::TERM);
    assert!(other.wait_for_exit().success());
    assert_eq!(listed(&one).len(), 1, "it has told that it leaves");
}

#[test]
fn without_a_shared_store_a_gateway_lists_itself() {
    let gateway = Gateway::start(&plan(&Backend::ok()).alone());
    let fleet = api(&gateway, "fleet");
    assert_eq!((&fleet["shared"], fleet["gateways"].as_array().unwrap().len()), (&Value::from(false), 1));
    assert_eq!(fleet["gateways"][0]["this"], true);
    assert!(!gateway.admin("/metrics").text().contains("tollgate_fleet"));
}

/// It leaves no word, so the others are told of it; the next process at its address is in its place.
#[test]
fn a_gateway_that_is_killed_is_gone_until_another_takes_its_place() {
    let (backend, redis, place) = (Backend::ok(), Redis::start(), free_address());
    let one = Gateway::start(&plan(&backend).on(&redis));
    let toml = plan(&backend).on(&redis) + &format!("[server]\nlisten = [\"{place}\"]\n");
    let killed = Gateway::start(&toml);
    lists(&one, &[(port(&one), false), (place.port(), false)]);
    drop(killed);
    age(&redis, 16);
    lists(&one, &[(port(&one), false), (place.port(), true)]);
    has_problem(&one, "gateway_gone", Some(&format!(":{}` of the fleet is gone", place.port())));
    assert!(one.metric("tollgate_fleet_gateways", &["state=\"gone\""]) > 0.5);
    let _next = Gateway::start(&toml);
    lists(&one, &[(port(&one), false), (place.port(), false)]);
    has_problem(&one, "gateway_gone", None);
}

#[test]
fn a_gateway_that_has_been_silent_for_an_hour_is_forgotten() {
    let (backend, redis) = (Backend::ok(), Redis::start());
    let Fleet { gateways: [one, other] } = Fleet::start(&plan(&backend).on(&redis));
    lists(&one, &[(port(&one), false), (port(&other), false)]);
    drop(other);
    age(&redis, 3_601);
    lists(&one, &[(port(&one), false)]);
}

#[test]
fn two_files_in_one_fleet_are_told_until_a_reload() {
    let (backend, redis) = (Backend::ok(), Redis::start());
    let toml = plan(&backend).on(&redis);
    let fleet = Fleet::start_each(&toml, &(toml.clone() + "# Another.\n"));
    let [one, other] = &fleet.gateways;
    for gateway in [one, other] {
        has_problem(gateway, "fleet_files", Some("have 2 different files: `"));
        assert!(gateway.metric("tollgate_fleet_files", &[]) > 1.5);
    }
    one.reload(&(toml + "# Another.\n"), "reloaded");
    for gateway in [one, other] {
        has_problem(gateway, "fleet_files", None);
    }
}

#[test]
fn clocks_that_differ_by_more_than_a_second_are_told() {
    let (backend, redis) = (Backend::ok(), Redis::start());
    let Some(ahead) = FakeClock::ahead_by(40) else { return };
    let toml = plan(&backend).on(&redis);
    let (one, other) = (Gateway::start(&toml), ahead.gateway(&toml, &[]));
    let words = format!("is ahead of that of `{}`", listed_name(&one));
    for gateway in [&one, &other] {
        has_problem(gateway, "fleet_clocks", Some(&words));
    }
    let offset = other.metric("tollgate_fleet_clock_offset_seconds", &[]);
    assert!((30.0..50.0).contains(&offset), "{offset}");
}

fn listed_name(gateway: &Gateway) -> String {
    eventually("the gateway in its own list", || {
        let listed = listed(gateway);
        let own = listed.into_iter().find(|(address, _)| address.ends_with(&format!(":{}", port(gateway))));
        own.map(|(address, _)| address)
    })
}

/// What is in the list of another version, or of no gateway at all, is passed over.
#[test]
fn what_is_no_record_is_passed_over() {
    let (backend, redis) = (Backend::ok(), Redis::start());
    let key = "tollgate:fleet:{fleet}";
    for member in ["nonsense", "12345678", "\u{1}", "x"] {
        redis.command(["ZADD", key, "1e15", member]);
    }
    let gateway = Gateway::start(&plan(&backend).on(&redis));
    lists(&gateway, &[(port(&gateway), false)]);
    // Another program's value: the fleet is unknown, and requests are decided.
    redis.command(["DEL", key]);
    redis.set(&["SET", key, "another"]);
    eventually("no list", || (ask(&gateway, "GET fleet", "").0 == 503).then_some(()));
    is_up(&Fleet { gateways: [gateway, Gateway::start(&plan(&backend).on(&redis))] });
}

/// While the store is away the list is unknown; afterwards gateways tell of themselves again.
#[test]
fn the_list_is_written_anew_after_an_outage() {
    let (backend, mut redis) = (Backend::ok(), Redis::start());
    let Fleet { gateways: [one, other] } = Fleet::start(&plan(&backend).on(&redis));
    lists(&one, &[(port(&one), false), (port(&other), false)]);
    redis.kill();
    eventually("no list", || (ask(&one, "GET fleet", "").0 == 503).then_some(()));
    redis.restart();
    eventually("the list", || (ask(&one, "GET fleet", "").0 == 200 && listed(&one).len() == 2).then_some(()));
}
