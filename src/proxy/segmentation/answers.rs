//! Answers under every cut.
//!
//! A good one reaches the client as it would in one piece, and so does the answer to the next request. In place of a
//! bad one the client gets a 502, or, where its head is out, a part of what is valid of it and the end of the
//! connection.

use bytes::BytesMut;

use super::backend::{Behaviour, OK};
use super::corpus::answer::{self, Answer};
use super::corpus::{self, Answered, Failures, cuts, shown, written};
use super::gateway::{Outcome, Rig};
use super::run;
use crate::http1::response::Framing;

/// What the client has got.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Got {
    first: Answer,
    /// What follows the first answer.
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

    /// What the backend sends is an answer to a request that does not switch protocols.
    fn is_good(&self) -> bool {
        self.read.complete && self.read.head.as_ref().is_some_and(|head| head.status != 101)
    }

    fn fault_of(&self, outcome: &Outcome) -> Option<String> {
        let got = got(&self.answered, outcome);
        if !outcome.closed {
            return Some("the connection stays open".into());
        }
        if outcome.seen.iter().any(|seen| seen.fault.is_some()) {
            return Some("the backend sees what is no request".into());
        }
        if self.is_good() {
            return (got != self.whole).then(|| format!("the client gets otherwise {got:?}"));
        }
        let status = got.first.head.as_ref().map(|head| head.status);
        let refused = status == Some(502) && got.first.complete;
        let valid_part = self.read.head.as_ref().is_some_and(|head| status == Some(head.status))
            && !got.first.complete
            && self.read.body.starts_with(&got.first.body)
            && got.rest.is_empty();
        (!refused && !valid_part).then(|| format!("neither a 502 nor a valid part that is cut: {got:?}"))
    }

    /// Whether all that stands behind a whole answer comes apart from it. The next request may have been sent by then,
    /// and the surplus is its answer: HTTP/1.1 has nothing that would tell.
    fn surplus_is_apart(&self, places: &[usize]) -> bool {
        self.read.complete
            && self.read.length < self.answered.bytes.len()
            && places.contains(&self.read.length)
    }

    /// What is wrong with it even in one piece.
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
            () if !same => Some("the client gets another answer than was sent".into()),
            () if !next => Some("the next request is not answered".into()),
            () => None,
        }
    }

    fn describe(&self, places: &[usize], outcome: &Outcome, fault: &str) -> String {
        let Self { answered, read, whole, .. } = self;
        let (bytes, kind) = (shown(&answered.bytes), if self.is_good() { "good" } else { "bad" });
        let places = if places.len() > 2 { "byte by byte".into() } else { format!("{places:?}") };
        format!(
            "{} ({kind}), cut at {places}: {fault}\n{bytes}\nread: {read:?}\nwhole: {whole:?}\ncut: {outcome:?}",
            answered.name
        )
    }
}

/// Lets the backend send the answer in these pieces, and then asks for the next on the same connection.
async fn serve(rig: &Rig, answered: &Answered, read: &Answer, places: &[usize]) -> Outcome {
    let segments = cuts::segments(&answered.bytes, places).into_iter().map(<[u8]>::to_vec).collect();
    let until_close = read.head.as_ref().is_some_and(|head| head.framing == Framing::UntilClose);
    let behaviour = Behaviour::Script { segments, closes: !read.complete || until_close };
    let method = answered.method;
    let request = format!(
        "{method} / HTTP/1.1\r\nhost: a\r\nte: trailers\r\n\r\nGET /next HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n"
    );
    rig.run(&[request.as_bytes()], false, behaviour).await
}

/// The answers that the client has got.
fn got(answered: &Answered, outcome: &Outcome) -> Got {
    let mut first = answer::read(answered.method, &[&outcome.answered]);
    // Chunks are framed anew as they come, so the length of the whole is not the same.
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
    for places in cuts.into_iter().filter(|places| !case.surplus_is_apart(places)) {
        let outcome = serve(rig, &case.answered, &case.read, &places).await;
        if let Some(fault) = case.fault_of(&outcome) {
            failures.note(|| case.describe(&places, &outcome, &fault));
            return;
        }
    }
}

#[test]
fn answers_of_the_corpus_fare_the_same_under_every_cut() {
    run(async {
        let rig = Rig::start().await;
        let mut failures = Failures::default();
        // A backend that closes without a byte may be asked again.
        for answered in corpus::answers().into_iter().filter(|answered| !answered.bytes.is_empty()) {
            let length = answered.bytes.len();
            let cuts = cuts::in_two(length).into_iter().map(|place| vec![place]);
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
        for (seed, answered) in (0..).zip(corpus::generated_answers(0, 1)) {
            if answered.bytes.is_empty() {
                continue;
            }
            let pairs = cuts::pairs(answered.bytes.len(), seed, 1);
            check(&rig, answered, pairs.into_iter().map(|pair| pair.to_vec()), &mut failures).await;
        }
        failures.assert_none();
    });
}

/// The client gets the bytes before a broken chunk, and then the end of the connection.
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
            for places in
                cuts::in_two(answered.bytes.len()).into_iter().map(|place| vec![place]).chain([Vec::new()])
            {
                let outcome = serve(&rig, &answered, &read, &places).await;
                let Got { first, rest } = got(&answered, &outcome);
                if first.body != read.body || first.complete || !rest.is_empty() || !outcome.closed {
                    failures.note(|| format!("{} cut at {places:?}: {first:?}", shown(&answered.bytes)));
                    break;
                }
            }
        }
        failures.assert_none();
    });
}

/// The usual answer is one that the codec reads.
#[test]
fn the_usual_answer_is_read_whole() {
    assert!(answer::read("GET", &[OK]).complete);
}
