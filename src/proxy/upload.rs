//! A request's body on its way from the client.

use std::io;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, BytesMut};
use http::StatusCode;

use super::headers::{put_passing_fields, put_status};
use super::reader::{BodyFault, Pace, Reader};
use crate::gateway::HeaderEdits;
use crate::http1::body::Body;
use crate::http1::chunks::{ChunkDecoder, Trailers, encode, encode_end};
use crate::http1::fields::Fields;
use crate::http1::name::Name;
use crate::http1::request::RequestHead;
use crate::http1::response::ResponseHead;
use crate::socket::Stream;
use crate::upstream::exchange::{self, Broken};

/// Bytes taken from the client at once.
const PART: usize = 64 << 10;
/// Bytes of interim answers that may wait for the client; it gets no more of them then.
const MAX_HINTS: usize = 16 << 10;
/// RFC 9110 §10.1.1.
const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// How a body is taken, as its request's head says. Outlives the head.
#[derive(Debug)]
pub(crate) struct Terms {
    body: Body,
    /// The client waits to be told to continue.
    expects_continue: bool,
    trailers: Trailers,
    pace: Pace,
}

impl Terms {
    pub(crate) fn of(head: &RequestHead<'_>, pace: Pace) -> Self {
        let trailers = match head.body {
            Body::Chunked => {
                Trailers::Declared(head.fields.known(Name::Trailer).unwrap_or_default().to_vec())
            }
            Body::Length(_) => Trailers::NONE,
        };
        Self { body: head.body, expects_continue: head.expects_continue(), trailers, pace }
    }

    /// Its trailers travel on without having been declared: see [`Trailers::All`].
    pub(crate) fn pass_all_trailers(&mut self) {
        self.trailers = Trailers::All;
    }

    /// How it is framed.
    pub(crate) fn body(&self) -> Body {
        self.body
    }

    /// Whether the client waits to be told to continue.
    pub(crate) fn expects_continue(&self) -> bool {
        self.expects_continue
    }

    /// How long the body is, if that is known; else at least 0.
    pub(crate) fn length(&self) -> u64 {
        match self.body {
            Body::Length(length) => length,
            Body::Chunked => 0,
        }
    }
}

/// What is left of a body.
#[derive(Debug)]
enum Rest {
    Length(u64),
    Chunked(ChunkDecoder),
    Nothing,
}

/// A request's body: read from the client, counted, bounded, framed anew.
#[derive(Debug)]
pub(crate) struct Upload<'c> {
    stream: &'c Stream,
    reader: &'c mut Reader,
    inbound: &'c mut BytesMut,
    rest: Rest,
    trailers: Trailers,
    /// Bytes allowed; `None`: no bound.
    limit: Option<u64>,
    /// What is unsent of `100 Continue`.
    interim: &'static [u8],
    /// What is unsent of the backend's interim answers.
    hints: BytesMut,
    /// How those are edited; `None`: the client gets none.
    edits: Option<&'c HeaderEdits>,
    bytes: u64,
    touched: bool,
    fault: Option<BodyFault>,
}

impl<'c> Upload<'c> {
    /// The body that follows in `inbound` and on `stream`.
    pub(crate) fn new(
        terms: Terms,
        limit: Option<u64>,
        stream: &'c Stream,
        reader: &'c mut Reader,
        inbound: &'c mut BytesMut,
    ) -> Self {
        let rest = match terms.body {
            Body::EMPTY => Rest::Nothing,
            Body::Length(length) => Rest::Length(length),
            Body::Chunked => Rest::Chunked(ChunkDecoder::default()),
        };
        reader.turn_to_body(terms.pace);
        let interim = if terms.expects_continue { CONTINUE } else { b"" };
        let trailers = terms.trailers;
        Self {
            stream,
            reader,
            inbound,
            rest,
            trailers,
            limit,
            interim,
            hints: BytesMut::new(),
            edits: None,
            bytes: 0,
            touched: false,
            fault: None,
        }
    }

    /// The client understands interim answers (HTTP/1.0 knows none): it gets the backend's, edited like the answer.
    pub(crate) fn pass_hints(&mut self, edits: &'c HeaderEdits) {
        self.edits = Some(edits);
    }

    /// Bytes that came so far, without their framing.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Why it broke off, if it did.
    pub(crate) fn fault(&self) -> Option<BodyFault> {
        self.fault
    }

    /// Whether it has come whole.
    pub(crate) fn is_done(&self) -> bool {
        matches!(self.rest, Rest::Nothing)
    }

    /// The answer begins: the client is not told to continue any more. What it has been told of that must be finished, and
    /// hints go before the answer.
    pub(crate) fn end_interim(&mut self, out: &mut BytesMut) {
        self.reader.answer_begins();
        let rest = std::mem::take(&mut self.interim);
        // Nearly always there is neither.
        if (1..CONTINUE.len()).contains(&rest.len()) {
            out.extend_from_slice(rest);
        }
        if !self.hints.is_empty() {
            out.extend_from_slice(&std::mem::take(&mut self.hints));
        }
    }

    /// Sends what the client is to learn before its answer.
    fn poll_interim(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_hints(context))?;
        while !self.interim.is_empty() {
            let sent = ready!(self.stream.poll_write(context, self.interim, &[]))?;
            self.interim = self.interim.get(sent..).unwrap_or_default();
        }
        Poll::Ready(Ok(()))
    }

    fn poll_hints(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.hints.is_empty() {
            let sent = ready!(self.stream.poll_write(context, &self.hints, &[]))?;
            self.hints.advance(sent);
        }
        Poll::Ready(Ok(()))
    }

    /// Takes what has come, framed for the next hop if `framed`.
    fn take(&mut self, out: &mut BytesMut, framed: bool) -> Result<(), BodyFault> {
        let before = self.inbound.len();
        match &mut self.rest {
            Rest::Nothing => {}
            Rest::Length(left) => {
                let here = usize::try_from(*left).unwrap_or(usize::MAX).min(before).min(PART);
                out.extend_from_slice(&self.inbound[..here]);
                self.inbound.advance(here);
                self.bytes += here as u64;
                *left -= here as u64;
                if *left == 0 {
                    self.rest = Rest::Nothing;
                }
            }
            Rest::Chunked(_) => self.take_chunks(out, framed)?,
        }
        self.touched |= self.inbound.len() < before;
        match self.limit {
            Some(limit) if self.bytes > limit => Err(BodyFault::TooLarge),
            _ => Ok(()),
        }
    }

    fn take_chunks(&mut self, out: &mut BytesMut, framed: bool) -> Result<(), BodyFault> {
        let Rest::Chunked(decoder) = &mut self.rest else { return Ok(()) };
        while !self.inbound.is_empty() && !decoder.is_done() && out.len() < PART {
            let (taken, data) = decoder.decode(self.inbound).map_err(|_| BodyFault::Malformed)?;
            self.bytes += data.len() as u64;
            if framed {
                encode(data, out);
            }
            self.inbound.advance(taken);
        }
        if decoder.is_done() {
            if framed {
                encode_end(&decoder.trailers(&self.trailers), out);
            }
            self.rest = Rest::Nothing;
        }
        Ok(())
    }

    /// Reads on and throws away. Ready once the body is at its end, or more than `most` bytes of it have come: false.
    pub(crate) fn poll_drain(&mut self, context: &mut Context<'_>, most: u64) -> Poll<bool> {
        let mut scrap = BytesMut::new();
        loop {
            if self.take(&mut scrap, false).is_err() || self.bytes > most {
                return Poll::Ready(false);
            }
            scrap.clear();
            if self.is_done() {
                return Poll::Ready(true);
            }
            if ready!(self.reader.poll_body(context, self.inbound)).is_err() {
                return Poll::Ready(false);
            }
        }
    }

    fn break_off(&mut self, fault: BodyFault) -> Poll<Result<(), Broken>> {
        self.fault = Some(fault);
        Poll::Ready(Err(Broken))
    }
}

impl exchange::Upload for Upload<'_> {
    fn poll_part(&mut self, context: &mut Context<'_>, out: &mut BytesMut) -> Poll<Result<(), Broken>> {
        self.touched = true;
        let before = out.len();
        loop {
            if let Err(fault) = self.take(out, true) {
                return self.break_off(fault);
            }
            if out.len() > before || self.is_done() {
                return Poll::Ready(Ok(()));
            }
            if ready!(self.poll_interim(context)).is_err() {
                return self.break_off(BodyFault::Gone);
            }
            if let Err(fault) = ready!(self.reader.poll_body(context, self.inbound)) {
                return self.break_off(fault);
            }
        }
    }

    fn take_ready(&mut self, out: &mut BytesMut) {
        // What is wrong with it is found again when more of it is asked for.
        let _ = self.take(out, true);
    }

    fn interim(&mut self, context: &mut Context<'_>, head: &ResponseHead, fields: Fields<'_>) {
        let Some(edits) = self.edits else { return };
        // To continue is ours to say, and in one piece.
        let saying = !self.interim.is_empty() && self.interim.len() < CONTINUE.len();
        if head.status == StatusCode::CONTINUE || saying || self.hints.len() + head.length > MAX_HINTS {
            return;
        }
        put_status(&mut self.hints, true, head.status, None);
        put_passing_fields(fields, edits, |_| false, &mut self.hints);
        self.hints.extend_from_slice(b"\r\n");
        // What the client does not take now goes before the answer, which also tells whether it has left.
        let _ = self.poll_hints(context);
    }

    fn is_done(&self) -> bool {
        self.is_done()
    }

    fn is_untouched(&self) -> bool {
        !self.touched
    }
}
