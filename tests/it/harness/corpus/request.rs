//! Reads requests as the gateway's own codec does, in whatever segments they come, and notes all that it says.

use bytes::{Bytes, BytesMut};

use crate::http1::chunks::ChunkDecoder;
use crate::http1::request::{Body, RequestHead};
use crate::http1::scanner::HeadScanner;
use crate::http1::trailers::Trailers;

/// As large as `max_header_bytes` is by default.
pub(crate) const MAX_HEAD: usize = 32 << 10;

/// A request as the codec reads it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) http_11: bool,
    pub(crate) keep_alive: bool,
    pub(crate) chunked: bool,
    pub(crate) upgrade: bool,
    pub(crate) fields: Vec<(Bytes, Bytes)>,
    pub(crate) body: BytesMut,
    /// Lines with their CR LF.
    pub(crate) trailers: Bytes,
    /// Its body is whole.
    pub(crate) complete: bool,
    /// Where its head begins in the stream, and how long that is.
    pub(crate) head: (usize, usize),
}

/// What a stream of bytes holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Requests {
    /// The last one may be incomplete.
    pub(crate) requests: Vec<Request>,
    /// The status of the head or body that is refused. Nothing is read behind it.
    pub(crate) refused: Option<u16>,
    /// Where the last whole request ends.
    pub(crate) end: usize,
    /// Bytes behind it that may become another request.
    pub(crate) waiting: usize,
}

impl Requests {
    /// All of it is whole requests.
    pub(crate) fn is_good(&self) -> bool {
        self.refused.is_none() && self.waiting == 0 && !self.requests.is_empty() && self.all_complete()
    }

    fn all_complete(&self) -> bool {
        self.requests.iter().all(|request| request.complete)
    }
}

/// A decoder of request bodies.
pub(crate) fn decoder() -> ChunkDecoder {
    ChunkDecoder::of_request()
}

enum State {
    Head(HeadScanner),
    Length(u64),
    Chunked(ChunkDecoder),
    Refused,
}

struct Reader {
    state: State,
    inbound: Vec<u8>,
    read: Requests,
    /// Bytes taken of the stream so far.
    taken: usize,
}

/// Reads the stream that comes in these segments.
pub(crate) fn read(segments: &[&[u8]]) -> Requests {
    let read = Requests { requests: Vec::new(), refused: None, end: 0, waiting: 0 };
    let mut reader =
        Reader { state: State::Head(HeadScanner::default()), inbound: Vec::new(), read, taken: 0 };
    for segment in segments {
        reader.inbound.extend_from_slice(segment);
        while reader.step() {}
    }
    if matches!(reader.state, State::Head(_)) {
        reader.read.waiting = reader.inbound.len();
    }
    reader.read
}

impl Reader {
    fn advance(&mut self, bytes: usize) {
        self.inbound.drain(..bytes);
        self.taken += bytes;
    }

    fn refuse(&mut self, status: u16) -> bool {
        self.state = State::Refused;
        self.read.refused = Some(status);
        false
    }

    fn last(&mut self) -> &mut Request {
        self.read.requests.last_mut().expect("a body follows a head")
    }

    fn complete(&mut self) -> bool {
        self.last().complete = true;
        self.read.end = self.taken;
        self.state = State::Head(HeadScanner::default());
        true
    }

    /// Whether there may be more to read.
    fn step(&mut self) -> bool {
        match &mut self.state {
            State::Refused => false,
            State::Head(_) if self.inbound.starts_with(b"\r\n") => {
                self.advance(2);
                self.state = State::Head(HeadScanner::default());
                true
            }
            State::Head(_) if self.inbound.is_empty() => false,
            State::Head(scanner) => match scanner.advance(&self.inbound, MAX_HEAD) {
                Ok(false) => false,
                Ok(true) => self.take_head(),
                Err(fault) => self.refuse(fault.status().as_u16()),
            },
            State::Length(0) => self.complete(),
            State::Length(left) => {
                let here = usize::try_from(*left).unwrap_or(usize::MAX).min(self.inbound.len());
                *left -= here as u64;
                let data = self.inbound[..here].to_vec();
                self.last().body.extend_from_slice(&data);
                self.advance(here);
                here > 0
            }
            State::Chunked(_) => self.take_chunks(),
        }
    }

    fn take_head(&mut self) -> bool {
        let mut spans = Vec::new();
        let head = match RequestHead::parse(&self.inbound, &mut spans) {
            Ok(head) => head,
            Err(fault) => {
                let status = fault.status().as_u16();
                return self.refuse(status);
            }
        };
        let fields = head
            .fields
            .iter()
            .map(|field| (Bytes::copy_from_slice(field.name), Bytes::copy_from_slice(field.value)));
        self.read.requests.push(Request {
            method: head.method.to_string(),
            target: head.target.text.to_owned(),
            http_11: head.http_11,
            keep_alive: head.keep_alive,
            chunked: head.body == Body::Chunked,
            upgrade: head.upgrade,
            fields: fields.collect(),
            head: (self.taken, head.length),
            ..Request::default()
        });
        self.state = match head.body {
            Body::Length(length) => State::Length(length),
            Body::Chunked => State::Chunked(decoder()),
        };
        let length = head.length;
        self.advance(length);
        true
    }

    fn take_chunks(&mut self) -> bool {
        let State::Chunked(decoder) = &mut self.state else { return false };
        let Ok((taken, data)) = decoder.decode(&self.inbound) else { return self.refuse(400) };
        let data = data.to_vec();
        let trailers = decoder.is_done().then(|| decoder.trailers(&Trailers::All));
        self.last().body.extend_from_slice(&data);
        self.advance(taken);
        match trailers {
            Some(trailers) => {
                self.last().trailers = trailers.into();
                self.complete()
            }
            None => taken > 0,
        }
    }
}
