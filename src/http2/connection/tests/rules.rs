//! Rules of RFC 9113, one by one.

use super::*;
use crate::http2::hpack::encoder::Scheme;

/// Bytes read before the switch to HTTP/2 may contain requests; they are served without further input.
#[test]
fn a_request_that_was_read_with_the_preface_is_served_at_once() {
    let mut inbound = BytesMut::from(PREFACE);
    FrameHeader { length: 0, kind: kind::SETTINGS, flags: 0, stream: 0 }.put(&mut inbound);
    FrameHeader { length: GET.len(), kind: kind::HEADERS, flags: END, stream: 1 }.put(&mut inbound);
    inbound.extend_from_slice(GET);
    let mut peer = Peer::new(|stream| Http2Codec::server(stream, inbound, Rc::default(), &SETTINGS));
    peer.drive();
    assert_eq!(peer.requests.len(), 1);
}

/// RFC 7541 §4.2: the first block after the change of the table size announces it, even if the block is trailers.
#[test]
fn trailers_say_that_the_table_is_smaller_if_they_come_first() {
    let mut peer = Peer::client(&SETTINGS);
    peer.send(kind::HEADERS, END, 1, GET);
    peer.stream(0).send_response(RESPONSE, false).expect("the stream is open");
    peer.frames();
    peer.send(kind::SETTINGS, 0, 0, &[0, 1, 0, 0, 0, 0]);
    peer.stream(0).send_end(b"a: b\r\n").expect("the stream is open");
    let frames = peer.frames();
    let trailers = frames.iter().find(|frame| frame.header.kind == kind::HEADERS).expect("trailers are sent");
    assert_eq!(trailers.payload.first(), Some(&0x20));
}

/// RFC 8441 §3, §4; RFC 9113 §8.5.
#[test]
fn an_extended_connect_is_data_in_both_directions() {
    let mut peer = Peer::client(&LocalSettings { connect_protocol: true, ..SETTINGS });
    let frames = peer.frames();
    let announced = [0, 8, 0, 0, 0, 1];
    assert!(frames.iter().any(|frame| frame.payload.chunks(6).any(|setting| setting == announced)));
    peer.send(kind::HEADERS, flag::END_HEADERS, 1, CONNECT);
    let head = peer.requests[0].head.clone().expect("a good head");
    assert!(head.connect && !head.unknown_length && head.content_length.is_none());
    peer.stream(0).send_response(RESPONSE, false).expect("the stream is open");
    peer.send(kind::DATA, 0, 1, b"up");
    assert_eq!(peer.stream(0).send_data(b"down", false), Ok(4));
    assert_eq!(peer.codes(), []);
    // Trailers have no place there.
    peer.send(kind::HEADERS, END, 1, &[0, 1, b'a', 1, b'b']);
    assert_eq!(peer.codes(), [(1, ErrorCode::PROTOCOL_ERROR)]);
    peer.send(kind::HEADERS, END, 3, CONNECT);
    assert_eq!(peer.codes(), [(3, ErrorCode::PROTOCOL_ERROR)], "it ends with its head");
    peer.send(kind::SETTINGS, 0, 0, &[0, 8, 0, 0, 0, 2]);
    assert_eq!(peer.codes(), [(0, ErrorCode::PROTOCOL_ERROR)], "neither 0 nor 1");
}

/// The stream is reset after its block: the gateway sends nothing more on it.
#[test]
fn a_stream_that_depends_on_itself_is_reset_though_its_block_goes_on() {
    let mut peer = Peer::client(&SETTINGS);
    peer.send(kind::HEADERS, flag::PRIORITY | flag::END_STREAM, 1, &[0, 0, 0, 1, 0]);
    assert_eq!(peer.codes(), [], "the block is open");
    peer.send(kind::CONTINUATION, flag::END_HEADERS, 1, GET);
    assert_eq!(peer.codes(), [(1, ErrorCode::PROTOCOL_ERROR)]);
    let sent = peer.requests.first().map(|request| request.stream.send_response(RESPONSE, true));
    assert!(!matches!(sent, Some(Ok(_))), "it is served all the same");
}

/// RFC 9113 §6.8.
#[test]
fn the_last_stream_of_a_goaway_never_rises() {
    let mut peer = Peer::client(&SETTINGS);
    peer.send(kind::HEADERS, END, 1, GET);
    peer.connection.shut_down();
    peer.send(kind::PING, flag::ACK, 0, b"shutdown");
    peer.send(kind::HEADERS, END, 3, GET);
    peer.send(kind::PING, flag::ACK, 0, b"shutdown");
    peer.send(kind::PING, 0, 1, b"malforme");
    let frames = peer.frames();
    let goaways = frames.iter().filter(|frame| frame.header.kind == kind::GOAWAY).map(Frame::number);
    let goaways = goaways.collect::<Vec<_>>();
    assert!(goaways.is_sorted_by(|before, after| before >= after), "{goaways:?}");
    assert_eq!(goaways.last(), Some(&1));
}

/// RFC 9113 §5.1: frames that the client sent before it received the reset are ignored, even after many streams.
#[test]
fn streams_that_end_well_do_not_displace_those_that_were_reset() {
    let mut peer = Peer::client(&SETTINGS);
    peer.send(kind::HEADERS, flag::END_HEADERS, 1, POST);
    peer.requests.clear();
    for stream in (3..603).step_by(2) {
        peer.send(kind::HEADERS, END, stream, GET);
        peer.stream(0).send_response(RESPONSE, true).expect("the stream is open");
        peer.requests.clear();
        peer.frames();
    }
    peer.send(kind::HEADERS, END, 1, &[0, 1, b'a', 1, b'b']);
    assert_eq!(peer.codes(), []);
    assert!(!peer.over);
}

/// A server may respond long after its stream was reset.
#[test]
fn a_late_answer_does_not_end_the_connection() {
    let mut peer = Peer::server(&SETTINGS);
    for _ in 0..300 {
        let stream = peer.connection.open(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n", Scheme::Http, true);
        drop(stream.expect("the server takes it"));
        peer.frames();
    }
    peer.send(kind::HEADERS, END, 1, &[0x88]);
    assert_eq!(peer.codes(), []);
    assert!(!peer.over);
    peer.send(kind::HEADERS, END, 1001, &[0x88]);
    assert_eq!(peer.codes(), [(0, ErrorCode::PROTOCOL_ERROR)], "that stream was never opened");
}

/// RFC 9113 §6.9: an increment of 0 is a fault.
#[test]
fn a_window_of_the_default_size_needs_no_update() {
    let mut peer = Peer::client(&LocalSettings { connection_window: 65_535, ..SETTINGS });
    let frames = peer.frames();
    assert!(frames.iter().all(|frame| frame.header.kind != kind::WINDOW_UPDATE), "{frames:?}");
}

const PROTOCOL: ErrorCode = ErrorCode::PROTOCOL_ERROR;
const SIZE: ErrorCode = ErrorCode::FRAME_SIZE_ERROR;
const CLOSED: ErrorCode = ErrorCode::STREAM_CLOSED;
const FLOW: ErrorCode = ErrorCode::FLOW_CONTROL_ERROR;
/// Opens stream 3.
const OPEN: (u8, u8, u32, &[u8]) = (kind::HEADERS, flag::END_HEADERS, 3, POST);
/// Opens stream 3 with END_STREAM.
const WHOLE: (u8, u8, u32, &[u8]) = (kind::HEADERS, END, 3, GET);
const MAX_INCREMENT: &[u8] = &[0x7f, 0xff, 0xff, 0xff];
/// A request with `content-length: 2`.
const TWO: &[u8] = &[0x83, 0x86, 0x84, 0x01, 1, b'a', 0x0f, 13, 1, b'2'];
/// The rule, the frames, and the codes with their streams; 0 is the connection.
type Case<'a> = (&'a str, &'a [(u8, u8, u32, &'a [u8])], &'a [(u32, ErrorCode)]);
/// The frames after SETTINGS, and the code that ends the stream or the connection (0).
const FAULTS: &[Case<'_>] = &[
    ("4.1: the reserved bit", &[(kind::PING, 0, 1 << 31, &[0; 8])], &[]),
    ("4.1: unknown types", &[(0xfe, 0xff, 7, b"abc")], &[]),
    ("4.2: too large", &[(0xfe, 0, 0, &[0; 16_385])], &[(0, SIZE)]),
    ("4.3: a bad block", &[(kind::HEADERS, END, 1, &[0x80])], &[(0, ErrorCode::COMPRESSION_ERROR)]),
    ("5.1: DATA when idle", &[(kind::DATA, 0, 1, b"")], &[(0, PROTOCOL)]),
    ("5.1: RST_STREAM when idle", &[(kind::RST_STREAM, 0, 1, &[0; 4])], &[(0, PROTOCOL)]),
    ("5.1: WINDOW_UPDATE when idle", &[(kind::WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1])], &[(0, PROTOCOL)]),
    ("5.1: PRIORITY when idle", &[(kind::PRIORITY, 0, 1, &[0; 5])], &[]),
    ("5.1: DATA after the end", &[WHOLE, (kind::DATA, 0, 3, b"a")], &[(3, CLOSED)]),
    ("5.1: HEADERS after the end", &[WHOLE, (kind::HEADERS, END, 3, GET)], &[(0, CLOSED)]),
    ("5.1: WINDOW_UPDATE after the end", &[WHOLE, (kind::WINDOW_UPDATE, 0, 3, &[0, 0, 0, 1])], &[]),
    (
        "5.1: DATA after RST_STREAM",
        &[OPEN, (kind::RST_STREAM, 0, 3, &[0; 4]), (kind::DATA, 0, 3, b"a")],
        &[(3, CLOSED)],
    ),
    (
        "5.1: HEADERS after RST_STREAM",
        &[OPEN, (kind::RST_STREAM, 0, 3, &[0; 4]), (kind::HEADERS, END, 3, GET)],
        &[(3, CLOSED)],
    ),
    ("5.1.1: even streams", &[(kind::HEADERS, END, 2, GET)], &[(0, PROTOCOL)]),
    ("5.1.1: streams in order", &[WHOLE, (kind::HEADERS, END, 1, GET)], &[(0, PROTOCOL)]),
    ("6.1: DATA of no stream", &[(kind::DATA, 0, 0, b"a")], &[(0, PROTOCOL)]),
    ("6.1: padding", &[OPEN, (kind::DATA, flag::PADDED, 3, b"\x03abc")], &[]),
    ("6.1: too much padding", &[OPEN, (kind::DATA, flag::PADDED, 3, b"\x04abc")], &[(0, PROTOCOL)]),
    ("6.1: no padding", &[OPEN, (kind::DATA, flag::PADDED, 3, b"")], &[(0, PROTOCOL)]),
    ("6.2: HEADERS of no stream", &[(kind::HEADERS, END, 0, GET)], &[(0, PROTOCOL)]),
    ("6.2: too much padding", &[(kind::HEADERS, END | flag::PADDED, 1, &[9, 0x82])], &[(0, PROTOCOL)]),
    (
        "6.2: a block is interrupted",
        &[(kind::HEADERS, 0, 1, GET), (kind::PING, 0, 0, &[0; 8])],
        &[(0, PROTOCOL)],
    ),
    ("6.2: on its stream", &[(kind::HEADERS, 0, 1, GET), (kind::CONTINUATION, 4, 3, GET)], &[(0, PROTOCOL)]),
    ("6.3: PRIORITY of no stream", &[(kind::PRIORITY, 0, 0, &[0; 5])], &[(0, PROTOCOL)]),
    ("6.3: its size", &[OPEN, (kind::PRIORITY, 0, 3, &[0; 4])], &[(3, SIZE)]),
    ("6.4: RST_STREAM of no stream", &[(kind::RST_STREAM, 0, 0, &[0; 4])], &[(0, PROTOCOL)]),
    ("6.4: its size", &[OPEN, (kind::RST_STREAM, 0, 3, &[0; 5])], &[(0, SIZE)]),
    ("6.5: SETTINGS of a stream", &[(kind::SETTINGS, 0, 1, &[])], &[(0, PROTOCOL)]),
    ("6.5: their size", &[(kind::SETTINGS, 0, 0, &[0; 5])], &[(0, SIZE)]),
    ("6.5: an acknowledgement is empty", &[(kind::SETTINGS, flag::ACK, 0, &[0; 6])], &[(0, SIZE)]),
    ("6.5.2: ENABLE_PUSH", &[(kind::SETTINGS, 0, 0, &[0, 2, 0, 0, 0, 2])], &[(0, PROTOCOL)]),
    ("6.5.2: INITIAL_WINDOW_SIZE", &[(kind::SETTINGS, 0, 0, &[0, 4, 0x80, 0, 0, 0])], &[(0, FLOW)]),
    ("6.5.2: MAX_FRAME_SIZE", &[(kind::SETTINGS, 0, 0, &[0, 5, 0, 0, 0x3f, 0xff])], &[(0, PROTOCOL)]),
    ("6.5.2: unknown settings", &[(kind::SETTINGS, 0, 0, &[0xff, 5, 0, 0, 0x3f, 0xff])], &[]),
    ("6.6: PUSH_PROMISE", &[OPEN, (kind::PUSH_PROMISE, 4, 3, &[0, 0, 0, 2, 0x82])], &[(0, PROTOCOL)]),
    ("6.7: PING of a stream", &[(kind::PING, 0, 1, &[0; 8])], &[(0, PROTOCOL)]),
    ("6.7: its size", &[(kind::PING, 0, 0, &[0; 7])], &[(0, SIZE)]),
    ("6.8: GOAWAY of a stream", &[(kind::GOAWAY, 0, 1, &[0; 8])], &[(0, PROTOCOL)]),
    ("6.9: an update of nothing", &[(kind::WINDOW_UPDATE, 0, 0, &[0; 4])], &[(0, PROTOCOL)]),
    ("6.9: of a stream", &[OPEN, (kind::WINDOW_UPDATE, 0, 3, &[0; 4])], &[(3, PROTOCOL)]),
    ("6.9: its size", &[(kind::WINDOW_UPDATE, 0, 0, &[0; 3])], &[(0, SIZE)]),
    ("6.9.1: too large a window", &[(kind::WINDOW_UPDATE, 0, 0, MAX_INCREMENT)], &[(0, FLOW)]),
    ("6.9.1: of a stream", &[OPEN, (kind::WINDOW_UPDATE, 0, 3, MAX_INCREMENT)], &[(3, FLOW)]),
    (
        "6.9.2: by SETTINGS",
        &[
            OPEN,
            (kind::WINDOW_UPDATE, 0, 3, &[0x7f, 0xff, 0, 0]),
            (kind::SETTINGS, 0, 0, &[0, 4, 0, 2, 0, 0]),
        ],
        &[(0, FLOW)],
    ),
    ("6.10: CONTINUATION of nothing", &[(kind::CONTINUATION, 4, 1, GET)], &[(0, PROTOCOL)]),
    (
        "6.10: after the end",
        &[(kind::HEADERS, END, 1, GET), (kind::CONTINUATION, 4, 1, GET)],
        &[(0, PROTOCOL)],
    ),
    (
        "8.1: trailers that do not end",
        &[OPEN, (kind::HEADERS, flag::END_HEADERS, 3, &[0, 1, b'a', 1, b'b'])],
        &[(3, PROTOCOL)],
    ),
    ("8.1: pseudo-fields in trailers", &[OPEN, (kind::HEADERS, END, 3, GET)], &[(3, PROTOCOL)]),
    (
        "8.1.1: less than content-length",
        &[(kind::HEADERS, 4, 1, TWO), (kind::DATA, 1, 1, b"a")],
        &[(1, PROTOCOL)],
    ),
    ("8.1.1: more", &[(kind::HEADERS, 4, 1, TWO), (kind::DATA, 0, 1, b"abc")], &[(1, PROTOCOL)]),
    ("8.1.1: none", &[(kind::HEADERS, END, 1, TWO)], &[(1, PROTOCOL)]),
    (
        "8.1.1: trailers after less",
        &[(kind::HEADERS, 4, 1, TWO), (kind::HEADERS, END, 1, &[0, 1, b'a', 1, b'b'])],
        &[(1, PROTOCOL)],
    ),
    (
        "8.2: upper case",
        &[(kind::HEADERS, END, 1, &[0x82, 0x86, 0x84, 0x01, 1, b'a', 0, 1, b'A', 1, b'b'])],
        &[(1, PROTOCOL)],
    ),
    ("8.3: no method", &[(kind::HEADERS, END, 1, &[0x86, 0x84, 0x01, 1, b'a'])], &[(1, PROTOCOL)]),
    ("8.3: :status", &[(kind::HEADERS, END, 1, &[0x88, 0x82, 0x86, 0x84])], &[(1, PROTOCOL)]),
    (
        "8.3: pseudo-fields first",
        &[(kind::HEADERS, END, 1, &[0, 1, b'a', 1, b'b', 0x82, 0x86, 0x84])],
        &[(1, PROTOCOL)],
    ),
    ("8.3: each once", &[(kind::HEADERS, END, 1, &[0x82, 0x86, 0x84, 0x84])], &[(1, PROTOCOL)]),
];

#[test]
fn faults_are_told_as_the_rfc_has_them() {
    for (rule, frames, expected) in FAULTS {
        let mut peer = Peer::client(&SETTINGS);
        for (kind, flags, stream, payload) in *frames {
            peer.send(*kind, *flags, *stream, payload);
        }
        assert_eq!(&peer.codes(), expected, "{rule}");
        assert_eq!(peer.over, expected.iter().any(|(stream, _)| *stream == 0), "{rule}");
    }
}

/// RFC 9113 §6.9.1: a peer that sends more than its windows have.
#[test]
fn more_than_the_window_is_a_fault() {
    let small = LocalSettings { stream_window: 10, max_stream_window: 10, ..SETTINGS };
    let mut peer = Peer::client(&small);
    // A client that has not read SETTINGS has the default window.
    peer.send(kind::HEADERS, flag::END_HEADERS, 1, POST);
    peer.send(kind::DATA, 0, 1, &[0; 10]);
    peer.send(kind::SETTINGS, flag::ACK, 0, &[]);
    assert_eq!(peer.codes(), []);
    peer.send(kind::DATA, 0, 1, &[0]);
    assert_eq!(peer.codes(), [(1, ErrorCode::FLOW_CONTROL_ERROR)]);
    let mut peer = Peer::client(&LocalSettings {
        stream_window: 1 << 20,
        max_stream_window: 1 << 20,
        connection_window: 65_535,
        ..SETTINGS
    });
    peer.send(kind::HEADERS, flag::END_HEADERS, 1, POST);
    for _ in 0..4 {
        assert_eq!(peer.codes(), []);
        peer.send(kind::DATA, 0, 1, &[0; 16 << 10]);
    }
    assert_eq!(peer.codes(), [(0, ErrorCode::FLOW_CONTROL_ERROR)]);
}

/// RFC 9113 §3.4: the first frame of the preface is SETTINGS, not an acknowledgement.
#[test]
fn the_first_frame_is_settings() {
    for (kind, flags, payload) in
        [(kind::PING, 0, &[0; 8][..]), (kind::SETTINGS, flag::ACK, &[]), (0xfe, 0, b"")]
    {
        let mut peer =
            Peer::new(|stream| Http2Codec::server(stream, BytesMut::new(), Rc::default(), &SETTINGS));
        peer.write(PREFACE);
        peer.send(kind, flags, 0, payload);
        assert_eq!(peer.codes(), [(0, ErrorCode::PROTOCOL_ERROR)]);
    }
}

/// Frames of a server to a client.
#[test]
fn faults_of_servers_are_told_as_the_rfc_has_them() {
    /// `:status: 100`, literally.
    const INTERIM: &[u8] = &[0x08, 3, b'1', b'0', b'0'];
    let cases: &[Case<'_>] = &[
        ("5.1.1: a stream of the server", &[(kind::HEADERS, END, 2, &[0x88])], &[(0, PROTOCOL)]),
        ("5.1.1: a stream that was never opened", &[(kind::HEADERS, END, 3, &[0x88])], &[(0, PROTOCOL)]),
        ("6.5.2: ENABLE_PUSH", &[(kind::SETTINGS, 0, 0, &[0, 2, 0, 0, 0, 1])], &[(0, PROTOCOL)]),
        ("8.4: PUSH_PROMISE", &[(kind::PUSH_PROMISE, 4, 1, &[0, 0, 0, 2, 0x82])], &[(0, PROTOCOL)]),
        ("8.1: DATA before the head", &[(kind::DATA, 0, 1, b"a")], &[(1, PROTOCOL)]),
        (
            "8.1: DATA after an interim head",
            &[(kind::HEADERS, 4, 1, INTERIM), (kind::DATA, 0, 1, b"a")],
            &[(1, PROTOCOL)],
        ),
        ("8.1: an interim head with END_STREAM", &[(kind::HEADERS, END, 1, INTERIM)], &[(1, PROTOCOL)]),
        ("8.1: interim heads", &[(kind::HEADERS, 4, 1, INTERIM), (kind::HEADERS, END, 1, &[0x88])], &[]),
        ("8.3.2: no status", &[(kind::HEADERS, END, 1, &[0, 1, b'a', 1, b'b'])], &[(1, PROTOCOL)]),
        ("8.3.2: two", &[(kind::HEADERS, END, 1, &[0x88, 0x88])], &[(1, PROTOCOL)]),
    ];
    for (rule, frames, expected) in cases {
        let mut peer = Peer::server(&SETTINGS);
        let stream = peer.connection.open(b"POST / HTTP/1.1\r\nhost: a\r\n\r\n", Scheme::Http, false);
        let _stream = stream.expect("the server takes it");
        for (kind, flags, stream, payload) in *frames {
            peer.send(*kind, *flags, *stream, payload);
        }
        assert_eq!(&peer.codes(), expected, "{rule}");
    }
}
