//! Floods of connections: what is open is bounded, the rest is counted, and operators still get in.

use std::time::Duration;

use rustix::process::Signal;

use crate::harness::{Authority, Backend, Client, Fault, Gateway, Next, eventually, everything_to};

const ADMIN: &str = "[admin]\nlisten = \"127.0.0.1:0\"\n";

fn connections(gateway: &Gateway) -> f64 {
    gateway.metric("tollgate_connections", &["listener"])
}

fn refused(gateway: &Gateway, reason: &str) -> f64 {
    gateway.metric("tollgate_connections_refused_total", &[&format!("reason=\"{reason}\"")])
}

/// Hundredths of a second of processor time so far.
fn processor_time(gateway: &Gateway) -> u64 {
    let line = std::fs::read_to_string(format!("/proc/{}/stat", gateway.pid())).expect("it runs");
    let (_, rest) = line.rsplit_once(") ").expect("the name in parentheses");
    rest.split(' ').skip(11).take(2).map(|ticks| ticks.parse::<u64>().expect("a number")).sum()
}

/// Clients that have begun a head: they are not idle, and do not make room.
fn begun(gateway: &Gateway, count: usize) -> Vec<Client> {
    let begin = |_| {
        let mut client = Client::connect(gateway.addr());
        client.write("GET / HTTP/1.1\r\nhost: te");
        client
    };
    (0..count).map(begin).collect()
}

#[test]
fn at_the_bound_on_files_new_connections_wait_and_the_rest_goes_on() {
    let backend = Backend::ok();
    let rest = format!("[server]\nheader_timeout = \"1h\"\n{ADMIN}");
    let mut gateway = Gateway::start_with_files(&everything_to(&backend, &rest), 200);
    let mut clients = begun(&gateway, 300);
    // All but the spared descriptors are in use.
    gateway.wait_for_log("file descriptor limit nearly reached");
    let open = connections(&gateway);
    assert!((50.0..=150.0).contains(&open), "{open}");
    // It rests meanwhile: two workers that spin would take 200 hundredths of a second.
    let before = processor_time(&gateway);
    std::thread::sleep(Duration::from_secs(1));
    let taken = processor_time(&gateway) - before;
    assert!(taken < 30, "{taken} hundredths of a second of processor time");
    // The other worker may have been about to accept when the first one paused.
    let more = connections(&gateway) - open;
    assert!((0.0..=5.0).contains(&more), "{more} more");
    // Reloads and backends still get descriptors.
    gateway.reload(&everything_to(&backend, &rest), "reloaded");
    let mut first = clients.remove(0);
    first.write("st\r\n\r\n");
    first.read().expect(200);
    drop((first, clients));
    gateway.get("/").expect(200);
    let told = gateway
        .stderr_lines()
        .iter()
        .filter(|line| line.contains("file descriptor limit nearly reached"))
        .count();
    assert!(told <= 2, "once a worker, not {told} times");
    assert!(gateway.alive());
}

#[test]
fn at_the_bound_on_files_idle_connections_make_room() {
    let backend = Backend::ok();
    let gateway = Gateway::start_with_files(&everything_to(&backend, ADMIN), 200);
    let mut clients: Vec<Client> = Vec::new();
    for _ in 0..400 {
        let mut client = Client::connect(gateway.addr());
        client.get("/", "").expect(200);
        clients.push(client);
    }
    let open = connections(&gateway);
    assert!(open <= 150.0, "{open}");
    clients.pop().expect("400").get("/", "").expect(200);
}

/// As on a machine where other processes use all descriptors: the gateway can only wait, and does not log each attempt.
#[test]
fn a_bound_on_files_that_shrinks_is_borne() {
    use rustix::process::{Pid, Resource, Rlimit, prlimit};
    let backend = Backend::ok();
    let mut gateway = Gateway::start(&everything_to(&backend, ADMIN));
    gateway.get("/").expect(200);
    let pid = Pid::from_raw(i32::try_from(gateway.pid()).expect("a small number"));
    let none = Rlimit { current: Some(3), maximum: Some(20_000) };
    let old = prlimit(pid, Resource::Nofile, none).expect("our own child");
    let mut waiting = Client::connect(gateway.addr());
    waiting.write("GET / HTTP/1.1\r\nhost: test\r\n\r\n");
    gateway.wait_for_log("cannot accept connections");
    let before = processor_time(&gateway);
    assert!(waiting.silent_for(Duration::from_secs(1)));
    let taken = processor_time(&gateway) - before;
    assert!(taken < 30, "{taken} hundredths of a second of processor time");
    prlimit(pid, Resource::Nofile, old).expect("our own child");
    waiting.read().expect(200);
    let told = gateway.stderr_lines().iter().filter(|line| line.contains("cannot accept")).count();
    assert!(told <= 2, "once a worker, not {told} times");
    assert!(gateway.alive());
}

#[test]
fn beyond_the_bound_all_are_counted_and_some_are_told() {
    let backend = Backend::start(|exchange| {
        exchange.wait_at_gate();
        exchange.write("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
        Next::KeepAlive
    });
    let rest = format!("[server]\nmax_connections = 2\n{ADMIN}");
    let gateway = Gateway::start(&everything_to(&backend, &rest));
    let mut busy: Vec<_> = (0..2).map(|_| Client::connect(gateway.addr())).collect();
    busy.iter_mut().for_each(|client| client.write("GET / HTTP/1.1\r\nhost: test\r\n\r\n"));
    backend.wait_for(2);
    let flood: Vec<Client> = (0..800).map(|_| Client::connect(gateway.addr())).collect();
    let answers: Vec<_> = flood.into_iter().map(|mut client| client.try_read("GET")).collect();
    let told = answers.iter().filter(|answer| matches!(answer, Ok(answer) if answer.status == 503)).count();
    let closed = answers.iter().filter(|answer| matches!(answer, Err(Fault::Closed | Fault::Cut(_)))).count();
    assert_eq!(told + closed, 800, "{answers:#?}");
    assert!(told >= 200 && closed >= 1, "{told} were told, {closed} were not");
    assert_eq!(refused(&gateway, "max_connections"), 800.0);
    // Traffic does not starve the admin listener or earlier connections.
    gateway.admin("/healthz").expect(200);
    backend.open_gate();
    busy.iter_mut().for_each(|client| drop(client.read().expect(200)));
}

#[test]
fn handshakes_that_come_to_nothing_are_counted() {
    let backend = Backend::ok();
    let authority = Authority::new();
    authority.certify("a", &["a.test"]);
    let rest = format!("[server]\nheader_timeout = \"500ms\"\n{ADMIN}{}", authority.server("a"));
    let gateway = Gateway::start(&everything_to(&backend, &rest));
    let mut plain = Client::connect(gateway.addr());
    plain.write("GET / HTTP/1.1\r\nhost: test\r\n\r\n");
    let silent = Client::connect(gateway.addr());
    drop(Client::connect(gateway.addr()));
    eventually("all three to be counted", || (refused(&gateway, "tls") == 3.0).then_some(()));
    drop(silent);
    Client::connect_tls(gateway.addr(), &authority.client(), "a.test").get("/", "").expect(200);
    assert_eq!(refused(&gateway, "tls"), 3.0);
}

/// Replayed, early data would be charged and carried out twice (RFC 8446 §8).
#[test]
fn no_client_may_send_early_data() {
    let backend = Backend::ok();
    let authority = Authority::new();
    authority.certify("a", &["a.test"]);
    let gateway = Gateway::start(&everything_to(&backend, &authority.server("a")));
    let mut config = (*authority.client()).clone();
    config.enable_early_data = true;
    let config = std::sync::Arc::new(config);
    for again in [false, true] {
        let mut client = Client::connect_tls(gateway.addr(), &config, "a.test");
        client.get("/", "").expect(200);
        let resumed = client.tls().handshake_kind() == Some(rustls::HandshakeKind::Resumed);
        assert_eq!(resumed, again);
    }
    let name = "a.test".try_into().expect("a name");
    let mut next = rustls::ClientConnection::new(config, name).expect("a session");
    assert!(next.early_data().is_none(), "the ticket admits it");
}

#[test]
fn slow_readers_are_counted() {
    let backend = Backend::start(|exchange| {
        exchange.write("HTTP/1.1 200 OK\r\ncontent-length: 100000000\r\n\r\n");
        while exchange.write([b'x'; 100_000]) {}
        Next::Close
    });
    let rest = format!("[server]\nwrite_timeout = \"300ms\"\n{ADMIN}");
    let gateway = Gateway::start(&everything_to(&backend, &rest));
    let mut client = Client::connect_narrow(gateway.addr(), 16 * 1024);
    client.write("GET / HTTP/1.1\r\nhost: test\r\n\r\n");
    client.read_head().expect("a head");
    eventually("the reset to be counted", || (refused(&gateway, "write_timeout") == 1.0).then_some(()));
    assert_eq!(gateway.access_log(1)[0]["error"], "write_timeout");
    eventually("the connection to be gone", || (connections(&gateway) == 0.0).then_some(()));
}

/// A flood from one client is let go by a reload that bounds it; those that it has already are not cut.
#[test]
fn a_bound_for_each_client_can_come_with_a_reload() {
    let backend = Backend::ok();
    let gateway = Gateway::start(&everything_to(&backend, ADMIN));
    let mut open: Vec<Client> = (0..5).map(|_| Client::connect(gateway.addr())).collect();
    open.iter_mut().for_each(|client| drop(client.get("/", "").expect(200)));
    let bounded = format!("[server]\nmax_connections_per_client = 1\n{ADMIN}");
    gateway.reload(&everything_to(&backend, &bounded), "reloaded");
    open.iter_mut().for_each(|client| drop(client.get("/", "").expect(200)));
    let mut next = Client::connect(gateway.addr());
    next.get("/", "").expect(200);
    let mut over = Client::connect(gateway.addr());
    over.read().expect(503);
    gateway.signal(Signal::HUP);
}
