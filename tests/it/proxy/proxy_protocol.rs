//! PROXY protocol: only a trusted proxy may name the client of a connection.

use std::time::Duration;

use crate::harness::{Authority, Backend, Client, Gateway, eventually, everything_to};

const GET: &[u8] = b"GET / HTTP/1.1\r\nhost: test\r\n\r\n";
const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

fn gateway(backend: &Backend, server: &str) -> Gateway {
    let listen = "listen = [{ address = \"127.0.0.1:0\", proxy_protocol = true }]\nworkers = 2\n";
    let rest = format!("[server]\n{listen}{server}\n[admin]\nlisten = \"127.0.0.1:0\"\n");
    Gateway::start(&everything_to(backend, &rest))
}

const TRUSTED: &str = "trusted_proxies = [\"127.0.0.1\", \"192.0.2.0/24\"]\nheader_timeout = \"1s\"";

/// Whom the backend is told of after this preamble.
fn told(gateway: &Gateway, backend: &Backend, preamble: &[u8]) -> String {
    Client::connect(gateway.addr()).exchange([preamble, GET].concat()).expect(200);
    backend.latest().header("x-forwarded-for").expect("it is always there")
}

fn refused(gateway: &Gateway, reason: &str) -> f64 {
    gateway.metric("tollgate_connections_refused_total", &[&format!("reason=\"{reason}\"")])
}

#[test]
fn both_versions_tell_the_client() {
    let backend = Backend::ok();
    let gateway = gateway(&backend, TRUSTED);
    let line = b"PROXY TCP4 203.0.113.7 192.0.2.1 1234 80\r\n";
    assert_eq!(told(&gateway, &backend, line), "203.0.113.7");
    assert_eq!(told(&gateway, &backend, b"PROXY TCP6 2001:db8::7 ::1 1 2\r\n"), "2001:db8::7");
    assert_eq!(told(&gateway, &backend, b"PROXY UNKNOWN\r\n"), "127.0.0.1");
    let addresses = [203, 0, 113, 9, 192, 0, 2, 1, 0, 1, 0, 80];
    let values = [0x04, 0, 3, 1, 2, 3];
    let binary = [SIGNATURE, &[0x21, 0x11, 0, 18], &addresses, &values].concat();
    assert_eq!(told(&gateway, &backend, &binary), "203.0.113.9");
    let local = [SIGNATURE, &[0x20, 0, 0, 0]].concat();
    assert_eq!(told(&gateway, &backend, &local), "127.0.0.1");
}

#[test]
fn a_preamble_may_come_in_pieces_and_stands_for_the_whole_connection() {
    let backend = Backend::ok();
    let gateway = gateway(&backend, "trusted_proxies = [\"127.0.0.1\"]");
    let mut client = Client::connect(gateway.addr());
    client.write_bytewise(b"PROXY TCP4 203.0.113.7 192.0.2.1 1234 80\r\n", Duration::from_millis(1));
    client.exchange(GET).expect(200);
    client.exchange(GET).expect(200);
    let seen = backend.requests();
    assert!(seen.iter().all(|seen| seen.header("x-forwarded-for").as_deref() == Some("203.0.113.7")));
    assert_eq!(seen.len(), 2);
}

#[test]
fn trust_goes_on_from_the_address_that_was_told() {
    let backend = Backend::ok();
    let gateway = gateway(&backend, TRUSTED);
    let get = b"GET / HTTP/1.1\r\nhost: test\r\nx-forwarded-for: 198.51.100.1\r\n\r\n";
    let told = |source: &str| {
        let line = format!("PROXY TCP4 {source} 192.0.2.1 1234 80\r\n");
        Client::connect(gateway.addr()).exchange([line.as_bytes(), get].concat()).expect(200);
        backend.latest().header("x-forwarded-for").expect("it is always there")
    };
    assert_eq!(told("203.0.113.7"), "203.0.113.7", "a client's own word is worth nothing");
    assert_eq!(told("192.0.2.9"), "198.51.100.1, 192.0.2.9", "this one is a trusted proxy");
    let clients: Vec<_> = gateway.access_log(2).iter().map(|record| record["client"].clone()).collect();
    assert_eq!(clients, ["203.0.113.7", "198.51.100.1"]);
}

#[test]
fn a_stranger_is_closed_at_once() {
    let backend = Backend::ok();
    let gateway = gateway(&backend, "trusted_proxies = [\"192.0.2.1\"]");
    let mut client = Client::connect(gateway.addr());
    assert!(client.closes());
    let mut client = Client::connect(gateway.addr());
    client.write([b"PROXY TCP4 192.0.2.1 192.0.2.1 1234 80\r\n", GET].concat());
    assert!(client.closes());
    assert_eq!((backend.count(), refused(&gateway, "untrusted_proxy")), (0, 2.0));
}

#[test]
fn what_is_no_preamble_is_closed_and_counted() {
    let backend = Backend::ok();
    let gateway = gateway(&backend, TRUSTED);
    let too_long = [SIGNATURE, &[0x20, 0, 0xff, 0xff]].concat();
    let cut = b"PROXY TCP4 203.0.113.7".to_vec();
    let long_line = [b"PROXY UNKNOWN ".as_slice(), &[b'x'; 200]].concat();
    let bad = [GET.to_vec(), b"PROXY TCP4 x y 1 2\r\n".to_vec(), too_long, long_line, cut, Vec::new()];
    for bytes in &bad {
        let mut client = Client::connect(gateway.addr());
        client.write(bytes);
        assert!(client.closes(), "{}", bytes.escape_ascii());
    }
    eventually("all to be counted", || (refused(&gateway, "proxy_protocol") == 6.0).then_some(()));
    assert_eq!(backend.count(), 0);
    eventually("no connection", || {
        (gateway.metric("tollgate_connections", &["listener"]) == 0.0).then_some(())
    });
}

/// A proxy connects ahead of time: what it has opened before the end is told of counts.
#[test]
fn a_preamble_that_comes_while_draining_is_still_heeded() {
    let backend = Backend::ok();
    let mut gateway = gateway(&backend, "trusted_proxies = [\"127.0.0.1\"]");
    let mut client = Client::connect(gateway.addr());
    eventually("the connection to be taken", || {
        (gateway.metric("tollgate_connections", &["listener"]) == 1.0).then_some(())
    });
    gateway.signal(rustix::process::Signal::TERM);
    eventually("draining", || (gateway.admin("/readyz").status == 503).then_some(()));
    client.exchange([b"PROXY TCP4 203.0.113.7 192.0.2.1 1234 80\r\n", GET].concat()).expect(200);
    assert!(gateway.wait_for_exit().success());
}

/// A gateway that speaks PROXY protocol, then TLS as `a.test`.
fn behind_tls(backend: &Backend, server: &str) -> (Gateway, Authority) {
    let authority = Authority::new();
    authority.certify("a", &["a.test"]);
    (gateway(backend, &format!("{server}\n{}", authority.server("a"))), authority)
}

#[test]
fn the_preamble_comes_before_tls() {
    let backend = Backend::ok();
    let (gateway, authority) = behind_tls(&backend, TRUSTED);
    let addresses = [203, 0, 113, 9, 192, 0, 2, 1, 0, 1, 0, 80];
    let line = b"PROXY TCP4 203.0.113.9 192.0.2.1 1234 443\r\n".to_vec();
    for preamble in [line, [SIGNATURE, &[0x21, 0x11, 0, 12], &addresses].concat()] {
        let mut client = Client::connect(gateway.addr());
        client.write(preamble);
        let mut client = client.agree_on_tls(&authority.client(), "a.test").expect("a handshake");
        client.exchange(GET).expect(200);
        let seen = backend.latest();
        assert_eq!(seen.header("x-forwarded-for").as_deref(), Some("203.0.113.9"));
        assert_eq!(seen.header("x-forwarded-proto").as_deref(), Some("https"));
    }
}

#[test]
fn a_preamble_inside_tls_is_none() {
    let backend = Backend::ok();
    let (gateway, authority) = behind_tls(&backend, TRUSTED);
    assert!(Client::try_connect_tls(gateway.addr(), &authority.client(), "a.test").is_err());
    eventually("it to be counted", || (refused(&gateway, "proxy_protocol") == 1.0).then_some(()));
}

#[test]
fn clients_behind_one_proxy_are_counted_apart_before_their_handshake() {
    let backend = Backend::ok();
    let server = format!("{TRUSTED}\nmax_connections_per_client = 1");
    let (gateway, authority) = behind_tls(&backend, &server);
    let connect = |source: &str| {
        let mut client = Client::connect(gateway.addr());
        client.write(format!("PROXY TCP4 {source} 192.0.2.1 1234 443\r\n"));
        client.agree_on_tls(&authority.client(), "a.test")
    };
    let mut first = connect("203.0.113.7").expect("a handshake");
    first.exchange(GET).expect(200);
    assert!(connect("203.0.113.7").is_err());
    connect("203.0.113.8").expect("a handshake").exchange(GET).expect(200);
    assert_eq!(refused(&gateway, "per_client"), 1.0);
}
