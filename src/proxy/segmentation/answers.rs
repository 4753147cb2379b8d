//! Responses under every cut.
//!
//! A good response reaches the client as it would in one piece, and so does the response to the next request. Instead
//! of a bad response the client gets a 502. If the head was sent before the fault, the client gets a valid part, and the
//! connection is closed.

use bytes::BytesMut;

use super::backend::{Behaviour, OK};
use super::corpus::answer::{self, Answer};
use super::corpus::{self, Answered, Failures, cuts, shown, written};
use super::gateway::{Outcome, Rig};
use super::run;
use crate::http1::response::Framing;

/// The responses that the client received.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Got {
    first: Answer,
    /// The bytes after the first response.
    rest: BytesMut,
}

/// A response as the codec reads it, and its outcome in one piece.
struct Case {
    answered: Answered,
    read: Answer,
    whole: Got,
    outcome: Outcome,
}

impl Case {
    async fn new(rig: &Rig, answered: Answered) -> Self {
        let read = answer::read(answered.method, &[&answered.bytes]);
        let outcome = serve(rig, &answered, &read, &[]).await;
        let whole = got(&answered, &outcome);
        Self { answered, read, whole, outcome }
    }

    /// Whether the backend's bytes are a response to a request that does not switch protocols.
    fn is_good(&self) -> bool {
        self.read.complete && self.read.head.as_ref().is_some_and(|head| head.status != 101)
    }

    fn fault_of(&self, outcome: &Outcome) -> Option<String> {
        let got = got(&self.answered, outcome);
        if !outcome.closed {
            return Some("the connection stays open".into());
        }
        if outcome.seen.iter().any(|seen| seen.fault.is_some()) {
            return Some("the backend receives bytes that are no request".into());
        }
        if self.is_good() {
            return (got != self.whole).then(|| format!("the client gets a different response: {got:?}"));
        }
        let status = got.first.head.as_ref().map(|head| head.status);
        let refused = status == Some(502) && got.first.complete;
        let valid_part = self.read.head.as_ref().is_some_and(|head| status == Some(head.status))
            && !got.first.complete
            && self.read.body.starts_with(&got.first.body)
            && got.rest.is_empty();
        (!refused && !valid_part).then(|| format!("neither a 502 nor a valid part that is cut: {got:?}"))
    }

    /// Whether all bytes after a complete response arrive in other segments. The next request may have been sent by
    /// then, and the surplus counts as its response: HTTP/1.1 can't distinguish them.
    fn surplus_is_apart(&self, indices: &[usize]) -> bool {
        self.read.complete
            && self.read.length < self.answered.bytes.len()
            && indices.contains(&self.read.length)
    }

    /// The fault of the outcome in one piece.
    fn fault_of_whole(&self) -> Option<String> {
        let fault = self.fault_of(&self.outcome);
        if fault.is_some() || !self.is_good() {
            return fault;
        }
        let Got { first, rest } = &self.whole;
        let status = |answer: &Answer| answer.head.as_ref().map(|head| head.status);
        let same = first.complete && first.body == self.read.body && status(first) == status(&self.read);
        let next = rest.starts_with(b"HTTP/1.1 200 OK\r\n") && rest.ends_with(b"\r\n\r\nok");
        match () {
            () if !same => Some("the client gets a different response from the one that was sent".into()),
            () if !next => Some("the next request is not answered".into()),
            () => None,
        }
    }

    fn describe(&self, indices: &[usize], outcome: &Outcome, fault: &str) -> String {
        let Self { answered, read, whole, .. } = self;
        let (bytes, kind) = (shown(&answered.bytes), if self.is_good() { "good" } else { "bad" });
        let indices = if indices.len() > 2 { "byte by byte".into() } else { format!("{indices:?}") };
        format!(
            "{} ({kind}), cut at {indices}: {fault}\n{bytes}\nread: {read:?}\nwhole: {whole:?}\ncut: {outcome:?}",
            answered.name
        )
    }
}

/// Lets the backend send the response in these pieces, then sends the next request on the same connection.
async fn serve(rig: &Rig, answered: &Answered, read: &Answer, indices: &[usize]) -> Outcome {
    let segments = cuts::segments(&answered.bytes, indices).into_iter().map(<[u8]>::to_vec).collect();
    let until_close = read.head.as_ref().is_some_and(|head| head.framing == Framing::UntilClose);
    let behaviour = Behaviour::Script { segments, closes: !read.complete || until_close };
    let method = answered.method;
    let request = format!(
        "{method} / HTTP/1.1\r\nhost: a\r\nte: trailers\r\n\r\nGET /next HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n"
    );
    rig.run(&[request.as_bytes()], false, behaviour).await
}

/// The responses that the client received.
fn got(answered: &Answered, outcome: &Outcome) -> Got {
    let mut first = answer::read(answered.method, &[&outcome.answered]);
    // Chunks are framed again as they arrive, so the total length varies.
    let length = std::mem::take(&mut first.length);
    let rest = if first.complete { outcome.answered[length..].into() } else { BytesMut::new() };
    Got { first, rest }
}

async fn check(
    rig: &Rig,
    answered: Answered,
    cuts: impl IntoIterator<Item = Vec<usize>>,
    failures: &mut Failures,
) {
    let case = Case::new(rig, answered).await;
    if let Some(fault) = case.fault_of_whole() {
        failures.note(|| case.describe(&[], &case.outcome, &fault));
        return;
    }
    for indices in cuts.into_iter().filter(|indices| !case.surplus_is_apart(indices)) {
        let outcome = serve(rig, &case.answered, &case.read, &indices).await;
        if let Some(fault) = case.fault_of(&outcome) {
            failures.note(|| case.describe(&indices, &outcome, &fault));
            return;
        }
    }
}

#[test]
fn answers_of_the_corpus_fare_the_same_under_every_cut() {
    run(async {
        let rig = Rig::start().await;
        let mut failures = Failures::default();
        // A request may be retried if the backend closes without a byte.
        for answered in corpus::answers().into_iter().filter(|answered| !answered.bytes.is_empty()) {
            let length = answered.bytes.len();
            let cuts = cuts::in_two(length).into_iter().map(|index| vec![index]);
            check(&rig, answered, cuts.chain([cuts::bytewise(length)]), &mut failures).await;
        }
        failures.assert_none();
    });
}

#[test]
fn generated_answers_fare_the_same_under_some_cuts() {
    run(async {
        let rig = Rig::start().await;
        let mut failures = Failures::default();
        for (seed, answered) in (0..).zip(corpus::generated_answers(0, 2)) {
            if answered.bytes.is_empty() {
                continue;
            }
            let pairs = cuts::pairs(answered.bytes.len(), seed, 1);
            check(&rig, answered, pairs.into_iter().map(|pair| pair.to_vec()), &mut failures).await;
        }
        failures.assert_none();
    });
}

/// The client gets the bytes before a broken chunk, then the connection is closed.
#[test]
fn data_before_a_bad_chunk_is_delivered() {
    run(async {
        let rig = Rig::start().await;
        let mut failures = Failures::default();
        for (method, bytes) in written::bad_answers() {
            let answered = Answered { name: "written".into(), method, bytes, llhttp: None };
            let read = answer::read(method, &[&answered.bytes]);
            if read.body.is_empty() {
                continue;
            }
            for indices in
                cuts::in_two(answered.bytes.len()).into_iter().map(|index| vec![index]).chain([Vec::new()])
            {
                let outcome = serve(&rig, &answered, &read, &indices).await;
                let Got { first, rest } = got(&answered, &outcome);
                if first.body != read.body || first.complete || !rest.is_empty() || !outcome.closed {
                    failures.note(|| format!("{} cut at {indices:?}: {first:?}", shown(&answered.bytes)));
                    break;
                }
            }
        }
        failures.assert_none();
    });
}

/// The codec accepts the usual response.
#[test]
fn the_usual_answer_is_read_whole() {
    assert!(answer::read("GET", &[OK]).complete);
}
