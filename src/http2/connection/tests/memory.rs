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
