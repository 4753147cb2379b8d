//! Interim answers (103 Early Hints) on their way to the client.

use crate::harness::{Backend, Client, Gateway, Next, eventually, everything_to};

const HINT: &str = "HTTP/1.1 103 Early Hints\r\nlink: </a.css>; rel=preload\r\nconnection: x-hop\r\nx-hop: 1\r\nx-secret: 1\r\n\r\n";
const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

/// Answers with `before`, and with 200 once the gate is open.
fn hinting(before: String) -> Backend {
    Backend::start(move |exchange| {
        exchange.write(&before);
        exchange.wait_at_gate();
        exchange.read_body();
        exchange.write(OK);
        Next::KeepAlive
    })
}

#[test]
fn a_hint_reaches_the_client_before_the_answer_is_there() {
    let backend = hinting(HINT.repeat(2));
    let edits = "remove_response_headers = [\"x-secret\"]\nset_response_headers = { x-served-by = \"t\" }";
    let gateway = Gateway::start(&everything_to(&backend, edits));
    let mut client = Client::connect(gateway.addr());
    client.write("GET / HTTP/1.1\r\nhost: test\r\n\r\n");
    for _ in 0..2 {
        let hint = client.read_head().expect("a hint").expect(103);
        assert_eq!(hint.headers, [("link".to_owned(), "</a.css>; rel=preload".to_owned())]);
    }
    backend.open_gate();
    let answer = client.read().expect(200);
    assert_eq!((answer.text().as_str(), answer.header("x-served-by")), ("ok", Some("t")));
    client.get("/", "").expect(200);
    assert_eq!(backend.connections(), 1, "kept");
}

#[test]
fn an_old_client_gets_none() {
    let backend = hinting(HINT.into());
    backend.open_gate();
    let gateway = Gateway::start(&everything_to(&backend, ""));
    let mut client = Client::connect(gateway.addr());
    client.write("GET / HTTP/1.0\r\nhost: test\r\n\r\n");
    assert_eq!(client.read_head().expect("a head").status, 200);
}

#[test]
fn to_continue_is_the_gateways_word() {
    let backend = hinting(format!("HTTP/1.1 100 Continue\r\n\r\n{HINT}HTTP/1.1 102 Processing\r\n\r\n"));
    backend.open_gate();
    let gateway = Gateway::start(&everything_to(&backend, ""));
    let mut client = Client::connect(gateway.addr());
    client.write("POST / HTTP/1.1\r\nhost: test\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n");
    client.read_head().expect("a head").expect(100);
    client.write("hi");
    let answer = client.read().expect(200);
    assert_eq!(answer.interim.iter().map(|interim| interim.status).collect::<Vec<_>>(), [103, 102]);
}

/// More than the client takes: what is passed on is whole, and the answer comes all the same.
#[test]
fn a_client_that_does_not_read_costs_no_more_than_a_bound() {
    let large = format!("HTTP/1.1 103 Early Hints\r\nlink: {}\r\n\r\n", "x".repeat(60_000));
    let backend = hinting(large.repeat(100));
    let gateway = Gateway::start(&everything_to(&backend, ""));
    let mut client = Client::connect_narrow(gateway.addr(), 4_096);
    client.write("GET / HTTP/1.1\r\nhost: test\r\n\r\n");
    backend.wait_for(1);
    backend.open_gate();
    let answer = client.read().expect(200);
    assert!(answer.interim.iter().all(|hint| hint.status == 103 && hint.head.len() > 60_000));
    assert!(answer.interim.len() <= 100, "{}", answer.interim.len());
}

#[test]
fn a_backend_that_hints_and_breaks_off_is_not_retried() {
    let backend = Backend::start(|exchange| {
        exchange.write(HINT);
        Next::Close
    });
    let gateway = Gateway::start(&everything_to(&backend, ""));
    let answer = gateway.get("/").expect(502);
    assert_eq!((answer.interim.len(), backend.count()), (1, 1));
}

#[test]
fn a_flood_of_hints_is_the_backends_fault() {
    let backend = hinting(HINT.repeat(101));
    let gateway = Gateway::start(&everything_to(&backend, ""));
    let answer = gateway.get("/").expect(502);
    assert!(answer.interim.len() <= 100, "{}", answer.interim.len());
}

/// The body of its request is awaited meanwhile, whose own time-out begins only once the client may send it.
#[test]
fn a_client_that_takes_no_hint_is_not_waited_for() {
    let hint = format!("HTTP/1.1 103 Early Hints\r\nlink: {}\r\n\r\n", "x".repeat(15 << 10));
    let backend = Backend::start(move |exchange| {
        if exchange.target() == "/fill" {
            let filling = vec![b'x'; 2 << 20];
            exchange.write(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", filling.len()));
            exchange.write(filling);
            return Next::KeepAlive;
        }
        (0..100).for_each(|_| assert!(exchange.write(&hint), "the gateway reads on"));
        exchange.hang();
        Next::Close
    });
    let lines = "timeout = \"60s\"\n[server]\nwrite_timeout = \"1s\"\nbody_timeout = \"60s\"";
    let gateway =
        Gateway::start(&everything_to(&backend, &format!("{lines}\n[admin]\nlisten = \"127.0.0.1:0\"")));
    let mut client = Client::connect_narrow(gateway.addr(), 4 << 10);
    // The first answer fits into the socket, the hints after it do not, whatever the kernel's buffers are: one of both is
    // given up.
    client.write(
        "GET /fill HTTP/1.1\r\nhost: test\r\n\r\nPOST / HTTP/1.1\r\nhost: test\r\ncontent-length: 2\r\n\r\n",
    );
    eventually("the client to be given up", || {
        let seen = |name, label| gateway.metric(name, &[label]);
        (seen("tollgate_connections_refused_total", "reason=\"write_timeout\"") > 0.0).then_some(())
    });
    let is_told = || gateway.access_log(1).iter().any(|record| record["error"] == "write_timeout");
    eventually("a record that says so", || is_told().then_some(()));
}
