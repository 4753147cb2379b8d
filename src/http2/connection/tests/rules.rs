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
