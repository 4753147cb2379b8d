//! The memory that a peer can make a connection hold; and windows are restored after each stream.

use super::*;
use crate::http2::hpack::encoder::Scheme;

fn window_updates(frames: &[Frame]) -> u64 {
    let updates =
        frames.iter().filter(|frame| frame.header.kind == kind::WINDOW_UPDATE && frame.header.stream == 0);
    updates.map(|frame| u64::from(frame.number())).sum()
}

/// A task that is dropped within a body has often not released all bytes that it read.
#[test]
fn bytes_that_a_dropped_stream_had_taken_are_released() {
    let mut peer = Peer::client(&SETTINGS);
    peer.frames();
    let mut released = 0;
    for stream in (1..201).step_by(2) {
        peer.send(kind::HEADERS, flag::END_HEADERS, stream, POST);
        peer.send(kind::DATA, 0, stream, &[0; 15 << 10]);
        let mut received = BytesMut::new();
        let read = peer.stream(0).poll_read(&Context::from_waker(Waker::noop()), &mut received);
        assert_eq!(read, Poll::Ready(Ok(15 << 10)));
        peer.requests.clear();
        let frames = peer.frames();
        assert!(!frames.iter().any(|frame| frame.header.kind == kind::GOAWAY), "{stream}");
        released += window_updates(&frames);
    }
    assert!(released > 50 * (15 << 10), "{released}");
}

/// Queued response heads are bounded, even if the client reads nothing.
#[test]
fn a_client_that_does_not_read_its_answers_is_not_listened_to() {
    let mut peer = Peer::client(&SETTINGS);
    let mut frame = BytesMut::new();
    for stream in (1..100_001).step_by(2) {
        frame.clear();
        FrameHeader { length: GET.len(), kind: kind::HEADERS, flags: END, stream }.put(&mut frame);
        frame.extend_from_slice(GET);
        let written = peer.pipe.poll_write(&mut Context::from_waker(Waker::noop()), &frame, &[]);
        if !matches!(written, Poll::Ready(Ok(written)) if written == frame.len()) {
            break;
        }
        peer.drive();
        for request in peer.requests.drain(..) {
            let head = b"HTTP/1.1 404 Not Found\r\nserver: a\r\ncontent-length: 0\r\n\r\n";
            request.stream.send_response(head, true).expect("the stream is open");
        }
    }
    let held = peer.connection.state.borrow().outbound.bytes.len();
    assert!(held < 256 << 10, "{held}");
    let frames = peer.frames();
    assert!(frames.len() > 1_000 && !peer.over, "it continues after the client has read");
}

/// Requests that are cancelled before the server reads them.
#[test]
fn a_server_that_does_not_read_gets_no_more_requests() {
    let mut peer = Peer::server(&SETTINGS);
    let context = Context::from_waker(Waker::noop());
    let mut opened = 0;
    while opened < 100_000 && peer.connection.poll_open(&context).is_ready() {
        let stream = peer.connection.open(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n", Scheme::Http, true);
        drop(stream.expect("the server takes it"));
        peer.drive();
        opened += 1;
    }
    let held = peer.connection.state.borrow().outbound.bytes.len();
    assert!(held < 256 << 10, "{held}");
    let waiting = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&waiting));
    assert!(peer.connection.poll_open(&Context::from_waker(&waker)).is_pending());
    peer.frames();
    assert!(waiting.take());
    assert!(peer.connection.poll_open(&context).is_ready());
}

/// A stream that waits for the connection's window is in the queue once, and is removed when it ends.
#[test]
fn the_queue_for_room_holds_each_stream_once() {
    let mut peer = Peer::client(&SETTINGS);
    let context = Context::from_waker(Waker::noop());
    // The connection's window is exhausted.
    peer.send(kind::SETTINGS, 0, 0, &[0, 4, 0, 1, 0, 0]);
    peer.send(kind::HEADERS, END, 1, GET);
    let stream = peer.stream(0);
    stream.send_response(RESPONSE, false).expect("the stream is open");
    let sent = stream.send_data(&[0; 0xffff], false).expect("the stream is open");
    peer.frames();
    peer.requests.clear();
    let mut left = 0xffff - sent;
    for id in (3..403).step_by(2) {
        peer.send(kind::HEADERS, END, id, GET);
        while left > 0 {
            let sent = peer.stream(0).send_data(&vec![0; left], false).expect("the stream is open");
            left -= sent;
            peer.frames();
        }
        for _ in 0..10 {
            assert!(peer.stream(0).poll_room(&context, 1).is_pending());
            peer.send(kind::WINDOW_UPDATE, 0, id, &[0, 0, 0, 1]);
        }
        peer.send(kind::RST_STREAM, 0, id, &[0, 0, 0, 8]);
        peer.requests.clear();
    }
    let waiting = peer.connection.state.borrow().sending.waiters.len();
    assert!(waiting <= 1, "{waiting}");
}

/// Padding-only frames count as empty frames (CVE-2019-9518): their window is restored at once.
#[test]
fn padding_without_content_is_a_flood() {
    for (flags, payload) in [(0, &b""[..]), (flag::PADDED, b"\0"), (flag::PADDED, b"\x03abc")] {
        let mut peer = Peer::client(&SETTINGS);
        peer.send(kind::HEADERS, flag::END_HEADERS, 1, POST);
        for _ in 0..2_000 {
            peer.send(kind::DATA, flags, 1, payload);
            peer.read();
        }
        assert!(!peer.over && peer.connection.is_flood());
    }
}
