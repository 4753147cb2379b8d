//! A request body on its way from the client to the backend.

mod interim;

use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf as _, Bytes, BytesMut};

use super::request_reader::{BodyDeadlines, BodyFault, RequestReader, Source};
use super::response_writer::SocketWriter;
use crate::http1::chunks::{ChunkDecoder, MAX_TRAILERS, encode, encode_end};
use crate::http1::fields::Fields;
use crate::http1::request::{Body, RequestHead};
use crate::http1::response::ResponseHead;
use crate::http1::trailers::Trailers;
use crate::plan::HeaderEdits;
use crate::upstream::exchange::{self, BodyFailed};

/// Bytes read from the client at once.
const PART: usize = 64 << 10;
/// Bytes of interim responses that may wait for the client. Further interim responses are dropped meanwhile.
const MAX_HINTS: usize = 16 << 10;
/// RFC 9110 §10.1.1.
pub(crate) const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// How a body is read, as the request head says. Outlives the head.
#[derive(Debug)]
pub(crate) struct BodyOptions {
    body: Body,
    /// The client waits for `100 Continue`.
    expects_continue: bool,
    /// The part of it that was read before the request was decided.
    begun: Option<Box<BegunBody>>,
    trailers: Trailers,
    wire: Wire,
    pace: BodyDeadlines,
}

/// The begin of a body, without its framing.
#[derive(Debug)]
pub(crate) struct BegunBody {
    /// Its bytes.
    pub(crate) data: Bytes,
    /// The body, these bytes included.
    pub(crate) rest: RequestRest,
}

impl Default for BodyOptions {
    /// There is no body.
    fn default() -> Self {
        let (trailers, wire, pace) = (Trailers::NONE, Wire::Http1, BodyDeadlines::Bytes);
        Self { body: Body::EMPTY, expects_continue: false, begun: None, trailers, wire, pace }
    }
}

impl BodyOptions {
    pub(crate) fn of(head: &RequestHead<'_>) -> Self {
        let trailers = match head.body {
            Body::Chunked => Trailers::declared(head.fields),
            Body::Length(_) => Trailers::NONE,
        };
        Self { body: head.body, expects_continue: head.expects_continue(), trailers, ..Self::default() }
    }

    /// The body is a stream of messages; the client may be silent for `silence` between them.
    pub(crate) fn turn_to_messages(&mut self, silence: Duration) {
        self.pace = BodyDeadlines::Messages(silence);
    }

    /// The backend speaks HTTP/2. If the client does too, trailers are forwarded even if not declared: see
    /// [`Trailers::All`].
    pub(crate) fn turn_to_http2(&mut self, client_multiplexed: bool) {
        self.wire = Wire::Http2;
        if client_multiplexed {
            self.trailers = Trailers::All;
        }
    }

    /// The body, or its begin, was read: the client was sent `100 Continue` if it waits for it.
    pub(crate) fn turn_to_begun(&mut self, begun: BegunBody) {
        self.expects_continue = false;
        self.begun = Some(Box::new(begun));
    }

    /// The framing of the body.
    pub(crate) fn body(&self) -> Body {
        self.body
    }

    /// Whether the client waits for `100 Continue`.
    pub(crate) fn expects_continue(&self) -> bool {
        self.expects_continue
    }

    /// The length of the body if it is known; else the least it can be, 0.
    pub(crate) fn length(&self) -> u64 {
        match self.body {
            Body::Length(length) => length,
            Body::Chunked => 0,
        }
    }
}

/// The part of a body that is still to be forwarded.
#[derive(Debug)]
pub(crate) enum RequestRest {
    Length(u64),
    Chunked(ChunkDecoder),
    /// Bytes until the HTTP/2 stream ends.
    Frames,
    Nothing,
}

impl RequestRest {
    /// A whole body.
    #[inline]
    pub(crate) fn of(body: Body, source: &Source) -> Self {
        match (body, source) {
            (Body::EMPTY, _) => Self::Nothing,
            (Body::Length(length), _) => Self::Length(length),
            (Body::Chunked, Source::Http1(_)) => Self::Chunked(ChunkDecoder::of_request()),
            (Body::Chunked, Source::Stream(_)) => Self::Frames,
        }
    }
}

/// How a body is forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wire {
    /// With the framing of HTTP/1.1.
    Http1,
    /// Without framing: HTTP/2 frames carry it.
    Http2,
    /// Not at all: its bytes are only counted.
    Nowhere,
}

/// Leaves the trailers of a request that its backend may get.
pub(crate) trait TrailerFilter: std::fmt::Debug {
    /// The lines that remain.
    fn retained(&self, lines: Vec<u8>) -> Vec<u8>;
}

/// Is shown a request body while it is forwarded.
pub(crate) trait BodyObserver: std::fmt::Debug {
    /// These bytes were forwarded, with their framing, if any. `data`: the bytes of the body so far, without framing. `end`:
    /// the body has ended; the lines of its trailers, if it is forwarded without framing.
    fn observe(&mut self, part: &[u8], data: u64, end: Option<&[u8]>);
}

/// A request body: read from the client, counted, bounded and framed for the backend.
#[derive(Debug)]
pub(crate) struct Upload<'c> {
    reader: &'c mut RequestReader,
    inbound: &'c mut BytesMut,
    /// Bytes that were read before the request was decided, without framing. They precede `inbound`. Most bodies have none.
    begun: Option<Bytes>,
    rest: RequestRest,
    wire: Wire,
    trailers: Trailers,
    /// Leaves those that the route's rules let pass; `None`: they are not forwarded.
    trailer_filter: Option<&'c dyn TrailerFilter>,
    /// Is shown all that is forwarded.
    observer: Option<&'c mut dyn BodyObserver>,
    /// The trailers received, as lines, where the body is forwarded without framing.
    ending: Vec<u8>,
    /// The maximum number of bytes; `None`: no limit.
    limit: Option<u64>,
    /// The unsent part of `100 Continue`.
    interim: &'static [u8],
    /// The unsent part of the backend's interim responses.
    hints: BytesMut,
    /// Bytes of interim responses handed to an HTTP/2 stream.
    hinted: usize,
    /// Sends both. Created with the first byte to send, since few requests need it.
    writer: Option<Box<SocketWriter>>,
    /// The header edits for interim responses; `None`: the client gets none.
    edits: Option<&'c HeaderEdits>,
    bytes: u64,
    touched: bool,
    fault: Option<BodyFault>,
}

impl<'c> Upload<'c> {
    /// The body that continues in `inbound` and is then read from `reader`. Inlined: it is large enough that moving it
    /// costs measurably.
    #[inline(always)]
    pub(crate) fn new(
        body_options: BodyOptions,
        limit: Option<u64>,
        reader: &'c mut RequestReader,
        inbound: &'c mut BytesMut,
    ) -> Self {
        let (begun, rest) = match body_options.begun {
            Some(begun) => (Some(begun.data).filter(|data| !data.is_empty()), begun.rest),
            None => (None, RequestRest::of(body_options.body, reader.source())),
        };
        reader.turn_to_body(body_options.pace);
        let interim = if body_options.expects_continue { CONTINUE } else { b"" };
        let trailers = body_options.trailers;
        Self {
            reader,
            inbound,
            begun,
            rest,
            wire: body_options.wire,
            trailers,
            trailer_filter: None,
            observer: None,
            ending: Vec::new(),
            limit,
            interim,
            hints: BytesMut::new(),
            hinted: 0,
            writer: None,
            edits: None,
            bytes: 0,
            touched: false,
            fault: None,
        }
    }

    /// Forwards the backend's interim responses, with the response's header edits. The client must understand them:
    /// HTTP/1.0 has none.
    pub(crate) fn pass_hints(&mut self, edits: &'c HeaderEdits) {
        self.edits = Some(edits);
    }

    /// Forwards only the trailer lines that `filter` leaves; without one, none.
    pub(crate) fn filter_trailers(&mut self, filter: &'c dyn TrailerFilter) {
        self.trailer_filter = Some(filter);
    }

    /// Shows `observer` the body while it is forwarded.
    pub(crate) fn show_to(&mut self, observer: &'c mut dyn BodyObserver) {
        self.observer = Some(observer);
    }

    /// Body bytes received so far, without their framing.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Why the body broke off, if it did.
    pub(crate) fn fault(&self) -> Option<BodyFault> {
        self.fault
    }

    /// Whether the body was received to its end.
    pub(crate) fn is_done(&self) -> bool {
        matches!(self.rest, RequestRest::Nothing)
    }

    /// The response begins: no `100 Continue` is started any more. One that was begun must be finished, and pending
    /// interim responses go before the response.
    pub(crate) fn end_interim(&mut self, out: &mut BytesMut) {
        self.reader.answer_begins();
        let rest = std::mem::take(&mut self.interim);
        // Nearly always neither is pending.
        if (1..CONTINUE.len()).contains(&rest.len()) {
            out.extend_from_slice(rest);
        }
        if !self.hints.is_empty() {
            out.extend_from_slice(&std::mem::take(&mut self.hints));
        }
    }

    /// Consumes received bytes. A body that broke off once stays failed.
    fn take(&mut self, out: &mut BytesMut) -> Result<(), BodyFault> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        let start = out.len();
        if let Some(part) = self.begun.take() {
            self.take_begun(&part, out);
        }
        let before = self.inbound.len();
        let consumed = match self.rest {
            RequestRest::Nothing => Ok(()),
            RequestRest::Length(left) => {
                self.take_length(left, out);
                Ok(())
            }
            RequestRest::Chunked(_) => self.take_chunks(out),
            RequestRest::Frames => self.take_frames(out),
        };
        let taken_bytes = before - self.inbound.len();
        self.touched |= taken_bytes > 0;
        self.reader.release(taken_bytes);
        let is_too_large = self.limit.is_some_and(|limit| self.bytes > limit);
        let consumed = if is_too_large { Err(BodyFault::TooLarge) } else { consumed };
        if consumed.is_ok() && self.observer.is_some() {
            self.show(out.get(start..).unwrap_or_default());
        }
        consumed.inspect_err(|&fault| self.fault = Some(fault))
    }

    #[cold]
    fn show(&mut self, part: &[u8]) {
        let end = matches!(self.rest, RequestRest::Nothing).then_some(&*self.ending);
        if let Some(observer) = &mut self.observer {
            observer.observe(part, self.bytes, end);
        }
    }

    /// Takes bytes that were read before the request was decided. They were released then.
    #[cold]
    fn take_begun(&mut self, part: &[u8], out: &mut BytesMut) {
        self.touched = true;
        self.bytes += part.len() as u64;
        match &mut self.rest {
            RequestRest::Length(left) => {
                out.extend_from_slice(part);
                *left = left.saturating_sub(part.len() as u64);
                if *left == 0 {
                    self.rest = RequestRest::Nothing;
                }
            }
            RequestRest::Chunked(_) | RequestRest::Frames | RequestRest::Nothing => self.wire.put(part, out),
        }
    }

    fn take_length(&mut self, left: u64, out: &mut BytesMut) {
        let here = usize::try_from(left).unwrap_or(usize::MAX).min(self.inbound.len()).min(PART);
        out.extend_from_slice(&self.inbound[..here]);
        self.inbound.advance(here);
        self.bytes += here as u64;
        let left = left - here as u64;
        self.rest = if left == 0 { RequestRest::Nothing } else { RequestRest::Length(left) };
    }

    fn take_chunks(&mut self, out: &mut BytesMut) -> Result<(), BodyFault> {
        let wire = self.wire;
        let RequestRest::Chunked(decoder) = &mut self.rest else { return Ok(()) };
        while !self.inbound.is_empty() && !decoder.is_done() && out.len() < PART {
            let (consumed, data) = decoder.decode(self.inbound).map_err(|_| BodyFault::Malformed)?;
            self.bytes += data.len() as u64;
            wire.put(data, out);
            self.inbound.advance(consumed);
        }
        if decoder.is_done() {
            let trailers = decoder.trailers(&self.trailers);
            self.end(trailers, out);
        }
        Ok(())
    }

    /// The body ended, with these trailers.
    fn end(&mut self, trailers: Vec<u8>, out: &mut BytesMut) {
        let trailers = self.trailer_filter.map_or_else(Vec::new, |filter| filter.retained(trailers));
        match self.wire {
            Wire::Http1 => encode_end(&trailers, out),
            Wire::Http2 => self.ending = trailers,
            Wire::Nowhere => {}
        }
        self.rest = RequestRest::Nothing;
    }

    fn take_frames(&mut self, out: &mut BytesMut) -> Result<(), BodyFault> {
        let here = self.inbound.len().min(PART);
        self.wire.put(&self.inbound[..here], out);
        self.inbound.advance(here);
        self.bytes += here as u64;
        let Source::Stream(stream) = self.reader.source() else { return Ok(()) };
        if self.inbound.is_empty()
            && let Some(lines) = stream.trailers()
        {
            if lines.len() > MAX_TRAILERS {
                return Err(BodyFault::Malformed);
            }
            self.end(self.trailers.pick(&lines), out);
        }
        Ok(())
    }

    /// Reads more of the body. Fails if the client is too late or leaves.
    fn poll_more(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BodyFault>> {
        let mut read = ready!(self.reader.poll_body(context, self.inbound));
        if self.inbound.is_empty() && !matches!(self.rest, RequestRest::Frames) {
            // An HTTP/2 stream ended before the length that its head declared.
            read = read.and(Err(BodyFault::Gone));
        }
        Poll::Ready(read.inspect_err(|&fault| self.fault = Some(fault)))
    }

    /// Reads and discards. Ready once the body is at its end, or more than `max` bytes of it were received: false.
    pub(crate) fn poll_drain(&mut self, context: &mut Context<'_>, max: u64) -> Poll<bool> {
        self.wire = Wire::Nowhere;
        let mut scratch = BytesMut::new();
        loop {
            if self.take(&mut scratch).is_err() || self.bytes > max {
                return Poll::Ready(false);
            }
            scratch.clear();
            if self.is_done() {
                return Poll::Ready(true);
            }
            if ready!(self.poll_more(context)).is_err() {
                return Poll::Ready(false);
            }
        }
    }
}

impl Wire {
    fn put(self, data: &[u8], out: &mut BytesMut) {
        match self {
            Self::Http1 => encode(data, out),
            Self::Http2 => out.extend_from_slice(data),
            Self::Nowhere => {}
        }
    }
}

impl exchange::RequestBody for Upload<'_> {
    fn poll_part(&mut self, context: &mut Context<'_>, out: &mut BytesMut) -> Poll<Result<(), BodyFailed>> {
        self.touched = true;
        let before = out.len();
        loop {
            self.take(out).map_err(|_| BodyFailed)?;
            if out.len() > before || self.is_done() {
                return Poll::Ready(Ok(()));
            }
            if ready!(self.poll_interim(context)).is_err() {
                self.fault = Some(self.interim_fault());
                return Poll::Ready(Err(BodyFailed));
            }
            ready!(self.poll_more(context)).map_err(|_| BodyFailed)?;
        }
    }

    fn take_ready(&mut self, out: &mut BytesMut) -> Result<(), BodyFailed> {
        self.take(out).map_err(|_| BodyFailed)
    }

    fn interim(&mut self, context: &mut Context<'_>, head: &ResponseHead, fields: Fields<'_>) {
        self.put_hints(context, head, fields);
    }

    fn is_done(&self) -> bool {
        self.is_done()
    }

    fn is_untouched(&self) -> bool {
        !self.touched
    }

    fn trailers(&self) -> &[u8] {
        &self.ending
    }
}
