//! Other parsers read the same requests: hyper's server, httparse and llhttp.
//!
//! The gateway may be stricter than they are. What it takes they must take, too, and they must see the same requests with
//! the same bodies in it: else a backend could see another. Where they differ, [`ALLOWED`] says why that is no danger.

use std::cell::RefCell;
use std::rc::Rc;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::AsyncWriteExt as _;

use crate::harness::corpus::request::{self, Request, Requests};
use crate::harness::corpus::{self, Failures, Sent, Verdict, shown};

/// More than any message of the corpus, and what is answered to it.
const ROOM: usize = 1 << 20;

/// A difference that is no danger.
struct Allowed {
    /// What differs.
    what: &'static str,
    /// In which messages.
    covers: fn(&Request, &Sent) -> bool,
    reason: &'static str,
}

const ALLOWED: &[Allowed] = &[
    Allowed {
        what: "hyper refuses",
        covers: |request, _| request.target.contains(['"', '<', '>', '\\', '^', '`', '{', '|', '}']),
        reason: "browsers send characters that RFC 3986 has no place for, and hyper's type for targets has none",
    },
    Allowed {
        what: "llhttp refuses",
        covers: |request, _| matches!(&request.method[..], "ANNOUNCE" | "MKCOLA"),
        reason: "llhttp takes only the methods that it knows, each for one protocol; a gateway passes on others",
    },
    Allowed {
        what: "hyper: where it ends",
        covers: |request, _| request.trailers.split(|&byte| byte == b'\n').count() > 100,
        reason: "hyper takes at most 100 trailers, the gateway as many as there are in 16 KiB",
    },
];

/// A request as hyper reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Theirs {
    method: String,
    target: String,
    body: Bytes,
    complete: bool,
}

/// What hyper's server makes of it.
async fn hyper(bytes: &[u8]) -> (Vec<Theirs>, Option<String>) {
    let (mut client, server) = tokio::io::duplex(ROOM);
    client.write_all(bytes).await.expect("there is room");
    client.shutdown().await.expect("it is open");
    let log = Rc::new(RefCell::new(Vec::new()));
    let service = service_fn(|request: hyper::Request<Incoming>| {
        let log = Rc::clone(&log);
        async move {
            let (method, target) = (request.method().to_string(), request.uri().to_string());
            let mut theirs = Theirs { method, target, body: Bytes::new(), complete: false };
            let place = log.borrow().len();
            log.borrow_mut().push(theirs.clone());
            let mut body = request.into_body();
            let mut data = Vec::new();
            theirs.complete = loop {
                match body.frame().await {
                    None => break true,
                    Some(Err(_)) => break false,
                    Some(Ok(frame)) => data.extend(frame.into_data().into_iter().flatten()),
                }
            };
            theirs.body = data.into();
            log.borrow_mut()[place] = theirs;
            Ok::<_, std::convert::Infallible>(hyper::Response::new(Empty::<Bytes>::new()))
        }
    });
    let serving = http1::Builder::new().half_close(true).serve_connection(TokioIo::new(server), service);
    let fault = serving.await.err().map(|fault| format!("{fault:?}"));
    let seen = log.borrow().clone();
    (seen, fault)
}

/// Those of our requests that the gateway would serve: none behind one that ends the connection.
fn served(read: &Requests) -> &[Request] {
    let last = read.requests.iter().position(|request| !request.keep_alive || request.upgrade);
    &read.requests[..last.map_or(read.requests.len(), |last| last + 1)]
}

/// As hyper writes a target: an absolute one with a path and its scheme in lower case.
fn with_path(target: &str) -> String {
    let Some(at) = target.find("://").filter(|_| !target.starts_with('/')) else { return target.to_owned() };
    let (scheme, rest) = target.split_at(at);
    let authority = rest[3..].find(['/', '?']).map_or(rest.len(), |end| end + 3);
    let slash = if rest[authority..].starts_with('/') { "" } else { "/" };
    format!("{}{}{slash}{}", scheme.to_lowercase(), &rest[..authority], &rest[authority..])
}

/// What differs between our reading and hyper's.
fn differs_from_hyper(read: &Requests, ours: &Request, theirs: Option<&Theirs>) -> Option<&'static str> {
    let Some(theirs) = theirs else { return Some("hyper refuses") };
    // A body that we refuse may be good for others.
    let refused = !ours.complete && read.refused.is_some();
    match () {
        () if theirs.method != ours.method => Some("hyper: the method"),
        () if theirs.target != with_path(&ours.target) => Some("hyper: the target"),
        () if !refused && theirs.complete != ours.complete => Some("hyper: where it ends"),
        () if ours.complete && theirs.body != ours.body => Some("hyper: the body"),
        () => None,
    }
}

/// What differs between our reading of a head and httparse's.
fn differs_from_httparse(ours: &Request, stream: &[u8]) -> Option<&'static str> {
    let mut fields = [httparse::EMPTY_HEADER; 128];
    let mut theirs = httparse::Request::new(&mut fields);
    match theirs.parse(&stream[ours.head.0..]) {
        Ok(httparse::Status::Complete(length)) if length == ours.head.1 => {}
        Ok(_) => return Some("httparse: where the head ends"),
        Err(_) => return Some("httparse refuses"),
    }
    let same_fields = theirs.headers.len() == ours.fields.len()
        && theirs.headers.iter().zip(&ours.fields).all(|(theirs, (name, value))| {
            theirs.name.as_bytes() == name && theirs.value.trim_ascii() == value.trim_ascii()
        });
    let same_line = theirs.method == Some(&ours.method)
        && theirs.path == Some(&ours.target)
        && theirs.version == Some(u8::from(ours.http_11));
    match () {
        () if !same_line => Some("httparse: the request line"),
        () if !same_fields => Some("httparse: the fields"),
        () => None,
    }
}

/// What differs between our reading and llhttp's: the bodies of the whole requests up to where we refuse, and that we refuse.
fn differs_from_llhttp(read: &Requests, theirs: &Verdict) -> Option<&'static str> {
    let served = served(read);
    let ours: Vec<&[u8]> =
        served.iter().filter(|request| request.complete).map(|request| &request.body[..]).collect();
    let closes = served.last().is_some_and(|request| !request.keep_alive || request.upgrade);
    let same = theirs.bodies.len() >= ours.len()
        && ours.iter().zip(&theirs.bodies).all(|(ours, theirs)| ours == theirs);
    match () {
        () if !same && theirs.error.is_some() => Some("llhttp refuses"),
        () if !same => Some("llhttp: the bodies"),
        () if read.refused.is_some() || closes => None,
        () if theirs.error.is_some() => Some("llhttp refuses"),
        () if theirs.bodies.len() != ours.len() => Some("llhttp: how many"),
        () => None,
    }
}

/// Notes what differs and is not allowed; says which of [`ALLOWED`] cover what differs.
async fn judge(sent: &Sent, hits: &mut [usize], failures: &mut Failures) {
    let read = request::read(&[&sent.bytes]);
    let served = served(&read);
    if served.is_empty() {
        return;
    }
    let (theirs, fault) = hyper(&sent.bytes).await;
    let whole = sent.llhttp.as_ref().and_then(|theirs| differs_from_llhttp(&read, theirs));
    let whole = served.last().zip(whole);
    let each = served.iter().enumerate().flat_map(|(place, ours)| {
        let differs =
            [differs_from_hyper(&read, ours, theirs.get(place)), differs_from_httparse(ours, &sent.bytes)];
        differs.into_iter().flatten().map(move |what| (ours, what))
    });
    for (ours, what) in each.chain(whole) {
        let allowed = ALLOWED.iter().position(|allowed| allowed.what == what && (allowed.covers)(ours, sent));
        if let Some(place) = allowed {
            hits[place] += 1;
            // What hyper refuses, it does not read on behind.
            if what == "hyper refuses" {
                return;
            }
            continue;
        }
        failures.note(|| {
            let (bytes, verdict) = (shown(&sent.bytes), &sent.llhttp);
            format!(
                "{}: {what}\n{bytes}\nours: {read:?}\nhyper: {theirs:?} {fault:?}\nllhttp: {verdict:?}",
                sent.name
            )
        });
        return;
    }
}

#[test]
fn what_we_take_other_parsers_take_and_read_the_same() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let mut failures = Failures::default();
    let mut hits = vec![0; ALLOWED.len()];
    runtime.block_on(async {
        for sent in corpus::requests().into_iter().chain(corpus::generated_requests(0, 1)) {
            judge(&sent, &mut hits, &mut failures).await;
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
