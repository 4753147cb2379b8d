//! Rules of RFC 9113, one by one.

use super::*;

/// The bytes that were read before HTTP/2 was spoken may hold requests: those wait for nothing else to come.
#[test]
fn a_request_that_was_read_with_the_preface_is_served_at_once() {
    let mut inbound = BytesMut::from(PREFACE);
    FrameHeader { length: 0, kind: kind::SETTINGS, flags: 0, stream: 0 }.put(&mut inbound);
    FrameHeader { length: GET.len(), kind: kind::HEADERS, flags: END, stream: 1 }.put(&mut inbound);
    inbound.extend_from_slice(GET);
    let mut peer = Peer::new(|stream| Connection::server(stream, inbound, Rc::default(), &SETTINGS));
    peer.drive();
    assert_eq!(peer.requests.len(), 1);
}

/// RFC 7541 §4.2: the first block behind the change says so, be it trailers.
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

/// The stream is reset behind its block, so that nothing more is sent on it.
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

/// RFC 9113 §5.1: what the client sent before it knew of the reset is ignored, however many streams have ended since.
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

/// A server may answer long after its stream was reset.
#[test]
fn a_late_answer_does_not_end_the_connection() {
    let mut peer = Peer::server(&SETTINGS);
    for _ in 0..300 {
        let stream = peer.connection.open(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n", b"http", true);
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
    let mut peer = Peer::client(&Settings { connection_window: 65_535, ..SETTINGS });
    let frames = peer.frames();
    assert!(frames.iter().all(|frame| frame.header.kind != kind::WINDOW_UPDATE), "{frames:?}");
}
