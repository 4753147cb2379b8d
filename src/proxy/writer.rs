//! The client's receiving side.

use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf as _, BytesMut};
use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::clock::deadline::{Deadline, now};
use crate::socket;

/// The client's receiving side.
#[derive(Debug)]
pub(crate) struct Writer {
    stream: Rc<TcpStream>,
    write_timeout: Duration,
    deadline: Deadline,
    /// Since when the client takes no byte.
    blocked: Option<Instant>,
    /// It took none for `write_timeout`.
    stalled: bool,
}

impl Writer {
    pub(crate) fn new(stream: Rc<TcpStream>, write_timeout: Duration) -> Self {
        Self { stream, write_timeout, deadline: Deadline::default(), blocked: None, stalled: false }
    }

    /// Sends what the client takes of two slices. Fails once it has taken nothing for `write_timeout`.
    pub(crate) fn poll_write(
        &mut self,
        context: &mut Context<'_>,
        first: &[u8],
        second: &[u8],
    ) -> Poll<io::Result<usize>> {
        if let Poll::Ready(written) = socket::poll_write(&self.stream, context, first, second) {
            self.blocked = None;
            return Poll::Ready(written);
        }
        let since = *self.blocked.get_or_insert_with(now);
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
        Ok(())
    }

    /// Whether the client took no byte for `write_timeout`.
    pub(crate) fn is_stalled(&self) -> bool {
        self.stalled
    }

    /// Closes our sending side.
    pub(crate) fn close(&self) -> io::Result<()> {
        socket::close_sending(&self.stream)
    }

    /// Makes the close a reset, so that the client knows that something is missing.
    pub(crate) fn reset(&self) {
        socket::reset_on_close(&self.stream);
    }
}
