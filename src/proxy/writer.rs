//! The client's receiving side.

use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf as _, BytesMut};
use tokio::time::Instant;

use crate::clock::deadline::{Deadline, now};
use crate::socket::Stream;

/// The client's receiving side.
#[derive(Debug)]
pub(crate) struct Writer {
    stream: Rc<Stream>,
    write_timeout: Duration,
    deadline: Deadline,
    /// Since when the client takes no byte, and what its socket had taken by then.
    blocked: Option<(Instant, u64)>,
    /// It took none for `write_timeout`.
    stalled: bool,
}

impl Writer {
    pub(crate) fn new(stream: Rc<Stream>, write_timeout: Duration) -> Self {
        Self { stream, write_timeout, deadline: Deadline::default(), blocked: None, stalled: false }
    }

    /// Sends what the client takes of two slices. Fails once it has taken nothing for `write_timeout`.
    pub(crate) fn poll_write(
        &mut self,
        context: &mut Context<'_>,
        first: &[u8],
        second: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.stream.poll_write(context, first, second) {
            Poll::Pending => self.poll_patience(context),
            written => {
                self.blocked = None;
                written
            }
        }
    }

    /// Ready once the socket has taken all that was sent. Fails as [`Self::poll_write`] does.
    pub(crate) fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.stream.poll_flush(context) {
            Poll::Pending => self.poll_patience(context),
            flushed => {
                self.blocked = None;
                flushed
            }
        }
    }

    /// Fails once the client has taken nothing for `write_timeout`.
    fn poll_patience<T>(&mut self, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        let taken = self.stream.taken();
        let since = match self.blocked {
            Some((since, before)) if before == taken => since,
            _ => now(),
        };
        self.blocked = Some((since, taken));
        ready!(self.deadline.poll(context, since + self.write_timeout));
        self.stalled = true;
        self.reset();
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }

    /// Sends all of `outbound`.
    pub(crate) async fn flush(&mut self, outbound: &mut BytesMut) -> io::Result<()> {
        while !outbound.is_empty() {
            let written = poll_fn(|context| self.poll_write(context, outbound, &[])).await?;
            outbound.advance(written);
        }
        poll_fn(|context| self.poll_flush(context)).await
    }

    /// Whether the client took no byte for `write_timeout`.
    pub(crate) fn is_stalled(&self) -> bool {
        // Whoever passes on what goes through a pipe waits as long.
        self.stalled || self.stream.is_stalled()
    }

    /// Closes our sending side.
    pub(crate) fn close(&self) -> io::Result<()> {
        self.stream.close_sending()
    }

    /// Makes the close a reset, so that the client knows that something is missing.
    pub(crate) fn reset(&self) {
        self.stream.reset_on_close();
    }
}
