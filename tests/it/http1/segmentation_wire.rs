//! The messages written by hand once more through the real binary over real sockets, cut at a sample of places.
//!
//! The thorough pass is in `src/proxy/segmentation`. Between two segments another connection of the same worker is served:
//! by then the worker has taken the first.

use crate::harness::corpus::generate::Random;
use crate::harness::corpus::request::{self, Requests};
use crate::harness::corpus::{Failures, cuts, shown, written};
use crate::harness::{Backend, Client, Gateway, everything_to};

/// Cuts of each message.
const CUTS: usize = 3;
const NEXT: &[u8] = b"GET /next HTTP/1.1\r\nhost: next\r\nconnection: close\r\n\r\n";
const SMUGGLED: &[u8] = b"GET /smuggled HTTP/1.1\r\nhost: smuggled\r\nconnection: close\r\n\r\n";

/// The statuses of all answers on a connection of its own, but of those to go on.
fn statuses(gateway: &Gateway, other: &mut Client, segments: &[&[u8]], behind: &[u8]) -> Vec<u16> {
    let mut client = Client::connect(gateway.addr());
    for (index, segment) in segments.iter().enumerate() {
        if index > 0 {
            other.get("/other", "").expect(200);
        }
        client.write(segment);
    }
    client.write(behind);
    let mut answered = Vec::new();
    loop {
        let piece = client.read_some(1 << 16);
        if piece.is_empty() {
            break;
        }
        answered.extend_from_slice(&piece);
    }
    let text = String::from_utf8_lossy(&answered);
    let statuses =
        text.match_indices("HTTP/1.").filter_map(|(at, _)| text.get(at + 9..at + 12)?.parse().ok());
    statuses.filter(|&status| status != 100).collect()
}

/// What is told of it: each request is served, and the next, too; or the last thing told is the refusal.
fn expected(read: &Requests) -> Vec<u16> {
    let whole = read.requests.iter().filter(|request| request.complete);
    let last = match read.refused {
        Some(status) => Some(status),
        None => read.requests.iter().all(|request| request.keep_alive).then_some(200),
    };
    whole.map(|_| 200).chain(last).collect()
}

fn pass(messages: Vec<Vec<u8>>, behind: &[u8]) {
    let backend = Backend::ok();
    let gateway = Gateway::start(&everything_to(&backend, "[server]\nworkers = 1"));
    let mut other = Client::connect(gateway.addr());
    let (mut failures, mut random) = (Failures::default(), Random::new(1));
    for bytes in messages {
        let expected = expected(&request::read(&[&bytes]));
        for _ in 0..CUTS {
            let index = 1 + random.below(bytes.len() - 1);
            let told = statuses(&gateway, &mut other, &cuts::segments(&bytes, &[index]), behind);
            if told != expected {
                failures.note(|| format!("cut at {index}: {told:?} and not {expected:?}\n{}", shown(&bytes)));
            }
        }
    }
    if backend.requests().iter().any(|seen| seen.target() == "/smuggled") {
        failures.note(|| "a request behind a bad one was served".into());
    }
    failures.assert_none();
}

#[test]
fn good_requests_are_served_in_any_segments() {
    pass(written::good_requests(), NEXT);
}

#[test]
fn bad_requests_are_refused_in_any_segments() {
    pass(written::bad_requests(), SMUGGLED);
}
