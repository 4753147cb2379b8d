//! One request and its response on one upstream connection. The request is sent while the client still sends it.

mod http2;

use std::io::ErrorKind;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf as _, BytesMut};
use tokio::time::Instant;

use super::Failure;
use super::cause::AbortReason;
pub use super::http2::ConnectRule;
use super::http2::NoAnswer;
use super::pool::UpstreamConnection;
use super::private::OwnConnections;
use crate::clock::{Deadline, now};
use crate::http1::fields::{FieldSpan, Fields};
use crate::http1::response::{Framing, HeadEnd, ResponseHead};
use crate::http2::connection::StreamLost;
use crate::net::Stream;
use crate::plan::Affinity;

/// Bytes read at once until the response head is complete.
const HEAD_READ: usize = 8 << 10;
/// Buffer capacity for one read of the response body.
pub const BODY_READ: usize = 32 << 10;
/// Bytes of a request that are kept for a retry until the backend responds.
const MAX_KEPT: usize = 16 << 10;
/// The maximum number of 1xx responses before the final one.
const MAX_INTERIM: u32 = 100;
/// A backend that announces its idle timeout is not sent a request within this time before the timeout.
const KEEP_ALIVE_MARGIN: Duration = Duration::from_secs(1);

/// A request body, as the backend is to receive it.
pub trait RequestBody {
    /// Appends received bytes, framed for an HTTP/1.1 connection and bare for an HTTP/2 stream, at most 16 KiB. Ready
    /// once bytes were appended or the body has ended.
    ///
    /// # Errors
    ///
    /// The body breaks off or grows too large. It is not polled again then.
    fn poll_part(&mut self, context: &mut Context<'_>, out: &mut BytesMut) -> Poll<Result<(), BodyFailed>>;

    /// Appends bytes received already; reads nothing.
    ///
    /// # Errors
    ///
    /// As [`Self::poll_part`].
    fn take_ready(&mut self, out: &mut BytesMut) -> Result<(), BodyFailed>;

    /// The backend sends this interim response before its final one (RFC 9110 §15.2).
    fn interim(&mut self, _context: &mut Context<'_>, _head: &ResponseHead, _fields: Fields<'_>) {}

    /// Whether the whole body was appended.
    fn is_done(&self) -> bool;

    /// Whether no part of the body was polled or appended.
    fn is_untouched(&self) -> bool;

    /// The lines of the trailers after the body, once all of it was appended without framing.
    fn trailers(&self) -> &[u8];
}

/// The client's body broke off, or is malformed or too large: not the backend's fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct BodyFailed;

/// A request to be sent to a backend.
#[derive(Debug)]
pub struct UpstreamRequest<'r, U> {
    /// The whole head, as text or as a header block; later parts of the body.
    pub message: &'r mut BytesMut,
    /// The length of the head.
    pub head_length: usize,
    /// The body.
    pub body: &'r mut U,
    /// The buffer that the response is read into. Empty.
    pub answer: &'r mut ResponseBuffer,
    /// Whether the method is idempotent (RFC 9110 §9.2.2).
    pub idempotent: bool,
    /// Whether the method is HEAD: the response has no body.
    pub to_head: bool,
    /// What it says about its server.
    pub affinity: Affinity,
    /// Whether the request carries a login that is bound to the connection (NTLM, Negotiate).
    pub private: bool,
    /// Whether it opens a WebSocket on a stream of HTTP/2.
    pub connect: ConnectRule,
    /// This client's connections that carry such logins, or a PROXY protocol header.
    pub own: OwnConnections<'r>,
}

/// The received part of a response.
#[derive(Debug, Default)]
pub struct ResponseBuffer {
    /// The head until it is consumed, then the body with its framing.
    pub bytes: BytesMut,
    /// The positions of the head's fields.
    pub spans: Vec<FieldSpan>,
}

impl ResponseBuffer {
    /// The fields of the head, which must not be consumed yet.
    pub fn fields(&self, head: &ResponseHead) -> Fields<'_> {
        Fields::new(&self.bytes[..head.length], &self.spans)
    }

    /// Moves the bytes to a buffer of their size, or frees the buffer if there are none.
    pub fn compact(&mut self) {
        self.bytes = BytesMut::from(&self.bytes[..]);
    }
}

/// How long a connection is kept after the response with this head; `None`: it is closed.
fn kept_for(head: &ResponseHead, idle_timeout: Duration) -> Option<Duration> {
    match head.keep_alive {
        _ if !head.kept => None,
        None => Some(idle_timeout),
        Some(announced) => announced.checked_sub(KEEP_ALIVE_MARGIN).map(|span| span.min(idle_timeout)),
    }
}

/// One request on one connection.
#[derive(Debug)]
pub struct Exchange<'r, U> {
    request: UpstreamRequest<'r, U>,
    connection: UpstreamConnection,
    /// The server's index in the plan.
    index: usize,
    /// Attempts of the request so far, this one included.
    attempts: u32,
    sending: SendProgress,
    receiving: ReceiveProgress,
    ending: AbortReason,
    /// Why the HTTP/2 stream did not accept the request.
    refused: Option<NoAnswer>,
}

/// How far the request is sent.
#[derive(Debug)]
struct SendProgress {
    /// Bytes of `message` sent so far.
    sent: usize,
    /// Whether a byte was sent.
    written: bool,
    /// Bytes that TLS had written when the request began.
    bytes_written: u64,
    /// `message` still begins with the head.
    head_kept: bool,
    /// A small body is kept, so that an idempotent request with it may be sent again.
    keeps_body: bool,
    /// The backend accepts no more of the request.
    write_closed: bool,
    /// The request body broke off.
    body_failed: bool,
    /// It was sent as an extended CONNECT.
    is_connect: bool,
    /// Sending began in an earlier poll.
    begun: bool,
    /// When the backend last accepted a byte.
    progress: Instant,
}

/// How far the head of the response is received.
#[derive(Debug, Default)]
struct ReceiveProgress {
    /// A byte of a response was received.
    answered: bool,
    /// Where the head ends.
    end: HeadEnd,
    /// Interim heads so far.
    interim: u32,
}

impl<'r, U: RequestBody> Exchange<'r, U> {
    pub(super) fn new(
        request: UpstreamRequest<'r, U>,
        mut connection: UpstreamConnection,
        index: usize,
        attempts: u32,
        keeps_body: bool,
        now: Instant,
    ) -> Self {
        connection.private |= request.private;
        let sending = SendProgress {
            sent: 0,
            written: false,
            bytes_written: connection.stream().map_or(0, Stream::bytes_written),
            head_kept: true,
            keeps_body,
            write_closed: false,
            body_failed: false,
            is_connect: false,
            begun: false,
            progress: now,
        };
        let (receiving, ending) = (ReceiveProgress::default(), AbortReason::Lost);
        Self { request, connection, index, attempts, sending, receiving, ending, refused: None }
    }

    /// Whether the server may have worked on the request: a byte of it was written, and the server did not say that it has
    /// not processed it.
    pub(super) fn has_reached(&self) -> bool {
        // TLS that fails while it sends does not report how many bytes it wrote.
        let bytes_written = self.connection.stream().map_or(0, Stream::bytes_written);
        (self.sending.written || bytes_written != self.sending.bytes_written) && !self.ending.is_refusal()
    }

    /// Returns the request if it may be sent again: no byte of it was written; or it is idempotent, its body was not begun
    /// or is kept, and no byte of a response was received.
    pub(super) fn into_retryable(self) -> Option<UpstreamRequest<'r, U>> {
        let unanswered = self.is_repeatable_body() && !self.receiving.answered;
        let unprocessed = unanswered || !self.has_reached();
        (self.sending.head_kept && !self.sending.body_failed && unprocessed).then(|| {
            self.request.answer.bytes.clear();
            self.request
        })
    }

    /// Whether the request may be sent again although it was answered: it is idempotent, its body was not begun or is kept,
    /// and nothing of the response went on to the client.
    pub(super) fn is_repeatable(&self) -> bool {
        self.is_repeatable_body()
            && self.sending.head_kept
            && !self.sending.body_failed
            && self.receiving.interim == 0
    }

    /// Whether the method is idempotent, and the body was not begun or is kept as a whole.
    fn is_repeatable_body(&self) -> bool {
        let UpstreamRequest { body, idempotent, .. } = &self.request;
        *idempotent && (body.is_untouched() || self.sending.keeps_body && body.is_done())
    }

    /// The request again, without the response to it, whose head is `head`. Its connection is kept if the whole response
    /// was received already.
    pub(super) fn into_repeated(self, head: &ResponseHead, idle_timeout: Duration) -> UpstreamRequest<'r, U> {
        let is_sent = self.is_sent() && !self.sending.write_closed;
        let bytes = &mut self.request.answer.bytes;
        let whole = match head.framing {
            Framing::None => Some(head.length as u64),
            Framing::Length(length) => Some(head.length as u64 + length),
            Framing::Chunked | Framing::UntilClose => None,
        };
        let received = whole.is_some_and(|whole| bytes.len() as u64 == whole);
        bytes.clear();
        let Self { request, connection, sending: SendProgress { progress, .. }, .. } = self;
        if let (true, Some(span)) = (is_sent && received, kept_for(head, idle_timeout)) {
            request.own.put(connection, progress, span);
        }
        request
    }

    /// Whether a failure counts against the backend. Two kinds do not: a kept connection that had been closed in the
    /// meantime, and a client that had not sent its whole request in time.
    pub(super) fn is_server_failure(&self, failure: Failure) -> bool {
        match failure {
            Failure::Reset => !self.is_stale() && self.ending != AbortReason::Busy,
            Failure::Timeout => self.is_sent(),
            Failure::Protocol | Failure::Tls => true,
            Failure::Upload
            | Failure::Full
            | Failure::NoWebSocket
            | Failure::Overrun
            | Failure::Connect
            | Failure::ConnectTimeout
            | Failure::NoneHealthy
            | Failure::BreakerOpen => false,
        }
    }

    /// Whether the connection was a kept one that had been closed in the meantime.
    pub(super) fn is_stale(&self) -> bool {
        match self.ending {
            AbortReason::Lost => self.connection.reused,
            AbortReason::Closing => true,
            AbortReason::Aborted | AbortReason::Busy => false,
        }
    }

    /// Whether nothing came from a kept HTTP/1.1 connection.
    pub(super) fn is_unheard(&self) -> bool {
        self.connection.reused && !self.receiving.answered && self.connection.stream().is_some()
    }

    /// How the connection ended.
    pub(super) fn ending(&self) -> AbortReason {
        self.ending
    }

    /// The server's index among the servers of its upstream.
    pub fn index(&self) -> usize {
        self.index
    }

    /// `host:port` of the backend.
    pub fn authority(&self) -> &Arc<str> {
        self.connection.pool.authority()
    }

    /// How often the request was sent, or a connection for it was attempted.
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// Sends the request and waits for the response head, for at most `timeout` after the request was sent completely.
    pub(super) fn poll_head(
        &mut self,
        context: &mut Context<'_>,
        timeout: Duration,
        deadline: &mut Deadline,
    ) -> Poll<Result<ResponseHead, Failure>> {
        if let Poll::Ready(Err(BodyFailed)) = self.poll_send(context) {
            return Poll::Ready(Err(Failure::Upload));
        }
        self.sending.begun = true;
        match self.poll_answer(context) {
            // The client still sends its request, within timeouts of its own.
            Poll::Pending if self.awaits_client() => Poll::Pending,
            Poll::Pending => {
                ready!(deadline.poll(context, self.sending.progress + timeout));
                Poll::Ready(Err(Failure::Timeout))
            }
            head => head,
        }
    }

    fn poll_answer(&mut self, context: &mut Context<'_>) -> Poll<Result<ResponseHead, Failure>> {
        loop {
            if self.connection.http2().is_some() {
                if let Some(head) = ready!(self.poll_head_http2(context)).transpose() {
                    return Poll::Ready(head);
                }
                continue;
            }
            let Some(stream) = self.connection.stream() else { return Poll::Pending };
            match ready!(stream.poll_read(context, &mut self.request.answer.bytes, HEAD_READ)) {
                Ok(1..) => self.receiving.answered = true,
                // With TLS 1.3 a server rejects the gateway's certificate only now.
                Err(error) if error.kind() == ErrorKind::InvalidData => {
                    return Poll::Ready(Err(Failure::Tls));
                }
                Ok(0) | Err(_) => return Poll::Ready(Err(Failure::Reset)),
            }
            if let Some(head) = self.take_head(context).transpose() {
                return Poll::Ready(head);
            }
        }
    }

    /// Whether all received bytes of the request are sent, and more are to come.
    fn awaits_client(&self) -> bool {
        !self.sending.write_closed
            && !self.request.body.is_done()
            && self.sending.sent == self.request.message.len()
    }

    /// The response head, if complete. Interim heads are passed to the request body.
    fn take_head(&mut self, context: &mut Context<'_>) -> Result<Option<ResponseHead>, Failure> {
        let protocol = |_| Failure::Protocol;
        while let Some(length) = self.receiving.end.advance(&self.request.answer.bytes).map_err(protocol)? {
            let answer = &mut *self.request.answer;
            let to_head = self.request.to_head;
            let head = ResponseHead::parse(&answer.bytes[..length], to_head, &mut answer.spans);
            let head = head.map_err(protocol)?;
            self.connection.private |= head.private;
            if !head.is_interim() {
                return Ok(Some(head));
            }
            self.show_interim(context, &head)?;
            self.request.answer.bytes.advance(length);
            self.receiving.end = HeadEnd::default();
        }
        Ok(None)
    }

    /// Passes an interim head to the request body.
    fn show_interim(&mut self, context: &mut Context<'_>, head: &ResponseHead) -> Result<(), Failure> {
        self.receiving.interim += 1;
        if self.receiving.interim > MAX_INTERIM {
            return Err(Failure::Protocol);
        }
        self.request.body.interim(context, head, self.request.answer.fields(head));
        Ok(())
    }

    /// Sends as much of the request as was received and as the backend accepts. Ready once it is sent completely, or
    /// the backend accepts no more.
    fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BodyFailed>> {
        let Some(stream) = self.connection.stream() else { return self.poll_send_http2(context) };
        #[expect(
            clippy::let_underscore_must_use,
            reason = "bytes that TLS holds go on; a failure shows again when the connection is read or written"
        )]
        let _: Poll<std::io::Result<()>> = stream.poll_flush(context);
        let keeps = self.sending.keeps_body && self.request.idempotent;
        let UpstreamRequest { message, body, .. } = &mut self.request;
        while !self.sending.write_closed {
            if self.sending.sent < message.len() {
                let rest = &message[self.sending.sent..];
                match ready!(stream.poll_write(context, rest, &[])) {
                    // A response may be on its way nevertheless.
                    Err(_) => self.sending.write_closed = true,
                    Ok(sent) => {
                        self.sending.sent += sent;
                        self.sending.written |= sent > 0;
                        if self.sending.begun {
                            self.sending.progress = now();
                        }
                    }
                }
            } else if body.is_done() {
                break;
            } else {
                // A small request is kept, since it may be sent again.
                if !self.sending.head_kept || !keeps || message.len() >= MAX_KEPT {
                    message.clear();
                    (self.sending.sent, self.sending.head_kept) = (0, false);
                }
                if let Err(body_failed) = ready!(body.poll_part(context, message)) {
                    (self.sending.write_closed, self.sending.body_failed) = (true, true);
                    return Poll::Ready(Err(body_failed));
                }
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Reads more of the response body, at most `max` bytes from an HTTP/1.1 connection. Ready with 0 at the end.
    pub fn poll_body(&mut self, context: &mut Context<'_>, max: usize) -> Poll<std::io::Result<usize>> {
        let bytes = &mut self.request.answer.bytes;
        match self.connection.http2() {
            Some(stream) => {
                stream.poll_body(context, bytes).map_err(|StreamLost| ErrorKind::ConnectionReset.into())
            }
            None => match self.connection.stream() {
                Some(stream) => stream.poll_read(context, bytes, max),
                None => Poll::Ready(Ok(0)),
            },
        }
    }

    /// Sends the rest of the request. A body that breaks off now does not keep the response from the client.
    pub fn send_on(&mut self, context: &mut Context<'_>) {
        self.sending.body_failed |= matches!(self.poll_send(context), Poll::Ready(Err(BodyFailed)));
    }

    /// The fields of the response head, which must not be consumed yet.
    pub fn fields(&self, head: &ResponseHead) -> Fields<'_> {
        self.request.answer.fields(head)
    }

    /// The received part of the response.
    pub fn answer(&mut self) -> &mut ResponseBuffer {
        self.request.answer
    }

    /// The client reads nothing for now: what a server of HTTP/2 has sent meanwhile waits in one more buffer, so this one
    /// takes no more memory than it needs.
    pub fn wait_for_client(&mut self) {
        if self.connection.http2().is_some() {
            self.request.answer.compact();
        }
    }

    /// The request's body.
    pub fn body(&mut self) -> &mut U {
        self.request.body
    }

    /// Whether the whole request was sent.
    pub fn is_sent(&self) -> bool {
        self.request.body.is_done() && self.sending.sent == self.request.message.len()
    }

    /// Ends the exchange after the whole response was read. The connection is kept for another request if both sides
    /// allow that; a connection with a login or a PROXY protocol header is kept for this client only.
    pub fn finish(self, head: &ResponseHead, idle_timeout: Duration) {
        let clean = self.is_sent() && !self.sending.write_closed && self.request.answer.bytes.is_empty();
        if let (Some(span), true) = (kept_for(head, idle_timeout), clean) {
            self.request.own.put(self.connection, self.sending.progress, span);
        }
    }

    /// The connection of an exchange that ended in an upgrade. Bytes that the backend sent after its head stay in the
    /// response buffer.
    pub fn into_connection(self) -> UpstreamConnection {
        self.connection
    }
}
