//! A strict parser for the backend's side: the gateway frames every request again, so no unusual syntax may remain.

use std::cell::RefCell;
use std::net::IpAddr;
use std::rc::Rc;

use bytes::{Buf as _, BytesMut};

/// A request at the backend.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) method: String,
    pub(super) target: String,
    /// The lines of the head, with the same request id in all.
    pub(super) head: String,
    pub(super) body: BytesMut,
    /// Lines with their CR LF.
    pub(super) trailers: String,
    /// Whether the request is complete.
    pub(super) complete: bool,
    /// The part that violates the grammar of requests, if any.
    pub(super) fault: Option<&'static str>,
}

/// One run. Late bytes of an earlier run do not belong to it.
#[derive(Clone, Debug, Default)]
pub(super) struct Run {
    /// The header with which the gateway names the client.
    forwarded: String,
    /// The requests, in order.
    pub(super) log: Rc<RefCell<Vec<Rc<RefCell<Seen>>>>>,
}

impl Run {
    pub(super) fn of(client: IpAddr) -> Self {
        Self { forwarded: format!("x-forwarded-for: {client}\\r\\n"), log: Rc::default() }
    }

    /// Records a request if its head belongs to this run.
    fn note(&self, mut seen: Seen) -> Rc<RefCell<Seen>> {
        let own = seen.head.contains(&self.forwarded);
        seen.head = seen.head.replace(&self.forwarded, "");
        let seen = Rc::new(RefCell::new(seen));
        if own || seen.borrow().fault.is_some() {
            self.log.borrow_mut().push(Rc::clone(&seen));
        }
        seen
    }
}

/// Reads the requests of one connection.
#[derive(Debug, Default)]
pub(super) struct Reader {
    pub(super) inbound: BytesMut,
    current: Option<(Rc<RefCell<Seen>>, Rest)>,
}

#[derive(Debug)]
enum Rest {
    Length(usize),
    Size,
    Chunk(usize),
    Trailers,
}

/// The state of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// More bytes are needed.
    Pending,
    /// The head is complete.
    Head,
    /// The request is complete.
    Whole,
    /// The bytes are not a request.
    Fault,
}

impl Reader {
    /// Parses the received bytes, and records the request in the log of its run.
    pub(super) fn step(&mut self, run: &RefCell<Run>) -> Step {
        let Some((seen, rest)) = &mut self.current else { return self.take_head(run) };
        loop {
            let mut seen = seen.borrow_mut();
            match rest {
                Rest::Length(left) => {
                    let here = (*left).min(self.inbound.len());
                    seen.body.extend_from_slice(&self.inbound.split_to(here));
                    *left -= here;
                    if *left > 0 {
                        return Step::Pending;
                    }
                    seen.complete = true;
                    drop(seen);
                    self.current = None;
                    return Step::Whole;
                }
                Rest::Size => {
                    let Some(line) = take_line(&mut self.inbound) else { return Step::Pending };
                    let lower = line.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
                    match usize::from_str_radix(&line, 16) {
                        Ok(0) if line == "0" => *rest = Rest::Trailers,
                        Ok(size) if lower && !line.starts_with('0') => *rest = Rest::Chunk(size),
                        _ => {
                            seen.fault = Some("a chunk's size");
                            return Step::Fault;
                        }
                    }
                }
                Rest::Chunk(left) => {
                    let here = (*left).min(self.inbound.len());
                    seen.body.extend_from_slice(&self.inbound.split_to(here));
                    *left -= here;
                    if *left > 0 || self.inbound.len() < 2 {
                        return Step::Pending;
                    }
                    if !self.inbound.starts_with(b"\r\n") {
                        seen.fault = Some("a chunk's end");
                        return Step::Fault;
                    }
                    self.inbound.advance(2);
                    *rest = Rest::Size;
                }
                Rest::Trailers => {
                    let Some(line) = take_line(&mut self.inbound) else { return Step::Pending };
                    if !line.is_empty() {
                        seen.trailers.push_str(&line);
                        seen.trailers.push_str("\r\n");
                        continue;
                    }
                    seen.complete = true;
                    drop(seen);
                    self.current = None;
                    return Step::Whole;
                }
            }
        }
    }

    fn take_head(&mut self, run: &RefCell<Run>) -> Step {
        let mut fields = [httparse::EMPTY_HEADER; 128];
        let mut parsed = httparse::Request::new(&mut fields);
        let length = match parsed.parse(&self.inbound) {
            Ok(httparse::Status::Complete(length)) => length,
            Ok(httparse::Status::Partial) => return Step::Pending,
            Err(_) => {
                let head = self.inbound.escape_ascii().to_string();
                let seen = Seen { head, fault: Some("a head"), ..Seen::default() };
                run.borrow().note(seen);
                return Step::Fault;
            }
        };
        let named = |name: &'static str| {
            let same = move |field: &&httparse::Header<'_>| field.name.eq_ignore_ascii_case(name);
            parsed.headers.iter().filter(same).map(|field| field.value.to_vec()).collect::<Vec<_>>()
        };
        let (lengths, codings) = (named("content-length"), named("transfer-encoding"));
        let hosts = named("host").len();
        let (rest, fault) = match (&lengths[..], &codings[..]) {
            _ if hosts != 1 => (Rest::Length(0), Some("not one Host")),
            ([], []) => (Rest::Length(0), None),
            ([length], []) => match std::str::from_utf8(length).ok().and_then(|text| text.parse().ok()) {
                Some(length) => (Rest::Length(length), None),
                None => (Rest::Length(0), Some("a length")),
            },
            ([], [coding]) if coding == b"chunked" => (Rest::Size, None),
            _ => (Rest::Length(0), Some("two framings")),
        };
        let head = self.inbound.split_to(length);
        let seen = Seen {
            method: parsed_text(&head, 0),
            target: parsed_text(&head, 1),
            head: without_id(&head),
            fault,
            ..Seen::default()
        };
        let seen = run.borrow().note(seen);
        self.current = Some((seen, rest));
        if fault.is_some() { Step::Fault } else { Step::Head }
    }
}

/// A word of the request line.
fn parsed_text(head: &[u8], index: usize) -> String {
    let word = head.split(|&byte| byte == b' ').nth(index).unwrap_or_default();
    String::from_utf8_lossy(word).into_owned()
}

/// The head as text, without the value of `x-request-id`.
fn without_id(head: &[u8]) -> String {
    let text = head.escape_ascii().to_string();
    match text.find("x-request-id: ") {
        Some(at) => {
            let end = text[at..].find("\\r").map_or(text.len(), |end| at + end);
            format!("{}{}", &text[..at], &text[end..])
        }
        None => text,
    }
}

fn take_line(inbound: &mut BytesMut) -> Option<String> {
    let end = memchr::memmem::find(inbound, b"\r\n")?;
    let line = inbound.split_to(end);
    inbound.advance(2);
    Some(String::from_utf8_lossy(&line).into_owned())
}
