//! Bodies arrive as they were sent, whatever their size, their framing on either side, and the pieces in which they come.

use std::cell::RefCell;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::harness::{Backend, Client, Gateway, Next, everything_to};

/// How a body is framed on the wire.
#[derive(Clone, Copy, Debug)]
enum Framing {
    Length,
    /// In chunks of this size.
    Chunks(usize),
    /// Ends with the connection: answers only.
    UntilClose,
}

/// One request and its answer.
#[derive(Clone, Debug)]
struct Case {
    length: usize,
    upward: Framing,
    downward: Framing,
    /// Both sides write this number of bytes at once.
    piece: usize,
    http_11: bool,
}

/// Chunks of at least this size have extensions. Many smaller ones would be refused: their extensions exceed their data.
const LEAST_EXTENDED: usize = 12;

fn cases() -> impl Strategy<Value = Case> {
    let length = prop_oneof![0..20_usize, 1_000..9_000_usize, 60_000..140_000_usize];
    let chunks =
        || prop_oneof![1 => 1..LEAST_EXTENDED, 7 => LEAST_EXTENDED..40_000].prop_map(Framing::Chunks);
    let upward = prop_oneof![Just(Framing::Length), chunks()];
    let downward = prop_oneof![Just(Framing::Length), chunks(), Just(Framing::UntilClose)];
    let piece = prop_oneof![Just(usize::MAX), 500..70_000_usize];
    (length, upward, downward, piece, any::<bool>()).prop_map(|(length, upward, downward, piece, http_11)| {
        Case { length, upward, downward, piece, http_11 }
    })
}

fn framed(body: &[u8], framing: Framing) -> Vec<u8> {
    match framing {
        Framing::Length => [format!("content-length: {}\r\n\r\n", body.len()).as_bytes(), body].concat(),
        Framing::UntilClose => [b"connection: close\r\n\r\n", body].concat(),
        Framing::Chunks(size) => {
            let mut text = b"transfer-encoding: chunked\r\n\r\n".to_vec();
            let extension = if size < LEAST_EXTENDED { "" } else { ";x=\"y\"" };
            for chunk in body.chunks(size) {
                text.extend_from_slice(format!("{:X}{extension}\r\n", chunk.len()).as_bytes());
                text.extend_from_slice(chunk);
                text.extend_from_slice(b"\r\n");
            }
            text.extend_from_slice(b"0\r\n\r\n");
            text
        }
    }
}

/// Bytes of which none equals its neighbours, so that nothing can be lost, doubled or swapped unseen.
fn body(length: usize) -> Vec<u8> {
    (0..=250_u8).cycle().take(length).collect()
}

#[test]
fn bodies_arrive_as_they_were_sent() {
    let backend = Backend::start(|exchange| {
        let number = |name: &str| exchange.field(name).and_then(|text| text.parse::<usize>().ok());
        let (chunk, piece) = (number("x-chunk"), number("x-piece").unwrap_or(usize::MAX));
        let framing = match (chunk, exchange.field("x-close")) {
            (_, Some(_)) => Framing::UntilClose,
            (Some(size), None) => Framing::Chunks(size),
            (None, None) => Framing::Length,
        };
        let body = exchange.read_body();
        let answer = [b"HTTP/1.1 200 OK\r\n", &*framed(&body, framing)].concat();
        answer.chunks(piece).all(|piece| exchange.write(piece));
        if matches!(framing, Framing::UntilClose) { Next::Close } else { Next::KeepAlive }
    });
    let gateway = Gateway::start(&everything_to(&backend, ""));
    // A case that fails takes its connection with it, so that the cases after it are judged by themselves.
    let kept = RefCell::new(None);
    let mut runner = TestRunner::new(Config { cases: 150, failure_persistence: None, ..Config::default() });
    let outcome = runner.run(&cases(), |case| {
        let wish = match case.downward {
            Framing::Length => String::new(),
            Framing::Chunks(size) => format!("x-chunk: {size}\r\n"),
            Framing::UntilClose => "x-close: 1\r\n".into(),
        };
        let (version, upward) = if case.http_11 { ("1.1", case.upward) } else { ("1.0", Framing::Length) };
        let head = format!("POST / HTTP/{version}\r\nhost: test\r\nx-piece: {}\r\n{wish}", case.piece);
        let sent = body(case.length);
        let request = [head.as_bytes(), &framed(&sent, upward)].concat();
        let mut client = kept.take().unwrap_or_else(|| Client::connect(gateway.addr()));
        request.chunks(case.piece).for_each(|piece| client.write(piece));
        let response = client.read();
        prop_assert_eq!(response.status, 200);
        prop_assert!(response.body == sent, "{} bytes came of {}", response.body.len(), sent.len());
        prop_assert_eq!(response.closed, !case.http_11, "{}", response.head);
        if !response.closed {
            kept.replace(Some(client));
        }
        Ok(())
    });
    outcome.unwrap_or_else(|fault| panic!("{fault}"));
}
