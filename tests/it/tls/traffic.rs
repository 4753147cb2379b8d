//! Requests over TLS: the same answers, limits and ends as without.

use std::time::Duration;

use crate::harness::{Authority, Backend, Client, Fault, Gateway, Next, everything_to};

/// A gateway that speaks TLS as `a.test`, and a client of it.
fn start(backend: &Backend, rest: &str) -> (Gateway, Authority) {
    let authority = Authority::new();
    authority.certify("a", &["a.test"]);
    let gateway = Gateway::start(&everything_to(backend, &(rest.to_owned() + "\n" + &authority.server("a"))));
    (gateway, authority)
}

fn connect(gateway: &Gateway, authority: &Authority) -> Client {
    Client::connect_tls(gateway.addr(), &authority.client(), "a.test")
}

/// Sends request bodies back, in chunks or not.
fn mirror() -> Backend {
    Backend::start(|exchange| {
        let body = exchange.read_body();
        if exchange.target() == "/chunked" {
            exchange.write("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n");
            for part in body.chunks(50_000) {
                exchange.write(format!("{:x}\r\n", part.len()));
                exchange.write(part);
                exchange.write("\r\n");
            }
            exchange.write("0\r\n\r\n");
        } else {
            exchange.write(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len()));
            exchange.write(body);
        }
        Next::KeepAlive
    })
}

/// Bytes that show when some are missing, doubled or out of order.
fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| u8::try_from((at * 7 + at / 251) % 256).expect("a byte")).collect()
}

#[test]
fn large_bodies_pass_both_ways_on_one_connection() {
    let backend = mirror();
    let (gateway, authority) = start(&backend, "");
    let mut client = connect(&gateway, &authority);
    for (path, length) in
        [("/", 1), ("/", 5_000_000), ("/chunked", 5_000_000), ("/", 16_384), ("/chunked", 0)]
    {
        let body = pattern(length);
        client.write(format!("POST {path} HTTP/1.1\r\nhost: a.test\r\ncontent-length: {length}\r\n\r\n"));
        client.write(&body);
        assert!(client.read().expect(200).body == body, "{length} bytes of {path}");
    }
    assert_eq!(backend.connections(), 1, "kept on both sides");
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let backend = mirror();
    let (gateway, authority) = start(&backend, "");
    let mut client = connect(&gateway, &authority);
    let request =
        |body: usize| format!("POST / HTTP/1.1\r\nhost: a.test\r\ncontent-length: 2\r\n\r\n{body:02}");
    let all: String = (0..40).map(request).collect();
    client.write(all);
    for body in 0..40 {
        assert_eq!(client.read().expect(200).text(), format!("{body:02}"));
    }
}

#[test]
fn heads_may_come_in_records_of_a_byte() {
    let backend = mirror();
    let (gateway, authority) = start(&backend, "");
    let mut client = connect(&gateway, &authority);
    client.write_bytewise("POST / HTTP/1.1\r\nhost: a.test\r\ncontent-length: 3\r\n\r\nabc", Duration::ZERO);
    assert_eq!(client.read().expect(200).text(), "abc");
}

#[test]
fn limits_count_what_comes_over_tls() {
    let backend = Backend::ok();
    let rest =
        "limits = [\"two\"]\n[limits.two]\nalgorithm = \"fixed-window\"\nkey = \"ip\"\nrate = \"2/day\"\n";
    let (gateway, authority) = start(&backend, rest);
    let mut client = connect(&gateway, &authority);
    client.get("/", "").expect(200);
    client.get("/", "").expect(200);
    let refused = client.get("/", "").expect(429);
    assert!(refused.header("retry-after").is_some());
    connect(&gateway, &authority).get("/", "").expect(429);
    assert_eq!(backend.count(), 2);
}

#[test]
fn a_client_that_says_it_has_sent_all_still_gets_its_answer_and_a_clean_end() {
    let backend = Backend::start(|exchange| {
        exchange.wait_at_gate();
        exchange.write("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi");
        Next::KeepAlive
    });
    let (gateway, authority) = start(&backend, "");
    let mut client = connect(&gateway, &authority);
    client.write("GET / HTTP/1.1\r\nhost: a.test\r\n\r\n");
    client.finish();
    backend.wait_for(1);
    backend.open_gate();
    assert_eq!(client.read().expect(200).text(), "hi");
    // Without close_notify this would be a cut.
    assert_eq!(client.try_read("GET").expect_err("the end"), Fault::Closed);
}

#[test]
fn every_close_of_ours_says_so_first() {
    let backend = Backend::ok();
    let (gateway, authority) = start(&backend, "[server]\nidle_timeout = \"200ms\"");
    let mut idle = connect(&gateway, &authority);
    idle.get("/", "").expect(200);
    assert_eq!(idle.try_read("GET").expect_err("idle for too long"), Fault::Closed);
    let mut last = connect(&gateway, &authority);
    last.get("/", "connection: close\r\n").expect(200);
    assert_eq!(last.try_read("GET").expect_err("asked for"), Fault::Closed);
    let mut wrong = connect(&gateway, &authority);
    wrong.exchange("GET / HTTP/1.1\r\n\r\n").expect(400);
    assert_eq!(wrong.try_read("GET").expect_err("no Host"), Fault::Closed);
    // An answer that only the end of the connection ends.
    let mut old = connect(&gateway, &authority);
    old.exchange("GET / HTTP/1.0\r\n\r\n").expect(200);
    assert_eq!(old.try_read("GET").expect_err("HTTP/1.0"), Fault::Closed);
}

/// The end of a connection by an attacker in between must not be taken for an end by the client or the gateway.
#[test]
fn an_answer_that_breaks_off_does_not_look_whole() {
    let backend = Backend::start(|exchange| {
        exchange.write("HTTP/1.1 200 OK\r\n\r\nhalf of it");
        exchange.wait_at_gate();
        Next::Reset
    });
    let (gateway, authority) = start(&backend, "");
    let mut client = connect(&gateway, &authority);
    client.write("GET / HTTP/1.0\r\n\r\n");
    client.read_head().expect("the head");
    assert_eq!(client.read_exact(10).expect("its half"), b"half of it");
    backend.open_gate();
    assert!(
        matches!(client.try_read("GET"), Err(Fault::Cut(_))),
        "no close_notify where something is missing"
    );
}

#[test]
fn a_request_body_that_the_client_cuts_is_not_taken_for_whole() {
    let backend = mirror();
    let (gateway, authority) = start(&backend, "");
    let mut client = connect(&gateway, &authority);
    client.write("POST / HTTP/1.1\r\nhost: a.test\r\ncontent-length: 10\r\n\r\nhalf");
    backend.wait_for(1);
    drop(client);
    let record = &gateway.access_log(1)[0];
    assert_eq!((&record["status"], &record["error"]), (&400.into(), &"client_gone".into()), "{record}");
}

#[test]
fn continue_is_said_over_tls() {
    let backend = mirror();
    let (gateway, authority) = start(&backend, "");
    let mut client = connect(&gateway, &authority);
    client.write("POST / HTTP/1.1\r\nhost: a.test\r\ncontent-length: 2\r\nexpect: 100-continue\r\n\r\n");
    assert_eq!(client.read_head().expect("an interim answer").status, 100);
    client.write("hi");
    assert_eq!(client.read().expect(200).text(), "hi");
}

#[test]
fn an_upgrade_joins_tls_to_a_plain_backend() {
    let backend = Backend::start(|exchange| {
        exchange
            .write("HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\r\n");
        loop {
            let bytes = exchange.read_some();
            if bytes.is_empty() {
                return Next::Close;
            }
            exchange.write(bytes);
        }
    });
    let (gateway, authority) = start(&backend, "");
    let mut client = connect(&gateway, &authority);
    client
        .exchange("GET / HTTP/1.1\r\nhost: a.test\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n")
        .expect(101);
    for length in [1, 100, 30_000] {
        let message = pattern(length);
        client.write(&message);
        assert!(client.read_exact(length).expect("the echo") == message);
    }
    client.finish();
    assert_eq!(client.try_read("GET").expect_err("the end passes through"), Fault::Closed);
}

/// What TLS has taken, but not the socket, counts as not taken.
#[test]
fn a_client_that_takes_nothing_is_reset() {
    let backend = Backend::answering(
        [b"HTTP/1.1 200 OK\r\ncontent-length: 30000000\r\n\r\n".to_vec(), vec![b'x'; 30_000_000]].concat(),
    );
    let (gateway, authority) = start(&backend, "[server]\nwrite_timeout = \"300ms\"");
    let mut client = connect(&gateway, &authority);
    client.write("GET / HTTP/1.1\r\nhost: a.test\r\n\r\n");
    let record = &gateway.access_log(1)[0];
    assert_eq!(record["error"], "write_timeout", "{record}");
    assert!(matches!(client.try_read("GET"), Err(Fault::Cut(_))));
}

/// A part of a stream reaches the client when it comes, not when the next does.
#[test]
fn parts_of_a_stream_are_not_held_back() {
    let backend = Backend::start(|exchange| {
        exchange.write("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\none\r\n");
        exchange.wait_at_gate();
        exchange.write("3\r\ntwo\r\n0\r\n\r\n");
        Next::KeepAlive
    });
    let (gateway, authority) = start(&backend, "");
    let mut client = connect(&gateway, &authority);
    client.write("GET / HTTP/1.1\r\nhost: a.test\r\n\r\n");
    client.read_head().expect("the head");
    assert_eq!(client.read_exact(8).expect("the first part"), b"3\r\none\r\n");
    backend.open_gate();
    assert_eq!(client.read_exact(8).expect("the second"), b"3\r\ntwo\r\n");
}
