//! WebSocket over HTTP/3 (RFC 9220): the bytes of a tunnel, and its ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use quinn::VarInt;

use super::{Http3Gateway, codes, pattern};
use crate::harness::quic_client::{H3_DATA, H3_HEADERS, QuicStream, h3_frame, h3_head, h3_status};
use crate::harness::websocket::{accept, echoing};
use crate::harness::{Backend, Next, QuicClient, QuicEnd, eventually, everything_to};

/// Opens a WebSocket.
#[track_caller]
fn open(client: &QuicClient, path: &str) -> QuicStream {
    let mut stream = client.open(&h3_head(&[
        (":method", "CONNECT"),
        (":protocol", "websocket"),
        (":scheme", "https"),
        (":path", path),
        (":authority", "a.test"),
        ("sec-websocket-version", "13"),
    ]));
    let head = client.next_frame(&mut stream).expect("no reset").expect("a head");
    assert_eq!((head.0, h3_status(&head.1)), (H3_HEADERS, Some(200)));
    stream
}

/// Reads this number of bytes, in whatever frames.
fn read(client: &QuicClient, stream: &mut QuicStream, length: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while bytes.len() < length {
        let (kind, payload) = client.next_frame(stream).expect("no reset").expect("more");
        assert_eq!(kind, H3_DATA);
        bytes.extend(payload);
    }
    bytes
}

#[test]
fn bytes_pass_both_ways_until_the_client_ends() {
    let backend = echoing();
    let http3 = Http3Gateway::start(&everything_to(&backend, ""));
    let client = http3.quic();
    let mut stream = open(&client, "/chat");
    for length in [1, 10, 20_000] {
        let message = pattern(length);
        client.block_on(stream.sending.write_all(&h3_frame(H3_DATA, &message))).expect("the gateway reads");
        assert!(read(&client, &mut stream, length) == message, "{length}");
    }
    stream.sending.finish().expect("it is open");
    assert_eq!(client.next_frame(&mut stream), Ok(None), "a good end");
    assert_eq!(http3.gateway.access_log(1)[0]["error"], serde_json::Value::Null);
}

#[test]
fn a_tunnel_that_breaks_off_is_reset_on_either_side() {
    let ended = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&ended);
    let backend = Backend::start(move |exchange| {
        accept(exchange, "");
        if exchange.target() == "/cut" {
            exchange.read_exact(2);
            return Next::Reset;
        }
        exchange.hang();
        count.fetch_add(1, Ordering::SeqCst);
        Next::Close
    });
    let http3 = Http3Gateway::start(&everything_to(&backend, ""));
    let client = http3.quic();
    let mut cut = open(&client, "/cut");
    client.block_on(cut.sending.write_all(&h3_frame(H3_DATA, b"hi"))).expect("the gateway reads");
    assert_eq!(client.next_frame(&mut cut), Err(QuicEnd::Reset(codes::REQUEST_CANCELLED)));
    let mut reset = open(&client, "/");
    reset.sending.reset(VarInt::from_u32(0x10c)).expect("it is open");
    reset.receiving.stop(VarInt::from_u32(0x10c)).expect("it is open");
    eventually("the backend's connection to close", || (ended.load(Ordering::SeqCst) == 1).then_some(()));
}
