//! Requests over HTTP/3 that no client should send, written byte by byte: none of them reaches a backend, as it was sent or
//! as something else, and the gateway serves the next.

use super::{Http3Gateway, codes};
use crate::harness::quic_client::{H3_DATA, H3_HEADERS, H3_SETTINGS, h3_frame, h3_head, h3_number};
use crate::harness::{Backend, Next, QuicEnd, Recorded, eventually, everything_to};

const MALFORMED: QuicEnd = QuicEnd::Reset(codes::MESSAGE_ERROR);
const PSEUDO: [(&str, &str); 4] =
    [(":method", "GET"), (":scheme", "https"), (":path", "/"), (":authority", "a.test")];

/// [`PSEUDO`] with some fields replaced, and others after them.
fn head(replaced: &[(&str, &str)], more: &[(&str, &str)]) -> Vec<u8> {
    let value = |(name, value)| {
        (name, replaced.iter().find(|(other, _)| *other == name).map_or(value, |&(_, other)| other))
    };
    let fields: Vec<_> = PSEUDO.into_iter().map(value).chain(more.iter().copied()).collect();
    h3_head(&fields)
}

fn post(fields: &[(&str, &str)]) -> Vec<u8> {
    head(&[(":method", "POST")], fields)
}

/// A HEADERS frame with this field section, whose head is [`PSEUDO`] before it.
fn section(after: &[u8]) -> Vec<u8> {
    let whole = h3_head(&PSEUDO);
    // The header of the frame takes two bytes.
    h3_frame(H3_HEADERS, &[&whole[2..], after].concat())
}

fn reading() -> Backend {
    Backend::start(|exchange| {
        exchange.read_body();
        exchange.write("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
        Next::KeepAlive
    })
}

#[test]
fn heads_that_say_two_things_are_never_forwarded() {
    let backend = Backend::ok();
    let http3 = Http3Gateway::start(&everything_to(&backend, ""));
    let client = http3.quic();
    let answered = QuicEnd::Answered;
    let long = "x".repeat(9000);
    let cases: [(&str, Vec<u8>, QuicEnd); 40] = [
        ("another host", head(&[], &[("host", "other")]), answered(400)),
        ("the host with a port", head(&[], &[("host", "a.test:443")]), answered(400)),
        ("two hosts", head(&[], &[("host", "a.test"), ("host", "other")]), answered(400)),
        ("no authority", h3_head(&PSEUDO[..3]), answered(400)),
        ("userinfo", head(&[(":authority", "me@a.test")], &[]), answered(400)),
        ("an odd authority", head(&[(":authority", "te st")], &[]), MALFORMED),
        ("a path in the authority", head(&[(":authority", "a.test/x")], &[]), MALFORMED),
        ("an empty authority", head(&[(":authority", "")], &[]), MALFORMED),
        ("CONNECT", h3_head(&[(":method", "CONNECT"), (":authority", "a.test:443")]), answered(405)),
        ("TRACE", head(&[(":method", "TRACE")], &[]), answered(405)),
        ("a lower-case method", head(&[(":method", "get")], &[]), answered(400)),
        ("a method with a blank", head(&[(":method", "GET /x")], &[]), MALFORMED),
        ("a path with a blank", head(&[(":path", "/a b")], &[]), MALFORMED),
        ("a path with a line", head(&[(":path", "/ HTTP/1.1\r\nx: y")], &[]), MALFORMED),
        ("a path with a fragment", head(&[(":path", "/a#b")], &[]), MALFORMED),
        ("no path", head(&[(":path", "")], &[]), MALFORMED),
        ("a path without a slash", head(&[(":path", "a")], &[]), MALFORMED),
        ("a URL", head(&[(":path", "https://a.test/")], &[]), MALFORMED),
        ("asterisk with GET", head(&[(":path", "*")], &[]), answered(400)),
        ("a long path", head(&[(":path", &format!("/{long}"))], &[]), answered(414)),
        ("connection", head(&[], &[("connection", "close")]), MALFORMED),
        ("upgrade", head(&[], &[("upgrade", "websocket")]), MALFORMED),
        ("keep-alive", head(&[], &[("keep-alive", "1")]), MALFORMED),
        ("proxy-connection", head(&[], &[("proxy-connection", "close")]), MALFORMED),
        ("transfer-encoding", head(&[], &[("transfer-encoding", "chunked")]), MALFORMED),
        ("te", head(&[], &[("te", "chunked")]), MALFORMED),
        ("an upper-case name", head(&[], &[("X-A", "1")]), MALFORMED),
        ("an upper-case pseudo-field", head(&[], &[(":Method", "1")]), MALFORMED),
        ("a name with a blank", head(&[], &[("x a", "1")]), MALFORMED),
        ("a name with a colon", head(&[], &[("x:a", "1")]), MALFORMED),
        ("an empty name", head(&[], &[("", "1")]), MALFORMED),
        ("a line in a value", head(&[], &[("x", "a\r\nhost: b")]), MALFORMED),
        ("NUL in a value", head(&[], &[("x", "a\0")]), MALFORMED),
        ("two lengths", head(&[], &[("content-length", "0"), ("content-length", "0")]), answered(400)),
        ("two other lengths", head(&[], &[("content-length", "0"), ("content-length", "1")]), MALFORMED),
        ("a length with a sign", head(&[], &[("content-length", "+0")]), MALFORMED),
        ("an oversized value", head(&[], &[("x", &"v".repeat(17 << 10))]), answered(431)),
        ("an oversized frame", head(&[], &[("x", &"v".repeat(40 << 10))]), answered(431)),
        // Each byte stands for a field of the static table.
        ("many fields in few bytes", section(&[0xc0 | 29; 4_000]), answered(431)),
        ("no fields", h3_frame(H3_HEADERS, &[0, 0]), MALFORMED),
    ];
    for (what, head, expected) in cases {
        assert_eq!(client.fate(&head), expected, "{what}");
    }
    assert_eq!(backend.count(), 0);
    assert_eq!(client.fate(&head(&[], &[])), answered(200));
}

#[test]
fn pseudo_fields_are_few_and_first() {
    let backend = Backend::ok();
    let http3 = Http3Gateway::start(&everything_to(&backend, ""));
    let client = http3.quic();
    for name in [":method", ":scheme", ":path", ":authority"] {
        let again = head(&[], &PSEUDO.into_iter().filter(|field| field.0 == name).collect::<Vec<_>>());
        assert_eq!(client.fate(&again), MALFORMED, "two of {name}");
    }
    for name in [":method", ":scheme", ":path"] {
        let rest: Vec<_> = PSEUDO.into_iter().filter(|field| field.0 != name).collect();
        assert_eq!(client.fate(&h3_head(&rest)), MALFORMED, "no {name}");
    }
    for name in [":status", ":protocol", ":other", ":"] {
        assert_eq!(client.fate(&head(&[], &[(name, "200")])), MALFORMED, "{name}");
    }
    let late = [&PSEUDO[..3], &[("x", "1"), PSEUDO[3]]].concat();
    assert_eq!(client.fate(&h3_head(&late)), MALFORMED, "after a field");
    assert_eq!(backend.count(), 0);
    assert_eq!(client.fate(&head(&[], &[])), QuicEnd::Answered(200));
}

#[test]
fn extended_connect_for_another_protocol_is_refused() {
    let backend = Backend::ok();
    let http3 = Http3Gateway::start(&everything_to(&backend, ""));
    let client = http3.quic();
    for (protocol, status) in [("connect-udp", 501), ("connect-ip", 501), ("x", 501)] {
        let opening = head(&[(":method", "CONNECT")], &[(":protocol", protocol)]);
        // The order of pseudo-header fields is free.
        let stream = client.open(&opening);
        assert_eq!(client.end_of(stream), QuicEnd::Answered(status), "{protocol}");
    }
    assert_eq!(backend.count(), 0);
    assert_eq!(client.fate(&head(&[], &[])), QuicEnd::Answered(200));
}

#[test]
fn a_body_that_is_not_as_long_as_it_says_is_no_request() {
    let backend = reading();
    let http3 = Http3Gateway::start(&everything_to(&backend, ""));
    let client = http3.quic();
    let head = post(&[("content-length", "5")]);
    for (what, parts) in [
        ("too short", &[&b"abc"[..]][..]),
        ("too long", &[b"abcdef"]),
        ("too long in parts", &[b"abcde", b"f"]),
        ("empty", &[b""]),
        ("none", &[]),
    ] {
        let mut bytes = head.clone();
        parts.iter().for_each(|part| bytes.extend(h3_frame(H3_DATA, part)));
        assert_eq!(client.fate(&bytes), MALFORMED, "{what}");
        bytes.extend(h3_head(&[("x", "1")]));
        assert_eq!(client.fate(&bytes), MALFORMED, "{what}, with trailers");
    }
    for seen in backend.requests() {
        assert!(seen.body.len() < 5, "{:?} was passed on as whole", seen.body);
    }
    assert_eq!(client.fate(&[&head[..], &h3_frame(H3_DATA, b"abcde")].concat()), QuicEnd::Answered(200));
}

#[test]
fn trailers_are_no_second_head() {
    let backend = reading();
    let http3 = Http3Gateway::start(&everything_to(&backend, ""));
    let client = http3.quic();
    let head = post(&[("trailer", "x-a, transfer-encoding, host, content-length")]);
    let with = |fields: &[(&str, &str)]| {
        client.fate(&[&head[..], &h3_frame(H3_DATA, b"abc"), &h3_head(fields)].concat())
    };
    for (name, value) in [
        ("connection", "close"),
        ("transfer-encoding", "chunked"),
        ("x", "a\r\nb: c"),
        (":path", "/b"),
        ("X-A", "1"),
    ] {
        assert_eq!(with(&[(name, value)]), MALFORMED, "{name}");
    }
    assert_eq!(with(&[("x-a", "1"), ("host", "b"), ("content-length", "7")]), QuicEnd::Answered(200));
    // What came before bad trailers may have gone on, and may come late, but its body does not look whole.
    let mut whole = backend.requests();
    whole.retain(|seen| seen.raw_body.ends_with(b"\r\n\r\n"));
    let whole: Vec<_> = whole.iter().map(|seen| (seen.trailers.as_str(), &seen.body[..])).collect();
    assert_eq!(whole, [("x-a: 1\r\n", &b"abc"[..])]);
    assert_eq!(with(&[("x-a", &"a".repeat(17 << 10))]), QuicEnd::Answered(400), "over 16 KiB");
    let excessive = QuicEnd::Reset(codes::EXCESSIVE_LOAD);
    assert_eq!(with(&[("x-a", &"a".repeat(33 << 10))]), excessive, "over 32 KiB");
    assert_eq!(with(&[("x", ""); 1_000]), excessive, "each field counts 32 bytes more");
}

#[test]
fn a_stream_without_a_request_is_reset() {
    let backend = Backend::ok();
    let http3 = Http3Gateway::start(&everything_to(&backend, ""));
    let client = http3.quic();
    assert_eq!(client.fate(b""), QuicEnd::Reset(codes::REQUEST_INCOMPLETE));
    assert_eq!(client.fate(&h3_frame(0x21, b"grease")), QuicEnd::Reset(codes::REQUEST_INCOMPLETE));
    assert_eq!(client.fate(&head(&[], &[])), QuicEnd::Answered(200));
    assert_eq!(backend.count(), 1);
}

#[test]
fn frames_out_of_place_on_a_request_stream_close_the_connection() {
    let backend = reading();
    let http3 = Http3Gateway::start(&everything_to(&backend, ""));
    let data = h3_frame(H3_DATA, b"abc");
    let trailers = h3_head(&[("x", "1")]);
    let mut cases: Vec<(String, Vec<u8>, u64)> = Vec::new();
    let mut case = |what: &str, parts: &[&[u8]], code| cases.push((what.to_owned(), parts.concat(), code));
    case("DATA first", &[&data, &post(&[])], codes::FRAME_UNEXPECTED);
    case("DATA after trailers", &[&post(&[]), &data, &trailers, &data], codes::FRAME_UNEXPECTED);
    case("two trailers", &[&post(&[]), &trailers, &trailers], codes::FRAME_UNEXPECTED);
    // CANCEL_PUSH, SETTINGS, PUSH_PROMISE, GOAWAY, MAX_PUSH_ID; those of HTTP/2.
    for kind in [3, 4, 5, 7, 13, 2, 6, 8, 9] {
        case(&format!("{kind} first"), &[&h3_frame(kind, &[0]), &post(&[])], codes::FRAME_UNEXPECTED);
        case(&format!("{kind} later"), &[&post(&[]), &h3_frame(kind, &[0])], codes::FRAME_UNEXPECTED);
    }
    let whole = post(&[]);
    case("a cut head", &[&whole[..20]], codes::FRAME_ERROR);
    case("a cut header of a frame", &[&whole, &[0, 0x40]], codes::FRAME_ERROR);
    case("a cut frame of a body", &[&whole, &data[..3]], codes::FRAME_ERROR);
    case("a cut frame of no known type", &[&whole, &h3_frame(0x21, b"abc")[..3]], codes::FRAME_ERROR);
    // RFC 9204 §4.5: a required insert count, and what refers to a dynamic table or to nothing.
    let qpack = codes::QPACK_DECOMPRESSION_FAILED;
    case("a dynamic table", &[&h3_frame(H3_HEADERS, &[2, 0, 0x80])], qpack);
    case("no section at all", &[&h3_frame(H3_HEADERS, b"")], qpack);
    for (what, field) in [
        ("an indexed field of the dynamic table", &[0x80][..]),
        ("an indexed field after the base", &[0x10]),
        ("a name of the dynamic table", &[0x40, 1, b'x']),
        ("a name after the base", &[0, 1, b'x']),
        ("an entry that there is not", &[0xff, 36]),
        ("a name that there is not", &[0x5f, 84, 0]),
        ("an endless integer", &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]),
        ("a string that is cut", &[0x51, 9, b'/']),
        ("padding of Huffman code", &[0x51, 0x81, 0]),
    ] {
        case(what, &[&section(field)], qpack);
        case(
            &format!("{what} in trailers"),
            &[&whole, &h3_frame(H3_HEADERS, &[&[0, 0], field].concat())],
            qpack,
        );
    }
    for (what, bytes, code) in cases {
        let client = http3.quic();
        let _open = client.send(&bytes);
        assert_eq!(client.close_code(), code, "{what}");
    }
    let complete = |seen: &Recorded| seen.raw_body.ends_with(b"0\r\n\r\n");
    assert!(!backend.requests().iter().any(complete), "{:#?}", backend.requests());
    assert_eq!(http3.quic().fate(&head(&[], &[])), QuicEnd::Answered(200));
}

#[test]
fn faults_on_streams_in_one_direction_close_the_connection() {
    let backend = Backend::ok();
    let http3 = Http3Gateway::start(&everything_to(&backend, ""));
    let settings = |payload: &[u8]| [&[0][..], &h3_frame(H3_SETTINGS, payload)].concat();
    let control = |frame: Vec<u8>| vec![[settings(b""), frame].concat()];
    let mut cases: Vec<(String, Vec<Vec<u8>>, u64)> = vec![
        ("two control streams".into(), vec![settings(b""), settings(b"")], codes::STREAM_CREATION_ERROR),
        ("two encoders".into(), vec![vec![2], vec![2]], codes::STREAM_CREATION_ERROR),
        ("two decoders".into(), vec![vec![3], vec![3]], codes::STREAM_CREATION_ERROR),
        ("a push".into(), vec![vec![1, 0]], codes::STREAM_CREATION_ERROR),
        ("GOAWAY first".into(), vec![[vec![0], h3_frame(7, &[0])].concat()], codes::MISSING_SETTINGS),
        ("an unknown first".into(), vec![[vec![0], h3_frame(0x21, b"")].concat()], codes::MISSING_SETTINGS),
        ("SETTINGS twice".into(), control(h3_frame(H3_SETTINGS, b"")), codes::FRAME_UNEXPECTED),
        ("a setting twice".into(), vec![settings(&[6, 1, 6, 1])], codes::SETTINGS_ERROR),
        ("a cut setting".into(), vec![settings(&[6, 0x40])], codes::FRAME_ERROR),
        ("extended CONNECT of 2".into(), vec![settings(&[8, 2])], codes::SETTINGS_ERROR),
        (
            "a GOAWAY that rises".into(),
            control([h3_frame(7, &[1]), h3_frame(7, &[2])].concat()),
            codes::ID_ERROR,
        ),
        (
            "a MAX_PUSH_ID that falls".into(),
            control([h3_frame(13, &[2]), h3_frame(13, &[1])].concat()),
            codes::ID_ERROR,
        ),
        ("no push to cancel".into(), control(h3_frame(3, &[0])), codes::ID_ERROR),
        ("an id and more".into(), control(h3_frame(7, &[1, 1])), codes::FRAME_ERROR),
        ("an id that is cut".into(), control(h3_frame(7, &[0x40])), codes::FRAME_ERROR),
        ("large settings".into(), vec![[vec![0, 4], h3_number(1 << 40)].concat()], codes::EXCESSIVE_LOAD),
        ("an insertion".into(), vec![vec![2, 0xc0, 1, b'x']], codes::QPACK_ENCODER_STREAM_ERROR),
        ("a capacity".into(), vec![vec![2, 0x3f, 0x81, 0x1f]], codes::QPACK_ENCODER_STREAM_ERROR),
        ("an acknowledged section".into(), vec![vec![3, 0x80]], codes::QPACK_DECODER_STREAM_ERROR),
        ("an insert count".into(), vec![vec![3, 1]], codes::QPACK_DECODER_STREAM_ERROR),
    ];
    for kind in [0, 1, 5, 2, 6, 8, 9] {
        cases.push((format!("frame {kind}"), control(h3_frame(kind, b"")), codes::FRAME_UNEXPECTED));
    }
    for id in [0, 2, 3, 4, 5] {
        cases.push((format!("setting {id}"), vec![settings(&[id, 0])], codes::SETTINGS_ERROR));
    }
    for (what, streams, code) in cases {
        let client = http3.quic();
        let _open: Vec<_> = streams.iter().map(|bytes| client.open_one_way(bytes)).collect();
        assert_eq!(client.close_code(), code, "{what}");
    }
    for kind in [0_u8, 2, 3] {
        for is_reset in [true, false] {
            let client = http3.quic();
            let mut stream = client.open_one_way(&if kind == 0 { settings(b"") } else { vec![kind] });
            // The type was read, once the gateway has answered a later request.
            assert_eq!(client.fate(&head(&[], &[])), QuicEnd::Answered(200));
            match is_reset {
                true => stream.reset(0_u32.into()).expect("it is open"),
                false => stream.finish().expect("it is open"),
            }
            assert_eq!(client.close_code(), codes::CLOSED_CRITICAL_STREAM, "{kind}, reset: {is_reset}");
        }
    }
    assert_eq!(http3.quic().fate(&head(&[], &[])), QuicEnd::Answered(200));
}

#[test]
fn what_is_not_known_is_skipped() {
    let backend = reading();
    let http3 = Http3Gateway::start(&everything_to(&backend, ""));
    let client = http3.quic();
    // Settings of no known id, and the largest frame type (RFC 9114 §7.2.8).
    let settings = [h3_number(0x21), h3_number(7), h3_number((1 << 62) - 2), h3_number(1)].concat();
    let control = [&[0][..], &h3_frame(H3_SETTINGS, &settings), &h3_frame(0x21, b"x"), &h3_frame(13, &[9])];
    let _control = client.open_one_way(&control.concat());
    let _encoder = client.open_one_way(&[2, 0x20]);
    let _decoder = client.open_one_way(&[3, 0x40, 0x44]);
    let unknown = client.open_one_way(&[h3_number(0x21), vec![b'x'; 100]].concat());
    let stopped = client.block_on(unknown.stopped()).expect("the connection is open");
    assert_eq!(stopped.map(u64::from), Some(codes::STREAM_CREATION_ERROR));
    // Without a type.
    client.open_one_way(b"").finish().expect("it is open");
    client.open_one_way(&[0x40]).finish().expect("it is open");
    let grease = h3_frame((1 << 62) - 2, &[0; 3_000]);
    let parts = [grease.clone(), post(&[]), grease.clone(), h3_frame(H3_DATA, b"abc"), grease.clone()];
    let whole =
        [&parts.concat()[..], &h3_frame(H3_DATA, b""), &h3_frame(H3_DATA, b"de"), &h3_head(&[]), &grease];
    assert_eq!(client.fate(&whole.concat()), QuicEnd::Answered(200));
    assert_eq!(backend.only().body, b"abcde");
    // More than a control stream may have, and requests go on.
    for number in 0..100_u64 {
        let stream = client.open_one_way(&h3_number(0x21 + 0x1f * number));
        client.block_on(stream.stopped()).expect("the connection is open");
    }
    assert_eq!(client.fate(&head(&[], &[])), QuicEnd::Answered(200));
}

#[test]
fn a_request_that_comes_byte_by_byte_is_served() {
    let backend = reading();
    let http3 = Http3Gateway::start(&everything_to(&backend, ""));
    let client = http3.quic();
    let whole = [post(&[("content-length", "3")]), h3_frame(0x21, b"x"), h3_frame(H3_DATA, b"abc")].concat();
    let mut stream = client.open(&whole[..1]);
    for byte in &whole[1..] {
        let before = client.connection().stats().frame_tx.stream;
        client.block_on(stream.sending.write_all(&[*byte])).expect("the gateway reads");
        eventually("a packet", || (client.connection().stats().frame_tx.stream > before).then_some(()));
    }
    stream.sending.finish().expect("it is open");
    assert_eq!(client.end_of(stream), QuicEnd::Answered(200));
    assert_eq!(backend.only().body, b"abc");
}

#[test]
fn empty_frames_without_end_close_the_connection() {
    let backend = Backend::ok();
    let http3 = Http3Gateway::start(&everything_to(&backend, ""));
    for kind in [H3_DATA, 0x21] {
        let client = http3.quic();
        let mut stream = client.open(&post(&[]));
        let flood = h3_frame(kind, b"").repeat(2_000);
        client.block_on(stream.sending.write_all(&flood)).ok();
        assert_eq!(client.close_code(), codes::EXCESSIVE_LOAD);
    }
    assert_eq!(http3.quic().fate(&head(&[], &[])), QuicEnd::Answered(200));
}
