//! One request on one connection: it goes out while it comes in, and the answer comes back.

mod http2;

use std::io::ErrorKind;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf as _, BytesMut};
use tokio::time::Instant;

use super::Failure;
use super::abort_reason::AbortReason;
use super::http2::NoAnswer;
use super::pool::UpstreamConnection;
use super::private::PrivateConnections;
use crate::clock::deadline::{Deadline, now};
use crate::http1::fields::{FieldSpan, Fields};
use crate::http1::response::{HeadEnd, ResponseHead};
use crate::http2::connection::StreamLost;
use crate::net::Stream;

/// Read at once until the answer's head is there, and after it.
const HEAD_READ: usize = 8 << 10;
/// Room for one read of the answer's body.
pub const BODY_READ: usize = 32 << 10;
/// Of a request on a shared connection, so many bytes are kept until they are answered.
const MAX_KEPT: usize = 16 << 10;
/// 1xx answers before the real one.
const MAX_INTERIM: u32 = 100;
/// A backend that announces when it will close is left alone so long before that.
const KEEP_ALIVE_MARGIN: Duration = Duration::from_secs(1);

/// A request's body, as the backend is to read it.
pub trait RequestBody {
    /// Appends what has come, framed for a connection of HTTP/1.1 and bare for a stream of HTTP/2, behind at most 16 KiB. Ready once something was appended or the body has ended.
    ///
    /// # Errors
    /// The body breaks off or grows too large. It is asked no more then.
    fn poll_part(&mut self, context: &mut Context<'_>, out: &mut BytesMut) -> Poll<Result<(), BodyFailed>>;

    /// Appends what has come already; asks for nothing.
    ///
    /// # Errors
    /// As [`Self::poll_part`].
    fn take_ready(&mut self, out: &mut BytesMut) -> Result<(), BodyFailed>;

    /// The backend sends this head before its answer (RFC 9110 §15.2).
    fn interim(&mut self, _context: &mut Context<'_>, _head: &ResponseHead, _fields: Fields<'_>) {}

    /// Whether all of it was appended.
    fn is_done(&self) -> bool;

    /// Whether nothing of it was asked for or appended.
    fn is_untouched(&self) -> bool;

    /// The lines of the trailers behind it, once all of it was appended without framing.
    fn trailers(&self) -> &[u8];
}

/// The client's body broke off, or is not what it may be: not the backend's fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct BodyFailed;

/// A request to be sent.
#[derive(Debug)]
pub struct UpstreamRequest<'r, U> {
    /// The whole head; then parts of the body.
    pub message: &'r mut BytesMut,
    /// The body.
    pub body: &'r mut U,
    /// Where the answer is read to. Empty.
    pub answer: &'r mut ResponseBuffer,
    /// Whether sending it twice does what sending it once does (RFC 9110 §9.2.2).
    pub idempotent: bool,
    /// Whether it is a HEAD, whose answer has no body.
    pub to_head: bool,
    /// What a hash chooses the server by.
    pub affinity: u64,
    /// Whether it carries a login that holds for the connection (NTLM, Negotiate).
    pub private: bool,
    /// The connections that carry such logins of this client.
    pub own: &'r mut PrivateConnections,
}

/// What has come of an answer.
#[derive(Debug, Default)]
pub struct ResponseBuffer {
    /// The head until it is consumed, then the body as it was sent.
    pub bytes: BytesMut,
    /// Where the head's fields stand.
    pub spans: Vec<FieldSpan>,
}

impl ResponseBuffer {
    /// The fields of the head, which has not been consumed.
    pub fn fields(&self, head: &ResponseHead) -> Fields<'_> {
        Fields::new(&self.bytes[..head.length], &self.spans)
    }
}

/// One request on one connection.
#[derive(Debug)]
pub struct Exchange<'r, U> {
    request: UpstreamRequest<'r, U>,
    connection: UpstreamConnection,
    /// The server's place in the plan.
    place: usize,
    /// Of the request so far, this one included.
    attempts: u32,
    /// Bytes of `message` that are sent.
    sent: usize,
    /// Whether a byte was sent.
    written: bool,
    /// What TLS had sent when the request began.
    taken: u64,
    /// `message` still begins with the head.
    intact: bool,
    /// The backend takes no more of the request.
    deaf: bool,
    /// The body broke off.
    broken: bool,
    /// A byte of an answer came.
    answered: bool,
    ending: AbortReason,
    /// Sending has begun in an earlier poll.
    begun: bool,
    /// When the backend last took something.
    progress: Instant,
    end: HeadEnd,
    interim: u32,
    /// The stream of HTTP/2 took no request.
    refused: Option<NoAnswer>,
}

impl<'r, U: RequestBody> Exchange<'r, U> {
    pub(super) fn new(
        request: UpstreamRequest<'r, U>,
        mut connection: UpstreamConnection,
        place: usize,
        attempts: u32,
        now: Instant,
    ) -> Self {
        connection.private |= request.private;
        Self {
            taken: connection.stream().map_or(0, Stream::bytes_written),
            request,
            connection,
            place,
            attempts,
            sent: 0,
            written: false,
            intact: true,
            deaf: false,
            broken: false,
            answered: false,
            ending: AbortReason::Lost,
            progress: now,
            begun: false,
            end: HeadEnd::default(),
            interim: 0,
            refused: None,
        }
    }

    /// The request, if it may be sent again: no byte of it was written, or it is idempotent, its body was not begun and
    /// nothing was answered.
    pub(super) fn into_retryable(self) -> Option<UpstreamRequest<'r, U>> {
        let untouched = self.request.idempotent && self.request.body.is_untouched() && !self.answered;
        // TLS that fails while it sends does not say how much it took.
        let taken = self.connection.stream().map_or(0, Stream::bytes_written);
        let unsent = !self.written && taken == self.taken;
        let untaken = unsent || untouched || self.ending.is_refusal();
        (self.intact && !self.broken && untaken).then_some(self.request)
    }

    /// Whether a failure to answer tells against the backend: not where a kept connection was closed in the meantime, nor where
    /// the client had not sent its whole request in time.
    pub(super) fn is_server_failure(&self, failure: Failure) -> bool {
        match failure {
            Failure::Reset => !self.is_stale() && self.ending != AbortReason::Busy,
            Failure::Timeout => self.is_sent(),
            Failure::Protocol | Failure::Tls => true,
            Failure::Upload
            | Failure::Full
            | Failure::Connect
            | Failure::ConnectTimeout
            | Failure::NoneHealthy => false,
        }
    }

    /// Whether the connection had been kept, and was closed in the meantime.
    pub(super) fn is_stale(&self) -> bool {
        match self.ending {
            AbortReason::Lost => self.connection.reused,
            AbortReason::Closing => true,
            AbortReason::Aborted | AbortReason::Busy => false,
        }
    }

    /// How the connection ended.
    pub(super) fn ending(&self) -> AbortReason {
        self.ending
    }

    /// The backend's place among the servers of its upstream.
    pub fn place(&self) -> usize {
        self.place
    }

    /// `host:port` of the backend.
    pub fn authority(&self) -> &Arc<str> {
        self.connection.pool.authority()
    }

    /// How often the request was sent, or a connection for it was tried.
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// Sends, and waits for the answer's head, at most `timeout` after the request was sent whole.
    pub(super) fn poll_head(
        &mut self,
        context: &mut Context<'_>,
        timeout: Duration,
        deadline: &mut Deadline,
    ) -> Poll<Result<ResponseHead, Failure>> {
        if let Poll::Ready(Err(BodyFailed)) = self.poll_send(context) {
            return Poll::Ready(Err(Failure::Upload));
        }
        self.begun = true;
        match self.poll_answer(context) {
            // The client has more to say, and bounds of its own.
            Poll::Pending if self.awaits_client() => Poll::Pending,
            Poll::Pending => {
                ready!(deadline.poll(context, self.progress + timeout));
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
                Ok(1..) => self.answered = true,
                // With TLS 1.3 a server refuses our certificate only now.
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

    /// All that has come of the request is sent, and more of it is to come.
    fn awaits_client(&self) -> bool {
        !self.deaf && !self.request.body.is_done() && self.sent == self.request.message.len()
    }

    /// The head, if it has come. Those that only precede it are shown to the body.
    fn take_head(&mut self, context: &mut Context<'_>) -> Result<Option<ResponseHead>, Failure> {
        let protocol = |_| Failure::Protocol;
        while let Some(length) = self.end.advance(&self.request.answer.bytes).map_err(protocol)? {
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
            self.end = HeadEnd::default();
        }
        Ok(None)
    }

    /// Shows the body a head that only precedes the answer.
    fn show_interim(&mut self, context: &mut Context<'_>, head: &ResponseHead) -> Result<(), Failure> {
        self.interim += 1;
        if self.interim > MAX_INTERIM {
            return Err(Failure::Protocol);
        }
        self.request.body.interim(context, head, self.request.answer.fields(head));
        Ok(())
    }

    /// Sends as much of the request as there is and as the backend takes. Ready once it is sent whole, or the backend
    /// takes no more.
    fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BodyFailed>> {
        let Some(stream) = self.connection.stream() else { return self.poll_send_http2(context) };
        #[expect(
            clippy::let_underscore_must_use,
            reason = "bytes that TLS holds go on; a failure shows again when the connection is read or written"
        )]
        let _: Poll<std::io::Result<()>> = stream.poll_flush(context);
        let UpstreamRequest { message, body, .. } = &mut self.request;
        while !self.deaf {
            if self.sent < message.len() {
                let rest = &message[self.sent..];
                match ready!(stream.poll_write(context, rest, &[])) {
                    // An answer may be on its way all the same.
                    Err(_) => self.deaf = true,
                    Ok(sent) => {
                        self.sent += sent;
                        self.written |= sent > 0;
                        if self.begun {
                            self.progress = now();
                        }
                    }
                }
            } else if body.is_done() {
                break;
            } else {
                message.clear();
                (self.sent, self.intact) = (0, false);
                if let Err(broken) = ready!(body.poll_part(context, message)) {
                    (self.deaf, self.broken) = (true, true);
                    return Poll::Ready(Err(broken));
                }
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Reads more of the answer's body, at most `most` bytes from a connection of HTTP/1.1. Ready with 0 at the end.
    pub fn poll_body(&mut self, context: &mut Context<'_>, most: usize) -> Poll<std::io::Result<usize>> {
        let bytes = &mut self.request.answer.bytes;
        match self.connection.http2() {
            Some(stream) => {
                stream.poll_body(context, bytes).map_err(|StreamLost| ErrorKind::ConnectionReset.into())
            }
            None => match self.connection.stream() {
                Some(stream) => stream.poll_read(context, bytes, most),
                None => Poll::Ready(Ok(0)),
            },
        }
    }

    /// Sends on what is left of the request. A body that breaks off now does not keep the answer from the client.
    pub fn send_on(&mut self, context: &mut Context<'_>) {
        self.broken |= matches!(self.poll_send(context), Poll::Ready(Err(BodyFailed)));
    }

    /// The fields of the answer's head, which has not been consumed.
    pub fn fields(&self, head: &ResponseHead) -> Fields<'_> {
        self.request.answer.fields(head)
    }

    /// What has come of the answer.
    pub fn answer(&mut self) -> &mut ResponseBuffer {
        self.request.answer
    }

    /// The request's body.
    pub fn body(&mut self) -> &mut U {
        self.request.body
    }

    /// Whether the whole request was sent.
    pub fn is_sent(&self) -> bool {
        self.request.body.is_done() && self.sent == self.request.message.len()
    }

    /// The answer was read to its end: keeps the connection for another request if both sides can, or for another of this client
    /// if a login holds for it.
    pub fn finish(self, head: &ResponseHead, idle_timeout: Duration) {
        let clean = self.is_sent() && !self.deaf && self.request.answer.bytes.is_empty();
        let span = match head.keep_alive {
            None => Some(idle_timeout),
            Some(announced) => announced.checked_sub(KEEP_ALIVE_MARGIN).map(|span| span.min(idle_timeout)),
        };
        if let (Some(span), true, true) = (span, clean, head.kept) {
            if self.connection.private {
                self.request.own.keep(self.connection, self.progress, span);
            } else {
                self.connection.keep(self.progress, span);
            }
        }
    }

    /// The connection of an exchange that ended in an upgrade. What the backend sent behind its head stays in the answer.
    pub fn into_connection(self) -> UpstreamConnection {
        self.connection
    }
}
