//! Requests that end in another way than by a whole response: each has its cost.

use std::time::Duration;

use crate::harness::api::good;
use crate::harness::metered::{a_day, begin, comes_to_use, json, metered, parrot, request, used};
use crate::harness::{Backend, Client, Gateway, Next};

const TOKENS: &str = "{ reserve = 100, settle = \"json:/total\", missing = 7 }";
const TWO: &str = "{ reserve = 100, settle = [\"sse:/in\", \"sse:/out\"], missing = 70 }";
const BYTES: &str = "{ reserve = 100, settle = \"bytes\", missing = 7 }";
const COSTS: [&str; 3] = [TOKENS, TWO, BYTES];

fn start(rest: &str) -> (Backend, Gateway) {
    let backend = parrot();
    let gateway = Gateway::start(&metered(&backend.url(), &COSTS, &a_day(1_000), rest));
    (backend, gateway)
}

/// The values found so far count; where one is missing, the request costs at least `missing`.
#[test]
fn a_client_that_leaves_pays_what_is_known() {
    let stream = |first: &str| {
        format!(
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 9999\r\n\r\n{first}|: later\n\n"
        )
    };
    let large =
        |first: &str| format!("HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n{first}|{}", "a".repeat(500));
    for (route, response, cost) in [
        (0, large("{\"total\":30,"), 30),
        (0, large("{\"id\":30,"), 7),
        (1, stream("data: {\"in\":5}\n\n"), 70),
        (1, stream("data: {\"in\":95}\n\n"), 95),
        // A later event may have a larger value.
        (1, stream("data: {\"in\":5,\"out\":6}\n\n"), 70),
        (1, stream("data: {\"in\":65,\"out\":6}\n\n"), 71),
        (1, stream("data: {}\n\n"), 70),
    ] {
        let (backend, gateway) = start("");
        let mut client = begin(&gateway, route, "a", "x-then: gate\r\n", response.as_bytes());
        client.read_head().expect("a head");
        client.read_some(1);
        assert_eq!(used(&gateway, "a"), 100);
        client.reset();
        // The gateway notices it when it writes.
        std::thread::sleep(Duration::from_millis(50));
        backend.open_gate();
        comes_to_use(&gateway, "a", cost);
        let line = gateway.access_log(1).remove(0);
        assert_eq!(line["settled"].as_u64(), Some(cost), "{line}");
    }
}

/// The backend may go on with its work, so such a request is not for nothing.
#[test]
fn a_client_that_leaves_before_the_response_pays_what_a_missing_value_costs() {
    let (backend, gateway) = start("");
    for (route, name, cost) in [(0, "a", 7), (1, "b", 70), (2, "c", 7)] {
        let client = begin(&gateway, route, name, "x-then: gate\r\n", b"|");
        backend.wait_for(1);
        comes_to_use(&gateway, name, 100);
        client.reset();
        comes_to_use(&gateway, name, cost);
    }
    // In the middle of its body.
    let mut client = Client::connect(gateway.addr());
    client.write("POST /0/ HTTP/1.1\r\nhost: test\r\nx-client: d\r\ncontent-length: 100\r\n\r\nabc");
    comes_to_use(&gateway, "d", 100);
    client.reset();
    comes_to_use(&gateway, "d", 7);
}

#[test]
fn of_a_response_that_breaks_off_the_values_so_far_count() {
    let (_backend, gateway) = start("");
    let head = "HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n";
    for (number, (route, body, cost)) in
        [(0, "{\"total\":30,", 30), (0, "{\"total\":3", 7), (0, "", 7), (2, "abc", 3)].into_iter().enumerate()
    {
        let name = format!("c{number}");
        let mut client =
            begin(&gateway, route, &name, "x-then: close\r\n", format!("{head}{body}").as_bytes());
        assert!(client.try_read("POST").is_err(), "it breaks off");
        comes_to_use(&gateway, &name, cost);
    }
}

#[test]
fn a_request_that_reaches_no_backend_costs_nothing() {
    let (dead, _hold) = Backend::refusing();
    let toml = metered(&format!("http://{dead}"), &[TOKENS], &a_day(1_000), "");
    let gateway = Gateway::start(&toml);
    begin(&gateway, 0, "d", "", &json("{\"total\":1}")).read().expect(502);
    assert_eq!(used(&gateway, "d"), 0);
    let line = gateway.access_log(1).remove(0);
    assert_eq!(line["settlement"].as_str(), Some("no_answer"), "{line}");
}

/// The backend may have worked on it: otherwise whoever makes a backend slow or break off works for free.
#[test]
fn a_request_that_a_backend_does_not_answer_costs_what_is_missing() {
    let (_backend, gateway) = start("");
    // A reset, no HTTP, and a body that is malformed from its first byte on.
    for (name, fields, response, status) in [
        ("a", "x-then: reset\r\n", &b""[..], 502),
        ("b", "x-then: close\r\n", b"what?\r\n\r\n", 502),
        ("c", "x-then: close\r\n", b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz", 502),
    ] {
        begin(&gateway, 0, name, fields, response).read().expect(status);
        assert_eq!(used(&gateway, name), 7, "{name}");
    }
    let line = gateway.access_log(1).remove(0);
    assert_eq!(line["settlement"].as_str(), Some("incomplete"), "{line}");
}

#[test]
fn a_response_that_comes_too_late_costs_what_is_missing() {
    let backend = parrot();
    let toml = metered(&backend.url(), &[TOKENS], &a_day(1_000), "");
    let gateway = Gateway::start(&toml.replace("name = \"r0\"", "name = \"r0\"\ntimeout = \"100ms\""));
    begin(&gateway, 0, "a", "x-then: gate\r\n", b"|").read().expect(504);
    assert_eq!(used(&gateway, "a"), 7);
}

/// However often a request is tried, it is charged once.
#[test]
fn a_retry_is_reserved_once() {
    let (dead, _hold) = Backend::refusing();
    let backend = parrot();
    let toml = metered(&backend.url(), &[TOKENS], &a_day(1_000), "");
    let one = format!("api = \"{}\"", backend.url());
    let two = format!("api = {{ servers = [\"http://{dead}\", \"{}\"] }}", backend.url());
    let gateway = Gateway::start(&toml.replace(&one, &two));
    for number in 1..=6 {
        let mut client = Client::connect(gateway.addr());
        client.write(request(0, "a", "", &json("{\"total\":30}")));
        client.read().expect(200);
        assert_eq!(used(&gateway, "a"), 30 * number);
    }
}

/// A request that waits in a queue and leaves it was never forwarded.
#[test]
fn a_request_that_leaves_its_delay_costs_nothing() {
    let backend = parrot();
    let slow = "[limits.slow]\nkey = \"global\"\nalgorithm = \"leaky-bucket\"\nrate = \"1/h\"\nqueue = 10\nmax_wait = \"10h\"\n";
    let toml = metered(&backend.url(), &[TOKENS], &a_day(1_000), slow)
        .replace("limits = [\"x\"]", "limits = [\"x\", { name = \"slow\", cost = 1 }]");
    let gateway = Gateway::start(&toml);
    begin(&gateway, 0, "a", "", &json("{\"total\":30}")).read().expect(200);
    let waits = begin(&gateway, 0, "b", "", &json("{\"total\":30}"));
    comes_to_use(&gateway, "b", 100);
    waits.reset();
    comes_to_use(&gateway, "b", 0);
    assert_eq!(backend.count(), 1);
}

/// A switched connection is settled when it ends.
#[test]
fn an_upgraded_connection_is_settled_at_its_end() {
    let backend = Backend::start(|exchange| {
        exchange.write(
            "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n0123456789",
        );
        exchange.wait_at_gate();
        exchange.write("0123456789");
        Next::Close
    });
    let gateway = Gateway::start(&metered(&backend.url(), &[TOKENS, BYTES], &a_day(1_000), ""));
    let upgrade = |route: usize, name: &str| {
        let mut client = Client::connect(gateway.addr());
        client.write(format!(
            "GET /{route}/ HTTP/1.1\r\nhost: test\r\nx-client: {name}\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n"
        ));
        client.read_head().expect("a head");
        client
    };
    let mut clients = [upgrade(0, "a"), upgrade(1, "b")];
    for (client, name) in clients.iter_mut().zip(["a", "b"]) {
        assert_eq!(client.read_exact(10).unwrap(), b"0123456789");
        assert_eq!(used(&gateway, name), 100);
    }
    backend.open_gate();
    for client in &mut clients {
        assert_eq!(client.read_exact(10).unwrap(), b"0123456789");
        client.finish();
    }
    comes_to_use(&gateway, "a", 7);
    comes_to_use(&gateway, "b", 20);
}

/// A counter that an operator has reset begins afresh: of requests from before, only what they cost more counts.
#[test]
fn a_reset_voids_refunds_and_keeps_charges() {
    let (backend, gateway) = start("");
    let response = |total: u32| {
        let body = format!("{{\"total\":{total}}}");
        format!("HTTP/1.1 200 OK\r\n|content-length: {}\r\n\r\n{body}", body.len())
    };
    let mut clients =
        [30, 130].map(|total| begin(&gateway, 0, "a", "x-then: gate\r\n", response(total).as_bytes()));
    comes_to_use(&gateway, "a", 200);
    good(&gateway, "DELETE limits/x/keys/a", "");
    begin(&gateway, 0, "a", "", &json("{\"total\":50}")).read().expect(200);
    assert_eq!(used(&gateway, "a"), 50);
    backend.open_gate();
    for client in &mut clients {
        client.read().expect(200);
    }
    comes_to_use(&gateway, "a", 80);
}

/// A reload may change the numbers of a limit, or remove it, while its requests are in flight.
#[test]
fn a_reload_in_between_changes_no_cost() {
    for (algorithm, larger) in [
        (a_day(1_000), a_day(2_000)),
        (
            "algorithm = \"token-bucket\"\nrate = \"1/day\"\nburst = 1000".to_owned(),
            "algorithm = \"token-bucket\"\nrate = \"1/day\"\nburst = 2000".to_owned(),
        ),
    ] {
        let backend = parrot();
        let toml = metered(&backend.url(), &[TOKENS], &algorithm, "");
        let gateway = Gateway::start(&toml);
        let body = "{\"total\":30}";
        let response = format!("HTTP/1.1 200 OK\r\n|content-length: {}\r\n\r\n{body}", body.len());
        let mut clients = [(); 2].map(|()| begin(&gateway, 0, "a", "x-then: gate\r\n", response.as_bytes()));
        comes_to_use(&gateway, "a", 200);
        gateway.reload(&toml.replace(&algorithm, &larger), "reloaded");
        // The counter is stored under its new numbers now.
        begin(&gateway, 0, "a", "", &json("{\"total\":30}")).read().expect(200);
        assert_eq!(used(&gateway, "a"), 230);
        backend.open_gate();
        for client in &mut clients {
            client.read().expect(200);
        }
        comes_to_use(&gateway, "a", 90);
        let gone = toml.replace("limits = [\"x\"]", "").replace(&format!("cost = {TOKENS}"), "");
        begin(&gateway, 0, "a", "", &json("{\"total\":30}")).read().expect(200);
        gateway.reload(&gone, "reloaded");
        begin(&gateway, 0, "a", "", &json("{\"total\":30}")).read().expect(200);
        assert_eq!(used(&gateway, "a"), 120);
    }
}

/// Nothing is reserved, so a request is refused only while its key is in debt.
#[test]
fn without_a_reservation_a_request_is_refused_only_in_debt() {
    let backend = parrot();
    let gateway = Gateway::start(&metered(
        &backend.url(),
        &["{ reserve = 0, settle = \"json:/total\" }"],
        &a_day(100),
        "",
    ));
    let ask = |total: u32| begin(&gateway, 0, "a", "", &json(&format!("{{\"total\":{total}}}"))).read();
    ask(60).expect(200);
    ask(40).expect(200);
    assert_eq!(used(&gateway, "a"), 100);
    ask(0).expect(200);
    ask(1).expect(200);
    let refused = ask(0).expect(429);
    let wait: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((86_000..=86_400).contains(&wait), "{wait}");
    assert_eq!(used(&gateway, "a"), 101);
}

/// What a response costs more moves the next request's time.
#[test]
fn a_leaky_bucket_moves_its_next_request() {
    let backend = parrot();
    let leaky = "algorithm = \"leaky-bucket\"\nrate = \"10/s\"\nqueue = 1000\nmax_wait = \"1h\"";
    let gateway =
        Gateway::start(&metered(&backend.url(), &["{ reserve = 1, settle = \"json:/total\" }"], leaky, ""));
    let started = std::time::Instant::now();
    begin(&gateway, 0, "a", "", &json("{\"total\":8}")).read().expect(200);
    begin(&gateway, 0, "a", "", &json("{\"total\":1}")).read().expect(200);
    assert!(started.elapsed() > Duration::from_millis(650), "{:?}", started.elapsed());
}

/// A concurrency limit beside it keeps its place until the end, and the cost is settled.
#[test]
fn places_and_costs_stand_beside_each_other() {
    let backend = parrot();
    let places = "[limits.c]\nkey = \"header:x-client\"\nalgorithm = \"concurrency\"\nmax = 150\n";
    let toml = metered(&backend.url(), &[TOKENS], &a_day(1_000), places)
        .replace("limits = [\"x\"]", "limits = [\"x\", \"c\"]");
    let gateway = Gateway::start(&toml);
    let body = "{\"total\":30}";
    let response = format!("HTTP/1.1 200 OK\r\n|content-length: {}\r\n\r\n{body}", body.len());
    let mut first = begin(&gateway, 0, "a", "x-then: gate\r\n", response.as_bytes());
    comes_to_use(&gateway, "a", 100);
    begin(&gateway, 0, "a", "", &json(body)).read().expect(429);
    assert_eq!(used(&gateway, "a"), 100, "a refusal reserves nothing");
    backend.open_gate();
    first.read().expect(200);
    comes_to_use(&gateway, "a", 30);
    begin(&gateway, 0, "a", "", &json(body)).read().expect(200);
}
