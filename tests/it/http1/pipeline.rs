//! Pipelining: answered in order, each charged, with bounded buffers.

use crate::harness::{Backend, Client, Gateway, everything_to};

/// Answers each request with its own target.
fn echo_target() -> Backend {
    Backend::start(|exchange| {
        exchange.read_body();
        let target = exchange.target().to_owned();
        exchange.write(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{target}", target.len()));
        crate::harness::Next::KeepAlive
    })
}

#[test]
fn answers_come_in_order_from_backend_and_gateway() {
    let backend = echo_target();
    let gateway = Gateway::start(&everything_to(
        &backend,
        "[[routes]]
        path = \"/limited\"
        upstream = \"api\"
        limits = [\"one\"]
        [limits.one]
        algorithm = \"gcra\"
        key = \"ip\"
        rate = \"1/h\"",
    ));
    let mut client = Client::connect(gateway.addr());
    client.write(
        "GET /1 HTTP/1.1\r\nhost: test\r\n\r\n\
         POST /2 HTTP/1.1\r\nhost: test\r\ncontent-length: 3\r\n\r\nabc\
         GET /limited HTTP/1.1\r\nhost: test\r\n\r\n\
         POST /limited HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n\
         HEAD /3 HTTP/1.1\r\nhost: test\r\n\r\n\
         GET /%00 HTTP/1.1\r\nhost: test\r\n\r\n\
         GET /4 HTTP/1.1\r\nhost: test\r\n\r\n\
         GET / HTTP/1.1\r\n\r\n\
         GET /never HTTP/1.1\r\nhost: test\r\n\r\n",
    );
    assert_eq!(client.read().expect(200).text(), "/1");
    assert_eq!(client.read().expect(200).text(), "/2");
    assert_eq!(client.read().expect(200).text(), "/limited");
    client.read().expect(429);
    client.read_for("HEAD").expect(200);
    client.read().expect(400);
    assert_eq!(client.read().expect(200).text(), "/4");
    assert!(client.read().expect(400).closed, "no Host: the last answer");
    assert!(client.closes());
    assert!(backend.requests().iter().all(|seen| seen.target() != "/never"));
}

/// 10,000 requests in one burst, with no reader at first: memory is bounded; all are answered in order and charged.
#[test]
fn ten_thousand_pipelined_requests_are_answered_in_order_and_charged() {
    const COUNT: usize = 10_000;
    const ALLOWED: usize = 300;
    let backend = echo_target();
    let gateway = Gateway::start(&everything_to(
        &backend,
        &format!(
            "limits = [\"some\"]
            [limits.some]
            algorithm = \"token-bucket\"
            key = \"ip\"
            rate = \"{ALLOWED}/366day\"
            [log]
            access = \"off\""
        ),
    ));
    let mut client = Client::connect(gateway.addr());
    let burst: String = (0..COUNT).map(|n| format!("GET /{n} HTTP/1.1\r\nhost: test\r\n\r\n")).collect();
    let before = gateway.anonymous_kib();
    let writer = client.write_in_background(burst.into_bytes());
    for number in 0..COUNT {
        let response = client.read();
        let expected = if number < ALLOWED { 200 } else { 429 };
        assert_eq!(response.status, expected, "answer {number}");
        if number < ALLOWED {
            assert_eq!(response.text(), format!("/{number}"));
        }
        assert!(!response.closed || number == COUNT - 1, "closed after {number}");
    }
    writer.join().expect("the writer ends");
    let grown = gateway.anonymous_kib().saturating_sub(before);
    assert!(grown < 16 * 1024, "the burst cost {grown} KiB");
    assert_eq!(backend.count(), ALLOWED);
}

/// A client that only writes is made to wait: its requests are not read into memory.
#[test]
fn a_client_that_never_reads_is_held_back() {
    let body = "x".repeat(64 * 1024);
    let backend =
        Backend::answering(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len()));
    let gateway = Gateway::start(&everything_to(&backend, "[log]\naccess = \"off\""));
    let before = gateway.anonymous_kib();
    let mut client = Client::connect_narrow(gateway.addr(), 16 * 1024);
    let burst = "GET / HTTP/1.1\r\nhost: test\r\n\r\n".repeat(2_000_000);
    let sent = client.write_within(burst.as_bytes(), std::time::Duration::from_millis(500));
    assert!(sent < burst.len() / 2, "{sent} of {} bytes were taken", burst.len());
    let grown = gateway.anonymous_kib().saturating_sub(before);
    assert!(grown < 16 * 1024, "{grown} KiB for one client that does not read");
    gateway.get("/other").expect(200);
}

#[test]
fn a_connection_serves_ten_thousand_requests_and_then_says_so() {
    let gateway = Gateway::start(
        "[server]\nmax_requests_per_connection = 10_000\n[upstreams]\ndemo = \"builtin:echo\"\n[[routes]]\npath = \"/*\"\n\
         upstream = \"demo\"\n[log]\naccess = \"off\"",
    );
    let mut client = Client::connect(gateway.addr());
    let last = (1..=10_001).find(|_| client.get("/", "").expect(200).closed);
    assert_eq!(last, Some(10_000));
    assert!(client.closes());
}

/// Refusals of requests that arrive together are sent together, but none waits for anything else.
#[test]
fn a_response_that_is_ready_waits_for_no_other_request() {
    let backend = Backend::start(|exchange| {
        let body = exchange.read_body();
        exchange.wait_at_gate();
        exchange.write(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len()));
        exchange.write(body);
        crate::harness::Next::KeepAlive
    });
    let gateway = Gateway::start(&everything_to(
        &backend,
        "[[routes]]
        path = \"/limited\"
        respond = { status = 200, body = \"once\" }
        limits = [\"one\"]
        [limits.one]
        algorithm = \"gcra\"
        key = \"ip\"
        rate = \"1/h\"
        [admin]
        listen = \"127.0.0.1:0\"",
    ));
    let refused = "GET /limited HTTP/1.1\r\nhost: test\r\n\r\n";
    let with_body = "POST /limited HTTP/1.1\r\nhost: test\r\ncontent-length: 3\r\n\r\n";
    let mut first = Client::connect(gateway.addr());
    assert_eq!(first.exchange(refused).expect(200).text(), "once");
    // A backend that does not answer.
    let mut client = Client::connect(gateway.addr());
    client.write(format!(
        "{refused}{refused}POST /slow HTTP/1.1\r\nhost: test\r\ncontent-length: 1\r\n\r\nx{refused}"
    ));
    for _ in 0..2 {
        client.read().expect(429);
    }
    backend.wait_for(1);
    backend.open_gate();
    assert_eq!(client.read().expect(200).text(), "x");
    client.read().expect(429);
    // A body that does not come.
    client.write(format!("{refused}{refused}{with_body}"));
    for _ in 0..2 {
        client.read().expect(429);
    }
    client.write("abc");
    client.read().expect(429);
    // No further request, only empty lines; and then the end.
    client.write(format!("{refused}\r\n\r\n"));
    client.read().expect(429);
    client.write(format!("{refused}{refused}\r\n"));
    client.finish();
    for _ in 0..2 {
        client.read().expect(429);
    }
    assert!(client.closes());
    // A fault, and a request after which the connection closes.
    for (last, status) in [
        ("GET / HTTP/9\r\nhost: test\r\n\r\n", 400),
        ("GET /limited HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n", 429),
    ] {
        let mut client = Client::connect(gateway.addr());
        client.write(format!("{refused}{refused}{last}"));
        for _ in 0..2 {
            client.read().expect(429);
        }
        assert!(client.read().expect(status).closed);
        assert!(client.closes());
    }
    gateway.has_counted("tollgate_requests_total", &["code=\"429\""], 14);
}
