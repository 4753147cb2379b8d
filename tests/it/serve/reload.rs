//! Reloads: atomic, counters kept, faults change nothing, requests keep the plan they began with.

use std::sync::Arc;

use rustix::process::Signal;
use tollgate::auth::runtime::{AuthRuntime, AuthState};

use crate::harness::config::parse;
use crate::harness::{Backend, Client, Gateway, eventually, everything_to};

fn limited(backend: &Backend, limit: &str) -> String {
    let rest =
        format!("limits = [\"per-client\"]\n[limits.per-client]\n{limit}\n[admin]\nlisten = \"127.0.0.1:0\"");
    everything_to(backend, &rest)
}

#[track_caller]
fn remaining(gateway: &Gateway) -> String {
    let response = gateway.get("/").expect(200);
    response.header("x-ratelimit-remaining").expect("the field").to_owned()
}

/// Reloads and waits until the counter of reloads says so.
fn reload(gateway: &Gateway, toml: &str, result: &str) {
    let label = format!("result=\"{result}\"");
    let count = || gateway.metric("tollgate_config_reloads_total", &[&label]);
    let before = count();
    gateway.write_config(toml);
    gateway.signal(Signal::HUP);
    eventually(&format!("a reload with {label}"), || (count() > before).then_some(()));
}

#[test]
fn an_unchanged_limit_keeps_its_counters() {
    let backend = Backend::ok();
    let toml = limited(&backend, "algorithm = \"token-bucket\"\nkey = \"ip\"\nrate = \"10/366day\"");
    let gateway = Gateway::start(&toml);
    assert_eq!(remaining(&gateway), "9");
    reload(&gateway, &toml, "success");
    assert_eq!(remaining(&gateway), "8");
    reload(&gateway, &format!("# a comment moves every line\n{toml}"), "success");
    assert_eq!(remaining(&gateway), "7");
}

#[test]
fn changed_numbers_apply_at_once_and_spending_is_not_forgotten() {
    let backend = Backend::ok();
    let with =
        |numbers: &str| limited(&backend, &format!("algorithm = \"sliding-log\"\nkey = \"ip\"\n{numbers}"));
    let gateway = Gateway::start(&with("rate = \"10/366day\""));
    for left in ["9", "8", "7", "6"] {
        assert_eq!(remaining(&gateway), left);
    }
    reload(&gateway, &with("rate = \"5/366day\""), "success");
    assert_eq!(remaining(&gateway), "0", "four of now five were spent");
    gateway.get("/").expect(429);
    reload(&gateway, &with("rate = \"20/366day\""), "success");
    assert_eq!(remaining(&gateway), "14");
}

#[test]
fn another_key_or_algorithm_starts_afresh() {
    let backend = Backend::ok();
    let gateway =
        Gateway::start(&limited(&backend, "algorithm = \"gcra\"\nkey = \"ip\"\nrate = \"1/366day\""));
    gateway.get("/").expect(200);
    gateway.get("/").expect(429);
    reload(
        &gateway,
        &limited(&backend, "algorithm = \"gcra\"\nkey = \"global\"\nrate = \"1/366day\""),
        "success",
    );
    gateway.get("/").expect(200);
    gateway.get("/").expect(429);
    reload(
        &gateway,
        &limited(&backend, "algorithm = \"sliding-log\"\nkey = \"global\"\nrate = \"1/366day\""),
        "success",
    );
    gateway.get("/").expect(200);
    gateway.get("/").expect(429);
}

#[test]
fn a_file_with_faults_changes_nothing() {
    let backend = Backend::ok();
    let good = limited(&backend, "algorithm = \"token-bucket\"\nkey = \"ip\"\nrate = \"10/366day\"");
    let gateway = Gateway::start(&good);
    assert_eq!(remaining(&gateway), "9");
    let failures = || gateway.metric("tollgate_config_reloads_total", &["result=\"failure\""]);
    let faulty = [
        good.replace("rate = ", "rat = "),
        good.replace("token-bucket", "token-bukket"),
        good.replace("per-client\"]", "unknown\"]"),
        good.replace("[limits", "[[limits"),
        good[..good.len() / 2].to_owned(),
        String::new(),
    ];
    for (number, toml) in faulty.iter().enumerate() {
        // What the harness would add to a file is beside the point here: the bytes go in as they are.
        std::fs::write(gateway.config_path(), toml).expect("the file can be written");
        gateway.signal(Signal::HUP);
        // Each by itself: reloads that are due together are one.
        eventually("one more failure", || (failures() > number as f64 + 0.5).then_some(()));
        assert_eq!(remaining(&gateway), (8 - number).to_string(), "after {toml:?}");
    }
    gateway.wait_for_log("error");
    let before = failures();
    std::fs::remove_file(gateway.config_path()).expect("it is there");
    gateway.signal(Signal::HUP);
    eventually("one more failure", || (failures() > before).then_some(()));
    gateway.get("/").expect(200);
    reload(&gateway, &good, "success");
}

#[test]
fn a_fault_is_shown_with_its_place() {
    let backend = Backend::ok();
    let good = everything_to(&backend, "");
    let gateway = Gateway::start(&good);
    gateway.reload(&good.replace("path = ", "paht = "), "paht");
    gateway.wait_for_log("gateway.toml:");
    assert!(gateway.stderr().contains("error"), "{}", gateway.stderr());
}

#[test]
fn requests_in_flight_keep_the_plan_they_began_with() {
    let backend = Backend::start(|exchange| {
        exchange.wait_at_gate();
        exchange.write("HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nold");
        crate::harness::Next::KeepAlive
    });
    let new = Backend::answering("HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nnew");
    let plan = |backend: &Backend, value: &str| {
        everything_to(
            backend,
            &format!("set_response_headers = {{ x-plan = \"{value}\" }}\n[admin]\nlisten = \"127.0.0.1:0\""),
        )
    };
    let gateway = Gateway::start(&plan(&backend, "old"));
    let mut client = Client::connect(gateway.addr());
    client.write("GET / HTTP/1.1\r\nhost: test\r\n\r\n");
    backend.wait_for(1);
    reload(&gateway, &plan(&new, "new"), "success");
    let response = gateway.get("/").expect(200);
    assert_eq!((response.text().as_str(), response.header("x-plan")), ("new", Some("new")));
    backend.open_gate();
    let response = client.read().expect(200);
    assert_eq!((response.text().as_str(), response.header("x-plan")), ("old", Some("old")));
    let response = client.get("/", "").expect(200);
    assert_eq!(
        (response.text().as_str(), response.header("x-plan")),
        ("new", Some("new")),
        "on the same connection"
    );
}

#[test]
fn a_storm_of_signals_is_coalesced() {
    let backend = Backend::ok();
    let toml = limited(&backend, "algorithm = \"token-bucket\"\nkey = \"ip\"\nrate = \"10/366day\"");
    let mut gateway = Gateway::start(&toml);
    gateway.write_config(&toml);
    for _ in 0..100 {
        gateway.signal(Signal::HUP);
    }
    eventually("a reload", || {
        (gateway.metric("tollgate_config_reloads_total", &["result=\"success\""]) > 0.5).then_some(())
    });
    assert!(gateway.alive());
    assert_eq!(remaining(&gateway), "9");
}

#[test]
fn watch_reloads_when_the_file_changes() {
    let backend = Backend::ok();
    let with = |status: u16| {
        everything_to(&backend, &format!("set_response_headers = {{ x-version = \"{status}\" }}"))
    };
    let gateway = Gateway::start_with(&with(1), &["--watch"]);
    for version in 2..4 {
        gateway.write_config(&with(version));
        let version = version.to_string();
        eventually("the new plan", || (gateway.get("/").header("x-version") == Some(&version)).then_some(()));
    }
    std::fs::write(gateway.config_path(), "half a fi").expect("the file can be written");
    gateway.wait_for_log("error");
    gateway.get("/").expect(200);
    let in_place = std::fs::write(
        gateway.config_path(),
        format!("{}\n[server]\nlisten = [\"{}\"]", with(4), gateway.addr()),
    );
    in_place.expect("the file can be written");
    eventually("a plan written in place", || {
        (gateway.get("/").header("x-version") == Some("4")).then_some(())
    });
}

/// Under load, no request may fail or be lost because the plan changes.
#[test]
fn reloads_lose_no_request() {
    let backend = Backend::ok();
    let toml = limited(&backend, "algorithm = \"token-bucket\"\nkey = \"ip\"\nrate = \"1000000/day\"");
    let gateway = Gateway::start(&toml);
    let load = crate::harness::Load { requests: 4_000, concurrency: 8 };
    let statuses = std::thread::scope(|scope| {
        let running =
            scope.spawn(|| load.run(gateway.addr(), |_| "GET / HTTP/1.1\r\nhost: test\r\n\r\n".to_owned()));
        let mut reloads = 0;
        while !running.is_finished() && reloads < 20 {
            reload(&gateway, &toml, "success");
            reloads += 1;
        }
        running.join().expect("the load ends")
    });
    assert_eq!(statuses.into_iter().collect::<Vec<_>>(), [(200, 4_000)]);
}

/// Verified tokens, keys of issuers, answers of services and connections to them: each belongs to one state.
#[test]
fn what_auths_have_learned_outlives_a_reload_that_does_not_change_them() {
    let plan = |text: &str| parse(text).unwrap_or_else(|report| panic!("{report}")).plan;
    let file = "[auth.sso]\ntype = \"jwt\"\njwks = \"https://idp.example.com/keys\"\naudience = \"api\"\n\
                [auth.local]\ntype = \"jwt\"\njwks = \"http://127.0.0.1:9003/keys\"\naudience = \"api\"\n\
                [auth.door]\ntype = \"forward\"\nurl = \"https://door.example.com/check\"\ncache = \"1h\"\n\
                [upstreams]\napi = \"http://127.0.0.1:9001\"\n\
                [[routes]]\npath = \"/*\"\nupstream = \"api\"\nauth = [\"sso\"]\nlimits = [\"x\"]\n\
                [limits.x]\nalgorithm = \"gcra\"\nkey = \"consumer\"\nrate = \"1/s\"\n";
    let runtime = AuthRuntime::new([7; 16]);
    let reloaded = |text: &str| {
        let plan = plan(text);
        // In the order of the names, which no reload changes.
        let names: Vec<_> = plan.auth_methods().map(|(name, _)| Arc::clone(name)).collect();
        let states = runtime.states(plan.auth_methods());
        runtime.retain(plan.auth_methods());
        let of = |wanted: &str| {
            let index = names.iter().position(|name| **name == *wanted).expect("the auth is there");
            states[index].clone()
        };
        ["sso", "local", "door"].map(of)
    };
    for (from, to, changed) in [
        ("", "", [false; 3]),
        ("rate = \"1/s\"", "rate = \"2/s\"", [false; 3]),
        ("9001", "9002", [false; 3]),
        ("auth = [\"sso\"]", "auth = [\"local\"]", [false; 3]),
        (
            "[auth.sso]",
            "[auth.more]\ntype = \"forward\"\nurl = \"http://127.0.0.1:9004\"\n[auth.sso]",
            [false; 3],
        ),
        ("[auth.sso]", "[auth.sso]\nrealm = \"shop\"", [false; 3]),
        ("[auth.sso]", "[auth.sso]\nleeway = \"5s\"", [true, false, false]),
        ("9003", "9005", [false, true, false]),
        ("\"1h\"", "\"30min\"", [false, false, true]),
    ] {
        let before = reloaded(file);
        let after = reloaded(&file.replacen(from, to, 1));
        let is_same = |one: &AuthState, other: &AuthState| match (one, other) {
            (AuthState::Tokens(one), AuthState::Tokens(other)) => Arc::ptr_eq(one, other),
            (AuthState::Forward(one), AuthState::Forward(other)) => Arc::ptr_eq(one, other),
            _ => panic!("{one:?} and {other:?}"),
        };
        let found = [0, 1, 2].map(|index| !is_same(&before[index], &after[index]));
        assert_eq!(found, changed, "{from} → {to}");
        // The issuer's keys belong to its URL alone.
        let issuers = [&before[0], &after[0]].map(|state| state.issuer().expect("an issuer"));
        assert!(Arc::ptr_eq(issuers[0], issuers[1]), "{from} → {to}");
    }
}
