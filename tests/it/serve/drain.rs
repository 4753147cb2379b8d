//! Shutdown: requests in flight finish, no new connection is accepted, exit status 0.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::harness::{Backend, Client, Gateway, Next, binary, everything_to, refuses_connections};

/// Answers when the gate opens.
fn gated() -> Backend {
    Backend::start(|exchange| {
        exchange.wait_at_gate();
        exchange.write("HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\ndone");
        Next::KeepAlive
    })
}

#[test]
fn an_idle_gateway_ends_at_once_with_zero() {
    for signal in [Signal::TERM, Signal::INT] {
        let backend = Backend::ok();
        let mut gateway = Gateway::start(&everything_to(&backend, ""));
        let mut idle = Client::connect(gateway.addr());
        idle.get("/", "").expect(200);
        let mut silent = Client::connect(gateway.addr());
        let asked = Instant::now();
        gateway.signal(signal);
        let status = gateway.wait_for_exit();
        assert_eq!(status.code(), Some(0), "{signal:?}");
        assert!(asked.elapsed() < Duration::from_secs(10), "idle connections hold nothing up");
        assert!(idle.closes() && silent.closes());
    }
}

#[test]
fn a_request_in_flight_finishes_while_no_connection_is_accepted() {
    let backend = gated();
    let mut gateway = Gateway::start(&everything_to(&backend, "[admin]\nlisten = \"127.0.0.1:0\""));
    gateway.admin("/readyz").expect(200);
    let mut client = Client::connect(gateway.addr());
    client.write("GET / HTTP/1.1\r\nhost: test\r\n\r\n");
    backend.wait_for(1);
    gateway.signal(Signal::TERM);
    refuses_connections(gateway.addr());
    gateway.admin("/readyz").expect(503);
    gateway.admin("/healthz").expect(200);
    assert!(gateway.alive(), "it waits for the request");
    backend.open_gate();
    let response = client.read().expect(200);
    assert_eq!(response.text(), "done");
    assert!(response.closed, "the connection's last answer says so: {}", response.head);
    assert!(client.closes());
    assert_eq!(gateway.wait_for_exit().code(), Some(0));
}

#[test]
fn an_upload_in_flight_finishes() {
    let backend = Backend::start(|exchange| {
        let body = exchange.read_body();
        exchange.write(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len()));
        exchange.write(body);
        Next::KeepAlive
    });
    let mut gateway = Gateway::start(&everything_to(&backend, ""));
    let mut client = Client::connect(gateway.addr());
    client.write("POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 8\r\n\r\nhalf");
    backend.wait_for(1);
    gateway.signal(Signal::TERM);
    refuses_connections(gateway.addr());
    client.write("more");
    assert_eq!(client.read().expect(200).text(), "halfmore");
    assert_eq!(gateway.wait_for_exit().code(), Some(0));
}

#[test]
fn the_drain_is_bounded() {
    let backend = gated();
    let mut gateway = Gateway::start(&everything_to(&backend, "[server]\ndrain_timeout = \"300ms\""));
    let mut client = Client::connect(gateway.addr());
    client.write("GET / HTTP/1.1\r\nhost: test\r\n\r\n");
    backend.wait_for(1);
    let asked = Instant::now();
    gateway.signal(Signal::TERM);
    let status = gateway.wait_for_exit();
    assert!(asked.elapsed() >= Duration::from_millis(300), "it waits as long as it is told");
    assert!(asked.elapsed() < Duration::from_secs(10), "and no longer");
    assert_eq!(status.code(), Some(0));
}

#[test]
fn a_second_signal_ends_it_at_once_with_130() {
    let backend = gated();
    let mut gateway = Gateway::start(&everything_to(&backend, ""));
    let mut client = Client::connect(gateway.addr());
    client.write("GET / HTTP/1.1\r\nhost: test\r\n\r\n");
    backend.wait_for(1);
    gateway.signal(Signal::TERM);
    refuses_connections(gateway.addr());
    gateway.signal(Signal::TERM);
    assert_eq!(gateway.wait_for_exit().code(), Some(130));
}

#[test]
fn the_log_is_whole_at_the_end() {
    let backend = Backend::ok();
    let mut gateway = Gateway::start(&everything_to(&backend, ""));
    let mut client = Client::connect(gateway.addr());
    for number in 0..500 {
        client.get(&format!("/{number}"), "").expect(200);
    }
    gateway.signal(Signal::TERM);
    assert_eq!(gateway.wait_for_exit().code(), Some(0));
    assert_eq!(gateway.access_log(500).len(), 500);
}

#[test]
fn two_gateways_do_not_share_an_address() {
    let backend = Backend::ok();
    let first = Gateway::start(&everything_to(&backend, ""));
    let toml = everything_to(&backend, &format!("[server]\nlisten = [\"{}\"]", first.addr()));
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("gateway.toml");
    std::fs::write(&file, toml).expect("it can be written");
    let second = std::process::Command::new(binary()).arg("-c").arg(&file).output().expect("it starts");
    let stderr = String::from_utf8_lossy(&second.stderr);
    assert!(
        !second.status.success() && stderr.contains(&first.addr().to_string()),
        "{}: {stderr}",
        second.status
    );
    first.get("/").expect(200);
}
