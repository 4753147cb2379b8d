//! Upgrades (WebSocket): a tunnel only if both sides agree on the protocol.

use crate::harness::{Backend, Client, Fault, Gateway, Next, everything_to, send};

const ASK: &str = "GET /chat HTTP/1.1\r\nhost: test\r\nconnection: keep-alive, Upgrade\r\nupgrade: websocket\r\n\
                   sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
const ACCEPT: &str = "HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-accept: x\r\n\r\n";

/// Switches protocols and sends back whatever comes.
fn echoing() -> Backend {
    Backend::start(|exchange| {
        if exchange.field("upgrade").is_none() {
            exchange.write("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nplain");
            return Next::KeepAlive;
        }
        exchange.write(ACCEPT);
        loop {
            let bytes = exchange.read_some();
            if bytes.is_empty() {
                return Next::Close;
            }
            exchange.write(bytes);
        }
    })
}

#[test]
fn bytes_pass_both_ways_after_the_switch() {
    let backend = echoing();
    let gateway = Gateway::start(&everything_to(&backend, "set_response_headers = { x-edge = \"1\" }"));
    let mut client = Client::connect(gateway.addr());
    let response = client.exchange(ASK).expect(101);
    assert_eq!(response.header("upgrade"), Some("websocket"));
    assert!(response.header("connection").is_some_and(|value| value.eq_ignore_ascii_case("upgrade")));
    assert_eq!((response.header("sec-websocket-accept"), response.header("x-edge")), (Some("x"), Some("1")));
    for round in 0..3_u8 {
        let message = vec![round; 70_000];
        let writer = client.write_in_background(message.clone());
        assert_eq!(client.read_exact(message.len()).expect("the echo"), message);
        writer.join().expect("written");
    }
    let seen = backend.only();
    assert_eq!(seen.header("upgrade").as_deref(), Some("websocket"));
    assert!(
        seen.header("connection").is_some_and(|value| value.to_ascii_lowercase().contains("upgrade")),
        "{}",
        seen.head
    );
    assert_eq!(seen.header("sec-websocket-key").as_deref(), Some("dGhlIHNhbXBsZSBub25jZQ=="));
    client.finish();
    assert!(client.closes(), "the end passes through as well");
}

/// Bytes sent right behind the request, before the answer, belong to the new protocol, even if they look like HTTP.
#[test]
fn early_bytes_are_the_new_protocols() {
    let backend = echoing();
    let gateway = Gateway::start(&everything_to(&backend, ""));
    let mut client = Client::connect(gateway.addr());
    let early = "GET /early HTTP/1.1\r\nhost: test\r\n\r\n\0\n\r";
    client.write(format!("{ASK}{early}"));
    client.read().expect(101);
    assert_eq!(client.read_exact(early.len()).expect("the echo"), early.as_bytes());
    assert_eq!(backend.count(), 1, "they are no request");
}

#[test]
fn a_first_message_from_the_backend_is_not_lost() {
    let backend = Backend::start(|exchange| {
        exchange.write(format!("{ACCEPT}welcome"));
        exchange.hang();
        Next::Close
    });
    let gateway = Gateway::start(&everything_to(&backend, ""));
    let mut client = Client::connect(gateway.addr());
    client.exchange(ASK).expect(101);
    assert_eq!(client.read_exact(7).expect("the message"), b"welcome");
}

/// When the backend declines, what follows is HTTP again.
#[test]
fn a_declined_upgrade_is_an_ordinary_answer() {
    let backend = Backend::answering("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
    let gateway = Gateway::start(&everything_to(&backend, ""));
    let mut client = Client::connect(gateway.addr());
    client.write(format!("{ASK}GET /next HTTP/1.1\r\nhost: test\r\n\r\n"));
    assert_eq!(client.read().expect(200).text(), "ok");
    assert_eq!(client.read().expect(200).text(), "ok");
    assert_eq!(backend.latest().target(), "/next");
    let malformed = "GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n";
    client.write(format!("{ASK}{malformed}"));
    client.read().expect(200);
    client.read().expect(400);
}

#[test]
fn a_switch_without_a_request_for_it_is_the_backends_fault() {
    let backend = Backend::answering(ACCEPT);
    let gateway = Gateway::start(&everything_to(&backend, ""));
    for request in [
        "GET / HTTP/1.1\r\nhost: test\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: test\r\nupgrade: websocket\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: test\r\nconnection: upgrade\r\n\r\n",
    ] {
        send(gateway.addr(), request).expect(502);
    }
    let without = Backend::answering("HTTP/1.1 101 Switching Protocols\r\n\r\n");
    send(Gateway::start(&everything_to(&without, "")).addr(), ASK).expect(502);
}

/// A tunnel to HTTP/2 would carry requests past every limit.
#[test]
fn no_tunnel_for_http2() {
    let backend = echoing();
    let gateway = Gateway::start(&everything_to(&backend, ""));
    let ask = "GET / HTTP/1.1\r\nhost: test\r\nconnection: upgrade, http2-settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABkAAQ\r\n\r\n";
    assert_eq!(send(gateway.addr(), ask).expect(200).text(), "plain");
    let seen = backend.only();
    assert_eq!((seen.header("upgrade"), seen.header("http2-settings")), (None, None));
}

#[test]
fn an_upgrade_is_charged_like_any_request() {
    let backend = echoing();
    let gateway = Gateway::start(&everything_to(
        &backend,
        "limits = [\"one\"]
        [limits.one]
        algorithm = \"gcra\"
        key = \"ip\"
        rate = \"1/h\"",
    ));
    let mut client = Client::connect(gateway.addr());
    client.exchange(ASK).expect(101);
    let mut second = Client::connect(gateway.addr());
    second.exchange(ASK).expect(429);
    second.get("/", "").expect(429);
}

#[test]
fn a_tunnel_ends_when_the_backend_does() {
    let backend = Backend::start(|exchange| {
        exchange.write(ACCEPT);
        exchange.read_exact(3);
        exchange.write("bye");
        Next::Close
    });
    let gateway = Gateway::start(&everything_to(&backend, ""));
    let mut client = Client::connect(gateway.addr());
    client.exchange(ASK).expect(101);
    client.write("end");
    assert_eq!(client.read_exact(3).expect("the last message"), b"bye");
    assert_eq!(client.read_exact(1).map_err(|fault| matches!(fault, Fault::Cut(_))), Err(true));
    let record = &gateway.access_log(1)[0];
    assert_eq!(record["status"], 101);
}
