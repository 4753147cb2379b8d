//! The client's receiving side.

use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf as _, BytesMut};
use tokio::time::Instant;

use super::response_options::LocalBody;
use crate::clock::{Deadline, now};
use crate::http2::head_sink::HeadFormat;
use crate::net::{AckTimeout, Stream};
use crate::proxy::session::server_stream::ServerStream;

/// The destination of a client's responses.
#[derive(Debug)]
pub(crate) enum ResponseWriter {
    /// An HTTP/1 connection.
    Http1(SocketWriter),
    /// The stream of a request of HTTP/2 or HTTP/3.
    Stream(Rc<ServerStream>),
}

impl ResponseWriter {
    /// Sends a local response, written as HTTP/1.1: its end is its body, unless that is large. `last`: the connection is
    /// closed after it.
    pub(crate) async fn send(
        &mut self,
        answer: &mut BytesMut,
        body: &LocalBody,
        last: bool,
    ) -> io::Result<()> {
        let LocalBody { length, large } = body;
        let stream = match self {
            Self::Http1(writer) => {
                if let Some(large) = large {
                    writer.write(answer, large).await?;
                }
                return writer.flush(answer, last).await;
            }
            Self::Stream(stream) => stream,
        };
        let lost = || io::Error::from(io::ErrorKind::BrokenPipe);
        let (head, copied) =
            answer.split_at(if large.is_some() { answer.len() } else { answer.len() - length });
        stream.send_head(head, HeadFormat::Http1, *length == 0).map_err(|_| lost())?;
        if *length > 0 {
            let mut rest = large.as_deref().unwrap_or(copied);
            poll_fn(|context| stream.poll_send(context, &mut rest, true)).await.map_err(|_| lost())?;
        }
        answer.clear();
        Ok(())
    }

    /// Sends the head of a response after which the bytes are not HTTP, written as HTTP/1.1.
    pub(crate) async fn switch(&mut self, head: &mut BytesMut) -> io::Result<()> {
        let stream = match self {
            Self::Http1(writer) => return writer.flush(head, false).await,
            Self::Stream(stream) => stream,
        };
        let sent = stream.send_head(head, HeadFormat::Http1, false);
        head.clear();
        sent.map_err(|_| io::ErrorKind::BrokenPipe.into())
    }

    /// Sends responses that were [held back](crate::proxy::answer::respond::send). Ready once the socket has accepted all of them.
    pub(crate) fn poll_held(
        &mut self,
        context: &mut Context<'_>,
        held: &mut BytesMut,
    ) -> Poll<io::Result<()>> {
        let Self::Http1(writer) = self else { return Poll::Ready(Ok(())) };
        while !held.is_empty() {
            let written = ready!(writer.poll_write(context, held, &[]))?;
            held.advance(written);
        }
        writer.poll_flush(context)
    }

    /// Whether the client acknowledged no byte for `write_timeout`.
    pub(crate) fn is_stalled(&self) -> bool {
        match self {
            Self::Http1(writer) => writer.is_stalled(),
            Self::Stream(stream) => stream.is_stalled(),
        }
    }

    /// Makes the close a reset, so that the client detects a truncated response. An HTTP/2 stream signals that by
    /// itself.
    pub(crate) fn reset(&self) {
        if let Self::Http1(writer) = self {
            writer.reset();
        }
    }

    /// See [`SocketWriter::lift_timeout`]. An HTTP/2 stream has no socket of its own.
    pub(crate) fn lift_timeout(&self) {
        if let Self::Http1(writer) = self {
            writer.lift_timeout();
        }
    }

    /// Marks the client as stalled: it accepted nothing from another writer of this connection.
    pub(crate) fn give_up(&mut self) {
        if let Self::Http1(writer) = self {
            writer.give_up();
        }
    }
}

/// The receiving side of a client's connection.
#[derive(Debug)]
pub(crate) struct SocketWriter {
    stream: Rc<Stream>,
    write_timeout: Duration,
    /// `write_timeout` as the kernel measures it: by what the client acknowledges.
    ack_timeout: AckTimeout,
    /// Used for a socket that does not support the kernel's timeout.
    deadline: Deadline,
    /// Since when the client's socket accepts no byte, and the bytes written by then.
    blocked: Option<(Instant, u64)>,
    /// The client acknowledged no byte for `write_timeout`.
    stalled: bool,
}

impl SocketWriter {
    pub(crate) fn new(stream: Rc<Stream>, write_timeout: Duration) -> Self {
        let ack_timeout = AckTimeout::new(write_timeout);
        let deadline = Deadline::default();
        Self { stream, write_timeout, ack_timeout, deadline, blocked: None, stalled: false }
    }

    /// Writes as much of two slices as the client's socket accepts. Fails once the client has acknowledged nothing for
    /// `write_timeout`.
    pub(crate) fn poll_write(
        &mut self,
        context: &mut Context<'_>,
        first: &[u8],
        second: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = self.stream.poll_write(context, first, second);
        self.note_written(context, written)
    }

    /// As [`Self::poll_write`], for the last bytes before the connection is closed.
    pub(crate) fn poll_write_last(
        &mut self,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = self.stream.poll_write_last(context, bytes);
        self.note_written(context, written)
    }

    #[inline(always)]
    fn note_written(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        match written {
            Poll::Pending => self.poll_write_timeout(context),
            Poll::Ready(Err(error)) => Poll::Ready(Err(self.fail(error))),
            written => {
                self.blocked = None;
                written
            }
        }
    }

    /// Ready once the socket has accepted all bytes. Fails as [`Self::poll_write`] does.
    pub(crate) fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.stream.poll_flush(context) {
            Poll::Pending => self.poll_write_timeout(context),
            Poll::Ready(Err(error)) => Poll::Ready(Err(self.fail(error))),
            flushed => {
                self.blocked = None;
                flushed
            }
        }
    }

    /// For sockets without the kernel's timeout: fails once the client's socket has accepted nothing for
    /// `write_timeout`.
    fn poll_write_timeout<T>(&mut self, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        let written = self.stream.bytes_written();
        let since = match self.blocked {
            Some((since, before)) if before == written => since,
            _ => now(),
        };
        self.blocked = Some((since, written));
        if self.ack_timeout.enforce(&self.stream) {
            return Poll::Pending;
        }
        ready!(self.deadline.poll(context, since + self.write_timeout));
        self.stalled = true;
        self.reset();
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }

    /// Notes whether the connection failed because the client acknowledged nothing for `write_timeout`.
    #[cold]
    fn fail(&mut self, error: io::Error) -> io::Error {
        // The kernel reports its reason once. If a read received the reason, a write fails as on any closed connection.
        let broken_pipe = error.kind() == io::ErrorKind::BrokenPipe;
        let waited = || self.blocked.is_some_and(|(since, _)| now() >= since + self.write_timeout);
        self.stalled |= error.kind() == io::ErrorKind::TimedOut || broken_pipe && waited();
        error
    }

    /// From now on only the kernel's default rule bounds how long the client may leave bytes unacknowledged.
    pub(crate) fn lift_timeout(&self) {
        self.ack_timeout.lift(&self.stream);
    }

    /// Writes all of `outbound`, and then `rest`, as far as the client's socket accepts it without a copy.
    async fn write(&mut self, outbound: &mut BytesMut, mut rest: &[u8]) -> io::Result<()> {
        while !outbound.is_empty() || !rest.is_empty() {
            let written = poll_fn(|context| match outbound.is_empty() {
                true => self.poll_write(context, rest, &[]),
                false => self.poll_write(context, outbound, rest),
            });
            let written = written.await?;
            let first = written.min(outbound.len());
            outbound.advance(first);
            rest = rest.get(written - first..).unwrap_or_default();
        }
        Ok(())
    }

    /// Sends all of `outbound`. `last`: the connection is closed after it.
    async fn flush(&mut self, outbound: &mut BytesMut, last: bool) -> io::Result<()> {
        while !outbound.is_empty() {
            let written = poll_fn(|context| match last {
                true => self.poll_write_last(context, outbound),
                false => self.poll_write(context, outbound, &[]),
            });
            let written = written.await?;
            outbound.advance(written);
        }
        poll_fn(|context| self.poll_flush(context)).await
    }

    /// Whether the client acknowledged no byte for `write_timeout`.
    pub(crate) fn is_stalled(&self) -> bool {
        self.stalled
    }

    /// Marks the client as stalled: it accepted nothing from another writer of this connection.
    pub(crate) fn give_up(&mut self) {
        self.stalled = true;
        self.reset();
    }

    /// Makes the close a reset, so that the client detects a truncated response.
    pub(crate) fn reset(&self) {
        self.stream.reset_on_close();
    }
}
