//! Requests over HTTP/2 that no client should send, in frames written by hand: none of them reaches a backend, as it was
//! sent or as something else.

use crate::harness::frames::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, Fate, Frames, HEADERS, block, frame, get,
};
use crate::harness::hpack::{put_number, put_string};
use crate::harness::{Backend, Gateway, everything_to};

/// RFC 9113 §7.
const PROTOCOL_ERROR: u32 = 1;
const STREAM_ERROR: Fate = Fate::Reset(PROTOCOL_ERROR);

const PSEUDO: [(&str, &str); 4] =
    [(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "test")];

/// What becomes of a request with this head, sent first on a connection.
fn fate(gateway: &Gateway, head: &[u8]) -> Fate {
    let mut client = Frames::connect(gateway.addr());
    client.request(1, head);
    client.fate(1)
}

/// [`PSEUDO`] with some fields replaced, and others behind them.
fn head(replaced: &[(&str, &str)], more: &[(&str, &str)]) -> Vec<u8> {
    let value = |(name, value)| {
        (name, replaced.iter().find(|(other, _)| *other == name).map_or(value, |&(_, other)| other))
    };
    [block(&PSEUDO.map(value)), block(more)].concat()
}

#[test]
fn heads_that_say_two_things_are_never_forwarded() {
    let backend = Backend::ok();
    let gateway = Gateway::start(&everything_to(&backend, ""));
    let answered = |status| Fate::Answered(status);
    let long = "x".repeat(9000);
    let cases: [(&str, Vec<u8>, Fate); 35] = [
        ("another host", head(&[], &[("host", "other")]), answered(400)),
        ("the host with a port", head(&[], &[("host", "test:80")]), answered(400)),
        ("two hosts", head(&[], &[("host", "test"), ("host", "other")]), answered(400)),
        ("no authority", block(&PSEUDO[..3]), answered(400)),
        ("userinfo", head(&[(":authority", "me@test")], &[]), answered(400)),
        ("an odd authority", head(&[(":authority", "te st")], &[]), STREAM_ERROR),
        ("a path in the authority", head(&[(":authority", "test/x")], &[]), STREAM_ERROR),
        ("an empty authority", head(&[(":authority", "")], &[]), STREAM_ERROR),
        ("CONNECT", block(&[(":method", "CONNECT"), (":authority", "a.test:443")]), answered(405)),
        ("TRACE", head(&[(":method", "TRACE")], &[]), answered(405)),
        ("a lower-case method", head(&[(":method", "get")], &[]), answered(400)),
        ("a method with a blank", head(&[(":method", "GET /x")], &[]), STREAM_ERROR),
        ("PRI", head(&[(":method", "PRI")], &[]), answered(400)),
        ("a path with a blank", head(&[(":path", "/a b")], &[]), STREAM_ERROR),
        ("a path with a line", head(&[(":path", "/ HTTP/1.1\r\nx: y")], &[]), STREAM_ERROR),
        ("no path", head(&[(":path", "")], &[]), STREAM_ERROR),
        ("a path without a slash", head(&[(":path", "a")], &[]), STREAM_ERROR),
        ("a URL", head(&[(":path", "http://test/")], &[]), STREAM_ERROR),
        ("a query only", head(&[(":path", "?a")], &[]), answered(400)),
        ("asterisk with GET", head(&[(":path", "*")], &[]), answered(400)),
        ("a long path", head(&[(":path", &format!("/{long}"))], &[]), answered(414)),
        ("connection", head(&[], &[("connection", "close")]), STREAM_ERROR),
        ("upgrade", head(&[], &[("upgrade", "websocket")]), STREAM_ERROR),
        ("keep-alive", head(&[], &[("keep-alive", "1")]), STREAM_ERROR),
        ("proxy-connection", head(&[], &[("proxy-connection", "close")]), STREAM_ERROR),
        ("transfer-encoding", head(&[], &[("transfer-encoding", "chunked")]), STREAM_ERROR),
        ("te", head(&[], &[("te", "chunked")]), STREAM_ERROR),
        ("an upper-case name", head(&[], &[("X-A", "1")]), STREAM_ERROR),
        ("a name with a blank", head(&[], &[("x a", "1")]), STREAM_ERROR),
        ("a name with a colon", head(&[], &[("x:a", "1")]), STREAM_ERROR),
        ("a line in a value", head(&[], &[("x", "a\r\nhost: b")]), STREAM_ERROR),
        ("NUL in a value", head(&[], &[("x", "a\0")]), STREAM_ERROR),
        ("two lengths", head(&[], &[("content-length", "0"), ("content-length", "0")]), answered(400)),
        ("two other lengths", head(&[], &[("content-length", "0"), ("content-length", "1")]), STREAM_ERROR),
        ("a length with a sign", head(&[], &[("content-length", "+0")]), STREAM_ERROR),
    ];
    for (what, head, expected) in cases {
        assert_eq!(fate(&gateway, &head), expected, "{what}");
    }
    assert_eq!(backend.count(), 0);
}

#[test]
fn pseudo_fields_are_few_and_first() {
    let backend = Backend::ok();
    let gateway = Gateway::start(&everything_to(&backend, ""));
    for name in [":method", ":scheme", ":path", ":authority"] {
        let again = head(&[], &PSEUDO.into_iter().filter(|field| field.0 == name).collect::<Vec<_>>());
        assert_eq!(fate(&gateway, &again), STREAM_ERROR, "two of {name}");
    }
    for name in [":method", ":scheme", ":path"] {
        let rest: Vec<_> = PSEUDO.into_iter().filter(|field| field.0 != name).collect();
        assert_eq!(fate(&gateway, &block(&rest)), STREAM_ERROR, "no {name}");
    }
    for name in [":status", ":protocol", ":other", ":"] {
        let more = fate(&gateway, &head(&[], &[(name, "200")]));
        assert_eq!(more, STREAM_ERROR, "{name}");
    }
    let late = [block(&PSEUDO[..3]), block(&[("x", "1"), PSEUDO[3]])].concat();
    assert_eq!(fate(&gateway, &late), STREAM_ERROR, "behind a field");
    assert_eq!(backend.count(), 0);
}

#[test]
fn a_fragment_ends_its_stream_and_no_other() {
    let backend = Backend::ok();
    let gateway = Gateway::start(&everything_to(&backend, ""));
    let path = |value: &str, kept: bool, in_huffman: bool| {
        let mut head = block(&[PSEUDO[0], PSEUDO[1], PSEUDO[3]]);
        // The name is the fourth of the static table (RFC 7541 appendix A).
        if kept {
            put_number(4, 0x40, 0x3f, &mut head)
        } else {
            put_number(4, 0, 0x0f, &mut head)
        }
        put_string(value.as_bytes(), in_huffman, &mut head);
        head
    };
    let kept = [block(&[PSEUDO[0], PSEUDO[1], PSEUDO[3]]), vec![0x80 | 62]].concat();
    let mut named = block(&[PSEUDO[0], PSEUDO[1], PSEUDO[3]]);
    put_number(62, 0, 0x0f, &mut named);
    let with_name = |value: &str| {
        let mut head = named.clone();
        put_string(value.as_bytes(), true, &mut head);
        head
    };
    let heads = [
        head(&[(":path", "/a?b=1#/../c")], &[]),
        path("/a#", false, false),
        path("/~|#b", true, true),
        // The same again, out of the dynamic table; then its name only.
        kept,
        with_name("/#"),
    ];
    let mut client = Frames::connect(gateway.addr());
    for (number, head) in (0..).zip(&heads) {
        client.request(number * 2 + 1, head);
        assert_eq!(client.fate(number * 2 + 1), STREAM_ERROR, "head {number}");
    }
    client.send(HEADERS, END_STREAM, 21, &heads[0][..40]);
    client.send(CONTINUATION, END_HEADERS, 21, &heads[0][40..]);
    assert_eq!(client.fate(21), STREAM_ERROR);
    // With a body that is still to come.
    client.send(HEADERS, END_HEADERS, 23, &heads[0]);
    assert_eq!(client.fate(23), STREAM_ERROR);
    assert_eq!(backend.count(), 0);
    client.request(25, &with_name("/good?%23"));
    assert_eq!(client.fate(25), Fate::Answered(200));
    assert_eq!(backend.only().target(), "/good?%23");
}

#[test]
fn a_body_that_is_not_as_long_as_it_says_is_no_request() {
    let backend = Backend::start(|exchange| {
        exchange.read_body();
        exchange.write("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
        crate::harness::Next::KeepAlive
    });
    let gateway = Gateway::start(&everything_to(&backend, ""));
    let post = head(&[(":method", "POST")], &[("content-length", "5")]);
    for (what, parts) in [
        ("too short", &[&b"abc"[..]][..]),
        ("too long", &[b"abcdef"]),
        ("too long in parts", &[b"abcde", b"f"]),
        ("empty", &[b""]),
    ] {
        // Together: of five bytes that come first nobody knows that a sixth follows, and they are passed on.
        let mut frames = vec![frame(HEADERS, END_HEADERS, 1, &post)];
        for (place, part) in parts.iter().enumerate() {
            frames.push(frame(DATA, u8::from(place + 1 == parts.len()) * END_STREAM, 1, part));
        }
        let mut client = Frames::connect(gateway.addr());
        client.send_together(&frames);
        let fate = client.fate(1);
        assert_eq!(fate, STREAM_ERROR, "{what}");
    }
    assert_eq!(fate(&gateway, &post), STREAM_ERROR, "no body at all");
    for seen in backend.requests() {
        assert!(seen.body.len() < 5, "{:?} was passed on as whole", seen.body);
    }
    let mut client = Frames::connect(gateway.addr());
    client.send(HEADERS, END_HEADERS, 1, &post);
    client.send(DATA, END_STREAM, 1, b"abcde");
    assert_eq!(client.fate(1), Fate::Answered(200));
}

#[test]
fn trailers_are_no_second_head() {
    let backend = Backend::start(|exchange| {
        exchange.read_body();
        exchange.write("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
        crate::harness::Next::KeepAlive
    });
    let gateway = Gateway::start(&everything_to(&backend, ""));
    let post = head(&[(":method", "POST")], &[("trailer", "x-a, transfer-encoding, host, content-length")]);
    let with = |trailers: &[u8]| {
        let mut client = Frames::connect(gateway.addr());
        client.send(HEADERS, END_HEADERS, 1, &post);
        client.send(DATA, 0, 1, b"abc");
        client.send(HEADERS, END_HEADERS | END_STREAM, 1, trailers);
        client.fate(1)
    };
    for (name, value, expected) in [
        ("connection", "close", STREAM_ERROR),
        ("transfer-encoding", "chunked", STREAM_ERROR),
        ("x", "a\r\nb: c", STREAM_ERROR),
        (":path", "/b", STREAM_ERROR),
    ] {
        assert_eq!(with(&block(&[(name, value)])), expected, "{name}");
    }
    let forbidden = [("host", "b"), ("content-length", "7")];
    assert_eq!(with(&[block(&[("x-a", "1")]), block(&forbidden)].concat()), Fate::Answered(200));
    // What came before bad trailers may have gone on, and may come late, but its body does not look whole.
    let mut whole = backend.requests();
    whole.retain(|seen| seen.raw_body.ends_with(b"\r\n\r\n"));
    let whole: Vec<_> = whole.iter().map(|seen| (seen.trailers.as_str(), &seen.body[..])).collect();
    assert_eq!(whole, [("x-a: 1\r\n", &b"abc"[..])]);
}

#[test]
fn frames_out_of_place_end_the_connection() {
    let backend = Backend::ok();
    let gateway = Gateway::start(&everything_to(&backend, ""));
    let request = crate::harness::frames::frame(HEADERS, END_HEADERS | END_STREAM, 1, &get("/", &[]));
    let wrong: [(&str, Vec<u8>); 8] = [
        ("a frame over its size", vec![0, 0x40, 1, DATA, 0, 0, 0, 0, 1]),
        ("an even stream", crate::harness::frames::frame(HEADERS, END_HEADERS, 2, &get("/", &[]))),
        ("data of no stream", crate::harness::frames::frame(DATA, 0, 0, b"x")),
        ("data of a stream to come", crate::harness::frames::frame(DATA, 0, 5, b"x")),
        ("a continuation of nothing", crate::harness::frames::frame(CONTINUATION, END_HEADERS, 1, b"")),
        (
            "a block of no table",
            crate::harness::frames::frame(HEADERS, END_HEADERS, 1, &[0xff, 0xff, 0xff, 0xff]),
        ),
        ("a stream's number again", [request.clone(), request].concat()),
        ("HTTP/1.1", b"GET / HTTP/1.1\r\nhost: test\r\n\r\n".to_vec()),
    ];
    for (what, bytes) in wrong {
        let mut client = Frames::connect(gateway.addr());
        client.client.write(bytes);
        let code = client.end();
        assert!(code.is_some_and(|code| code != 0), "{what}: {code:?}");
        assert_eq!(gateway.get("/").status, 200);
    }
}

/// The `http` crate has no such paths, so clients of tests write the frames by hand.
#[test]
fn characters_that_no_path_should_have_are_treated_as_over_http_1_1() {
    let backend = Backend::ok();
    let gateway = Gateway::start(&everything_to(&backend, ""));
    for path in ["/<a>?b=\"{|}`^\\", "/a<", "/%zz"] {
        let over_http1 = crate::harness::Client::connect(gateway.addr())
            .exchange(format!("GET {path} HTTP/1.1\r\nhost: test\r\n\r\n"))
            .status;
        let fate = fate(&gateway, &head(&[(":path", path)], &[]));
        assert_eq!(fate, Fate::Answered(over_http1), "{path}");
    }
    let forwarded: Vec<_> = backend.requests().iter().map(|seen| seen.target().to_owned()).collect();
    let log = gateway.access_log(6);
    let (first, second): (Vec<_>, Vec<_>) = log.iter().enumerate().partition(|(number, _)| number % 2 == 0);
    for ((_, http1), (_, http2)) in first.iter().zip(&second) {
        assert_eq!((&http1["path"], &http1["status"]), (&http2["path"], &http2["status"]));
    }
    assert_eq!(
        forwarded.iter().step_by(2).collect::<Vec<_>>(),
        forwarded.iter().skip(1).step_by(2).collect::<Vec<_>>()
    );
}
