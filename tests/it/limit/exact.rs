//! Exactness under concurrency: never one more than the allowance, all limits or none.

use std::collections::BTreeMap;
use std::net::IpAddr;

use rustix::process::Signal;

use crate::harness::{Backend, Client, Gateway, Load, eventually, everything_to};

/// 8,000 requests at concurrency 100 against an allowance of 777, counted where it matters: at the backend.
fn admits_exactly_777(parameters: &str) {
    let backend = Backend::ok();
    let limit = format!(
        "limits = [\"all\"]
        [limits.all]
        key = \"global\"
        rate = \"777/366day\"
        {parameters}
        [log]
        access = \"off\""
    );
    let gateway = Gateway::start(&everything_to(&backend, &limit));
    let load = Load { requests: 8_000, concurrency: 100 };
    let statuses = load.run(gateway.addr(), |_| "GET / HTTP/1.1\r\nhost: test\r\n\r\n".to_owned());
    assert_eq!(statuses, BTreeMap::from([(200, 777), (429, 7_223)]));
    assert_eq!(backend.count(), 777);
}

#[test]
fn token_bucket_admits_exactly_its_burst() {
    admits_exactly_777("algorithm = \"token-bucket\"");
}

#[test]
fn gcra_admits_exactly_its_burst() {
    admits_exactly_777("algorithm = \"gcra\"\nburst = 777");
}

#[test]
fn fixed_window_admits_exactly_its_count() {
    admits_exactly_777("algorithm = \"fixed-window\"");
}

#[test]
fn sliding_window_admits_exactly_its_count() {
    admits_exactly_777("algorithm = \"sliding-window\"");
}

#[test]
fn sliding_log_admits_exactly_its_count() {
    admits_exactly_777("algorithm = \"sliding-log\"");
}

/// A customer buys a larger plan under load: the requests before count, and exactly the larger allowance passes.
#[test]
fn a_consumer_that_moves_to_another_tier_under_load_gets_exactly_the_larger_allowance() {
    for algorithm in ["token-bucket", "fixed-window", "sliding-window", "sliding-log", "gcra"] {
        let (backend, folder) = (Backend::ok(), tempfile::tempdir().unwrap());
        let file = folder.path().join("consumers.csv");
        let write =
            |tier: &str| std::fs::write(&file, format!("key,name,tier\nkey-0001,acme,{tier}\n")).unwrap();
        write("free");
        let burst = |count: u32| if algorithm == "gcra" { format!("burst = {count}") } else { String::new() };
        let toml = everything_to(
            &backend,
            &format!(
                "limits = [\"api\"]\nauth = \"keys\"\n\
                 [auth.keys]\ntype = \"api-key\"\nfrom = \"bearer\"\nfile = \"{}\"\n\
                 [limits.api]\nalgorithm = \"{algorithm}\"\nkey = \"consumer\"\nrate = \"50/366day\"\n{}\n\
                 [limits.api.tiers.free]\n\
                 [limits.api.tiers.pro]\nrate = \"777/366day\"\n{}\n\
                 [log]\naccess = \"off\"\n[admin]\nlisten = \"127.0.0.1:0\"\n",
                file.display(),
                burst(50),
                burst(777),
            ),
        );
        let gateway = Gateway::start(&toml);
        let request = |_| "GET / HTTP/1.1\r\nhost: test\r\nauthorization: Bearer key-0001\r\n\r\n".to_owned();
        let address = gateway.addr();
        let statuses = std::thread::scope(|scope| {
            let load = Load { requests: 5_000, concurrency: 50 };
            let load = scope.spawn(move || load.run(address, request));
            eventually("the smaller allowance", || (backend.count() >= 50).then_some(()));
            write("pro");
            gateway.signal(Signal::HUP);
            load.join().expect("the load succeeds")
        });
        let reloads = || gateway.metric("tollgate_config_reloads_total", &["result=\"success\""]);
        eventually("the reload", || (reloads() > 0.0).then_some(()));
        let answered: usize = statuses.values().sum();
        assert_eq!(
            (answered, statuses.len()),
            (5_000, 2),
            "{algorithm}: the reload drops no request: {statuses:?}"
        );
        Load { requests: 2_000, concurrency: 20 }.run(gateway.addr(), request);
        assert_eq!(backend.count(), 777, "{algorithm}");
    }
}

/// Each client may 10, all together 35, everybody's second rate 1,000: a refusal by one must charge none of the others,
/// or a client that is already refused would eat up what belongs to all.
#[test]
fn several_limits_admit_all_or_none_under_concurrency() {
    let backend = Backend::ok();
    let gateway = Gateway::start(&everything_to(
        &backend,
        "limits = [\"per-key\", \"everyone\"]
        [limits.per-key]
        algorithm = \"token-bucket\"
        key = \"header:x-key\"
        rate = \"10/366day\"
        [limits.everyone]
        algorithm = \"fixed-window\"
        key = \"global\"
        rate = [\"35/366day\", \"1000/366day\"]
        [log]
        access = \"off\"",
    ));
    let with_key = |key: usize| format!("GET / HTTP/1.1\r\nhost: test\r\nx-key: {key}\r\n\r\n");
    let load = Load { requests: 1_000, concurrency: 20 };
    let greedy = load.run(gateway.addr(), |_| with_key(0));
    assert_eq!(greedy.get(&200), Some(&10), "the greedy client has its own ten");
    let others = load.run(gateway.addr(), |number| with_key(1 + number % 4));
    assert_eq!(others.get(&200), Some(&25), "what is left of the 35 was not eaten by refused requests");
    assert_eq!(backend.count(), 35);
}

/// A refused limit that stands last must not charge the first: its remaining shows it.
#[test]
fn a_refusal_charges_nothing_anywhere() {
    let backend = Backend::ok();
    let gateway = Gateway::start(&format!(
        "[upstreams]
        api = \"{}\"
        [[routes]]
        path = \"/both\"
        upstream = \"api\"
        limits = [\"wide\", \"narrow\"]
        [[routes]]
        path = \"/wide\"
        upstream = \"api\"
        limits = [\"wide\"]
        [limits.wide]
        algorithm = \"gcra\"
        key = \"ip\"
        rate = \"10/366day\"
        burst = 10
        [limits.narrow]
        algorithm = \"sliding-log\"
        key = \"ip\"
        rate = \"1/366day\"",
        backend.url()
    ));
    let mut client = Client::connect(gateway.addr());
    client.get("/both", "").expect(200);
    for _ in 0..20 {
        client.get("/both", "").expect(429);
    }
    let wide = client.get("/wide", "").expect(200);
    assert_eq!(wide.header("x-ratelimit-remaining"), Some("8"), "two of ten were admitted");
}

#[test]
fn a_limit_named_on_several_routes_is_one_counter_per_key() {
    let backend = Backend::ok();
    let gateway = Gateway::start(&format!(
        "[upstreams]
        api = \"{}\"
        [[routes]]
        path = \"/cheap\"
        upstream = \"api\"
        limits = [\"shared\"]
        [[routes]]
        path = \"/dear\"
        upstream = \"api\"
        cost = 3
        limits = [\"shared\"]
        [[routes]]
        path = \"/own-cost\"
        upstream = \"api\"
        cost = 9
        limits = [{{ name = \"shared\", cost = 2 }}]
        [[routes]]
        path = \"/free\"
        upstream = \"api\"
        cost = 0
        limits = [\"shared\"]
        [limits.shared]
        algorithm = \"token-bucket\"
        key = \"ip\"
        rate = \"10/366day\"",
        backend.url()
    ));
    let mut client = Client::connect(gateway.addr());
    let mut remaining = |path: &str| {
        let response = client.get(path, "").expect(200);
        response.header("x-ratelimit-remaining").map(str::to_owned)
    };
    assert_eq!(remaining("/cheap").as_deref(), Some("9"));
    assert_eq!(remaining("/dear").as_deref(), Some("6"));
    assert_eq!(remaining("/own-cost").as_deref(), Some("4"));
    for _ in 0..20 {
        remaining("/free");
    }
    assert_eq!(remaining("/dear").as_deref(), Some("1"));
    client.get("/dear", "").expect(429);
    client.get("/cheap", "").expect(200);
    client.get("/cheap", "").expect(429);
    client.get("/free", "").expect(200);
}

#[test]
fn each_client_address_has_an_allowance_of_its_own() {
    let backend = Backend::ok();
    let gateway = Gateway::start(&everything_to(
        &backend,
        "limits = [\"per-client\"]
        [limits.per-client]
        algorithm = \"token-bucket\"
        key = \"ip\"
        rate = \"1/366day\"",
    ));
    for last in 2..6 {
        let mut client = Client::connect_from(IpAddr::from([127, 0, 0, last]), gateway.addr());
        client.get("/", "").expect(200);
        client.get("/", "").expect(429);
    }
}

#[test]
fn an_ipv4_prefix_makes_one_client_of_a_network() {
    let backend = Backend::ok();
    let gateway = Gateway::start(&everything_to(
        &backend,
        "limits = [\"per-client\"]
        [limits.per-client]
        algorithm = \"token-bucket\"
        key = \"ip\"
        rate = \"1/366day\"
        [server]
        ipv4_prefix = 24",
    ));
    let from =
        |address: [u8; 4]| Client::connect_from(IpAddr::from(address), gateway.addr()).get("/", "").status;
    assert_eq!(from([127, 0, 1, 1]), 200);
    assert_eq!(from([127, 0, 1, 200]), 429);
    assert_eq!(from([127, 0, 2, 1]), 200);
}
