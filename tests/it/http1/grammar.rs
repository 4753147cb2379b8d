//! Corners of the grammar that one peer reads and another does not.

use crate::harness::{Backend, Client, Gateway, everything_to, get_with, send};

#[test]
fn only_one_protocol_that_hides_no_requests_is_tunnelled() {
    let backend = Backend::ok();
    let gateway = Gateway::start(&everything_to(&backend, ""));
    for upgrade in [
        "upgrade: , h2c",
        "upgrade: websocket, h2c",
        "upgrade: websocket,",
        "upgrade: websocket\r\nupgrade: h2c",
        "upgrade: websocket\r\nupgrade: websocket",
        "upgrade: h2c",
        "upgrade: H2C",
        "upgrade: HTTP/2.0",
        "upgrade: TLS/1.2",
        "upgrade: web socket",
        "upgrade: websocket/1/2",
        "upgrade: /1",
        "upgrade:",
    ] {
        get_with(gateway.addr(), "/", &format!("connection: upgrade\r\n{upgrade}\r\n")).expect(200);
        let seen = backend.latest();
        assert_eq!((seen.header("upgrade"), seen.header("connection")), (None, None), "{upgrade:?}");
    }
    get_with(gateway.addr(), "/", "connection: upgrade\r\nupgrade: IRC/6.9\r\n").expect(200);
    assert_eq!(backend.latest().header("upgrade").as_deref(), Some("IRC/6.9"));
}

#[test]
fn a_backend_switches_to_the_protocol_that_was_asked_for_or_to_none() {
    for (answered, status) in [
        ("upgrade: WebSocket", 101),
        ("upgrade: h2c", 502),
        ("upgrade: websocket, h2c", 502),
        ("upgrade: websocket\r\nupgrade: h2c", 502),
        ("upgrade:", 502),
        ("x: y", 502),
    ] {
        let backend = Backend::answering_once(format!(
            "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\n{answered}\r\n\r\n"
        ));
        let gateway = Gateway::start(&everything_to(&backend, ""));
        let mut client = Client::connect(gateway.addr());
        client.write("GET / HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n");
        client.read_head().expect("a head").expect(status);
    }
}

/// Over HTTP/1.1 it is a media type like any other.
#[test]
fn the_media_type_of_grpc_lifts_no_time_out_over_http_1_1() {
    let backend = Backend::ok();
    let gateway = Gateway::start(&everything_to(&backend, "[server]\nbody_timeout = \"300ms\""));
    let mut client = Client::connect(gateway.addr());
    client
        .write("POST / HTTP/1.1\r\nhost: a\r\ncontent-type: application/grpc\r\ncontent-length: 5\r\n\r\nhi");
    let answer = client.read_for("POST").expect(408);
    assert_eq!(answer.header("content-type"), Some("application/problem+json"));
}

#[test]
fn a_bare_cr_is_refused_before_the_head_is_whole() {
    let backend = Backend::ok();
    let gateway = Gateway::start(&everything_to(&backend, "[server]\nheader_timeout = \"60s\""));
    for head in ["GET / HTTP/1.1\r\nhost: a\r\nx: y\rz", "GET /\r ", "GET / HTTP/1.1\r\nx: y\rz: 1\r\n"] {
        let mut client = Client::connect(gateway.addr());
        client.write(head);
        client.read().expect(400);
        assert!(client.closes(), "{head:?}");
    }
}

#[test]
fn a_method_longer_than_any_is_not_implemented() {
    let backend = Backend::ok();
    let gateway = Gateway::start(&everything_to(&backend, ""));
    for length in [257, 10_000, 100_000] {
        let mut client = Client::connect(gateway.addr());
        let head = format!("{} / HTTP/1.1\r\nhost: a\r\n\r\n", "M".repeat(length));
        let writing = client.write_in_background(head.into_bytes());
        client.read().expect(501);
        drop(client);
        writing.join().ok();
    }
    assert_eq!(backend.count(), 0);
}

#[test]
fn options_about_the_server_are_answered_by_the_gateway() {
    let backend = Backend::ok();
    let gateway = Gateway::start(&everything_to(&backend, ""));
    for host in ["host: a", "host:"] {
        let mut client = Client::connect(gateway.addr());
        let answer = client.exchange(format!("OPTIONS * HTTP/1.1\r\n{host}\r\n\r\n")).expect(200);
        assert_eq!(answer.header("allow"), Some("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"));
        assert_eq!((answer.header("content-length"), answer.closed), (Some("0"), false));
        client.exchange("OPTIONS /x HTTP/1.1\r\nhost: a\r\n\r\n").expect(200);
    }
    send(gateway.addr(), "OPTIONS /x HTTP/1.1\r\nhost:\r\n\r\n").expect(400);
    assert!(backend.requests().iter().all(|seen| seen.target() == "/x"));
}

#[test]
fn an_http_1_0_client_without_a_host_asks_the_upstream_by_its_name() {
    let backend = Backend::ok();
    let gateway = Gateway::start(&everything_to(&backend, ""));
    let answer = send(gateway.addr(), "GET / HTTP/1.0\r\n\r\n").expect(200);
    assert!(answer.head.starts_with("HTTP/1.1 200 "), "{}", answer.head);
    assert_eq!(backend.only().header("host").as_deref(), Some("api"));
    assert_eq!(backend.only().header("x-forwarded-host"), None);
    let answer = send(gateway.addr(), "GET /%zz HTTP/1.0\r\nhost: a\r\n\r\n").expect(400);
    assert!(answer.head.starts_with("HTTP/1.1 400 "), "{}", answer.head);
}

#[test]
fn a_backend_is_told_that_trailers_are_taken() {
    let backend = Backend::ok();
    let gateway = Gateway::start(&everything_to(&backend, ""));
    get_with(gateway.addr(), "/", "connection: te, x-a\r\nte: gzip, trailers\r\nx-a: 1\r\n").expect(200);
    let seen = backend.latest();
    assert_eq!(
        (seen.header("te").as_deref(), seen.header("connection").as_deref()),
        (Some("trailers"), Some("te"))
    );
    assert_eq!(seen.header("x-a"), None);
    get_with(gateway.addr(), "/", "te: gzip\r\n").expect(200);
    assert_eq!(backend.latest().header("te"), None);
    send(gateway.addr(), "GET / HTTP/1.0\r\nhost: a\r\nte: trailers\r\n\r\n").expect(200);
    assert_eq!(backend.latest().header("te"), None, "HTTP/1.0 has no trailers");
}

#[test]
fn credentials_for_proxies_stay_on_their_hop() {
    let backend = Backend::answering(
        "HTTP/1.1 200 OK\r\nproxy-authenticate: Basic\r\nproxy-authorization: x\r\nproxy-connection: close\r\n\
         content-length: 0\r\n\r\n",
    );
    let gateway = Gateway::start(&everything_to(&backend, ""));
    let fields =
        "proxy-authorization: Basic eDp5\r\nProxy-Authenticate: Basic\r\nproxy-connection: keep-alive\r\n";
    let answer = get_with(gateway.addr(), "/", fields).expect(200);
    let head = backend.only().head.to_ascii_lowercase();
    assert!(!head.contains("proxy-"), "{head}");
    assert!(!answer.head.to_ascii_lowercase().contains("proxy-"), "{}", answer.head);
}
