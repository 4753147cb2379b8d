//! The client's sending side: request heads and bodies, their timeouts, and the faults of a body with their responses.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf as _, BytesMut};
use http::StatusCode;
use tokio::time::Instant;

use crate::clock::{Deadline, now};
use crate::http1::request::{Body, RequestError};
use crate::http1::scanner::HeadScanner;
use crate::http2::connection::{PREFACE, StreamLost};
use crate::net::{Alpn, Peek, Stream};
use crate::proxy::session::server_stream::ServerStream;
use crate::proxy::worker::read_bounds::ReadBounds;

/// Buffer capacity for one read of heads.
const HEAD_READ: usize = 4 << 10;
/// Buffer capacity for one read of bodies.
const BODY_READ: usize = 32 << 10;
/// The minimum average rate of an awaited request body, in bytes a second, over [`RATE_WINDOW`].
const MIN_BODY_RATE: u64 = 256;
/// See [`MIN_BODY_RATE`].
const RATE_WINDOW: Duration = Duration::from_secs(30);
/// How often a waiting client that has sent ahead is checked for a closed connection.
const GONE_CHECK: Duration = Duration::from_millis(50);
/// How long a new connection's socket stays unknown to the runtime while a response is awaited. Most are answered by
/// then, and never have to be watched.
const UNWATCHED: Duration = Duration::from_millis(5);

/// The result of waiting for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadEvent {
    /// A whole head.
    Head,
    /// The preface of HTTP/2, by ALPN or with prior knowledge (RFC 9113 §3.3): on a fresh connection only.
    Http2,
    /// Other bytes where ALPN negotiated HTTP/2, or too little of the preface in time.
    InvalidPreface,
    /// Bytes that are no request head, or a head that took too long.
    Fault(RequestError),
    /// The client has closed its sending side, or the connection is broken: no more bytes can come.
    End,
    /// The wait was given up.
    Nothing,
}

/// The required pace of a request body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyDeadlines {
    /// Not silent for `body_timeout`, nor slower than [`MIN_BODY_RATE`].
    Bytes,
    /// A stream of messages: silent for at most this long, until the response begins.
    Messages(Duration),
    /// No deadline.
    Any,
}

/// Why a request body broke off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyFault {
    /// The body exceeds the route's maximum.
    TooLarge,
    /// Its chunks are malformed.
    Malformed,
    /// No byte for `body_timeout`, or a rate below the minimum.
    Timeout,
    /// The client closed its side.
    Gone,
    /// The client did not accept an interim response for `write_timeout`.
    Stalled,
}

/// The source of a client's requests.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    /// An HTTP/1 connection: one request after the other.
    Http1(Rc<Stream>),
    /// A stream of HTTP/2 or HTTP/3: one request.
    Stream(Rc<ServerStream>),
}

impl Source {
    /// Whether the client may send no byte of a body, since the gateway has closed its flow-control window.
    fn is_window_closed(&self) -> bool {
        match self {
            Self::Http1(_) => false,
            Self::Stream(stream) => stream.is_window_closed(),
        }
    }

    /// The body of a request, whose head declares this one. A head of HTTP/2 has no field that announces a body of
    /// unknown length: the stream goes on after it.
    #[inline]
    pub(crate) fn body(&self, declared: Body) -> Body {
        match self {
            Self::Stream(stream) if stream.has_unknown_length() => Body::Chunked,
            _ => declared,
        }
    }

    /// The protocol that TLS negotiated for the connection.
    fn alpn(&self) -> Option<Alpn> {
        match self {
            Self::Http1(stream) => stream.alpn(),
            Self::Stream(_) => None,
        }
    }
}

/// The client's sending side.
#[derive(Debug)]
pub(crate) struct RequestReader {
    source: Source,
    /// The protocol of the connection if TLS negotiated it; else the first bytes decide.
    alpn: Option<Alpn>,
    bounds: Rc<ReadBounds>,
    deadline: Deadline,
    /// Since when a head, or its first byte, is awaited.
    since: Instant,
    /// Since when the next byte of a body is awaited.
    silent_since: Option<Instant>,
    /// No head was received yet.
    fresh: bool,
    /// The first byte of the awaited head was received.
    begun: bool,
    pace: BodyDeadlines,
    rate: BodyRate,
}

/// The start of the present measurement and the bytes received since. The rate is measured while the body is awaited.
#[derive(Debug, Default)]
struct BodyRate(Option<(Instant, u64)>);

impl BodyRate {
    /// Adds bytes received.
    fn add(&mut self, received: usize) {
        if let Some((_, bytes)) = &mut self.0 {
            *bytes += received as u64;
        }
    }

    /// Whether the bytes came slower than [`MIN_BODY_RATE`] for a whole [`RATE_WINDOW`].
    fn crawls(&mut self, now: Instant) -> bool {
        let (since, bytes) = *self.0.get_or_insert((now, 0));
        if now - since < RATE_WINDOW {
            return false;
        }
        self.0 = Some((now, 0));
        bytes < MIN_BODY_RATE * RATE_WINDOW.as_secs()
    }
}

impl RequestReader {
    pub(crate) fn new(source: Source, bounds: Rc<ReadBounds>, now: Instant) -> Self {
        Self {
            alpn: source.alpn(),
            source,
            bounds,
            deadline: Deadline::default(),
            since: now,
            fresh: true,
            begun: false,
            silent_since: None,
            pace: BodyDeadlines::Bytes,
            rate: BodyRate::default(),
        }
    }

    /// Waits until `inbound` begins with a whole head; its bytes are read from `stream`.
    pub(crate) fn poll_head(
        &mut self,
        context: &mut Context<'_>,
        stream: &Stream,
        inbound: &mut BytesMut,
        scanner: &mut HeadScanner,
    ) -> Poll<ReadEvent> {
        loop {
            if self.alpn != Some(Alpn::Http2) {
                skip_empty_lines(inbound, scanner);
            }
            if !inbound.is_empty()
                && let Some(arrival) = self.recognise(inbound, scanner)
            {
                return Poll::Ready(arrival);
            }
            match stream.poll_read(context, inbound, HEAD_READ) {
                Poll::Ready(Ok(1..)) => {}
                Poll::Ready(Ok(0) | Err(_)) => return Poll::Ready(ReadEvent::End),
                Poll::Pending => {
                    // A connection that has sent no request yet gets no longer than the head itself.
                    let bounds = &self.bounds;
                    let allowed =
                        if self.fresh || self.begun { bounds.header_timeout } else { bounds.idle_timeout };
                    ready!(self.deadline.poll(context, self.since + allowed));
                    let overdue = match self.alpn {
                        Some(Alpn::Http2) => ReadEvent::InvalidPreface,
                        Some(Alpn::Http1) | None => ReadEvent::Fault(RequestError::HeadTimeout),
                    };
                    return Poll::Ready(if inbound.is_empty() { ReadEvent::Nothing } else { overdue });
                }
            }
        }
    }

    /// The event that the received bytes amount to, if it can be decided already.
    fn recognise(&mut self, inbound: &[u8], scanner: &mut HeadScanner) -> Option<ReadEvent> {
        let begins = !std::mem::replace(&mut self.begun, true) && !self.fresh;
        if self.fresh {
            match (self.alpn, may_be_http2(inbound)) {
                (Some(Alpn::Http2), false) => return Some(ReadEvent::InvalidPreface),
                // A part of the preface looks like a head.
                (Some(Alpn::Http2) | None, true) => {
                    return (inbound.len() >= PREFACE.len()).then_some(ReadEvent::Http2);
                }
                (Some(Alpn::Http1), _) | (None, false) => {}
            }
        }
        match scanner.advance(inbound, self.bounds.max_header_bytes) {
            Ok(false) => {
                // The head's timeout runs from its first byte, not from the end of the last response.
                if begins {
                    self.since = now();
                }
                None
            }
            Ok(true) => {
                self.fresh = false;
                Some(ReadEvent::Head)
            }
            Err(fault) => Some(ReadEvent::Fault(fault)),
        }
    }

    /// How long the client may accept nothing of an interim response.
    pub(crate) fn write_timeout(&self) -> Duration {
        self.bounds.write_timeout
    }

    /// Since when a head, or its first byte, is awaited.
    pub(crate) fn since(&self) -> Instant {
        self.since
    }

    /// Begins to wait for the next request, just after the last response.
    pub(crate) fn turn_to_head(&mut self, now: Instant) {
        self.since = now;
        self.begun = false;
    }

    /// Begins to read a body.
    pub(crate) fn turn_to_body(&mut self, pace: BodyDeadlines) {
        self.silent_since = None;
        self.rate = BodyRate::default();
        self.pace = pace;
    }

    /// The response has begun: from now on the response's own read timeout bounds a stream of messages.
    pub(crate) fn answer_begins(&mut self) {
        if matches!(self.pace, BodyDeadlines::Messages(_)) {
            self.pace = BodyDeadlines::Any;
        }
    }

    /// The source of the body.
    pub(crate) fn source(&self) -> &Source {
        &self.source
    }

    /// Reports bytes of a body as consumed: the client may send as many more.
    pub(crate) fn release(&self, bytes: usize) {
        if let Source::Stream(stream) = &self.source {
            stream.release(bytes);
        }
    }

    /// Reads more of a body. Fails for a client that is late, or sends slower than [`MIN_BODY_RATE`].
    pub(crate) fn poll_body(
        &mut self,
        context: &mut Context<'_>,
        inbound: &mut BytesMut,
    ) -> Poll<Result<(), BodyFault>> {
        let read = match &self.source {
            Source::Http1(stream) => match stream.poll_read(context, inbound, BODY_READ) {
                Poll::Ready(Ok(0) | Err(_)) => return Poll::Ready(Err(BodyFault::Gone)),
                read => read.map(Result::unwrap_or_default),
            },
            Source::Stream(stream) => match stream.poll_read(context, inbound) {
                Poll::Ready(Err(StreamLost)) => return Poll::Ready(Err(BodyFault::Gone)),
                read => read.map(Result::unwrap_or_default),
            },
        };
        match read {
            Poll::Ready(read) => {
                self.silent_since = None;
                self.rate.add(read);
                Poll::Ready(Ok(()))
            }
            Poll::Pending => {
                let now = now();
                let since = *self.silent_since.get_or_insert(now);
                let pace = self.pace;
                let silence = match pace {
                    BodyDeadlines::Any => return Poll::Pending,
                    BodyDeadlines::Messages(silence) => silence,
                    BodyDeadlines::Bytes => self.bounds.body_timeout,
                };
                if pace != BodyDeadlines::Bytes || !self.rate.crawls(now) {
                    ready!(self.deadline.poll(context, since + silence));
                }
                // A client that may send nothing is not late.
                if self.source.is_window_closed() {
                    (self.silent_since, self.rate) = (Some(now), BodyRate::default());
                    ready!(self.deadline.poll(context, now + silence));
                }
                Poll::Ready(Err(BodyFault::Timeout))
            }
        }
    }

    /// Ends once the client has closed its sending side or the connection is broken, even if bytes before that are
    /// unread.
    pub(crate) async fn gone(&self) {
        gone(self.source.clone()).await;
    }
}

/// Ends once the client has closed its sending side or the connection is broken, even if bytes before that are unread.
async fn gone(source: Source) {
    let stream = match source {
        Source::Http1(stream) => stream,
        Source::Stream(stream) => return poll_fn(|context| stream.poll_reset(context)).await,
    };
    let Some(socket) = stream.socket() else {
        poll_fn(|context| stream.poll_peek(context)).await;
        return;
    };
    // Unread bytes would make the socket ready at once, again and again, so it is checked at intervals instead.
    loop {
        match socket.ready(tokio::io::Interest::READABLE).await {
            Ok(ready) if !ready.is_read_closed() => tokio::time::sleep(GONE_CHECK).await,
            _ => return,
        }
    }
}

/// Whether the bytes received so far are a prefix of the HTTP/2 preface, or begin with it.
fn may_be_http2(inbound: &[u8]) -> bool {
    inbound.iter().zip(PREFACE).all(|(received, expected)| received == expected)
}

/// RFC 9112 §2.2: empty lines before the request line are ignored.
fn skip_empty_lines(inbound: &mut BytesMut, scanner: &mut HeadScanner) {
    while inbound.starts_with(b"\r\n") {
        inbound.advance(2);
        *scanner = HeadScanner::default();
    }
}

/// Detects that a client breaks its connection off while its response is awaited. A client that only closes its sending
/// side still wants the response, unless the request holds a place: then the client is gone.
pub(crate) struct DisconnectWatch<'d> {
    source: Source,
    holds_place: bool,
    /// When a socket is watched that the runtime does not know yet.
    begins: Instant,
    deadline: &'d mut Deadline,
    /// `None`: the connection is not watched any more.
    watch: Option<ReadWatch>,
}

enum ReadWatch {
    Peek,
    /// For the end of the sending side, after bytes sent ahead.
    End(Pin<Box<dyn Future<Output = ()>>>),
}

impl<'d> DisconnectWatch<'d> {
    /// `holds_place`: the request holds a place of a concurrency limit.
    pub(crate) fn new(source: Source, holds_place: bool, now: Instant, deadline: &'d mut Deadline) -> Self {
        Self { source, holds_place, begins: now + UNWATCHED, deadline, watch: Some(ReadWatch::Peek) }
    }

    /// Ready with the end of `work`, or with `None` if the connection is broken before.
    #[inline]
    pub(crate) fn poll_beside<W: Future>(
        &mut self,
        work: Pin<&mut W>,
        context: &mut Context<'_>,
    ) -> Poll<Option<W::Output>> {
        match work.poll(context) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending => self.poll(context).map(|()| None),
        }
    }

    /// Ready once the connection is broken.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let stream = match (&mut self.watch, &self.source) {
            (None, _) => return Poll::Pending,
            (Some(_), Source::Stream(stream)) => return stream.poll_reset(context),
            (Some(ReadWatch::End(end)), Source::Http1(_)) => return end.as_mut().poll(context),
            (Some(ReadWatch::Peek), Source::Http1(stream)) => stream,
        };
        if !stream.is_attached() {
            ready!(self.deadline.poll(context, self.begins));
        }
        match ready!(stream.poll_peek(context)) {
            Peek::Broken => Poll::Ready(()),
            // Bytes sent ahead hide what follows them.
            Peek::Silence | Peek::Bytes | Peek::End if !self.holds_place => {
                self.watch = None;
                Poll::Pending
            }
            Peek::End => Poll::Ready(()),
            // Bytes of TLS may be no input, or its end.
            Peek::Silence | Peek::Bytes => match stream.peek() {
                Peek::Silence => self.poll(context),
                Peek::Bytes => {
                    self.watch = Some(ReadWatch::End(Box::pin(gone(self.source.clone()))));
                    self.poll(context)
                }
                Peek::End | Peek::Broken => Poll::Ready(()),
            },
        }
    }
}

/// The fault of a request body: status, detail and the access log's `error`.
pub(crate) fn upload_fault(fault: Option<BodyFault>) -> (StatusCode, &'static str, &'static str) {
    match fault {
        Some(BodyFault::TooLarge) => {
            (StatusCode::PAYLOAD_TOO_LARGE, "the request body is too large", "body_too_large")
        }
        Some(BodyFault::Timeout) => {
            (StatusCode::REQUEST_TIMEOUT, "the request body did not come in time", "body_timeout")
        }
        Some(BodyFault::Gone) => (StatusCode::BAD_REQUEST, "the request body broke off", "client_gone"),
        Some(BodyFault::Stalled) => {
            (StatusCode::REQUEST_TIMEOUT, "the client takes nothing", "write_timeout")
        }
        Some(BodyFault::Malformed) | None => {
            (StatusCode::BAD_REQUEST, "the request body is malformed", "malformed_body")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a body of this many bytes a second, sent one part a second, is broken off, and after how many seconds.
    fn broken_off_after(each: usize) -> Option<u64> {
        let (mut rate, begin) = (BodyRate::default(), now());
        (0..600).find(|second| {
            let crawls = rate.crawls(begin + Duration::from_secs(*second));
            rate.add(each);
            crawls
        })
    }

    #[test]
    fn a_body_that_drips_is_broken_off_after_the_first_window_and_a_slow_one_never() {
        assert_eq!(broken_off_after(1), Some(30));
        assert_eq!(broken_off_after(255), Some(30));
        assert_eq!(broken_off_after(256), None);
        assert_eq!(broken_off_after(1 << 20), None);
    }

    #[test]
    fn a_quick_start_does_not_pay_for_later() {
        let (mut rate, begin) = (BodyRate::default(), now());
        assert!(!rate.crawls(begin));
        rate.add(1 << 30);
        assert!(!rate.crawls(begin + Duration::from_secs(30)), "the first window was quick");
        rate.add(1);
        assert!(rate.crawls(begin + Duration::from_secs(60)), "the second was not");
    }
}
