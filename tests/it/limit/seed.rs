//! The scenarios that the project began with, through the binary.

use std::time::{Duration, Instant};

use crate::harness::{Backend, Client, Gateway, Load, Next, everything_to, get, get_with};

#[test]
fn fifty_at_once_pass_and_the_fifty_first_does_not() {
    let backend = Backend::ok();
    let gateway = Gateway::start(&everything_to(
        &backend,
        "limits = [\"per-client\"]
        [limits.per-client]
        algorithm = \"token-bucket\"
        key = \"ip\"
        rate = \"50/day\"",
    ));
    let statuses = Load { requests: 50, concurrency: 50 }.run(gateway.addr(), |_| request("/", ""));
    assert_eq!(statuses.into_iter().collect::<Vec<_>>(), [(200, 50)]);
    get(gateway.addr(), "/").expect(429);
    assert_eq!(backend.count(), 50, "the 51st must not reach the backend");
}

#[test]
fn an_api_key_has_its_own_counter_and_those_without_share_one() {
    let backend = Backend::ok();
    let gateway = Gateway::start(&everything_to(
        &backend,
        "limits = [\"per-key\"]
        [limits.per-key]
        algorithm = \"fixed-window\"
        align = \"first-request\"
        key = \"header:x-api-key\"
        missing = \"shared\"
        rate = \"2/day\"",
    ));
    let spend = |key: &str| get_with(gateway.addr(), "/", key).status;
    for key in ["x-api-key: alice\r\n", "x-api-key: bob\r\n", ""] {
        assert_eq!([spend(key), spend(key), spend(key)], [200, 200, 429], "with {key:?}");
    }
    let stranger = std::net::IpAddr::from([127, 0, 0, 9]);
    Client::connect_from(stranger, gateway.addr()).get("/", "").expect(429);
}

#[test]
fn an_exempt_path_is_never_refused_and_spends_nothing() {
    let backend = Backend::ok();
    let gateway = Gateway::start(&everything_to(
        &backend,
        "limits = [\"all\"]
        [limits.all]
        algorithm = \"gcra\"
        key = \"global\"
        rate = \"1/day\"
        exempt = [\"path:/health\"]
        [admin]
        listen = \"127.0.0.1:0\"",
    ));
    let mut client = Client::connect(gateway.addr());
    for _ in 0..5 {
        client.get("/health", "").expect(200);
    }
    client.get("/", "").expect(200);
    client.get("/", "").expect(429);
    client.get("/health", "").expect(200);
    client.get("/healthy", "").expect(429);
    let exempt = gateway.metric("tollgate_decisions_total", &["limit=\"all\"", "decision=\"exempt\""]);
    assert!((exempt - 6.0).abs() < 0.5, "six exempt decisions, not {exempt}");
}

#[test]
fn a_cost_of_five_of_ten_lets_two_through() {
    let backend = Backend::ok();
    let gateway = Gateway::start(&everything_to(
        &backend,
        "cost = 5
        limits = [\"units\"]
        [limits.units]
        algorithm = \"sliding-log\"
        key = \"ip\"
        rate = \"10/day\"",
    ));
    let statuses = [(); 3].map(|()| gateway.get("/").status);
    assert_eq!(statuses, [200, 200, 429]);
    assert_eq!(backend.count(), 2);
}

/// What tells the two apart is one real edge, so this test waits for one: 2 s. Both algorithms see the same schedule.
#[test]
fn a_fixed_window_bursts_across_its_edge_and_a_sliding_log_does_not() {
    let backend = Backend::ok();
    let gateway = Gateway::start(&format!(
        "[upstreams]
        api = \"{}\"
        [[routes]]
        path = \"/fixed\"
        upstream = \"api\"
        limits = [\"fixed\"]
        [[routes]]
        path = \"/log\"
        upstream = \"api\"
        limits = [\"log\"]
        [limits.fixed]
        algorithm = \"fixed-window\"
        align = \"first-request\"
        key = \"header:x-try\"
        rate = \"5/2s\"
        [limits.log]
        algorithm = \"sliding-log\"
        key = \"header:x-try\"
        rate = \"5/2s\"",
        backend.url()
    ));
    let tries = (0..5).find_map(|attempt| burst_across_an_edge(&gateway, attempt));
    let (fixed, log) = tries.expect("a busy machine missed the edge five times");
    assert_eq!(fixed, 10, "both windows in full, within half a window's time");
    assert!(log <= 6, "a sliding log admits five in any two seconds, not {log}");
}

/// One request opens the window, four come late in it, five right after it. `None` if the machine was too slow for that.
fn burst_across_an_edge(gateway: &Gateway, attempt: usize) -> Option<(usize, usize)> {
    let mut client = Client::connect(gateway.addr());
    let key = format!("x-try: {attempt}\r\n");
    let mut admitted = |count: usize| {
        let paths = ["/fixed", "/log"];
        paths.map(|path| (0..count).filter(|_| client.get(path, &key).status == 200).count())
    };
    let opened = Instant::now();
    let first = admitted(1);
    std::thread::sleep(Duration::from_millis(1_500).saturating_sub(opened.elapsed()));
    let late = admitted(4);
    let in_time = opened.elapsed() < Duration::from_millis(1_990);
    std::thread::sleep(Duration::from_millis(2_050).saturating_sub(opened.elapsed()));
    let after = admitted(5);
    let soon = opened.elapsed() < Duration::from_millis(3_400);
    (in_time && soon).then(|| (first[0] + late[0] + after[0], first[1] + late[1] + after[1]))
}

#[test]
fn a_leaky_bucket_spaces_five_at_once_evenly_and_in_order() {
    let backend = Backend::ok();
    let gateway = Gateway::start(&everything_to(&backend, &leaky("5/s", 10, "10s")));
    let mut clients: Vec<_> = (0..5).map(|_| Client::connect(gateway.addr())).collect();
    let begun = Instant::now();
    for (number, client) in clients.iter_mut().enumerate() {
        client.write(request(&format!("/{number}"), ""));
        // Far less than the spacing, and enough that they arrive in this order at whichever worker.
        std::thread::sleep(Duration::from_millis(25));
    }
    for client in &mut clients {
        client.read().expect(200);
    }
    let requests = backend.requests();
    let order: Vec<_> = requests.iter().map(|request| request.target().to_owned()).collect();
    assert_eq!(order, ["/0", "/1", "/2", "/3", "/4"]);
    // A busy machine makes requests late, never early.
    for (number, request) in (0..).zip(&requests) {
        let after = request.at - begun;
        assert!(after >= number * Duration::from_millis(200), "request {number} came after {after:?}");
    }
}

#[test]
fn a_leaky_bucket_refuses_at_once_what_would_wait_too_long() {
    let backend = Backend::ok();
    for (rate, queue, max_wait, places) in [("1/10s", 2, "1h", 2), ("1/10s", 9, "15s", 1)] {
        let gateway = Gateway::start(&everything_to(&backend, &leaky(rate, queue, max_wait)));
        gateway.get("/").expect(200);
        let mut waiting: Vec<_> = (0..places).map(|_| Client::connect(gateway.addr())).collect();
        for client in &mut waiting {
            client.write(request("/", ""));
            assert!(client.silent_for(Duration::from_millis(100)), "it waits for its turn");
        }
        let asked = Instant::now();
        gateway.get("/").expect(429);
        assert!(asked.elapsed() < Duration::from_secs(5), "a refusal does not wait");
    }
}

#[test]
fn a_client_that_leaves_the_queue_never_reaches_the_backend() {
    let backend = Backend::start(|exchange| {
        exchange.write("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
        Next::KeepAlive
    });
    let gateway = Gateway::start(&everything_to(&backend, &leaky("2/s", 5, "10s")));
    gateway.get("/first").expect(200);
    let mut leaves = Client::connect(gateway.addr());
    leaves.write(request("/leaves", ""));
    assert!(leaves.silent_for(Duration::from_millis(100)));
    let mut stays = Client::connect(gateway.addr());
    stays.write(request("/stays", ""));
    leaves.reset();
    stays.read().expect(200);
    let targets: Vec<_> = backend.requests().iter().map(|request| request.target().to_owned()).collect();
    assert_eq!(targets, ["/first", "/stays"]);
}

fn leaky(rate: &str, queue: usize, max_wait: &str) -> String {
    format!(
        "limits = [\"spaced\"]
        [limits.spaced]
        algorithm = \"leaky-bucket\"
        key = \"global\"
        rate = \"{rate}\"
        queue = {queue}
        max_wait = \"{max_wait}\""
    )
}

fn request(path: &str, fields: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: test\r\n{fields}\r\n")
}
