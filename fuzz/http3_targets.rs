//! What the fuzz targets assert of the streams of an HTTP/3 client, and of datagrams before QUIC reads them.

use std::slice::Chunks;

use bytes::BytesMut;
use tollgate::http1::request::RequestHead;
use tollgate::http3::control::{OpenedKinds, UnidirectionalDecoder};
use tollgate::http3::request::RequestDecoder;
use tollgate::net::quic::{ConnectionIds, ServerId, retain_datagrams};

/// A stream means the same however it is cut, and its body is no longer than the stream. The head is one of HTTP/1.1, or
/// none.
pub(crate) fn http3_stream(data: &[u8]) {
    let (first, stream) = data.split_first().unwrap_or((&0, &[]));
    let size = usize::from(first >> 1) + 1;
    let whole = stream.len().max(1);
    if first & 1 == 0 {
        assert_eq!(request(stream.chunks(size)), request(stream.chunks(whole)));
    } else {
        assert_eq!(unidirectional(stream.chunks(size)), unidirectional(stream.chunks(whole)));
    }
}

fn request(mut parts: Chunks<'_, u8>) -> impl PartialEq + std::fmt::Debug {
    let (mut decoder, mut body, mut received) = (RequestDecoder::new(4096), BytesMut::new(), 0);
    let result = parts.try_for_each(|part| {
        received += part.len();
        decoder.decode(part, &mut body)
    });
    assert!(body.len() <= received);
    let result = result.and_then(|()| decoder.end());
    assert_eq!(decoder.trailers().is_some(), result.is_ok());
    let head = decoder.take_head(result.is_ok() && body.is_empty());
    assert!(result.is_err() || head.is_some(), "a request has a head");
    if let Some(Ok(head)) = &head
        && let Ok(read) = RequestHead::parse(&head.text, &mut Vec::new())
    {
        assert_eq!(read.length, head.text.len(), "another head stands after it");
    }
    (result, head, body, decoder.trailers().cloned())
}

fn unidirectional(mut parts: Chunks<'_, u8>) -> impl PartialEq + std::fmt::Debug {
    let (mut decoder, mut opened) = (UnidirectionalDecoder::default(), OpenedKinds::default());
    let result = parts.try_for_each(|part| decoder.decode(part, &mut opened));
    let end = result.and_then(|()| decoder.end());
    (result, opened, end)
}

/// A message of the kernel: the first byte says how long its datagrams are. Those of others are passed on, and the rest is
/// kept whole and in order. Whom a datagram names depends on its header alone.
pub(crate) fn quic_message(data: &[u8]) {
    let (stride, received) = data.split_first().unwrap_or((&0, &[]));
    let ids = ConnectionIds::new([7; 16], ServerId { process: 1, worker: 0 });
    let keeps = |datagram: &[u8]| ids.server_of(datagram).is_none_or(|server| server.worker % 2 == 0);
    let parts = || received.chunks(usize::from(*stride).max(1));
    let expected: Vec<u8> = parts().filter(|part| keeps(part)).flatten().copied().collect();
    let mut buffer = received.to_vec();
    let length = retain_datagrams(&mut buffer, (*stride).into(), keeps);
    assert_eq!(buffer.get(..length), Some(&*expected));
    for datagram in parts() {
        let named = ids.server_of(datagram);
        for cut in 0..datagram.len().min(24) {
            if let Some(server) = datagram.get(..cut).and_then(|part| ids.server_of(part)) {
                assert_eq!(named, Some(server), "cut at {cut}");
            }
        }
    }
}
