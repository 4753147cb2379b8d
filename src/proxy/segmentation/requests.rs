//! Requests under every cut.
//!
//! A good request is followed by `GET /next`; the outcome of both must be the same under every cut. A bad request is
//! followed by `GET /smuggled`, which the backend must never receive; of the bad request it may receive a valid part.

use super::backend::Behaviour;
use super::corpus::request::{self, Requests};
use super::corpus::{self, Failures, Sent, cuts, shown, written};
use super::gateway::{Outcome, Rig};
use super::run;
use super::seen::Seen;

const NEXT: &[u8] = b"GET /next HTTP/1.1\r\nhost: next\r\nconnection: close\r\n\r\n";
const SMUGGLED: &[u8] = b"GET /smuggled HTTP/1.1\r\nhost: smuggled\r\nconnection: close\r\n\r\n";

/// The bytes after a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// The message is complete: the next request.
    Good,
    /// The message is refused: bytes that must never become a request.
    Bad,
    /// The message is incomplete at the end of the stream.
    Part,
}

/// A message as the codec reads it, and its outcome in one piece.
struct Case {
    sent: Sent,
    read: Requests,
    kind: Kind,
    whole: Outcome,
}

impl Case {
    async fn new(rig: &Rig, sent: Sent) -> Self {
        let read = request::read(&[&sent.bytes]);
        let kind = match &read {
            Requests { refused: Some(_), .. } => Kind::Bad,
            read if read.is_good() => Kind::Good,
            _ => Kind::Part,
        };
        let whole = send(rig, kind, &[&sent.bytes], Behaviour::Whole).await;
        Self { sent, read, kind, whole }
    }

    /// The fault of an outcome, if any.
    fn fault_of(&self, outcome: &Outcome) -> Option<String> {
        if !outcome.closed {
            return Some("the connection stays open".into());
        }
        if let Some(fault) = outcome.seen.iter().find_map(|seen| seen.fault) {
            return Some(format!("the backend was sent {fault}"));
        }
        if outcome.seen.iter().any(|seen| seen.target == "/smuggled") {
            return Some("the request after it is served".into());
        }
        let broken = self.broken();
        // Bytes that are still in flight to the backend at the client's response are not compared.
        let complete = |outcome: &Outcome| -> Vec<Seen> {
            outcome.seen.iter().filter(|seen| seen.complete).cloned().collect()
        };
        if complete(outcome) != complete(&self.whole) {
            return Some("the backend receives different requests than in one piece".into());
        }
        for seen in outcome.seen.iter().filter(|seen| !seen.complete) {
            let valid = broken.is_some_and(|broken| broken.body.starts_with(&seen.body));
            if !valid || !seen.trailers.is_empty() {
                return Some(format!("the backend receives more than a valid part: {seen:?}"));
            }
        }
        let same = match self.kind {
            Kind::Good => outcome.answered == self.whole.answered,
            Kind::Bad | Kind::Part => statuses(&outcome.answered) == statuses(&self.whole.answered),
        };
        (!same).then(|| "the client gets a different response than in one piece".into())
    }

    /// The request with a refused or incomplete body.
    fn broken(&self) -> Option<&corpus::request::Request> {
        self.read.requests.last().filter(|request| !request.complete)
    }

    /// The fault of the outcome in one piece.
    fn fault_of_whole(&self) -> Option<String> {
        let fault = self.fault_of(&self.whole);
        let served = || self.whole.seen.iter().any(|seen| seen.target == "/next");
        let kept = self.read.requests.iter().all(|request| request.keep_alive);
        let refused_by_us = statuses(&self.whole.answered).iter().any(|status| *status != 200);
        let expected = self.read.refused.filter(|_| kept && !refused_expectation(&self.read));
        match self.kind {
            _ if fault.is_some() => fault,
            Kind::Good if kept && !refused_by_us && !served() => {
                Some("the next request is not served".into())
            }
            Kind::Good if !kept && served() => {
                Some("the next request is served on a connection that closes".into())
            }
            Kind::Bad if expected.is_some() && expected != statuses(&self.whole.answered).last().copied() => {
                Some(format!("it should be refused with {expected:?}"))
            }
            _ => None,
        }
    }

    fn describe(&self, indices: &str, outcome: &Outcome, fault: &str) -> String {
        let Self { sent, kind, whole, .. } = self;
        let bytes = shown(&sent.bytes);
        format!("{} ({kind:?}), {indices}: {fault}\n{bytes}\nwhole: {whole:?}\ncut:   {outcome:?}", sent.name)
    }

    /// Runs it under these cuts, up to the first failure.
    async fn check(&self, rig: &Rig, cuts: impl IntoIterator<Item = Vec<usize>>, failures: &mut Failures) {
        if let Some(fault) = self.fault_of_whole() {
            failures.note(|| self.describe("in one piece", &self.whole, &fault));
            return;
        }
        for indices in cuts {
            let segments = cuts::segments(&self.sent.bytes, &indices);
            let outcome = send(rig, self.kind, &segments, Behaviour::Whole).await;
            if let Some(fault) = self.fault_of(&outcome) {
                let indices =
                    if indices.len() > 2 { "byte by byte".into() } else { format!("cut at {indices:?}") };
                failures.note(|| self.describe(&indices, &outcome, &fault));
                return;
            }
        }
    }
}

/// A request with an unsupported expectation is refused without a wait for its body.
fn refused_expectation(read: &Requests) -> bool {
    let mut fields = read.requests.iter().flat_map(|request| &request.fields);
    fields.any(|(name, _)| name.eq_ignore_ascii_case(b"expect"))
}

/// The statuses of the responses. No body of the gateway or the backend contains a status line.
fn statuses(answered: &[u8]) -> Vec<u16> {
    let text = String::from_utf8_lossy(answered);
    let lines = text.match_indices("HTTP/1.").map(|(at, _)| &text[at..]);
    lines.filter_map(|line| line.get(9..12)?.parse().ok()).collect()
}

async fn send(rig: &Rig, kind: Kind, segments: &[&[u8]], behaviour: Behaviour) -> Outcome {
    let after: &[u8] = match kind {
        Kind::Good => NEXT,
        Kind::Bad => SMUGGLED,
        Kind::Part => b"",
    };
    // Bytes after the message are sent with the last segment, as by a client that pipelines.
    let Some((last, before)) = segments.split_last() else {
        return rig.run(&[after], true, behaviour).await;
    };
    let last = [last, after].concat();
    let all: Vec<&[u8]> = before.iter().copied().chain([&last[..]]).collect();
    rig.run(&all, kind == Kind::Part, behaviour).await
}

/// Every index of a short message, and byte by byte.
fn everywhere(bytes: &[u8]) -> impl Iterator<Item = Vec<usize>> + use<> {
    let bytewise = (bytes.len() < 2_000).then(|| cuts::bytewise(bytes.len()));
    cuts::in_two(bytes.len()).into_iter().map(|index| vec![index]).chain(bytewise)
}

/// The messages with this remainder of their index, so that several tests share them.
fn corpus_under_every_cut(rest: usize, of: usize) {
    run(async {
        let rig = Rig::start().await;
        let mut failures = Failures::default();
        for sent in corpus::requests().into_iter().skip(rest).step_by(of) {
            let cuts = everywhere(&sent.bytes);
            Case::new(&rig, sent).await.check(&rig, cuts, &mut failures).await;
        }
        failures.assert_none();
    });
}

#[test]
fn requests_of_the_corpus_fare_the_same_under_every_cut_1() {
    corpus_under_every_cut(0, 2);
}

#[test]
fn requests_of_the_corpus_fare_the_same_under_every_cut_2() {
    corpus_under_every_cut(1, 2);
}

/// Generated requests, whole and under some cuts.
#[test]
fn generated_requests_fare_the_same_under_some_cuts() {
    run(async {
        let rig = Rig::start().await;
        let mut failures = Failures::default();
        for (seed, sent) in (0..).zip(corpus::generated_requests(0, 2)) {
            let pairs = cuts::pairs(sent.bytes.len(), seed, 2).into_iter().map(|pair| pair.to_vec());
            let pairs: Vec<_> = pairs.collect();
            Case::new(&rig, sent).await.check(&rig, pairs, &mut failures).await;
        }
        failures.assert_none();
    });
}

/// A backend that responds before the body is complete: the response may pass, but the connection is closed, and no
/// bytes after the broken body are a request.
#[test]
fn a_bad_body_behind_an_early_answer_smuggles_nothing() {
    run(async {
        let rig = Rig::start().await;
        let mut failures = Failures::default();
        for body in written::BAD_CHUNKS {
            let bytes = format!("{}{body}", written::CHUNKED).into_bytes();
            let cuts = cuts::in_two(bytes.len()).into_iter().map(|index| vec![index]);
            for indices in cuts.chain([Vec::new(), cuts::bytewise(bytes.len())]) {
                let segments = cuts::segments(&bytes, &indices);
                let outcome = send(&rig, Kind::Bad, &segments, Behaviour::Early).await;
                let answered = matches!(statuses(&outcome.answered)[..], [200 | 400]);
                let smuggled = outcome.seen.iter().any(|seen| seen.target != "/" || seen.complete);
                if !answered || smuggled || !outcome.closed {
                    failures.note(|| format!("{body:?} cut at {indices:?}: {outcome:?}"));
                    break;
                }
            }
        }
        failures.assert_none();
    });
}
