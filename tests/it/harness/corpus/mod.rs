//! One corpus of HTTP/1.1 messages for all tests of framing: written by hand, the vectors of others, and generated.
//!
//! A message is judged more than once: cut at every byte (`http1::segmentation`, and through a whole connection in
//! `src/proxy/segmentation`), by other parsers (`oracle_requests`, `oracle_responses`) and over real sockets
//! (`http1::segmentation_wire`). The unit tests of `proxy` include this module by its path, so it names http1 through the
//! crate's root.

pub(crate) mod answer;
pub(crate) mod cuts;
pub(crate) mod generate;
mod mutate;
pub(crate) mod request;
mod vectors;
pub(crate) mod written;

/// Messages generated for each direction.
pub(crate) const GENERATED: u64 = 10_000;

/// What a client sends.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    /// Where it comes from.
    pub(crate) name: String,
    pub(crate) bytes: Vec<u8>,
    /// What llhttp makes of it, where it is one of its cases.
    pub(crate) llhttp: Option<Verdict>,
}

/// What a backend answers.
#[derive(Clone, Debug)]
pub(crate) struct Answered {
    /// Where it comes from.
    pub(crate) name: String,
    /// The method of the request.
    pub(crate) method: &'static str,
    pub(crate) bytes: Vec<u8>,
    /// What llhttp makes of it, where it is one of its cases.
    pub(crate) llhttp: Option<Verdict>,
}

/// What llhttp makes of a message without any of its lenient flags.
#[derive(Clone, Debug)]
pub(crate) struct Verdict {
    /// Why it is refused.
    pub(crate) error: Option<String>,
    /// The bodies of the messages that are complete.
    pub(crate) bodies: Vec<Vec<u8>>,
}

/// All requests that were not generated.
pub(crate) fn requests() -> Vec<Sent> {
    let written = written::requests().into_iter().enumerate();
    let written =
        written.map(|(place, bytes)| Sent { name: format!("written {place}"), bytes, llhttp: None });
    written.chain(vectors::guardian()).chain(vectors::llhttp_requests()).collect()
}

/// All answers that were not generated.
pub(crate) fn answers() -> Vec<Answered> {
    let written = written::answers().into_iter().enumerate();
    let written = written.map(|(place, (method, bytes))| Answered {
        name: format!("written {place}"),
        method,
        bytes,
        llhttp: None,
    });
    written.chain(vectors::llhttp_answers()).collect()
}

/// Generated requests, of which every `step`-th from `first` on.
pub(crate) fn generated_requests(first: u64, step: usize) -> impl Iterator<Item = Sent> {
    (first..GENERATED).step_by(step).map(|seed| Sent {
        name: format!("generated {seed}"),
        bytes: generate::request(seed),
        llhttp: None,
    })
}

/// Generated answers, of which every `step`-th from `first` on.
pub(crate) fn generated_answers(first: u64, step: usize) -> impl Iterator<Item = Answered> {
    (first..GENERATED).step_by(step).map(|seed| {
        let (method, bytes) = generate::answer(seed);
        Answered { name: format!("generated {seed}"), method, bytes, llhttp: None }
    })
}

/// Bytes as a failure shows them.
pub(crate) fn shown(bytes: &[u8]) -> String {
    let shown = bytes.escape_ascii().to_string();
    match shown.char_indices().nth(1200) {
        Some((end, _)) => format!("{}… ({} bytes)", &shown[..end], bytes.len()),
        None => shown,
    }
}

/// Gathers what is wrong, so that one run shows all of it and not the first alone.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    count: usize,
    shown: Vec<String>,
}

impl Failures {
    /// Notes one. Of very many the first are enough.
    pub(crate) fn note(&mut self, failure: impl FnOnce() -> String) {
        self.count += 1;
        if self.shown.len() < 40 {
            self.shown.push(failure());
        }
    }

    /// Fails if there are any.
    #[track_caller]
    pub(crate) fn assert_none(self) {
        assert!(self.count == 0, "{} failures:\n\n{}", self.count, self.shown.join("\n\n"));
    }
}
