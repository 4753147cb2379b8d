//! WebSocket to backends of HTTP/2 (RFC 8441), from clients of either version.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use h2::server::{Builder, SendResponse};
use h2::{Reason, RecvStream};
use http::{Method, Request, Response};
use proptest::prelude::*;

use crate::harness::servers::over_http2;
use crate::harness::websocket::{accept_for, accept_stream, echo_stream};
use crate::harness::{
    Client, Frame, FrameServer, Gateway, Http2, Http2Backend, WebSocket, send_all, websocket_at,
};

const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";

/// The handshake of HTTP/1.1.
fn ask(path: &str) -> String {
    format!(
        "GET {path} HTTP/1.1\r\nhost: test\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\
         sec-websocket-version: 13\r\nsec-websocket-key: {KEY}\r\nsec-websocket-protocol: chat\r\n\r\n"
    )
}

/// Serves extended CONNECT.
fn announcing() -> Builder {
    let mut settings = Builder::new();
    settings.enable_connect_protocol();
    settings
}

/// A head with this status, after which a body comes.
fn begin(respond: &mut SendResponse<Bytes>, status: u16) -> h2::SendStream<Bytes> {
    let response = Response::builder().status(status).body(()).expect("a head");
    respond.send_response(response, false).expect("the stream is open")
}

/// Opens each WebSocket and sends back what comes; `/403` and the like are refused with that status, and GETs are answered.
fn echoing() -> Http2Backend {
    Http2Backend::start(announcing(), |request: Request<RecvStream>, mut respond| async move {
        let status = request.uri().path()[1..].parse().unwrap_or(200);
        if request.method() != Method::CONNECT {
            begin(&mut respond, 200).send_data("plain".into(), true).expect("it is taken");
        } else if status != 200 {
            begin(&mut respond, status).send_data("no".into(), true).expect("it is taken");
        } else {
            let names = ["sec-websocket-accept", "connection", "upgrade", "content-length"];
            assert!(names.iter().all(|name| !request.headers().contains_key(*name)), "{request:?}");
            // A server that passes the stream on as HTTP/1.1 may need a key.
            assert_eq!(request.headers().get_all("sec-websocket-key").iter().count(), 1);
            assert_eq!(request.headers()["sec-websocket-version"], "13");
            let sending = accept_stream(&request, &mut respond);
            echo_stream(request.into_body(), sending).await;
        }
    })
}

#[test]
fn a_stream_is_joined_to_a_stream() {
    let backend = echoing();
    let gateway = Gateway::start(&over_http2(&[&backend.url()], "", ""));
    let client = Http2::connect(gateway.addr());
    let mut sockets: Vec<_> = (0..10).map(|_| WebSocket::open(&client, "/chat?a=b")).collect();
    assert_eq!(sockets[0].head.header("sec-websocket-protocol"), Some("chat"));
    for (number, socket) in sockets.iter_mut().enumerate() {
        let message = vec![u8::try_from(number).expect("few"); 50_000];
        socket.write(message.clone());
        assert_eq!(socket.read_exact(message.len()), message);
        socket.end();
        assert_eq!(socket.read_to_end().expect("a good end"), b"");
    }
    assert_eq!(backend.connections(), 1);
    let record = &gateway.access_log(10)[9];
    assert_eq!((&record["method"], &record["status"]), (&"GET".into(), &200.into()));
}

#[test]
fn a_connection_is_joined_to_a_stream() {
    let backend = echoing();
    let gateway = Gateway::start(&over_http2(&[&backend.url()], "", ""));
    let mut client = Client::connect(gateway.addr());
    client.get("/", "").expect(200);
    // Bytes right behind the handshake are the WebSocket's.
    client.write(format!("{}early", ask("/chat")));
    let answer = client.read_head().expect("a head");
    assert_eq!(answer.status, 101);
    assert_eq!(answer.header("upgrade"), Some("websocket"));
    assert_eq!(answer.header("connection"), Some("upgrade"));
    assert_eq!(answer.header("sec-websocket-accept"), Some(&*accept_for(KEY)));
    assert_eq!(answer.header("sec-websocket-protocol"), Some("chat"));
    assert_eq!((answer.header("transfer-encoding"), answer.header("content-length")), (None, None));
    assert_eq!(client.read_exact(5).expect("the echo"), b"early");
    let message = vec![7; 300_000];
    let writer = client.write_in_background(message.clone());
    assert_eq!(client.read_exact(message.len()).expect("the echo"), message);
    writer.join().expect("written");
    client.finish();
    assert!(client.closes(), "the end passes through as well");
    assert_eq!(gateway.access_log(2)[1]["status"], 101);
}

#[test]
fn a_refusal_is_an_ordinary_answer() {
    let backend = echoing();
    let gateway = Gateway::start(&over_http2(&[&backend.url()], "", ""));
    let (http1, http2) = (&mut Client::connect(gateway.addr()), Http2::connect(gateway.addr()));
    for status in [400, 403, 404, 429, 503] {
        assert_eq!(http1.exchange(ask(&format!("/{status}"))).expect(status).text(), "no");
        let refused = WebSocket::ask(&http2, websocket_at(&format!("/{status}"))).expect_err("it is refused");
        assert_eq!(refused.expect(status).body, b"no");
    }
    // No other success opens one, and a client of HTTP/2 could not tell it from one that does.
    assert_eq!(http1.exchange(ask("/202")).expect(202).text(), "no");
    WebSocket::ask(&http2, websocket_at("/202")).expect_err("it is refused").expect(502);
    assert_eq!(http1.exchange(ask("/")).expect(101).header("upgrade"), Some("websocket"));
}

#[test]
fn without_the_announcement_nothing_is_opened() {
    let backend =
        Http2Backend::start(Builder::new(), |request: Request<RecvStream>, mut respond| async move {
            assert_eq!(request.method(), Method::GET);
            begin(&mut respond, 200).send_data("plain".into(), true).expect("it is taken");
        });
    let gateway = Gateway::start(&over_http2(&[&backend.url()], "", ""));
    let client = Http2::connect(gateway.addr());
    let refused = WebSocket::ask(&client, websocket_at("/")).expect_err("it is refused").expect(502);
    let body = String::from_utf8(refused.body).expect("text");
    assert!(body.contains("the upstream serves no WebSocket over HTTP/2"), "{body}");
    // Over HTTP/1.1 the server may ignore the wish, and does.
    assert_eq!(Client::connect(gateway.addr()).exchange(ask("/")).expect(200).text(), "plain");
    assert_eq!(gateway.access_log(2)[0]["error"], "no_websocket");
    assert_eq!(gateway.metric("tollgate_upstream_failures_total", &["error=\"no_websocket\""]), 1.0);
    assert_eq!(gateway.metric("tollgate_upstream_up", &[]), 1.0, "the server is not at fault");
    client.get("/").expect(200);
}

#[test]
fn a_handshake_of_http1_has_a_key_and_the_version() {
    let backend = echoing();
    let gateway = Gateway::start(&over_http2(&[&backend.url()], "", ""));
    let good = ask("/");
    let mut client = Client::connect(gateway.addr());
    let key = format!("sec-websocket-key: {KEY}\r\n");
    for (from, to, status) in [
        (&*key, "", 400),
        (KEY, "YQ==", 400),
        (KEY, "dGhlIHNhbXBsZSBub25jZQ", 400),
        (&*key, &*key.repeat(2), 400),
        ("version: 13", "version: 8", 426),
        ("sec-websocket-version: 13\r\n", "", 426),
    ] {
        let answer = client.exchange(good.replacen(from, to, 1)).expect(status);
        let version = (status == 426).then_some("13");
        assert_eq!(answer.header("sec-websocket-version"), version, "{}", answer.head);
        assert_eq!(answer.header("upgrade"), version.map(|_| "websocket"));
    }
    assert!(gateway.access_log(6).iter().all(|record| record["error"] == "malformed_handshake"));
    // Another method, or another protocol, asks for none.
    assert_eq!(
        client.exchange(good.replacen("upgrade: websocket", "upgrade: other", 1)).expect(200).text(),
        "plain"
    );
    client.exchange(good).expect(101);
}

/// RFC 8441 §3: a client must not send it before the server has announced it.
#[test]
fn the_settings_of_a_new_connection_are_awaited() {
    let server = FrameServer::start();
    let gateway = Gateway::start(&over_http2(&[&server.url()], "", ""));
    let client = Http2::connect(gateway.addr());
    client.wait_for_connect_protocol();
    let (sending, answer) = client.begin(websocket_at("/"));
    // The connection is there, and has no settings yet.
    let mut frames = server.accept_with(&[0, 8, 0, 0, 0, 1]);
    let head = frames.next();
    assert_eq!((head.kind, head.ends()), (Frame::HEADERS, false));
    frames.head(head.stream, &[(":status", "200")], false);
    frames.data(head.stream, b"hello", false);
    let mut socket = WebSocket::opened(&client, sending, answer).expect("it opens");
    assert_eq!(socket.read_exact(5), b"hello");
}

/// Another value than 0 and 1 is a fault of the connection (RFC 8441 §3), on which no request was sent.
#[test]
fn a_wrong_announcement_ends_each_connection() {
    let server = FrameServer::start();
    let url = server.url();
    server.serve(
        |_, server| server.accept_with(&[0, 8, 0, 0, 0, 2]),
        |_, frames| {
            frames.pings_to_the_end();
        },
    );
    let gateway = Gateway::start(&over_http2(&[&url], "", ""));
    let client = Http2::connect(gateway.addr());
    WebSocket::ask(&client, websocket_at("/")).expect_err("no answer").expect(503);
    gateway.wait_for_log("a wrong ENABLE_CONNECT_PROTOCOL");
}

/// The declared length of a success says nothing (RFC 9110 §9.3.6), and trailers have no place.
#[test]
fn only_data_follow_a_success() {
    let server = FrameServer::start();
    let gateway = Gateway::start(&over_http2(&[&server.url()], "", ""));
    let client = Http2::connect(gateway.addr());
    client.wait_for_connect_protocol();
    let (sending, answer) = client.begin(websocket_at("/"));
    let mut frames = server.accept_with(&[0, 8, 0, 0, 0, 1]);
    let stream = frames.next().stream;
    frames.head(stream, &[(":status", "200"), ("content-length", "0")], false);
    frames.data(stream, b"hello", false);
    let mut socket = WebSocket::opened(&client, sending, answer).expect("it opens");
    assert_eq!((socket.read_exact(5), socket.head.header("content-length")), (b"hello".to_vec(), None));
    frames.head(stream, &[("x", "1")], true);
    assert_eq!(frames.next().kind, Frame::RESET);
    let ended = socket.read_to_end().map_err(|error| error.reason());
    assert_eq!(ended, Err(Some(Reason::CANCEL)));
}

#[test]
fn resets_and_ends_pass_both_ways() {
    let server = FrameServer::start();
    let gateway = Gateway::start(&over_http2(&[&server.url()], "", ""));
    let client = Http2::connect(gateway.addr());
    client.wait_for_connect_protocol();
    let mut begun = Some(client.begin(websocket_at("/")));
    let mut frames = server.accept_with(&[0, 8, 0, 0, 0, 1]);
    let mut open = |frames: &mut crate::harness::Frames| {
        let (sending, answer) = begun.take().unwrap_or_else(|| client.begin(websocket_at("/")));
        let stream = frames.next().stream;
        frames.head(stream, &[(":status", "200")], false);
        (stream, WebSocket::opened(&client, sending, answer).expect("it opens"))
    };
    let (stream, socket) = open(&mut frames);
    socket.reset();
    let reset = frames.next();
    assert_eq!((reset.kind, reset.stream, &*reset.payload), (Frame::RESET, stream, &[0, 0, 0, 8][..]));
    let (stream, mut socket) = open(&mut frames);
    frames.reset(stream, 8);
    assert_eq!(socket.read_to_end().map_err(|error| error.reason()), Err(Some(Reason::CANCEL)));
    let (stream, mut socket) = open(&mut frames);
    socket.end();
    let end = frames.next();
    assert_eq!((end.kind, end.stream, end.ends()), (Frame::DATA, stream, true));
    frames.data(stream, b"after", true);
    assert_eq!(socket.read_to_end().expect("a good end"), b"after");
    let (stream, mut socket) = open(&mut frames);
    frames.data(stream, b"", true);
    assert_eq!(socket.read_to_end().expect("a good end"), b"");
    socket.write("after");
    assert_eq!(frames.next().payload, b"after");
    socket.end();
    assert!(frames.next().ends());
    // A server that has sent all resets the stream, and the tunnel ends.
    let (stream, mut socket) = open(&mut frames);
    frames.data(stream, b"", true);
    assert_eq!(socket.read_to_end().expect("a good end"), b"");
    frames.reset(stream, 0);
    let mut tries = 0;
    while socket.try_write("x").is_ok() && tries < 10_000 {
        tries += 1;
    }
    assert!(tries < 10_000, "it takes bytes for nobody");
}

#[test]
fn a_client_of_http1_ends_and_leaves() {
    let (ended, seen) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (count, reset) = (Arc::clone(&ended), Arc::clone(&seen));
    let backend = Http2Backend::start(announcing(), move |request: Request<RecvStream>, mut respond| {
        let (count, reset) = (Arc::clone(&count), Arc::clone(&reset));
        async move {
            let mut sending = accept_stream(&request, &mut respond);
            let mut receiving = request.into_body();
            // The end may be a frame without bytes.
            match receiving.data().await.filter(|data| !matches!(data, Ok(data) if data.is_empty())) {
                None => {
                    send_all(&mut sending, Bytes::from_static(b"after"), true).await;
                    count.fetch_add(1, Ordering::SeqCst);
                }
                Some(_) => {
                    std::future::poll_fn(|context| sending.poll_reset(context)).await.ok();
                    reset.fetch_add(1, Ordering::SeqCst);
                }
            }
        }
    });
    let gateway = Gateway::start(&over_http2(&[&backend.url()], "", ""));
    let mut client = Client::connect(gateway.addr());
    client.exchange(ask("/")).expect(101);
    client.finish();
    assert_eq!(client.read_exact(5).expect("what the backend sends after it"), b"after");
    assert!(client.closes());
    let mut client = Client::connect(gateway.addr());
    client.exchange(ask("/")).expect(101);
    client.write("x");
    client.reset();
    let told = || (seen.load(Ordering::SeqCst) == 1).then_some(());
    crate::harness::eventually("the reset", told);
    assert_eq!(ended.load(Ordering::SeqCst), 1);
}

#[test]
fn bytes_cut_anywhere_pass_unchanged() {
    let backend = echoing();
    let gateway = Gateway::start(&over_http2(&[&backend.url()], "", ""));
    let client = Http2::connect(gateway.addr());
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(12) };
    let bytes = prop::collection::vec(any::<u8>(), 1..60_000);
    proptest!(config, |(bytes in bytes, cuts in prop::collection::vec(1..9_000_usize, 1..12))| {
        let (mut socket, mut plain) = (WebSocket::open(&client, "/"), Client::connect(gateway.addr()));
        plain.exchange(ask("/")).expect(101);
        let mut rest = &bytes[..];
        for cut in cuts.iter().cycle() {
            let (part, after) = rest.split_at((*cut).min(rest.len()));
            socket.write(part.to_vec());
            plain.write(part);
            prop_assert!(socket.read_exact(part.len()) == part);
            prop_assert!(plain.read_exact(part.len()).expect("the echo") == part);
            rest = after;
            if rest.is_empty() {
                break;
            }
        }
    });
}
