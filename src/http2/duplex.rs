//! A [`Stream`] as the `h2` crate reads and writes it.

use std::cell::{Cell, RefCell};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::{Buf as _, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use super::fragments::{Fragments, Noted};
use super::frames::Frames;
use super::open_block::OpenBlock;
use super::overhead::Overhead;
use crate::clock::deadline::now;
use crate::socket::{AckTimeout, Stream};

/// Read at once.
const READ: usize = 16 << 10;
/// What a client sends before its first frame (RFC 9113 §3.4).
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Bytes of bodies that wait for one connection's socket; who has more waits until it has taken them.
const MAX_QUEUED: usize = 256 << 10;
/// Bytes of a PING, which a dead connection takes, too.
const PING_FRAME: u64 = 17;

/// A connection on which HTTP/2 is spoken.
#[derive(Debug)]
pub struct Duplex {
    stream: Rc<Stream>,
    /// What has come and was not taken yet.
    come: BytesMut,
    /// Of the client's preface, what was not taken yet.
    preface: usize,
    frames: Frames,
    block: OpenBlock,
    /// `None`: no requests come from there.
    fragments: Option<Fragments>,
    /// Frames of a client that carry nothing. `None`: a backend's, which are not counted.
    overhead: Option<Overhead>,
    opened: Instant,
    traffic: Rc<Traffic>,
    /// Bytes that were read without a pause.
    run: usize,
}

/// What is seen of a connection from outside, as long as it lives.
#[derive(Debug, Default)]
pub struct Traffic {
    /// Since when a block of fields is open.
    open_since: Cell<Option<Instant>>,
    /// Bytes that came, and that the socket took.
    come: Cell<u64>,
    /// See `come`.
    gone: Cell<u64>,
    /// Streams whose path has a fragment.
    fragments: Noted,
    /// The client has sent more frames that carry nothing than any honest one does.
    flooded: Cell<bool>,
    /// How long the other side may leave bytes unacknowledged, where that is bounded.
    ack_timeout: Option<AckTimeout>,
    /// The socket took nothing of what was written last, and the kernel judges how long that may go on.
    blocked: Cell<bool>,
    /// When the socket went on after it had last been blocked.
    unblocked: Cell<Option<Instant>>,
    /// The kernel has ended the connection, as the other side acknowledged nothing.
    stalled: Cell<bool>,
    /// Bytes of bodies that were put into frames since the socket had last taken all there was.
    queued: Cell<usize>,
    /// Those who have more, beyond [`MAX_QUEUED`].
    waiting: RefCell<Vec<Waker>>,
}

/// How far traffic had come at some time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mark {
    come: u64,
    gone: u64,
}

impl Traffic {
    /// Since when a block of fields is open, if one is.
    pub fn open_since(&self) -> Option<Instant> {
        self.open_since.get()
    }

    /// Streams whose path has a fragment: they are not to be served.
    pub fn fragments(&self) -> &Noted {
        &self.fragments
    }

    /// Whether the client has sent more frames that carry nothing than any honest one does.
    pub fn is_flood(&self) -> bool {
        self.flooded.get()
    }

    /// Bytes that came.
    pub fn come(&self) -> u64 {
        self.come.get()
    }

    /// Bytes that the socket took.
    pub fn gone(&self) -> u64 {
        self.gone.get()
    }

    /// So many bytes of a body were put into frames.
    pub fn queue(&self, bytes: usize) {
        self.queued.set(self.queued.get() + bytes);
    }

    /// Ready while less than [`MAX_QUEUED`] waits for the socket.
    pub fn poll_unclogged(&self, context: &Context<'_>) -> Poll<()> {
        if self.queued.get() < MAX_QUEUED {
            return Poll::Ready(());
        }
        let mut waiting = self.waiting.borrow_mut();
        if !waiting.iter().any(|waker| waker.will_wake(context.waker())) {
            waiting.push(context.waker().clone());
        }
        Poll::Pending
    }

    /// The socket has taken all there was.
    fn unclog(&self) {
        if self.queued.replace(0) >= MAX_QUEUED {
            self.waiting.take().into_iter().for_each(Waker::wake);
        }
    }

    /// Whether the socket blocks. The kernel ends the connection then, unless the other side acknowledges bytes.
    pub fn is_blocked(&self) -> bool {
        self.blocked.get()
    }

    /// When the socket blocked last: now, if it still does.
    pub fn last_blocked(&self) -> Option<Instant> {
        if self.is_blocked() { Some(now()) } else { self.unblocked.get() }
    }

    /// Whether the kernel has ended the connection, as the other side acknowledged nothing for too long.
    pub fn is_stalled(&self) -> bool {
        self.stalled.get()
    }

    /// Has the kernel bound how long the other side may leave bytes unacknowledged. Whether it does.
    pub fn enforce_ack_timeout(&self, stream: &Stream) -> bool {
        self.ack_timeout.as_ref().is_some_and(|timeout| timeout.enforce(stream))
    }

    /// Notes whether the socket blocks.
    fn note<T>(&self, stream: &Stream, polled: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        match &polled {
            Poll::Pending => self.blocked.set(self.enforce_ack_timeout(stream)),
            Poll::Ready(Ok(_)) => {
                if self.blocked.replace(false) {
                    self.unblocked.set(Some(now()));
                }
            }
            Poll::Ready(Err(error)) => self.note_end(error),
        }
        polled
    }

    fn note_end(&self, error: &io::Error) {
        if error.kind() == io::ErrorKind::TimedOut {
            self.stalled.set(true);
        }
    }

    /// How far it is.
    pub fn mark(&self) -> Mark {
        Mark { come: self.come.get(), gone: self.gone.get() }
    }

    /// Whether the other side gave a sign of life since `mark`: it has sent something, or taken more than a PING.
    pub fn has_moved_since(&self, mark: Mark) -> bool {
        self.come.get() != mark.come || self.gone.get() - mark.gone > PING_FRAME
    }
}

impl Duplex {
    /// The connection to a client, which must acknowledge bytes within `write_timeout`; `come` was read from it already.
    pub fn of_client(stream: Rc<Stream>, come: BytesMut, write_timeout: Duration) -> Self {
        let ack_timeout = Some(AckTimeout::new(write_timeout));
        let traffic = Rc::new(Traffic { ack_timeout, ..Traffic::default() });
        let (fragments, overhead) = (Some(Fragments::default()), Some(Overhead::default()));
        Self { fragments, overhead, ..Self::new(stream, come, PREFACE.len(), traffic) }
    }

    /// The connection to a backend.
    pub fn of_backend(stream: Rc<Stream>) -> Self {
        Self::new(stream, BytesMut::new(), 0, Rc::default())
    }

    fn new(stream: Rc<Stream>, come: BytesMut, preface: usize, traffic: Rc<Traffic>) -> Self {
        Self {
            stream,
            come,
            preface,
            frames: Frames::default(),
            block: OpenBlock::default(),
            fragments: None,
            overhead: None,
            opened: now(),
            traffic,
            run: 0,
        }
    }

    /// What is seen of it from outside.
    pub fn traffic(&self) -> Rc<Traffic> {
        Rc::clone(&self.traffic)
    }

    fn watch(&mut self, taken: usize) {
        let before_frames = self.preface.min(taken);
        self.preface -= before_frames;
        let traffic = &*self.traffic;
        let mut bytes = &self.come[before_frames..taken];
        while let Some(part) = self.frames.next(&mut bytes) {
            self.block.see(&part);
            if let Some(stream) = self.fragments.as_mut().and_then(|fragments| fragments.see(&part)) {
                traffic.fragments.note(stream);
            }
            if let Some(overhead) = &mut self.overhead {
                overhead.see(&part);
            }
        }
        let age = || (now() - self.opened).as_secs();
        if self.overhead.is_some_and(|overhead| overhead.is_flood(traffic.gone(), age)) {
            traffic.flooded.set(true);
        }
        traffic.come.set(traffic.come.get() + taken as u64);
        match (self.block.is_open(), traffic.open_since.get()) {
            (true, None) => traffic.open_since.set(Some(now())),
            (false, Some(_)) => traffic.open_since.set(None),
            _ => {}
        }
    }

    fn poll_write_both(
        &self,
        context: &mut Context<'_>,
        first: &[u8],
        second: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = self.traffic.note(&self.stream, self.stream.poll_write(context, first, second));
        let written = ready!(written)?;
        self.traffic.gone.set(self.traffic.gone.get() + written as u64);
        Poll::Ready(Ok(written))
    }
}

impl AsyncRead for Duplex {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.come.is_empty() {
            // Small frames hold much more memory than their bytes: who takes them is to come in between.
            if this.run >= READ {
                this.run = 0;
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            let Poll::Ready(read) = this.stream.poll_read(context, &mut this.come, READ - this.run) else {
                this.run = 0;
                // A connection that waits holds no buffer.
                this.come = BytesMut::new();
                return Poll::Pending;
            };
            this.run += read.inspect_err(|error| this.traffic.note_end(error))?;
        }
        let taken = this.come.len().min(buffer.remaining());
        this.watch(taken);
        buffer.put_slice(&this.come[..taken]);
        this.come.advance(taken);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Duplex {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_both(context, bytes, &[])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut filled = slices.iter().map(|slice| &**slice).filter(|slice| !slice.is_empty());
        let (first, second) = (filled.next(), filled.next());
        self.poll_write_both(context, first.unwrap_or_default(), second.unwrap_or_default())
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = self.traffic.note(&self.stream, self.stream.poll_flush(context));
        if flushed.is_ready() {
            self.traffic.unclog();
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.as_mut().poll_flush(context))?;
        Poll::Ready(self.stream.close_sending())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ping_that_goes_out_is_no_sign_of_life() {
        let traffic = Traffic::default();
        let mark = traffic.mark();
        traffic.gone.set(PING_FRAME);
        assert!(!traffic.has_moved_since(mark));
        traffic.gone.set(PING_FRAME + 1);
        assert!(traffic.has_moved_since(mark), "the other side takes an answer");
        let mark = traffic.mark();
        traffic.come.set(1);
        assert!(traffic.has_moved_since(mark));
    }
}
