//! A line of the requests: `[COUNT x] METHOD URL | sent … => outcome | seen …`.
//!
//! - URL: a port names the listener; without one it is that of the scheme.
//! - sent: `name: value`; `from ADDRESS` (127.0.0.2 without it; `127.1.0.*` is another client each time); `body BYTES`;
//!   `certificate NAME`
//! - outcome: `UPSTREAM METHOD TARGET`, or the status of the gateway with the limit that refuses or the location;
//!   `closed` without an answer
//! - seen: `name: value` of the response, `body: text`, `sent name: value` at the backend; no value: it is absent; `*`:
//!   it is there
//! - `there => outcome` and `there name: value`: the other proxy does this instead

pub(super) struct Line<'a> {
    pub(super) count: usize,
    pub(super) method: &'a str,
    pub(super) url: &'a str,
    pub(super) sent: Vec<(&'a str, &'a str)>,
    pub(super) from: &'a str,
    pub(super) body: usize,
    pub(super) certificate: Option<&'a str>,
    pub(super) outcome: String,
    pub(super) seen: Vec<(&'a str, &'a str)>,
}

impl<'a> Line<'a> {
    /// What the gateway does with the request, or the other proxy.
    pub(super) fn parse(text: &'a str, there: bool) -> Self {
        let (request, result) = text.split_once(" => ").unwrap_or_else(|| panic!("no outcome: {text}"));
        let mut request = request.split(" | ");
        let first = request.next().unwrap_or_default();
        let (count, first) = first.split_once(" x ").unwrap_or(("1", first));
        let (method, url) = first.split_once(' ').unwrap_or_else(|| panic!("no URL: {text}"));
        let count = count.parse().unwrap_or_else(|_| panic!("no count: {text}"));
        let (outcome, seen) = if there { result_there(result) } else { result_here(result) };
        let (sent, from) = (Vec::new(), "127.0.0.2");
        let mut line = Self { count, method, url, sent, from, body: 0, certificate: None, outcome, seen };
        for part in request {
            if let Some(address) = part.strip_prefix("from ") {
                line.from = address;
            } else if let Some(bytes) = part.strip_prefix("body ") {
                line.body = bytes.parse().unwrap_or_else(|_| panic!("no number: {part}"));
            } else if let Some(name) = part.strip_prefix("certificate ") {
                line.certificate = Some(name);
            } else {
                line.sent.push(field(part));
            }
        }
        line
    }
}

/// What the gateway does.
fn result_here(result: &str) -> (String, Vec<(&str, &str)>) {
    let mut parts = result.split(" | ").filter(|part| !part.starts_with("there "));
    let outcome = parts.next().unwrap_or_default().to_owned();
    (outcome, parts.map(field).collect())
}

/// What the other proxy does. It has no names for limits, and no headers about them.
fn result_there(result: &str) -> (String, Vec<(&str, &str)>) {
    let (mut outcome, seen) = result_here(result);
    if ["429 ", "503 "].iter().any(|status| outcome.starts_with(status)) {
        outcome.truncate(3);
    }
    let mut seen: Vec<_> = seen.into_iter().filter(|(name, _)| !name.starts_with("ratelimit")).collect();
    for part in result.split(" | ").filter_map(|part| part.strip_prefix("there ")) {
        match part.strip_prefix("=> ") {
            Some(other) => outcome = other.to_owned(),
            None => {
                let (name, value) = field(part);
                seen.retain(|(known, _)| *known != name);
                seen.push((name, value));
            }
        }
    }
    (outcome, seen)
}

/// `name: value`, or `name:` alone.
fn field(text: &str) -> (&str, &str) {
    let (name, value) = text.split_once(':').unwrap_or_else(|| panic!("no field: {text}"));
    (name, value.trim())
}
