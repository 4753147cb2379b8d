//! What a peer can make the connection hold, and that windows are whole again behind each stream.

use super::*;

fn window_updates(frames: &[Frame]) -> u64 {
    let updates =
        frames.iter().filter(|frame| frame.header.kind == kind::WINDOW_UPDATE && frame.header.stream == 0);
    updates.map(|frame| u64::from(frame.number())).sum()
}

/// A task that is dropped amid a body has often taken bytes that it passed on to nobody.
#[test]
fn bytes_that_a_dropped_stream_had_taken_are_released() {
    let mut peer = Peer::client(&SETTINGS);
    peer.frames();
    let mut released = 0;
    for stream in (1..201).step_by(2) {
        peer.send(kind::HEADERS, flag::END_HEADERS, stream, POST);
        peer.send(kind::DATA, 0, stream, &[0; 15 << 10]);
        let mut taken = BytesMut::new();
        let read = peer.stream(0).poll_read(&Context::from_waker(Waker::noop()), &mut taken);
        assert_eq!(read, Poll::Ready(Ok(15 << 10)));
        peer.requests.clear();
        let frames = peer.frames();
        assert!(!frames.iter().any(|frame| frame.header.kind == kind::GOAWAY), "{stream}");
        released += window_updates(&frames);
    }
    assert!(released > 50 * (15 << 10), "{released}");
}

/// Streams that wait for the connection's window are in the queue once, and not when they are gone.
#[test]
fn the_queue_for_room_holds_each_stream_once() {
    let mut peer = Peer::client(&SETTINGS);
    let context = Context::from_waker(Waker::noop());
    // The connection's window is used up.
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
    let waiting = peer.connection.state.borrow().room_waiters.len();
    assert!(waiting <= 1, "{waiting}");
}
