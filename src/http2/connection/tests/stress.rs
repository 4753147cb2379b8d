//! What stops no other stream: resets, bodies that wait, heads that are too large.

use std::time::Duration;

use super::super::super::frame::{FrameHeader, kind};
use super::*;
use crate::http2::connection::{READ, Reset};
use crate::http2::hpack::encoder::Scheme;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = BytesMut::new();
    FrameHeader { length: payload.len(), kind, flags, stream }.put(&mut frame);
    frame.extend_from_slice(payload);
    frame.to_vec()
}

/// MadeYouReset (CVE-2025-8671): a request with a fault in the same read is neither served nor charged.
#[test]
fn a_request_that_is_reset_for_a_fault_in_the_same_read_is_not_served() {
    let faults: [(u8, u8, &[u8]); 5] = [
        (kind::WINDOW_UPDATE, 0, &[0; 4]),
        (kind::WINDOW_UPDATE, 0, &[0x7f, 0xff, 0xff, 0xff]),
        (kind::DATA, 0, b"x"),
        (kind::HEADERS, flag::END_HEADERS, GET),
        (kind::PRIORITY, 0, &[0; 4]),
    ];
    for (kind, flags, payload) in faults {
        let mut peer = Peer::client(&SETTINGS);
        let pair = [frame(kind::HEADERS, END, 1, GET), frame(kind, flags, 1, payload)].concat();
        peer.write(&pair);
        peer.drive();
        assert!(peer.requests.is_empty(), "{kind}");
        if kind == kind::HEADERS {
            continue;
        }
        assert_eq!(peer.codes().iter().map(|(stream, _)| *stream).collect::<Vec<_>>(), [1], "{kind}");
        peer.send(kind::HEADERS, END, 3, GET);
        peer.drive();
        assert_eq!(peer.requests.len(), 1, "the connection goes on");
    }
}

/// As above, where the request is at the end of what one read takes.
#[test]
fn a_request_whose_fault_is_in_the_next_read_is_not_served() {
    let mut peer = Peer::client(&SETTINGS);
    let post = frame(kind::HEADERS, flag::END_HEADERS, 1, POST);
    let get = frame(kind::HEADERS, END, 3, GET);
    let data = frame(kind::DATA, 0, 1, &vec![0; READ - post.len() - get.len() - 9]);
    let fault = frame(kind::WINDOW_UPDATE, 0, 3, &[0; 4]);
    let bytes = [post, data, get, fault].concat();
    assert_eq!(bytes.len(), READ + 13);
    peer.write(&bytes);
    assert_eq!(peer.requests.len(), 1, "the first");
    assert_eq!(peer.codes(), [(3, ErrorCode::PROTOCOL_ERROR)]);
}

#[test]
fn requests_that_are_cancelled_at_once_cost_nothing_and_end_nothing() {
    let mut peer = Peer::client(&SETTINGS);
    let pairs: Vec<u8> = (0..100)
        .flat_map(|number| {
            let id = number * 2 + 1;
            [frame(kind::HEADERS, END, id, GET), frame(kind::RST_STREAM, 0, id, &[0, 0, 0, 8])].concat()
        })
        .collect();
    peer.write(&pairs);
    assert_eq!((peer.codes(), peer.requests.len()), (vec![], 0));
    assert_eq!(peer.connection.take_unserved_resets(), 100);
    peer.send(kind::HEADERS, END, 201, GET);
    peer.drive();
    assert!(!peer.over && !peer.connection.is_flood() && peer.requests.len() == 1);
}

/// A client that has not read SETTINGS opens more streams than it may: those above are refused with all their frames.
#[test]
fn streams_beyond_the_maximum_are_refused_and_the_others_served() {
    let mut peer = Peer::client(&SETTINGS);
    let streams = || (0..250).map(|number| number * 2 + 1);
    let heads = streams().flat_map(|id| frame(kind::HEADERS, flag::END_HEADERS, id, POST));
    let data = streams().flat_map(|id| frame(kind::DATA, flag::END_STREAM, id, b"abc"));
    peer.write(&heads.chain(data).collect::<Vec<_>>());
    let refused = peer.codes();
    assert_eq!(refused.len(), 150);
    assert!(refused.iter().all(|(id, code)| *id > 200 && *code == ErrorCode::REFUSED_STREAM));
    assert!(peer.requests.len() == 100 && !peer.over && !peer.connection.is_flood());
}

fn settings_with_small_streams() -> LocalSettings {
    LocalSettings { stream_window: 10 << 10, connection_window: 2 << 20, ..SETTINGS }
}

/// Bodies of all streams together, none of which is read, leave room in the connection's window.
#[test]
fn bodies_that_wait_stop_no_other() {
    let mut peer = Peer::client(&settings_with_small_streams());
    peer.send(kind::SETTINGS, flag::ACK, 0, &[]);
    for id in (0..99).map(|number| number * 2 + 1) {
        peer.send(kind::HEADERS, flag::END_HEADERS, id, POST);
        peer.send(kind::DATA, 0, id, &[0; 10 << 10]);
    }
    assert_eq!(peer.codes(), []);
    peer.send(kind::HEADERS, flag::END_HEADERS, 199, POST);
    let context = Context::from_waker(Waker::noop());
    let mut allowed = 10 << 10;
    for _ in 0..100 {
        while allowed > 0 {
            let part = allowed.min(16 << 10);
            peer.send(kind::DATA, 0, 199, &vec![0; part]);
            allowed -= part;
        }
        assert!(!peer.stream(99).is_window_closed() || peer.stream(99).poll_unread(&context) > 0);
        let mut body = BytesMut::new();
        while let Poll::Ready(Ok(read)) = peer.stream(99).poll_read(&context, &mut body) {
            peer.stream(99).release(read);
        }
        let opened = peer.frames();
        let of_stream = opened
            .iter()
            .filter(|frame| (frame.header.kind, frame.header.stream) == (kind::WINDOW_UPDATE, 199));
        allowed += of_stream.map(|frame| frame.number() as usize).sum::<usize>();
        assert!(allowed > 0, "its window is opened again");
    }
}

/// RFC 9113 §6.9.2: what a client sent before it read SETTINGS counts against the smaller window.
#[test]
fn the_window_shrinks_when_the_client_has_read_settings() {
    let mut peer = Peer::client(&settings_with_small_streams());
    peer.send(kind::HEADERS, flag::END_HEADERS, 1, POST);
    for _ in 0..2 {
        peer.send(kind::DATA, 0, 1, &[0; 16 << 10]);
    }
    peer.send(kind::SETTINGS, flag::ACK, 0, &[]);
    assert_eq!(peer.codes(), []);
    assert!(peer.stream(0).is_window_closed());
    peer.send(kind::DATA, 0, 1, &[0]);
    assert_eq!(peer.codes(), [(1, ErrorCode::FLOW_CONTROL_ERROR)]);
}

/// Names and values.
type Fields = &'static [(&'static str, &'static str)];

/// A response that is known to be malformed is not passed on.
#[test]
fn responses_with_a_fault_in_the_same_read_fail() {
    let head = |fields: &[(&str, &str)]| {
        let mut block = Vec::new();
        for (name, value) in fields {
            let length = |text: &str| u8::try_from(text.len()).expect("short");
            block.extend([0, length(name)]);
            block.extend(name.as_bytes());
            block.push(length(value));
            block.extend(value.as_bytes());
        }
        block
    };
    let cases: [(&[u8], Fields, &[u8]); 5] = [
        (b"GET / HTTP/1.1\r\n\r\n", &[(":status", "200"), ("content-length", "0")], b"x"),
        (b"GET / HTTP/1.1\r\n\r\n", &[(":status", "204")], b"x"),
        (b"GET / HTTP/1.1\r\n\r\n", &[(":status", "304"), ("content-length", "1")], b"x"),
        (b"HEAD / HTTP/1.1\r\n\r\n", &[(":status", "200"), ("content-length", "1")], b"x"),
        (b"GET / HTTP/1.1\r\n\r\n", &[(":status", "600")], b""),
    ];
    for (request, fields, body) in cases {
        let mut peer = Peer::server(&SETTINGS);
        let stream = peer.connection.open(request, Scheme::Http, true).expect("it opens");
        let frames = [
            frame(kind::HEADERS, flag::END_HEADERS, 1, &head(fields)),
            frame(kind::DATA, flag::END_STREAM, 1, body),
        ];
        peer.write(&frames.concat());
        let outcome = stream.poll_head(&Context::from_waker(Waker::noop()));
        assert!(matches!(outcome, Poll::Ready(Err(Reset::Fault))), "{fields:?}: {outcome:?}");
        assert!(!peer.over);
    }
}

/// A block larger than allowed fails its own request; blocks that decompress to very much end the connection.
#[test]
fn heads_that_are_too_large_fail_alone_and_bombs_end_the_connection() {
    let mut peer = Peer::server(&SETTINGS);
    let open =
        |peer: &Peer| peer.connection.open(b"GET / HTTP/1.1\r\n\r\n", Scheme::Http, true).expect("it opens");
    let (first, second) = (open(&peer), open(&peer));
    let mut large = vec![0x88];
    for _ in 0..100 {
        // A field of 1,000 bytes without an index (RFC 7541 §6.2.2).
        large.extend([0, 1, b'x', 127, 0xe9, 6]);
        large.extend([b'y'; 1_000]);
    }
    let mut parts = large.chunks(16 << 10).peekable();
    peer.send(kind::HEADERS, flag::END_STREAM, 1, parts.next().expect("there are some"));
    while let Some(part) = parts.next() {
        let last = if parts.peek().is_none() { flag::END_HEADERS } else { 0 };
        peer.send(kind::CONTINUATION, last, 1, part);
    }
    peer.send(kind::HEADERS, END, 3, &[0x88]);
    let context = Context::from_waker(Waker::noop());
    assert!(matches!(first.poll_head(&context), Poll::Ready(Err(Reset::Fault))));
    assert!(matches!(second.poll_head(&context), Poll::Ready(Ok((head, true))) if head.status == 200));
    // One field of 3,000 bytes for the table (§6.2.1), then "that again" a hundred times.
    let mut bomb = vec![0x88, 0x40, 1, b'x', 127, 0xb9, 0x16];
    bomb.extend([b'y'; 3_000]);
    bomb.extend([0x80 | 62; 100]);
    for number in 0..3 {
        assert!(!peer.over);
        drop(open(&peer));
        peer.send(kind::HEADERS, END, 5 + 2 * number, &bomb);
    }
    assert_eq!(peer.codes().last(), Some(&(0, ErrorCode::ENHANCE_YOUR_CALM)));
}

#[test]
fn ninety_nine_interim_responses_pass() {
    let mut peer = Peer::server(&SETTINGS);
    let stream = peer.connection.open(b"GET / HTTP/1.1\r\n\r\n", Scheme::Http, true).expect("it opens");
    let interim = frame(kind::HEADERS, flag::END_HEADERS, 1, &[0x08, 3, b'1', b'0', b'3']);
    peer.write(&[interim.repeat(99), frame(kind::HEADERS, END, 1, &[0x88])].concat());
    let context = Context::from_waker(Waker::noop());
    for _ in 0..99 {
        assert!(matches!(stream.poll_head(&context), Poll::Ready(Ok((head, false))) if head.status == 103));
    }
    assert!(matches!(stream.poll_head(&context), Poll::Ready(Ok((head, true))) if head.status == 200));
}

/// While others wait, one upload that the server does not read has at most half of the connection's window.
#[test]
fn an_upload_that_is_not_read_leaves_half_of_the_window_to_others() {
    let mut peer = Peer::server(&SETTINGS);
    // Streams may send more than the connection.
    peer.send(kind::SETTINGS, 0, 0, &[0, 4, 0, 0x10, 0, 0]);
    let open = |peer: &Peer| {
        peer.connection.open(b"POST / HTTP/1.1\r\n\r\n", Scheme::Http, false).expect("it opens")
    };
    let context = Context::from_waker(Waker::noop());
    let send = |stream: &StreamHandle| match stream.poll_room(&context, 1 << 20) {
        Poll::Ready(Ok(room)) => stream.send_data(&vec![0; room], false).expect("it is open"),
        _ => 0,
    };
    let (stalled, other) = (open(&peer), open(&peer));
    let (mut unread, mut read) = (0, 0);
    for _ in 0..1_000 {
        unread += send(&stalled);
        let sent = send(&other);
        read += sent;
        peer.frames();
        // The server reads the other upload only.
        if let Some(increment) = u32::try_from(sent).ok().filter(|sent| *sent > 0) {
            peer.send(kind::WINDOW_UPDATE, 0, 0, &increment.to_be_bytes());
            peer.send(kind::WINDOW_UPDATE, 0, 3, &increment.to_be_bytes());
        }
    }
    assert!(unread <= 40 << 10, "{unread} bytes are not read");
    assert!(read > 1 << 20, "{read} bytes of the other passed");
}

/// Bytes of DATA that a client with this many streams may send on one before more are released, once it was released all
/// that it had.
async fn window_at(round_trip: Duration, streams: u32) -> u32 {
    let settings = LocalSettings { stream_window: 8 << 10, ..SETTINGS };
    let mut peer = Peer::client(&settings);
    tokio::time::advance(round_trip).await;
    peer.send(kind::SETTINGS, flag::ACK, 0, &[]);
    for stream in 0..streams {
        peer.send(kind::HEADERS, flag::END_HEADERS, 1 + 2 * stream, POST);
    }
    peer.send(kind::DATA, 0, 1, &[0; 8 << 10]);
    peer.frames();
    let (stream, mut read) = (peer.stream(0), BytesMut::new());
    assert!(stream.poll_read(&Context::from_waker(Waker::noop()), &mut read).is_ready());
    stream.release(read.len());
    let frames = peer.frames();
    let update =
        frames.iter().find(|frame| (frame.header.kind, frame.header.stream) == (kind::WINDOW_UPDATE, 1));
    update.expect("the window is opened").number()
}

/// A reader that stalls holds a whole window. So the window is as large as the round trip needs.
#[tokio::test(start_paused = true)]
async fn the_window_of_a_body_that_is_read_grows_with_the_round_trip() {
    assert_eq!(window_at(Duration::from_micros(100), 1).await, 32 << 10);
    assert_eq!(window_at(Duration::from_millis(1), 1).await, 32 << 10);
    assert_eq!(window_at(Duration::from_millis(2), 16).await, 64 << 10);
    assert_eq!(window_at(Duration::from_millis(80), 1).await, 64 << 10);
}

/// Many readers that stall hold a megabyte together, or what their streams began with.
#[tokio::test(start_paused = true)]
async fn many_streams_share_what_one_may_have() {
    let far = Duration::from_millis(80);
    assert_eq!([window_at(far, 32).await, window_at(far, 64).await], [32 << 10, 16 << 10]);
    assert_eq!(window_at(far, 100).await, (1 << 20) / 100);
}

/// Room beyond the window would wait empty for a reader that stalls.
#[tokio::test(start_paused = true)]
async fn a_body_that_waits_holds_no_more_room_than_its_window() {
    let mut peer = Peer::client(&SETTINGS);
    peer.send(kind::SETTINGS, flag::ACK, 0, &[]);
    peer.send(kind::HEADERS, flag::END_HEADERS, 1, POST);
    let context = Context::from_waker(Waker::noop());
    let mut read = BytesMut::new();
    for part in 0..20 {
        peer.send(kind::DATA, 0, 1, &[0; 10_000]);
        peer.send(kind::DATA, 0, 1, &[0; 16 << 10]);
        let stream = peer.stream(0);
        let room = stream.poll_unread(&context);
        assert!((26_384..=64 << 10).contains(&room), "part {part}: {room}");
        read.clear();
        assert!(stream.poll_read(&context, &mut read).is_ready());
        assert!(stream.poll_unread(&context) <= 16 << 10, "part {part}");
        stream.release(read.len());
    }
}
