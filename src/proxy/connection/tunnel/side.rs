//! The sides of a tunnel: the connection of a client or backend, or a stream of HTTP/2.

use std::cell::Cell;
use std::io;
use std::task::{Context, Poll, ready};

use bytes::BytesMut;

use crate::http2::connection::{StreamHandle, StreamLost};
use crate::net::{AckTimeout, Stream};
use crate::proxy::session::server_stream::StreamTransport;

/// Bytes read from a socket at once.
const PART: usize = 16 << 10;

thread_local! {
    /// The buffer of this thread's next read. A tunnel that waits holds none.
    static SPARE: Cell<BytesMut> = Cell::default();
}

/// One side of a tunnel. It has failed once one of its functions fails.
pub(crate) trait TunnelSide {
    /// Reads into a buffer without bytes. Ready with 0 once the side has closed.
    fn poll_read(&self, context: &mut Context<'_>, buffer: &mut BytesMut) -> Poll<io::Result<usize>>;

    /// As many of the bytes read were passed on, or dropped: the side may send as many more.
    fn release(&self, bytes: usize);

    /// Whether the side is known to have closed, and all its bytes were read.
    fn is_read_to_end(&self) -> bool;

    /// Writes as many bytes as the side accepts. `last`: it may be told with the last of them that no more come.
    fn poll_write(&self, context: &mut Context<'_>, bytes: &[u8], last: bool) -> Poll<io::Result<usize>>;

    /// Ready once the side has accepted all that was written.
    fn poll_flush(&self, context: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Tells the side that no more bytes come. One that is gone already is not told.
    fn close_sending(&self);

    /// Ready once the side has given up in both directions, if it says so.
    fn poll_reset(&self, context: &mut Context<'_>) -> Poll<()>;

    /// Whether the kernel measures how long the side, which accepts no bytes, acknowledges none.
    fn is_measured(&self, timeout: &AckTimeout) -> bool;

    /// Whether the tunnel itself measures it.
    fn stalls(&self) -> bool;
}

impl TunnelSide for Stream {
    #[inline]
    fn poll_read(&self, context: &mut Context<'_>, buffer: &mut BytesMut) -> Poll<io::Result<usize>> {
        if buffer.capacity() == 0 {
            *buffer = SPARE.take();
        }
        let read = self.poll_read(context, buffer, PART);
        if buffer.is_empty() {
            SPARE.set(std::mem::take(buffer));
        }
        read
    }

    #[inline]
    fn release(&self, _bytes: usize) {}

    #[inline]
    fn is_read_to_end(&self) -> bool {
        false
    }

    #[inline]
    fn poll_write(&self, context: &mut Context<'_>, bytes: &[u8], _last: bool) -> Poll<io::Result<usize>> {
        self.poll_write(context, bytes, &[])
    }

    #[inline]
    fn poll_flush(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(context)
    }

    fn close_sending(&self) {
        #[expect(clippy::let_underscore_must_use, reason = "a side that is gone already is not told")]
        let _ = self.close_sending();
    }

    fn poll_reset(&self, _context: &mut Context<'_>) -> Poll<()> {
        Poll::Pending
    }

    fn is_measured(&self, timeout: &AckTimeout) -> bool {
        timeout.enforce(self)
    }

    fn stalls(&self) -> bool {
        false
    }
}

/// The stream was reset, or its connection is lost.
fn lost(StreamLost: StreamLost) -> io::Error {
    io::ErrorKind::ConnectionReset.into()
}

impl TunnelSide for StreamHandle {
    fn poll_read(&self, context: &mut Context<'_>, buffer: &mut BytesMut) -> Poll<io::Result<usize>> {
        // The stream keeps the buffer that it is given, so it gets none.
        *buffer = BytesMut::new();
        self.poll_read(context, buffer).map_err(lost)
    }

    fn release(&self, bytes: usize) {
        self.release(bytes);
    }

    fn is_read_to_end(&self) -> bool {
        self.is_read_to_end()
    }

    fn poll_write(&self, context: &mut Context<'_>, bytes: &[u8], last: bool) -> Poll<io::Result<usize>> {
        ready!(self.poll_room(context, bytes.len())).map_err(lost)?;
        Poll::Ready(self.send_data(bytes, last).map_err(lost))
    }

    fn poll_flush(&self, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Its connection holds a bounded number of bytes.
        Poll::Ready(Ok(()))
    }

    fn close_sending(&self) {
        if self.send_end(&[]).is_err() {
            // It is gone already, or was told with the last bytes.
        }
    }

    fn poll_reset(&self, context: &mut Context<'_>) -> Poll<()> {
        self.poll_reset(context)
    }

    fn is_measured(&self, _timeout: &AckTimeout) -> bool {
        false
    }

    fn stalls(&self) -> bool {
        true
    }
}

/// The stream of a client.
impl TunnelSide for StreamTransport {
    fn poll_read(&self, context: &mut Context<'_>, buffer: &mut BytesMut) -> Poll<io::Result<usize>> {
        *buffer = BytesMut::new();
        self.poll_read(context, buffer).map_err(lost)
    }

    fn release(&self, bytes: usize) {
        self.release(bytes);
    }

    fn is_read_to_end(&self) -> bool {
        self.is_read_to_end()
    }

    fn poll_write(&self, context: &mut Context<'_>, bytes: &[u8], last: bool) -> Poll<io::Result<usize>> {
        ready!(self.poll_room(context, bytes.len())).map_err(lost)?;
        Poll::Ready(self.send_data(bytes, last).map_err(lost))
    }

    fn poll_flush(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(context).map_err(lost)
    }

    fn close_sending(&self) {
        if self.send_end(&[]).is_err() {
            // It is gone already, or was told with the last bytes.
        }
    }

    fn poll_reset(&self, context: &mut Context<'_>) -> Poll<()> {
        self.poll_reset(context)
    }

    fn is_measured(&self, _timeout: &AckTimeout) -> bool {
        false
    }

    fn stalls(&self) -> bool {
        true
    }
}
