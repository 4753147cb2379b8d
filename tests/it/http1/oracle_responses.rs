//! Other parsers read the same answers: hyper's client, httparse and llhttp.
//!
//! What the gateway passes on as a whole answer they must take for one, too, with the same body; where they differ,
//! [`ALLOWED`] says why that is no danger.

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::harness::corpus::answer::{self, Answer, Head};
use crate::harness::corpus::{self, Answered, Failures, shown};
use tollgate::http1::response::Framing;

/// More than any message of the corpus.
const ROOM: usize = 1 << 20;

/// A difference that is no danger.
struct Allowed {
    /// What differs.
    what: &'static str,
    /// In which messages.
    covers: fn(&Head, &Answered) -> bool,
    reason: &'static str,
}

const ALLOWED: &[Allowed] = &[
    Allowed {
        what: "llhttp refuses",
        covers: |_, answered| has_bare_lf(&answered.bytes),
        reason: "a line that ends in LF alone has one reading (RFC 9112 section 2.2); llhttp reads it with a lenient flag",
    },
    Allowed {
        what: "llhttp refuses",
        covers: |_, answered| answered.bytes.windows(3).any(|bytes| bytes == b" \r\n"),
        reason: "some servers fill a chunk's size up with blanks to a fixed width; hyper reads that, too",
    },
];

/// Whether a line of the head ends in LF alone.
fn has_bare_lf(bytes: &[u8]) -> bool {
    let ends = |pair: &[u8]| pair[1] == b'\n' && pair[0] != b'\r';
    let line = bytes.split_inclusive(|&byte| byte == b'\n').next().unwrap_or_default();
    line.windows(2).any(ends)
}

/// An answer as hyper reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Theirs {
    status: u16,
    body: Bytes,
    complete: bool,
}

/// What hyper's client makes of it.
async fn hyper(answered: &Answered) -> Result<Theirs, String> {
    let (client, mut server) = tokio::io::duplex(ROOM);
    let (mut sender, connection) =
        http1::Builder::new().handshake(TokioIo::new(client)).await.map_err(|fault| format!("{fault:?}"))?;
    let request = hyper::Request::builder().method(answered.method).uri("/").header("host", "a");
    let request = request.body(Empty::<Bytes>::new()).expect("a request");
    let answering = async move {
        // The answer follows the request, since hyper takes an earlier answer for an unsolicited one.
        let mut read = [0; 1 << 10];
        assert!(server.read(&mut read).await.is_ok_and(|read| read > 0), "hyper asks");
        // hyper may have hung up.
        let _ = server.write_all(&answered.bytes).await;
        let _ = server.shutdown().await;
    };
    let asking = async move {
        let response = sender.send_request(request).await.map_err(|fault| format!("{fault:?}"))?;
        let status = response.status().as_u16();
        let mut body = response.into_body();
        let mut data = Vec::new();
        let complete = loop {
            match body.frame().await {
                None => break true,
                Some(Err(_)) => break false,
                Some(Ok(frame)) => data.extend(frame.into_data().into_iter().flatten()),
            }
        };
        Ok(Theirs { status, body: data.into(), complete })
    };
    let (theirs, _, ()) = tokio::join!(asking, connection, answering);
    theirs
}

fn differs_from_hyper(ours: &Answer, head: &Head, theirs: &Result<Theirs, String>) -> Option<&'static str> {
    match theirs {
        Err(_) => Some("hyper refuses"),
        Ok(theirs) if theirs.status != head.status => Some("hyper: the status"),
        Ok(theirs) if theirs.complete != ours.complete => Some("hyper: where it ends"),
        Ok(theirs) if ours.complete && theirs.body != ours.body => Some("hyper: the body"),
        Ok(_) => None,
    }
}

/// Compares the last head, which is that of the answer.
fn differs_from_httparse(head: &Head, mut stream: &[u8], interim: usize) -> Option<&'static str> {
    for _ in 0..interim {
        let mut fields = [httparse::EMPTY_HEADER; 128];
        match httparse::Response::new(&mut fields).parse(stream) {
            Ok(httparse::Status::Complete(length)) => stream = &stream[length..],
            _ => return Some("httparse refuses"),
        }
    }
    let mut fields = [httparse::EMPTY_HEADER; 128];
    let mut theirs = httparse::Response::new(&mut fields);
    if !matches!(theirs.parse(stream), Ok(httparse::Status::Complete(_))) {
        return Some("httparse refuses");
    }
    let same_fields = theirs.headers.len() == head.fields.len()
        && theirs.headers.iter().zip(&head.fields).all(|(theirs, (name, value))| {
            theirs.name.as_bytes() == name && theirs.value.trim_ascii() == value.trim_ascii()
        });
    match () {
        () if theirs.code != Some(head.status) => Some("httparse: the status"),
        () if !same_fields => Some("httparse: the fields"),
        () => None,
    }
}

fn differs_from_llhttp(ours: &Answer, head: &Head, answered: &Answered) -> Option<&'static str> {
    let theirs = answered.llhttp.as_ref()?;
    // Interim answers are messages of their own there.
    let first = theirs.bodies.get(ours.interim.len());
    match (ours.complete && head.framing != Framing::UntilClose, first) {
        (true, Some(body)) if *body == ours.body => None,
        (false, None) if theirs.error.is_none() || head.framing != Framing::UntilClose => None,
        _ if theirs.error.is_some() => Some("llhttp refuses"),
        _ => Some("llhttp: the body"),
    }
}

/// Notes what differs and is not allowed; says which of [`ALLOWED`] cover what differs.
async fn judge(answered: &Answered, hits: &mut [usize], failures: &mut Failures) {
    let ours = answer::read(answered.method, &[&answered.bytes]);
    // A switch of protocols is refused if the request did not ask for it.
    let Some(head) = ours.head.as_ref().filter(|head| !ours.refused && head.status != 101) else { return };
    let theirs = hyper(answered).await;
    let differs = [
        differs_from_hyper(&ours, head, &theirs),
        differs_from_httparse(head, &answered.bytes, ours.interim.len()),
        differs_from_llhttp(&ours, head, answered),
    ];
    for what in differs.into_iter().flatten() {
        match ALLOWED.iter().position(|allowed| allowed.what == what && (allowed.covers)(head, answered)) {
            Some(place) => hits[place] += 1,
            None => {
                failures.note(|| {
                    let (bytes, verdict) = (shown(&answered.bytes), &answered.llhttp);
                    let Answered { name, method, .. } = answered;
                    format!("{name} to {method}: {what}\n{bytes}\nours: {ours:?}\nhyper: {theirs:?}\nllhttp: {verdict:?}")
                });
                return;
            }
        }
    }
}

#[test]
fn what_we_take_other_parsers_take_and_read_the_same() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let mut failures = Failures::default();
    let mut hits = vec![0; ALLOWED.len()];
    runtime.block_on(async {
        for answered in corpus::answers().into_iter().chain(corpus::generated_answers(0, 1)) {
            judge(&answered, &mut hits, &mut failures).await;
        }
    });
    for (allowed, hits) in ALLOWED.iter().zip(hits) {
        let Allowed { what, reason, .. } = allowed;
        if hits == 0 {
            failures.note(|| format!("nothing differs any more in `{what}` because {reason}: drop the line"));
        }
    }
    failures.assert_none();
}
