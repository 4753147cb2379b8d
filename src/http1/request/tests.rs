//! The framing rules as tables, and as properties over every way of cutting the bytes up.

use proptest::prelude::*;

use super::super::scanner::HeadScanner;
use super::*;
use crate::http1::chunks::ChunkDecoder;

/// What framing needs to know of a good head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Head {
    body: Body,
    upgrade: bool,
}

/// The result for a complete head.
fn head(text: &str) -> Result<Head, RequestError> {
    let mut scanner = HeadScanner::default();
    match scanner.advance(text.as_bytes(), 32 << 10)? {
        true => check_head(text.as_bytes()),
        false => panic!("the head is not complete: {text:?}"),
    }
}

fn check_head(head: &[u8]) -> Result<Head, RequestError> {
    let mut spans = Vec::new();
    RequestHead::parse(head, &mut spans).map(|head| Head { body: head.body, upgrade: head.upgrade })
}

fn status(text: &str) -> u16 {
    head(text).map_or_else(|fault| fault.status().as_u16(), |_| 200)
}

#[test]
fn good_heads_pass_and_say_what_follows() {
    let none = Head { body: Body::Length(0), upgrade: false };
    let cases = [
        ("GET / HTTP/1.1\r\nhost: a\r\n\r\n", none),
        ("GET / HTTP/1.0\r\n\r\n", none),
        // No URI may hold these, but clients send them, and no parser reads them in two ways.
        ("GET /<x>?q=\"x\"&`|{} HTTP/1.1\r\nhost: a\r\n\r\n", none),
        ("GET http://a:80/x?y HTTP/1.1\r\nHost: A\r\n\r\n", none),
        ("OPTIONS * HTTP/1.1\r\nhost:\r\n\r\n", none),
        ("GET / HTTP/1.1\r\nhost: [::1]:8080\r\nx:  \tpadded\t\r\n\r\n", none),
        (
            "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 007\r\n\r\n",
            Head { body: Body::Length(7), upgrade: false },
        ),
        (
            "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: Chunked\r\n\r\n",
            Head { body: Body::Chunked, upgrade: false },
        ),
        (
            "GET / HTTP/1.1\r\nhost: a\r\nconnection: keep-alive, Upgrade\r\nupgrade: websocket\r\n\r\n",
            Head { body: Body::Length(0), upgrade: true },
        ),
        ("GET / HTTP/1.1\r\nhost: a\r\nupgrade: websocket\r\n\r\n", none),
    ];
    for (text, expected) in cases {
        assert_eq!(head(text), Ok(expected), "{text:?}");
    }
}

#[test]
fn whatever_has_two_readings_is_refused() {
    let cases = [
        // request line
        (400, "GET /\r\n\r\n"),
        (400, "GET  / HTTP/1.1\r\nhost: a\r\n\r\n"),
        (400, "GET / HTTP/1.1 \r\nhost: a\r\n\r\n"),
        (400, "get / HTTP/1.1\r\nhost: a\r\n\r\n"),
        (400, "PRI * HTTP/2.0\r\n\r\n"),
        (405, "TRACE / HTTP/1.1\r\nhost: a\r\n\r\n"),
        (405, "CONNECT a:443 HTTP/1.1\r\nhost: a:443\r\n\r\n"),
        (505, "GET / HTTP/1.2\r\nhost: a\r\n\r\n"),
        (400, "GET / HTTP/1.10\r\nhost: a\r\n\r\n"),
        (400, "GET * HTTP/1.1\r\nhost: a\r\n\r\n"),
        (400, "GET a:80 HTTP/1.1\r\nhost: a\r\n\r\n"),
        (400, "GET /#f HTTP/1.1\r\nhost: a\r\n\r\n"),
        (400, "GET /\u{e9} HTTP/1.1\r\nhost: a\r\n\r\n"),
        // Host
        (400, "GET / HTTP/1.1\r\n\r\n"),
        (400, "GET / HTTP/1.1\r\nhost: a\r\nhost: a\r\n\r\n"),
        (400, "GET / HTTP/1.1\r\nhost: \r\n\r\n"),
        (400, "GET / HTTP/1.1\r\nhost: a, b\r\n\r\n"),
        (400, "GET / HTTP/1.1\r\nhost: u@a\r\n\r\n"),
        (400, "GET / HTTP/1.1\r\nhost: a:b\r\n\r\n"),
        (400, "GET / HTTP/1.1\r\nhost: [::1\r\n\r\n"),
        (400, "GET http://a/ HTTP/1.1\r\nhost: b\r\n\r\n"),
        (400, "GET http:///x HTTP/1.1\r\nhost: a\r\n\r\n"),
        // length
        (400, "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\ncontent-length: 1\r\n\r\n"),
        (400, "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1, 1\r\n\r\n"),
        (400, "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: +1\r\n\r\n"),
        (400, "POST / HTTP/1.1\r\nhost: a\r\ncontent-length:\r\n\r\n"),
        (400, "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 9223372036854775808\r\n\r\n"),
        (400, "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n"),
        (
            400,
            "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n",
        ),
        (400, "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked, chunked\r\n\r\n"),
        (400, "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: xchunked\r\n\r\n"),
        (400, "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: \u{b}chunked\r\n\r\n"),
        (501, "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: gzip, chunked\r\n\r\n"),
        (400, "POST / HTTP/1.0\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n"),
        // fields
        (400, "GET / HTTP/1.1\r\nhost : a\r\n\r\n"),
        (400, "GET / HTTP/1.1\r\n host: a\r\n\r\n"),
        (400, "GET / HTTP/1.1\r\nhost: a\r\nx: 1\r\n folded\r\n\r\n"),
        (400, "GET / HTTP/1.1\r\nhost: a\r\nno colon\r\n\r\n"),
        (400, "GET / HTTP/1.1\r\nhost: a\r\n: empty\r\n\r\n"),
        (400, "GET / HTTP/1.1\r\nhost: a\r\nx: \0\r\n\r\n"),
        (400, "GET / HTTP/1.1\r\nhost: a\r\nx: a\rb\r\n\r\n"),
        (400, "GET / HTTP/1.1\nhost: a\n\n"),
        (400, "GET / HTTP/1.1\r\nhost: a\n\r\n"),
    ];
    for (expected, text) in cases {
        assert_eq!(status(text), expected, "{text:?}");
    }
}

#[test]
fn sizes_are_bounded() {
    let long = "x".repeat(9 << 10);
    assert_eq!(status(&format!("GET /{long} HTTP/1.1\r\nhost: a\r\n\r\n")), 414);
    let many = "x: 1\r\n".repeat(100);
    assert_eq!(status(&format!("GET / HTTP/1.1\r\nhost: a\r\n{many}\r\n")), 431);
    let line = "x".repeat(17 << 10);
    assert_eq!(status(&format!("GET / HTTP/1.1\r\nhost: a\r\nx: {line}\r\n\r\n")), 431);
    let big = format!("x: {}\r\n", "y".repeat(8 << 10)).repeat(5);
    assert_eq!(status(&format!("GET / HTTP/1.1\r\nhost: a\r\n{big}\r\n")), 431);
    let mut scanner = HeadScanner::default();
    let endless = format!("GET /{}", "x".repeat(17 << 10));
    assert_eq!(
        scanner.advance(endless.as_bytes(), 32 << 10),
        Err(RequestError::Target),
        "without a line end"
    );
}

/// How many of the bytes a chunked body takes, given in pieces of these sizes; `None` if it is refused.
fn chunked(bytes: &[u8], pieces: &[usize]) -> Option<(usize, bool)> {
    let mut decoder = ChunkDecoder::of_request();
    let (mut consumed, mut pieces) = (0, pieces.iter().cycle());
    while consumed < bytes.len() && !decoder.is_done() {
        let piece = (*pieces.next()?).clamp(1, bytes.len() - consumed);
        consumed += decoder.decode(&bytes[consumed..consumed + piece]).ok()?.0;
    }
    Some((consumed, decoder.is_done()))
}

#[test]
fn chunked_bodies_end_where_they_say_or_are_refused() {
    let good: [&[u8]; 4] = [
        b"0\r\n\r\n",
        b"3\r\nabc\r\n0\r\n\r\n",
        b"A;name=\"v\"\r\n0123456789\r\n00\r\nx: y\r\nz:\r\n\r\n",
        b"000000000000003\r\nabc\r\n0\r\n\r\n",
    ];
    for body in good {
        let followed = [body, b"GET / HTTP/1.1\r\n"].concat();
        assert_eq!(chunked(&followed, &[usize::MAX]), Some((body.len(), true)), "{}", body.escape_ascii());
    }
    let bad: [&[u8]; 14] = [
        b"\r\n",
        b"+3\r\nabc\r\n0\r\n\r\n",
        b"0x3\r\nabc\r\n0\r\n\r\n",
        b" 3\r\nabc\r\n0\r\n\r\n",
        b"3 \r\nabc\r\n0\r\n\r\n",
        b"3\nabc\r\n0\r\n\r\n",
        b"3\r\nabc\n0\r\n\r\n",
        b"3\r\nabcd\r\n0\r\n\r\n",
        b"3\r\nabc0\r\n\r\n",
        b"3;a\nb\r\nabc\r\n0\r\n\r\n",
        b"0000000000000003\r\nabc\r\n0\r\n\r\n",
        b"ffffffffffffffffff\r\n",
        b"0\r\n folded: x\r\n\r\n",
        b"0\r\nx: y\n\r\n",
    ];
    for body in bad {
        assert_eq!(chunked(body, &[usize::MAX]), None, "{}", body.escape_ascii());
    }
    let extension = [b"3;".as_slice(), &[b'x'; 2000], b"\r\nabc\r\n0\r\n\r\n"].concat();
    assert_eq!(chunked(&extension, &[usize::MAX]), None, "an endless extension");
}

/// Bytes that look like HTTP now and then.
fn almost_http() -> impl Strategy<Value = Vec<u8>> {
    let token = prop_oneof![
        Just("GET / HTTP/1.1\r\n"),
        Just("host: a\r\n"),
        Just("content-length: 5\r\n"),
        Just("transfer-encoding: chunked\r\n"),
        Just("connection: upgrade\r\nupgrade: x\r\n"),
        Just("\r\n"),
        Just("\n"),
        Just("5;x\r\nabcde\r\n"),
        Just("0\r\n"),
        Just(": "),
    ];
    let noise = proptest::collection::vec(any::<u8>(), 0..4);
    let piece = prop_oneof![9 => token.prop_map(|text| text.as_bytes().to_vec()), 1 => noise];
    proptest::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn a_head_reads_the_same_however_it_is_cut(bytes in almost_http(), cuts in proptest::collection::vec(1..9_usize, 1..9)) {
        let (mut received, mut scanner, mut cuts) = (0, HeadScanner::default(), cuts.iter().cycle());
        let mut piecemeal = Ok(false);
        while received < bytes.len() && piecemeal == Ok(false) {
            received = (received + cuts.next().copied().unwrap_or(1)).min(bytes.len());
            piecemeal = scanner.advance(&bytes[..received], 4096);
        }
        let read = |bytes: &[u8], there: bool| if there { check_head(bytes).map(Some) } else { Ok(None) };
        let whole = HeadScanner::default().advance(&bytes, 4096).and_then(|there| read(&bytes, there));
        let piecemeal = piecemeal.and_then(|there| read(&bytes[..received], there));
        prop_assert_eq!(whole.map_err(RequestError::status), piecemeal.map_err(RequestError::status));
    }

    #[test]
    fn a_chunked_body_reads_the_same_however_it_is_cut(bytes in almost_http(), cuts in proptest::collection::vec(1..9_usize, 1..9)) {
        prop_assert_eq!(chunked(&bytes, &[usize::MAX]), chunked(&bytes, &cuts));
    }
}
