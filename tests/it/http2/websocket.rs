//! WebSocket over HTTP/2 (RFC 8441) to backends of HTTP/1.1: the handshake, what refuses it, and the bytes.

use bytes::Bytes;
use http::{HeaderValue, Request};
use proptest::prelude::*;
use serde_json::json;

use crate::harness::frames::{
    DATA, END_HEADERS, END_STREAM, Fate, Frames, HEADERS, RST_STREAM, SETTINGS, block,
};
use crate::harness::websocket::{accept, accept_for, echoing};
use crate::harness::{Backend, Gateway, Http2, Next, WebSocket, everything_to, websocket_at};

/// RFC 9113 §7.
const PROTOCOL_ERROR: u32 = 1;
const CANCEL: u32 = 8;
const STREAM_ERROR: Fate = Fate::Reset(PROTOCOL_ERROR);

const CONNECT: [(&str, &str); 5] = [
    (":method", "CONNECT"),
    (":protocol", "websocket"),
    (":scheme", "http"),
    (":path", "/chat"),
    (":authority", "test"),
];

#[test]
fn a_handshake_is_the_get_of_an_upgrade_and_its_bytes_pass_both_ways() {
    let backend = echoing();
    let gateway = Gateway::start(&everything_to(&backend, "set_response_headers = { x-edge = \"1\" }"));
    let client = Http2::connect(gateway.addr());
    let mut request = websocket_at("/chat?room=1");
    for (name, value) in [("sec-websocket-protocol", "chat, other"), ("origin", "https://example.com")] {
        request.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    let mut socket = WebSocket::ask(&client, request).expect("it opens");
    let head = &socket.head;
    assert_eq!((head.header("sec-websocket-protocol"), head.header("x-edge")), (Some("chat"), Some("1")));
    for name in ["connection", "upgrade", "sec-websocket-accept", "content-length", "transfer-encoding"] {
        assert_eq!(head.header(name), None, "{name}");
    }
    for round in 0..3_u8 {
        let message = vec![round; 70_000];
        socket.write(message.clone());
        assert_eq!(socket.read_exact(message.len()), message);
    }
    let seen = backend.only();
    assert_eq!(seen.request_line(), "GET /chat?room=1 HTTP/1.1");
    for (name, value) in [
        ("connection", "upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-protocol", "chat, other"),
        ("origin", "https://example.com"),
        ("host", "test"),
    ] {
        assert_eq!(seen.header_all(name), [value], "{name}\n{}", seen.head);
    }
    let keys = seen.header_all("sec-websocket-key");
    assert!(keys.len() == 1 && keys[0].len() == 24, "{keys:?}");
    for name in ["sec-websocket-accept", "content-length", "transfer-encoding", "te", ":protocol"] {
        assert!(seen.header_all(name).is_empty(), "{name}\n{}", seen.head);
    }
    socket.end();
    assert_eq!(socket.read_to_end().expect("a good end"), b"");
    let record = &gateway.access_log(1)[0];
    let of = |field: &str| record[field].clone();
    assert_eq!(
        [of("method"), of("status"), of("path"), of("error")],
        [json!("GET"), json!(200), json!("/chat?room=1"), json!(null)]
    );
    // Each has a key of its own, and another version is the backend's to judge.
    let mut request = websocket_at("/");
    request.headers_mut().remove("sec-websocket-version");
    WebSocket::ask(&client, request).expect("it opens");
    let seen = backend.latest();
    assert_eq!(seen.header_all("sec-websocket-version"), ["13"]);
    assert_ne!(seen.header_all("sec-websocket-key"), keys);
}

/// A proxy that passes on the handshake of its own client, as Envoy does, has sent a key and expects the answer.
#[test]
fn a_key_of_the_client_is_passed_on_and_answered() {
    const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
    let backend = echoing();
    let gateway = Gateway::start(&everything_to(&backend, ""));
    let client = Http2::connect(gateway.addr());
    let open = |key: &'static str| {
        let mut request = websocket_at("/");
        request.headers_mut().insert("sec-websocket-key", HeaderValue::from_static(key));
        let socket = WebSocket::ask(&client, request).expect("it opens");
        (socket.head.header("sec-websocket-accept").map(str::to_owned), backend.latest())
    };
    let (accept, seen) = open(KEY);
    assert_eq!(accept, Some(accept_for(KEY)));
    assert_eq!(seen.header_all("sec-websocket-key"), [KEY]);
    let (accept, seen) = open("no key");
    assert_eq!(accept, None);
    assert_ne!(seen.header_all("sec-websocket-key"), ["no key"]);
}

#[test]
fn the_first_settings_announce_it() {
    let backend = echoing();
    let gateway = Gateway::start(&everything_to(&backend, ""));
    let mut client = Frames::connect(gateway.addr());
    let settings = client.read_until(SETTINGS).payload;
    assert!(settings.chunks(6).any(|setting| setting == [0, 8, 0, 0, 0, 1]), "{settings:x?}");
}

#[test]
fn a_backend_that_declines_is_relayed() {
    let backend = Backend::start(|exchange| {
        let status = exchange.target()[1..].to_owned();
        exchange.write(format!("HTTP/1.1 {status} No\r\ncontent-length: 2\r\nx-why: me\r\n\r\nno"));
        Next::KeepAlive
    });
    let gateway = Gateway::start(&everything_to(&backend, ""));
    let client = Http2::connect(gateway.addr());
    for status in [301, 400, 401, 403, 404, 426, 429, 500, 503] {
        let refused =
            WebSocket::ask(&client, websocket_at(&format!("/{status}"))).expect_err("it is refused");
        let refused = refused.expect(status);
        assert_eq!((&*refused.body, refused.header("x-why")), (&b"no"[..], Some("me")));
        client.get("/404").expect(404);
    }
    assert_eq!(backend.connections(), 1, "they are kept");
}

/// A success would tell the client that the WebSocket is open, and what follows would be read as its frames.
#[test]
fn no_other_success_opens_a_websocket() {
    let backend = Backend::start(|exchange| {
        let key = exchange.field("sec-websocket-key").unwrap_or_default();
        let right = accept_for(&key);
        let (status, lines) = match exchange.target() {
            "/200" => ("200 OK", "content-length: 2\r\n\r\nok".to_owned()),
            "/204" => ("204 No Content", "\r\n".to_owned()),
            "/wrong" => (
                "101 S",
                format!("connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-accept: {key}\r\n\r\n"),
            ),
            "/none" => ("101 S", "connection: upgrade\r\nupgrade: websocket\r\n\r\n".to_owned()),
            "/two" => (
                "101 S",
                format!(
                    "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-accept: {right}\r\nsec-websocket-accept: {right}\r\n\r\n"
                ),
            ),
            "/other" => (
                "101 S",
                format!("connection: upgrade\r\nupgrade: h2c\r\nsec-websocket-accept: {right}\r\n\r\n"),
            ),
            _ => ("101 S", format!("sec-websocket-accept: {right}\r\n\r\n")),
        };
        exchange.write(format!("HTTP/1.1 {status}\r\n{lines}"));
        Next::Close
    });
    let gateway = Gateway::start(&everything_to(&backend, ""));
    let client = Http2::connect(gateway.addr());
    for path in ["/200", "/204", "/wrong", "/none", "/two", "/other", "/without"] {
        let refused = WebSocket::ask(&client, websocket_at(path)).expect_err(path);
        refused.expect(502);
    }
    assert!(gateway.access_log(7).iter().all(|record| record["error"] == "protocol"));
    // Without the handshake a 101 is as wrong as over HTTP/1.1.
    client.get("/").expect(502);
}

#[test]
fn what_the_gateway_answers_itself_opens_none() {
    let gateway = Gateway::start(
        "[upstreams]\necho = \"builtin:echo\"\n\
         [[routes]]\npath = \"/echo\"\nupstream = \"echo\"\n\
         [[routes]]\npath = \"/fixed\"\nrespond = { status = 200, body = \"hello\" }\n\
         [[routes]]\npath = \"/moved\"\nredirect = { to = \"https://new.example.com/\", status = 307 }\n\
         [[routes]]\npath = \"/post\"\nmethods = [\"POST\"]\nrespond = { status = 403 }\n\
         [[routes]]\npath = \"/get\"\nmethods = [\"GET\"]\nheaders = { upgrade = \"websocket\" }\nrespond = { status = 403 }\n",
    );
    let client = Http2::connect(gateway.addr());
    for (path, status) in [("/echo", 501), ("/fixed", 501), ("/moved", 307), ("/post", 404), ("/get", 403)] {
        let refused = WebSocket::ask(&client, websocket_at(path)).expect_err(path);
        refused.expect(status);
    }
    let errors: Vec<_> = gateway.access_log(5).iter().map(|record| record["error"].clone()).collect();
    assert_eq!(
        errors,
        [json!("no_websocket"), json!("no_websocket"), json!(null), json!("no_route"), json!(null)]
    );
    client.get("/fixed").expect(200);
}

/// The head of a handshake with some fields replaced, some left out, and others behind.
fn connect(replaced: &[(&str, &str)], without: &str, more: &[(&str, &str)]) -> Vec<u8> {
    let value = |(name, value)| {
        (name, replaced.iter().find(|(other, _)| *other == name).map_or(value, |&(_, other)| other))
    };
    let kept: Vec<_> = CONNECT.map(value).into_iter().filter(|(name, _)| *name != without).collect();
    [block(&kept), block(more)].concat()
}

#[test]
fn malformed_handshakes_reach_no_backend() {
    let backend = echoing();
    let gateway = Gateway::start(&everything_to(&backend, ""));
    let answered = |status| Fate::Answered(status);
    let cases: [(&str, Vec<u8>, Fate); 24] = [
        ("no scheme", connect(&[], ":scheme", &[]), STREAM_ERROR),
        ("no path", connect(&[], ":path", &[]), STREAM_ERROR),
        ("no authority", connect(&[], ":authority", &[]), STREAM_ERROR),
        ("no authority but a host", connect(&[], ":authority", &[("host", "test")]), STREAM_ERROR),
        ("no method", connect(&[], ":method", &[]), STREAM_ERROR),
        ("plain CONNECT", block(&[CONNECT[0], CONNECT[4]]), answered(405)),
        ("CONNECT with a path", connect(&[], ":protocol", &[]), STREAM_ERROR),
        ("GET", connect(&[(":method", "GET")], "", &[]), STREAM_ERROR),
        ("POST", connect(&[(":method", "POST")], "", &[]), STREAM_ERROR),
        ("two protocols", connect(&[], "", &[(":protocol", "websocket")]), STREAM_ERROR),
        ("two protocols, first", [block(&[CONNECT[1]]), connect(&[], "", &[])].concat(), STREAM_ERROR),
        ("behind a field", connect(&[], ":protocol", &[("x", "1"), CONNECT[1]]), STREAM_ERROR),
        ("a length", connect(&[], "", &[("content-length", "0")]), STREAM_ERROR),
        ("connection", connect(&[], "", &[("connection", "upgrade")]), STREAM_ERROR),
        ("upgrade", connect(&[], "", &[("upgrade", "websocket")]), STREAM_ERROR),
        ("transfer-encoding", connect(&[], "", &[("transfer-encoding", "chunked")]), STREAM_ERROR),
        ("a line in the path", connect(&[(":path", "/ HTTP/1.1\r\nx: y")], "", &[]), STREAM_ERROR),
        ("asterisk", connect(&[(":path", "*")], "", &[]), answered(400)),
        ("two hosts", connect(&[], "", &[("host", "other")]), answered(400)),
        ("connect-udp", connect(&[(":protocol", "connect-udp")], "", &[]), answered(501)),
        ("connect-ip", connect(&[(":protocol", "connect-ip")], "", &[]), answered(501)),
        ("webtransport", connect(&[(":protocol", "webtransport")], "", &[]), answered(501)),
        ("a list", connect(&[(":protocol", "websocket, h2c")], "", &[]), answered(501)),
        ("nothing", connect(&[(":protocol", "")], "", &[]), answered(501)),
    ];
    for (what, head, expected) in cases {
        let mut client = Frames::connect(gateway.addr());
        client.send(HEADERS, END_HEADERS, 1, &head);
        assert_eq!(client.fate(1), expected, "{what}");
    }
    let mut client = Frames::connect(gateway.addr());
    client.request(1, &connect(&[], "", &[]));
    assert_eq!(client.fate(1), STREAM_ERROR, "it ends with its head");
    assert_eq!(backend.count(), 0);
    let mut client = Frames::connect(gateway.addr());
    client.send(HEADERS, END_HEADERS, 1, &connect(&[(":protocol", "WebSocket")], "", &[]));
    assert_eq!(client.fate(1), Fate::Answered(200), "its letters match in any case");
}

#[test]
fn trailers_of_a_websocket_are_a_fault_of_its_stream() {
    let backend = echoing();
    let gateway = Gateway::start(&everything_to(&backend, ""));
    let mut client = Frames::connect(gateway.addr());
    client.send(HEADERS, END_HEADERS, 1, &connect(&[], "", &[]));
    assert_eq!(client.fate(1), Fate::Answered(200));
    client.send(HEADERS, END_HEADERS | END_STREAM, 1, &block(&[("x", "1")]));
    assert_eq!(client.fate(1), STREAM_ERROR);
}

/// What a client sends before the backend has agreed stays at the gateway, whatever it looks like.
#[test]
fn early_bytes_wait_for_the_answer() {
    let backend = Backend::start(|exchange| {
        let early = exchange.field("x-early").is_some();
        exchange.wait_at_gate();
        if !early {
            exchange.write("HTTP/1.1 403 No\r\ncontent-length: 0\r\n\r\n");
            return Next::KeepAlive;
        }
        accept(exchange, "");
        let bytes = exchange.read_exact(EARLY.len());
        exchange.write(bytes);
        Next::Close
    });
    const EARLY: &[u8] = b"GET /smuggled HTTP/1.1\r\nhost: test\r\n\r\n";
    let gateway = Gateway::start(&everything_to(&backend, ""));
    let client = Http2::connect(gateway.addr());
    client.wait_for_connect_protocol();
    let mut request = websocket_at("/");
    request.headers_mut().insert("x-early", HeaderValue::from_static("1"));
    let begun = [request, websocket_at("/")].map(|request| {
        let (mut sending, answer) = client.begin(request);
        sending.send_data(Bytes::from_static(EARLY), false).expect("it is sent");
        (sending, answer)
    });
    backend.wait_for(2);
    backend.open_gate();
    let [(sending, answer), (other, refused)] = begun;
    let mut socket = WebSocket::opened(&client, sending, answer).expect("it opens");
    assert_eq!(socket.read_exact(EARLY.len()), EARLY);
    drop(WebSocket::opened(&client, other, refused).expect_err("it is refused").expect(403));
    // On the connection of the refused one nothing is left.
    client.get("/").expect(403);
    assert_eq!((backend.count(), backend.latest().target()), (3, "/"));
}

#[test]
fn each_side_may_end_before_the_other() {
    let backend = Backend::start(|exchange| {
        accept(exchange, "");
        if exchange.target() == "/client-first" {
            // Reads to the end, and only then speaks.
            let mut bytes = Vec::new();
            loop {
                match exchange.read_some() {
                    some if some.is_empty() => break,
                    some => bytes.extend(some),
                }
            }
            exchange.write(bytes.repeat(2));
            return Next::Close;
        }
        exchange.write("bye");
        Next::Close
    });
    let gateway = Gateway::start(&everything_to(&backend, ""));
    let client = Http2::connect(gateway.addr());
    let mut socket = WebSocket::open(&client, "/client-first");
    socket.write("abc");
    socket.end();
    assert_eq!(socket.read_to_end().expect("a good end"), b"abcabc");
    let mut socket = WebSocket::open(&client, "/backend-first");
    assert_eq!(socket.read_to_end().expect("a good end"), b"bye");
}

#[test]
fn a_reset_of_one_side_is_one_of_the_other() {
    let (ended, ends) = std::sync::mpsc::channel();
    let ended = std::sync::Mutex::new(ended);
    let backend = Backend::start(move |exchange| {
        accept(exchange, "");
        if exchange.target() == "/reset" {
            exchange.write("x");
            return Next::Reset;
        }
        exchange.write("x");
        while !exchange.read_some().is_empty() {}
        ended.lock().expect("no panic").send(()).ok();
        Next::Close
    });
    let gateway = Gateway::start(&everything_to(&backend, ""));
    let client = Http2::connect(gateway.addr());
    let mut socket = WebSocket::open(&client, "/");
    assert_eq!(socket.read_exact(1), b"x");
    socket.reset();
    ends.recv_timeout(crate::harness::TIMEOUT).expect("the backend's connection ends");
    let mut frames = Frames::connect(gateway.addr());
    frames.send(HEADERS, END_HEADERS, 1, &connect(&[(":path", "/reset")], "", &[]));
    assert_eq!(frames.fate(1), Fate::Answered(200));
    loop {
        let frame = frames.read().expect("the connection goes on");
        assert_ne!((frame.kind, frame.flags & END_STREAM), (DATA, END_STREAM), "no good end");
        if frame.kind == RST_STREAM {
            assert_eq!(frame.payload, CANCEL.to_be_bytes());
            break;
        }
    }
    // After the end of its own side, too.
    let mut socket = WebSocket::open(&client, "/reset");
    socket.end();
    let ended = socket.read_to_end().map_err(|error| error.reason());
    assert_eq!(ended, Err(Some(h2::Reason::CANCEL)));
}

/// Chats send many small messages; a client opens its window for each.
#[test]
fn ten_thousand_small_messages_are_no_flood() {
    let backend = echoing();
    let gateway = Gateway::start(&everything_to(&backend, ""));
    let client = Http2::connect(gateway.addr());
    let mut socket = WebSocket::open(&client, "/");
    for round in 0..10_000_u32 {
        socket.write(round.to_be_bytes().to_vec());
        assert_eq!(socket.read_exact(4), round.to_be_bytes());
    }
}

#[test]
fn a_service_that_decides_sees_a_get() {
    let service = Backend::start(|exchange| {
        let denied = exchange.target().contains("denied");
        exchange.write(match denied {
            true => "HTTP/1.1 403 No\r\ncontent-length: 0\r\n\r\n",
            false => "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
        });
        Next::KeepAlive
    });
    let backend = echoing();
    let gateway = Gateway::start(&everything_to(
        &backend,
        &format!("auth = \"sso\"\n[auth.sso]\ntype = \"forward\"\nurl = \"{}\"\n", service.url()),
    ));
    let client = Http2::connect(gateway.addr());
    WebSocket::open(&client, "/chat");
    let asked = service.only();
    assert_eq!(asked.header("x-forwarded-method").as_deref(), Some("GET"), "{}", asked.head);
}

/// Bytes, and where they are cut.
fn pieces() -> impl Strategy<Value = (Vec<u8>, Vec<usize>)> {
    (prop::collection::vec(any::<u8>(), 1..100_000), prop::collection::vec(1..20_000_usize, 1..12))
}

#[test]
fn bytes_cut_anywhere_pass_unchanged() {
    let backend = echoing();
    let gateway = Gateway::start(&everything_to(&backend, ""));
    let client = Http2::connect(gateway.addr());
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(24) };
    proptest!(config, |((bytes, cuts) in pieces())| {
        let mut socket = WebSocket::open(&client, "/");
        let (mut rest, mut received) = (&bytes[..], Vec::new());
        for cut in cuts.iter().cycle() {
            let (part, after) = rest.split_at((*cut).min(rest.len()));
            socket.write(part.to_vec());
            // Some of what comes back is left for later.
            received.extend(socket.read_exact(part.len() / 2));
            rest = after;
            if rest.is_empty() {
                break;
            }
        }
        socket.end();
        received.extend(socket.read_to_end().expect("a good end"));
        prop_assert!(received == bytes);
    });
}

#[test]
fn a_request_that_is_no_handshake_is_served_beside_it() {
    let backend = echoing();
    let gateway = Gateway::start(&everything_to(&backend, ""));
    let client = Http2::connect(gateway.addr());
    let mut sockets: Vec<_> = (0..20).map(|_| WebSocket::open(&client, "/")).collect();
    for (number, socket) in sockets.iter_mut().enumerate() {
        socket.write(vec![u8::try_from(number).expect("few"); 1000]);
    }
    let trace = Request::builder().method("TRACE").uri("http://test/").body(()).expect("a request");
    client.exchange(trace, &b""[..]).expect("an answer").expect(405);
    for (number, socket) in sockets.iter_mut().enumerate() {
        assert_eq!(socket.read_exact(1000), vec![u8::try_from(number).expect("few"); 1000]);
    }
}
