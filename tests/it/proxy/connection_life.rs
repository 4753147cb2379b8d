//! How many requests a client's connection serves, and for how long.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::harness::frames::{Frames, GOAWAY, HEADERS, PING, get};
use crate::harness::{Backend, Client, Gateway, everything_to};

const NOWHERE: &str = "[upstreams]\ne = \"builtin:echo\"\n[[routes]]\npath = \"/a\"\nupstream = \"e\"\n";

fn gateway(server: &str) -> Gateway {
    Gateway::start(&format!("[server]\n{server}\n{NOWHERE}"))
}

/// The connection's last stream that a GOAWAY names.
fn last_stream(go_away: &[u8]) -> u32 {
    u32::from_be_bytes(go_away[..4].try_into().expect("four bytes"))
}

#[test]
fn requests_on_a_connection_have_no_bound_unless_the_file_has() {
    let gateway = gateway("");
    let mut client = Client::connect(gateway.addr());
    for round in 0..105 {
        client.write("GET /b HTTP/1.1\r\nhost: a\r\n\r\n".repeat(100));
        for _ in 0..100 {
            assert!(!client.read().expect(404).closed, "round {round}");
        }
    }
    let bounded = self::gateway("max_requests_per_connection = 2");
    let mut client = Client::connect(bounded.addr());
    assert_eq!(client.get("/b", "").header("connection"), None);
    assert_eq!(client.get("/b", "").header("connection"), Some("close"));
    assert!(client.closes());
    let mut frames = Frames::connect(bounded.addr());
    frames.request(1, &get("/b", &[]));
    frames.request(3, &get("/b", &[]));
    assert_eq!(last_stream(&frames.read_until(GOAWAY).payload), (1 << 31) - 1);
}

#[test]
fn an_old_connection_is_closed_with_its_next_answer() {
    let gateway = gateway("max_connection_age = \"1s\"");
    let mut client = Client::connect(gateway.addr());
    assert_eq!(client.get("/b", "").expect(404).header("connection"), None);
    std::thread::sleep(Duration::from_millis(1_050));
    assert_eq!(client.get("/b", "").expect(404).header("connection"), Some("close"));
    assert!(client.closes());
}

#[test]
fn an_old_connection_of_http_2_goes_in_two_steps_and_its_streams_end_well() {
    let backend = Backend::start(|exchange| {
        exchange.wait_at_gate();
        exchange.write("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
        crate::harness::Next::KeepAlive
    });
    let started = Instant::now();
    let gateway =
        Gateway::start(&format!("[server]\nmax_connection_age = \"1s\"\n{}", everything_to(&backend, "")));
    let mut frames = Frames::connect(gateway.addr());
    frames.request(1, &get("/", &[]));
    backend.wait_for(1);
    let first = frames.read_until(GOAWAY);
    assert!(started.elapsed() >= Duration::from_millis(900), "{:?}", started.elapsed());
    assert_eq!(last_stream(&first.payload), (1 << 31) - 1);
    // What a client sent before it heard of that is served.
    frames.request(3, &get("/", &[]));
    let ping = frames.read_until(PING);
    frames.send(PING, 1, 0, &ping.payload);
    assert_eq!(last_stream(&frames.read_until(GOAWAY).payload), 3);
    backend.open_gate();
    // In either order.
    let mut answered = BTreeSet::new();
    while answered.len() < 2 {
        let frame = frames.read().expect("both are answered before the connection ends");
        if frame.kind == HEADERS {
            answered.insert(frame.stream);
        }
    }
    assert_eq!(answered, BTreeSet::from([1, 3]));
}

/// Writes byte after byte until the gateway's socket is gone. False if it takes them for 500 ms.
fn is_closed_for_good(stream: &mut TcpStream) -> bool {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(500) {
        if stream.write_all(b"x").is_err() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    false
}

/// What is answered, up to the end of the connection, which is no reset.
fn answered(stream: &mut TcpStream, request: &[u8]) -> String {
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a socket option");
    stream.write_all(request).expect("it is open");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an end, not a reset");
    answer
}

#[test]
fn a_connection_on_which_the_client_sends_no_more_is_closed_at_once() {
    let gateway = gateway("");
    for request in
        ["GET /b HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n", "GET /b HTTP/1.0\r\nhost: a\r\n\r\n"]
    {
        let mut stream = TcpStream::connect(gateway.addr()).expect("it listens");
        assert!(answered(&mut stream, request.as_bytes()).contains(" 404 "));
        assert!(is_closed_for_good(&mut stream), "{request}");
    }
}

#[test]
fn a_connection_on_which_more_may_come_is_read_on_after_its_last_answer() {
    let gateway = gateway("max_requests_per_connection = 1");
    // The client does not know yet that it is the last; behind a body, old clients send an empty line.
    for request in [
        "GET /b HTTP/1.1\r\nhost: a\r\n\r\n",
        "POST /b HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: 1\r\n\r\nx",
    ] {
        let mut stream = TcpStream::connect(gateway.addr()).expect("it listens");
        assert!(answered(&mut stream, request.as_bytes()).contains(" 404 "));
        assert!(!is_closed_for_good(&mut stream), "{request}");
    }
}

#[test]
fn an_answer_is_whole_though_the_client_sends_on_behind_its_last_request() {
    let backend = Backend::start(|exchange| {
        exchange.write("HTTP/1.1 200 OK\r\ncontent-length: 300000\r\n\r\n");
        exchange.write("y".repeat(300_000));
        crate::harness::Next::KeepAlive
    });
    let gateway = Gateway::start(&everything_to(&backend, ""));
    let request = "GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n".to_owned() + &"z".repeat(100_000);
    for _ in 0..20 {
        let mut stream = TcpStream::connect(gateway.addr()).expect("it listens");
        let answer = answered(&mut stream, request.as_bytes());
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with(&"y".repeat(300_000)));
    }
}
