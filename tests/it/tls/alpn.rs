//! Which protocol a connection speaks behind TLS: what ALPN agreed on, and nothing else.

use std::time::{Duration, Instant};

use crate::harness::frames::{Fate, Frames, GOAWAY, PREFACE, SETTINGS, frame, get};
use crate::harness::{Authority, Backend, Client, Fault, Gateway, everything_to};

/// RFC 9113 §7.
const PROTOCOL_ERROR: u32 = 1;

/// A gateway that speaks TLS as `a.test`.
fn start(backend: &Backend, rest: &str) -> (Gateway, Authority) {
    let authority = Authority::new();
    authority.certify("a", &["a.test"]);
    let gateway = Gateway::start(&everything_to(backend, &(rest.to_owned() + &authority.server("a"))));
    (gateway, authority)
}

/// A connection for which the client offers these protocols, and what was agreed on.
fn connect(gateway: &Gateway, authority: &Authority, offers: &[&str]) -> (Client, Option<String>) {
    let client = Client::connect_tls(gateway.addr(), &authority.client_offering(offers), "a.test");
    let agreed = client.tls().alpn_protocol().map(|name| String::from_utf8_lossy(name).into_owned());
    (client, agreed)
}

/// The connection has ended with the server's preface and this GOAWAY, and with close_notify.
#[track_caller]
fn ends_with_protocol_error(client: Client) {
    let mut frames = Frames { client };
    let first = frames.read().expect("the server's preface");
    assert_eq!((first.kind, first.flags), (SETTINGS, 0));
    let last = frames.read().expect("the reason");
    assert_eq!((last.kind, &last.payload[4..]), (GOAWAY, &PROTOCOL_ERROR.to_be_bytes()[..]));
    assert_eq!(frames.client.try_read("GET").expect_err("the end"), Fault::Closed);
}

#[test]
fn http_2_is_preferred_and_served() {
    let backend = Backend::ok();
    let (gateway, authority) = start(&backend, "");
    for offers in [&["h2"][..], &["http/1.1", "h2"]] {
        let (client, agreed) = connect(&gateway, &authority, offers);
        assert_eq!(agreed.as_deref(), Some("h2"));
        let mut client = Frames::over(client, &[]);
        client.request(1, &get("/", &[]));
        assert_eq!(client.fate(1), Fate::Answered(200));
    }
}

#[test]
fn after_h2_no_http_1_is_served() {
    let backend = Backend::ok();
    let (gateway, authority) = start(&backend, "");
    let requests = [
        "GET / HTTP/1.1\r\nhost: a.test\r\n\r\n",
        "\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\rX",
        "PRI * HTTP/1.1\r\n\r\n",
    ];
    for request in requests {
        let (mut client, _) = connect(&gateway, &authority, &["h2", "http/1.1"]);
        client.write(request);
        ends_with_protocol_error(client);
    }
    assert_eq!(backend.count(), 0);
}

#[test]
fn after_h2_half_a_preface_is_not_waited_for() {
    let backend = Backend::ok();
    let (gateway, authority) = start(&backend, "[server]\nheader_timeout = \"300ms\"\n");
    let (mut client, _) = connect(&gateway, &authority, &["h2"]);
    let begun = Instant::now();
    client.write(&PREFACE[..10]);
    ends_with_protocol_error(client);
    assert!(begun.elapsed() >= Duration::from_millis(300));
}

#[test]
fn after_http_1_1_no_http_2_is_served() {
    let backend = Backend::ok();
    let (gateway, authority) = start(&backend, "");
    let (mut client, agreed) = connect(&gateway, &authority, &["http/1.1"]);
    assert_eq!(agreed.as_deref(), Some("http/1.1"));
    client.write([PREFACE, &frame(SETTINGS, 0, 0, &[])].concat());
    client.read().expect(400);
    assert!(client.closes());
    assert_eq!(backend.count(), 0);
}

#[test]
fn without_alpn_the_first_bytes_decide() {
    let backend = Backend::ok();
    let (gateway, authority) = start(&backend, "");
    let (mut client, agreed) = connect(&gateway, &authority, &[]);
    assert_eq!(agreed, None);
    client.get("/", "").expect(200);
    let (client, _) = connect(&gateway, &authority, &[]);
    let mut client = Frames::over(client, &[]);
    client.request(1, &get("/", &[]));
    assert_eq!(client.fate(1), Fate::Answered(200));
}
