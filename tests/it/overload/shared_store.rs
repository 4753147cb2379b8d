//! `max = "auto"` beside counters in Redis: each gateway finds its own maximum.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::harness::api::api;
use crate::harness::{Backend, Client, Cluster, Gateway, Next, Redis, eventually, get_with};

/// One place, found between 1 and 1, beside other limits of the route.
fn toml(backend: &Backend, store: &str, adaptive: &str, limits: &str, used: &str) -> String {
    format!(
        "[upstreams]\napi = \"{}\"\n[admin]\nlisten = \"127.0.0.1:0\"\n[log]\naccess = \"off\"\n{}\
         [limits.api]\nalgorithm = \"concurrency\"\nkey = \"upstream\"\nmax = \"auto\"\nmin = 1\nceiling = 1\n{adaptive}\n\
         {limits}\n[[routes]]\nname = \"all\"\npath = \"/*\"\nupstream = \"api\"\nlimits = [{used}]\n",
        backend.url(),
        store,
    )
}

const RATE: &str = "[limits.rate]\nalgorithm = \"fixed-window\"\nkey = \"ip\"\nrate = \"25/day\"\n";

/// A backend that is slow for `/slow`, and the most requests that it had at a time.
fn counted(most: &'static AtomicUsize) -> Backend {
    static NOW: AtomicUsize = AtomicUsize::new(0);
    Backend::start(move |exchange| {
        let now = NOW.fetch_add(1, Ordering::SeqCst) + 1;
        most.fetch_max(now, Ordering::SeqCst);
        let slow = exchange.head.starts_with("GET /slow ");
        thread::sleep(Duration::from_millis(if slow { 1_500 } else { 5 }));
        NOW.fetch_sub(1, Ordering::SeqCst);
        exchange.write("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
        Next::KeepAlive
    })
}

fn has_places_held(gateway: &Gateway, count: u64) {
    let held = || api(gateway, "limits")["limits"][0]["in_flight"]["held"] == count;
    eventually("as many places are held", || held().then_some(()));
}

/// Forty clients, a place, and a quota of 25 that the server counts: 25 requests pass, one at a time.
#[test]
fn totals_are_exact_beside_a_maximum_that_is_found() {
    static MOST: AtomicUsize = AtomicUsize::new(0);
    let (redis, backend) = (Redis::start(), counted(&MOST));
    let text =
        toml(&backend, &redis.store_table(), "queue = 100\nmax_wait = \"30s\"", RATE, "\"api\", \"rate\"");
    let gateway = Gateway::start(&text);
    let passed = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..40 {
            scope.spawn(|| {
                let response = get_with(gateway.addr(), "/", "");
                assert!([200, 429].contains(&response.status), "{}", response.head);
                passed.fetch_add(usize::from(response.status == 200), Ordering::SeqCst);
            });
        }
    });
    assert_eq!(passed.into_inner(), 25);
    // A place is free a moment before the backend's thread goes on.
    assert!(MOST.load(Ordering::SeqCst) <= 2, "{MOST:?}");
}

/// Whatever finds no place is charged nothing, and counts for no ban of another limit.
#[test]
fn a_request_without_a_place_is_charged_nothing() {
    static MOST: AtomicUsize = AtomicUsize::new(0);
    let (redis, backend) = (Redis::start(), counted(&MOST));
    let rate = format!("{RATE}ban = {{ after = 2, within = \"1min\", for = \"1h\" }}\n");
    let gateway = Gateway::start(&toml(&backend, &redis.store_table(), "", &rate, "\"api\", \"rate\""));
    let mut first = Client::connect(gateway.addr());
    first.write("GET /slow HTTP/1.1\r\nhost: a\r\n\r\n");
    has_places_held(&gateway, 1);
    for _ in 0..5 {
        let refused = gateway.get("/");
        assert_eq!(refused.status, 503, "{}", refused.head);
        assert!(refused.text().contains("limit `api`"), "{}", refused.text());
    }
    first.read().expect(200);
    let mut statuses = Vec::new();
    eventually("the quota is spent", || {
        statuses.push(gateway.get("/").status);
        (statuses.last() == Some(&429)).then_some(())
    });
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 24, "{statuses:?}");
    // The second refusal begins the ban, of the limit that it stands in.
    gateway.get("/");
    eventually("the ban", || {
        let bans = api(&gateway, "bans");
        (bans["bans"][0]["limit"].as_str()? == "rate").then_some(())
    });
}

/// Alone, such a limit asks the servers nothing, and needs none.
#[test]
fn the_servers_are_not_asked() {
    static MOST: AtomicUsize = AtomicUsize::new(0);
    let (mut redis, backend) = (Redis::start(), counted(&MOST));
    let gateway = Gateway::start(&toml(&backend, &redis.store_table(), "", "", "\"api\""));
    for _ in 0..3 {
        assert_eq!(gateway.get("/").status, 200);
        // The place is free a moment after the client has the answer.
        has_places_held(&gateway, 0);
    }
    assert_eq!(gateway.metric("tollgate_redis_calls_total", &[]), 0.0);
    redis.kill();
    assert_eq!(gateway.get("/").status, 200);
    assert_eq!(gateway.metric("tollgate_redis_errors_total", &[]), 0.0);
}

/// Beside places of the fleet: a request that has one of the two alone gives it back.
#[test]
fn places_here_and_in_the_servers() {
    static MOST: AtomicUsize = AtomicUsize::new(0);
    let (redis, backend) = (Redis::start(), counted(&MOST));
    let fleet = "[limits.fleet]\nalgorithm = \"concurrency\"\nkey = \"header:x-tenant\"\nmax = 1\nqueue = 50\nmax_wait = \"30s\"\n";
    let queue = "queue = 50\nmax_wait = \"30s\"";
    for used in ["\"api\", \"fleet\"", "\"fleet\", \"api\""] {
        let gateway = Gateway::start(&toml(&backend, &redis.store_table(), queue, fleet, used));
        thread::scope(|scope| {
            for client in 0..24 {
                let gateway = &gateway;
                let tenant = format!("x-tenant: {}\r\n", client % 3);
                scope.spawn(move || get_with(gateway.addr(), "/", &tenant).expect(200));
            }
        });
        let idle = || {
            api(&gateway, "limits")["limits"]
                .as_array()
                .unwrap()
                .iter()
                .all(|limit| limit["in_flight"]["held"] == 0 && limit["in_flight"]["waiting"] == 0)
        };
        eventually("all places are free", || idle().then_some(()));
    }
}

/// Nodes of a cluster are asked about a request without a place, each about its own counters.
#[test]
fn a_quota_that_another_gateway_has_spent_is_seen_across_nodes() {
    static MOST: AtomicUsize = AtomicUsize::new(0);
    let (cluster, backend) = (Cluster::start(), counted(&MOST));
    let store = format!("[store]\nbackend = \"redis\"\nurl = {}\ntimeout = \"5s\"\n", cluster.urls());
    let by_name = RATE.replace("rate]", "names]").replace("\"ip\"", "\"header:x-name\"").replace("25/", "3/");
    let text = toml(
        &backend,
        &store,
        "queue = 9\nmax_wait = \"200ms\"",
        &format!("{RATE}{by_name}"),
        "\"api\", \"rate\", \"names\"",
    );
    let (one, other) = (Gateway::start(&text), Gateway::start(&text));
    for name in ["a", "b", "c", "d"] {
        let name = format!("x-name: {name}\r\n");
        (0..3).for_each(|_| drop(get_with(one.addr(), "/", &name).expect(200)));
    }
    let mut first = Client::connect(other.addr());
    first.write("GET /slow HTTP/1.1\r\nhost: a\r\nx-name: slow\r\n\r\n");
    has_places_held(&other, 1);
    assert_eq!(get_with(other.addr(), "/", "x-name: e\r\n").status, 503);
    for name in ["a", "b", "c", "d"] {
        let refused = get_with(other.addr(), "/", &format!("x-name: {name}\r\n"));
        assert_eq!(refused.status, 429, "{}", refused.text());
    }
    first.read().expect(200);
}

/// No request gives way to one that a quota refuses, which another gateway has spent.
#[test]
fn nobody_gives_way_to_a_request_that_is_refused_anyway() {
    static MOST: AtomicUsize = AtomicUsize::new(0);
    let (redis, backend) = (Redis::start(), counted(&MOST));
    let by_name = RATE.replace("\"ip\"", "\"header:x-name\"").replace("25/", "3/");
    let turn = "[limits.turn]\nalgorithm = \"leaky-bucket\"\nkey = \"upstream\"\nrate = \"2/min\"\nqueue = 2\n\
                max_wait = \"1min\"\nshare_by = \"header:x-name\"\n";
    let limits =
        format!("{by_name}{turn}[[routes]]\npath = \"/spend\"\nupstream = \"api\"\nlimits = [\"rate\"]\n");
    let used = "\"api\", \"turn\", \"rate\"";
    let text =
        toml(&backend, &redis.store_table(), "ceiling = 9", &limits, used).replace("ceiling = 1\n", "");
    let (one, other) = (Gateway::start(&text), Gateway::start(&text));
    (0..3).for_each(|_| drop(get_with(one.addr(), "/spend", "x-name: quiet\r\n").expect(200)));
    get_with(other.addr(), "/", "x-name: noisy\r\n").expect(200);
    let waiting = |count: f64| {
        let in_flight = || other.metric("tollgate_requests_in_flight", &["route=\"all\""]);
        eventually("the requests wait", || ((in_flight() - count).abs() < 0.5).then_some(()));
    };
    let ask = |name: &str| {
        let mut client = Client::connect(other.addr());
        client.write(format!("GET / HTTP/1.1\r\nhost: a\r\nx-name: {name}\r\n\r\n"));
        client
    };
    let mut noisy = [ask("noisy"), ask("noisy")];
    waiting(2.0);
    assert_eq!(get_with(other.addr(), "/", "x-name: quiet\r\n").status, 429);
    thread::sleep(Duration::from_millis(200));
    waiting(2.0);
    // A request that nothing else refuses takes the place of the newest, which may be either of the two.
    let _third = ask("third");
    let newest = eventually("one of the two to give way", || {
        noisy.iter_mut().position(|client| !client.silent_for(Duration::from_millis(20)))
    });
    assert_eq!(noisy[newest].read().status, 429);
}
