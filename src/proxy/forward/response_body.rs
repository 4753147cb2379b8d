//! A response body on its way from the backend to the client.

mod compressed;

use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf as _, BytesMut};
use tokio::time::Instant;

use crate::clock::{Deadline, now};
use crate::http1::chunks::{ChunkDecoder, MalformedChunk, encode, encode_end};
use crate::http1::response::Framing;
use crate::http1::trailers::Trailers;
use crate::http2::connection::StreamLost;
use crate::http2::head_sink::HeadFormat;
use crate::proxy::forward::body_encoder::BodyEncoder;
use crate::proxy::record::settlement::Settlement;
use crate::proxy::session::request_reader::BodyFault;
use crate::proxy::session::response_writer::{ResponseWriter, SocketWriter};
use crate::proxy::session::server_stream::ServerStream;
use crate::upstream::exchange::{BODY_READ, Exchange, RequestBody};

/// Bytes of a chunked body that are reframed at once.
const PART: usize = 32 << 10;
/// A body up to this many bytes is copied after the head, to be sent with it in one write.
const SMALL: usize = 4 << 10;

/// Why the client did not get the whole body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RelayError {
    /// The backend broke the body off, was silent for too long, or sent a malformed body.
    Backend,
    /// The body is malformed from its first byte on, and nothing of the head was sent.
    Unsent,
    /// The client left, or accepts nothing.
    Client,
    /// The client's message stream violated a bound. The call is ended, since it would wait in vain for the next
    /// message.
    Messages(BodyFault),
    /// The exchange takes too long.
    Overrun,
}

/// How a body is framed for the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyFraming {
    /// The backend's bytes unchanged: the body has a length, or ends with the connection.
    Plain,
    /// In chunks, with trailers or without.
    Chunked,
    /// In HTTP/2 frames, which mark their end themselves.
    Frames,
}

/// What a response is relayed with.
#[derive(Debug)]
pub(crate) struct RelayBuffers<'r, 'e, U> {
    pub(crate) exchange: &'r mut Exchange<'e, U>,
    /// Bytes for the client: the head at first.
    pub(crate) outbound: &'r mut BytesMut,
    /// Measures the silence of the backend.
    pub(crate) deadline: &'r mut Deadline,
    /// What the body is shown to.
    pub(crate) settlement: &'r mut Option<Box<Settlement>>,
}

/// A response body being relayed.
#[derive(Debug)]
pub(crate) struct Download {
    rest: ResponseRest,
    /// The format of the head, for an HTTP/2 client.
    head: HeadFormat,
    framing: BodyFraming,
    trailers: Trailers,
    /// Body bytes handed to the client's socket, or framed for it.
    sent: u64,
    /// The client's socket accepted a byte of the response.
    begun: bool,
    /// The rest of the body is malformed.
    malformed: bool,
    /// How long the backend may be silent.
    read_timeout: Duration,
    silent_since: Option<Instant>,
    /// The trailers, once the body has ended: of a body without an end in its framing, or of one sent in frames.
    ending: Option<Vec<u8>>,
    /// The unsent payload of chunks, of a body sent in frames.
    unchunked: BytesMut,
    /// How many of the bytes that go on unchanged the settlement has seen.
    observed: usize,
    /// Whether a settlement looks for a value in the trailers.
    keeps_trailers: bool,
    /// All trailer lines, for that.
    raw_trailers: Vec<u8>,
    /// The connection to the client is closed after the response.
    last: bool,
    /// Compresses the body; `None`: it goes on as it is.
    encoder: Option<Box<BodyEncoder>>,
}

/// The part of a body that is still to come.
#[derive(Debug)]
enum ResponseRest {
    Nothing,
    Length(u64),
    /// So many bytes, which are compressed.
    Compressed(u64),
    Chunked(ChunkDecoder),
    /// Bytes until the connection or the HTTP/2 stream ends.
    UntilClose,
}

impl Download {
    pub(crate) fn new(
        received: Framing,
        (head, framing): (HeadFormat, BodyFraming),
        trailers: Trailers,
        read_timeout: Duration,
    ) -> Self {
        let rest = match received {
            Framing::None | Framing::Length(0) => ResponseRest::Nothing,
            Framing::Length(length) => ResponseRest::Length(length),
            Framing::Chunked => ResponseRest::Chunked(ChunkDecoder::of_response()),
            Framing::UntilClose => ResponseRest::UntilClose,
        };
        Self {
            rest,
            head,
            framing,
            trailers,
            sent: 0,
            begun: false,
            malformed: false,
            read_timeout,
            silent_since: None,
            ending: None,
            unchunked: BytesMut::new(),
            observed: 0,
            keeps_trailers: false,
            raw_trailers: Vec::new(),
            last: false,
            encoder: None,
        }
    }

    /// The connection to the client is closed after the response.
    pub(crate) fn mark_last(&mut self) {
        self.last = true;
    }

    /// Keeps all trailers for a settlement, whichever are sent on.
    pub(crate) fn keep_trailers(&mut self) {
        self.keeps_trailers = true;
    }

    /// Body bytes sent so far.
    pub(crate) fn sent(&self) -> u64 {
        self.sent
    }

    /// Sends `outbound`, which holds the head, and then the body as it is received. Of a malformed body, the bytes
    /// before the fault are sent.
    pub(crate) fn poll_pass<U: RequestBody>(
        &mut self,
        context: &mut Context<'_>,
        relay: &mut RelayBuffers<'_, '_, U>,
        writer: &mut ResponseWriter,
    ) -> Poll<Result<(), RelayError>> {
        relay.exchange.send_on(context);
        if let Some(encoder) = &mut self.encoder {
            encoder.begin_turn();
        }
        match writer {
            ResponseWriter::Http1(writer) => self.poll_http1(context, relay, writer),
            ResponseWriter::Stream(stream) => self.poll_http2(context, relay, stream),
        }
    }

    /// Shows the settlement the bytes that go on unchanged, and the end of the body, before the client gets them.
    #[inline]
    fn observe(&mut self, straight: &[u8], settlement: &mut Option<Box<Settlement>>) {
        let Some(settlement) = settlement else { return };
        settlement.body(straight.get(self.observed..).unwrap_or_default());
        self.observed = straight.len();
        let is_whole = match self.rest {
            ResponseRest::Nothing => true,
            ResponseRest::Length(left) => left == straight.len() as u64,
            ResponseRest::UntilClose => self.ending.is_some(),
            ResponseRest::Chunked(_) | ResponseRest::Compressed(_) => false,
        };
        if is_whole {
            settlement.finish(&self.raw_trailers);
        }
    }

    fn poll_http2<U: RequestBody>(
        &mut self,
        context: &mut Context<'_>,
        relay: &mut RelayBuffers<'_, '_, U>,
        stream: &ServerStream,
    ) -> Poll<Result<(), RelayError>> {
        let RelayBuffers { exchange, outbound, deadline, settlement } = relay;
        loop {
            let received = &mut exchange.answer().bytes;
            self.unchunk(received, settlement);
            let straight = self.straight(received.len());
            self.observe(&received[..straight], settlement);
            let empty = straight == 0 && self.unchunked.is_empty();
            if self.malformed && empty {
                return Poll::Ready(Err(if self.begun { RelayError::Backend } else { RelayError::Unsent }));
            }
            if !std::mem::replace(&mut self.begun, true) {
                let ended = empty && self.ends_after(0);
                stream.send_head(outbound, self.head, ended).map_err(|StreamLost| RelayError::Client)?;
                outbound.clear();
                if ended {
                    return Poll::Ready(Ok(()));
                }
            }
            if !empty {
                let last = self.ends_after(straight);
                let unchunked = !self.unchunked.is_empty();
                let from = if unchunked { &mut self.unchunked } else { received };
                let whole = if unchunked { from.len() } else { straight };
                let mut rest = &from[..whole];
                let polled = stream.poll_send(context, &mut rest, last);
                let sent = whole - rest.len();
                from.advance(sent);
                self.passed(sent);
                let Poll::Ready(sent_all) = polled else {
                    exchange.wait_for_client();
                    return Poll::Pending;
                };
                sent_all.map_err(|StreamLost| RelayError::Client)?;
                if last {
                    return Poll::Ready(Ok(()));
                }
            } else if self.ending.is_some() || matches!(self.rest, ResponseRest::Nothing) {
                let trailers = self.ending.take().unwrap_or_default();
                return Poll::Ready(stream.end(&trailers).map_err(|StreamLost| RelayError::Client));
            } else {
                self.mark_written();
                if let Some(settlement) = settlement {
                    settlement.scan();
                }
                // Bytes that the client has no room for are left in the backend's socket.
                let Poll::Ready(room) = stream.poll_room(context, BODY_READ) else {
                    exchange.wait_for_client();
                    return Poll::Pending;
                };
                let room = room.map_err(|StreamLost| RelayError::Client)?;
                match self.poll_more(context, exchange, deadline, room) {
                    Poll::Ready(more) => more?,
                    Poll::Pending if self.encoder.is_none() => return Poll::Pending,
                    Poll::Pending => {
                        let mut out = std::mem::take(&mut self.unchunked);
                        let has_flushed = self.flush_compressed(context, &mut out);
                        self.unchunked = out;
                        if !has_flushed {
                            return Poll::Pending;
                        }
                    }
                }
            }
        }
    }

    /// Whether the body ends after `straight` unchanged bytes, or after the unchunked bytes, without trailers.
    fn ends_after(&self, straight: usize) -> bool {
        let bare = self.ending.as_ref().is_none_or(Vec::is_empty);
        match self.rest {
            ResponseRest::Nothing => bare,
            ResponseRest::Length(left) => left == straight as u64,
            ResponseRest::UntilClose => bare && self.ending.is_some(),
            ResponseRest::Chunked(_) | ResponseRest::Compressed(_) => false,
        }
    }

    /// Decodes chunks that are sent on in frames.
    fn unchunk(&mut self, received: &mut BytesMut, settlement: &mut Option<Box<Settlement>>) {
        if self.encoder.is_some() {
            let mut out = std::mem::take(&mut self.unchunked);
            self.malformed |= self.compress_received(received, &mut out, settlement).is_err();
            self.unchunked = out;
            return;
        }
        let ResponseRest::Chunked(decoder) = &mut self.rest else { return };
        while !received.is_empty() && !decoder.is_done() && self.unchunked.len() < PART && !self.malformed {
            match decoder.decode(received) {
                Ok((consumed, data)) => {
                    if let Some(settlement) = settlement {
                        settlement.body(data);
                    }
                    self.unchunked.extend_from_slice(data);
                    received.advance(consumed);
                }
                Err(MalformedChunk) => self.malformed = true,
            }
        }
        if decoder.is_done() {
            self.ending = Some(decoder.trailers(&self.trailers));
            if self.keeps_trailers {
                decoder.raw_trailers().clone_into(&mut self.raw_trailers);
            }
            self.rest = ResponseRest::Nothing;
        }
    }

    /// Reads at most `max` more bytes of the body, or its end.
    fn poll_more<U: RequestBody>(
        &mut self,
        context: &mut Context<'_>,
        exchange: &mut Exchange<'_, U>,
        deadline: &mut Deadline,
        max: usize,
    ) -> Poll<Result<(), RelayError>> {
        if self.encoder.as_ref().is_some_and(|encoder| encoder.has_had_its_turn()) {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        match exchange.poll_body(context, max) {
            Poll::Ready(Ok(read)) if read > 0 || matches!(self.rest, ResponseRest::UntilClose) => {
                self.silent_since = None;
                if matches!(self.rest, ResponseRest::UntilClose) {
                    let lines = exchange.trailers();
                    if let (true, Some(lines)) = (self.keeps_trailers, &lines) {
                        self.raw_trailers.extend_from_slice(lines);
                    }
                    let trailers = lines.map(|lines| self.trailers.pick(&lines));
                    self.ending = trailers.or_else(|| (read == 0).then(Vec::new));
                }
            }
            Poll::Ready(_) => return Poll::Ready(Err(RelayError::Backend)),
            Poll::Pending => {
                let since = *self.silent_since.get_or_insert_with(now);
                ready!(deadline.poll(context, since + self.read_timeout));
                return Poll::Ready(Err(RelayError::Backend));
            }
        }
        Poll::Ready(Ok(()))
    }

    fn poll_http1<U: RequestBody>(
        &mut self,
        context: &mut Context<'_>,
        relay: &mut RelayBuffers<'_, '_, U>,
        writer: &mut SocketWriter,
    ) -> Poll<Result<(), RelayError>> {
        let RelayBuffers { exchange, outbound, deadline, settlement } = relay;
        loop {
            let inbound = &mut exchange.answer().bytes;
            if !self.malformed && self.reframe(inbound, outbound, settlement).is_err() {
                if !self.begun && self.sent == 0 {
                    return Poll::Ready(Err(RelayError::Unsent));
                }
                self.malformed = true;
            }
            let mut straight = self.straight(inbound.len());
            self.observe(&inbound[..straight], settlement);
            if !outbound.is_empty() && straight <= SMALL {
                // One slice is cheaper to send than two.
                outbound.extend_from_slice(&inbound[..straight]);
                inbound.advance(straight);
                self.passed(straight);
                straight = 0;
            }
            if outbound.len() + straight > 0 {
                let is_end = self.last && straight == 0 && matches!(self.rest, ResponseRest::Nothing);
                let written = match is_end {
                    true => writer.poll_write_last(context, outbound),
                    false => writer.poll_write(context, outbound, &inbound[..straight]),
                };
                let Poll::Ready(written) = written else {
                    exchange.wait_for_client();
                    return Poll::Pending;
                };
                let written = written.map_err(|_| RelayError::Client)?;
                self.begun |= written > 0;
                let head = written.min(outbound.len());
                outbound.advance(head);
                inbound.advance(written - head);
                self.passed(written - head);
                continue;
            }
            // No byte of it may stay here while more is awaited.
            ready!(writer.poll_flush(context)).map_err(|_| RelayError::Client)?;
            if self.malformed {
                return Poll::Ready(Err(RelayError::Backend));
            }
            if matches!(self.rest, ResponseRest::Nothing) {
                return Poll::Ready(Ok(()));
            }
            self.mark_written();
            if let Some(settlement) = settlement {
                settlement.scan();
            }
            match self.poll_more(context, exchange, deadline, BODY_READ) {
                Poll::Ready(more) => more?,
                Poll::Pending if self.flush_compressed(context, outbound) => {
                    self.sent += outbound.len() as u64;
                }
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    /// How many of the backend's bytes can be sent to the client unchanged.
    fn straight(&self, received: usize) -> usize {
        match (&self.rest, self.framing) {
            (ResponseRest::Length(left), _) => usize::try_from(*left).unwrap_or(usize::MAX).min(received),
            (ResponseRest::UntilClose, BodyFraming::Plain | BodyFraming::Frames) => received,
            _ => 0,
        }
    }

    fn passed(&mut self, bytes: usize) {
        self.sent += bytes as u64;
        self.observed = self.observed.saturating_sub(bytes);
        if let ResponseRest::Length(left) = &mut self.rest {
            *left -= bytes as u64;
            if *left == 0 {
                self.rest = ResponseRest::Nothing;
            }
        }
    }

    /// Reframes the bytes that cannot be sent unchanged.
    fn reframe(
        &mut self,
        inbound: &mut BytesMut,
        outbound: &mut BytesMut,
        settlement: &mut Option<Box<Settlement>>,
    ) -> Result<(), MalformedChunk> {
        if self.encoder.is_some() {
            let before = outbound.len();
            let compressed = self.compress_received(inbound, outbound, settlement);
            self.sent += (outbound.len() - before) as u64;
            return compressed;
        }
        match &mut self.rest {
            ResponseRest::Chunked(decoder) => {
                while !inbound.is_empty() && !decoder.is_done() && outbound.len() < PART {
                    let (consumed, data) = decoder.decode(inbound)?;
                    if let Some(settlement) = settlement {
                        settlement.body(data);
                    }
                    match self.framing {
                        BodyFraming::Plain | BodyFraming::Frames => outbound.extend_from_slice(data),
                        BodyFraming::Chunked => encode(data, outbound),
                    }
                    self.sent += data.len() as u64;
                    inbound.advance(consumed);
                }
                if decoder.is_done() {
                    let trailers = decoder.trailers(&self.trailers);
                    if self.keeps_trailers {
                        decoder.raw_trailers().clone_into(&mut self.raw_trailers);
                    }
                    self.end(&trailers, outbound);
                }
            }
            ResponseRest::UntilClose if self.framing == BodyFraming::Chunked => {
                if let Some(settlement) = settlement {
                    settlement.body(inbound);
                }
                encode(inbound, outbound);
                self.sent += inbound.len() as u64;
                inbound.clear();
            }
            _ => {}
        }
        if inbound.is_empty()
            && let Some(trailers) = self.ending.take()
        {
            self.end(&trailers, outbound);
        }
        Ok(())
    }

    fn end(&mut self, trailers: &[u8], outbound: &mut BytesMut) {
        self.rest = ResponseRest::Nothing;
        if self.framing == BodyFraming::Chunked {
            encode_end(trailers, outbound);
        }
    }
}
