//! A [`Stream`] as the `h2` crate reads and writes it.

use std::cell::Cell;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use super::open_block::OpenBlock;
use crate::clock::deadline::now;
use crate::socket::Stream;

/// Read at once.
const READ: usize = 16 << 10;
/// What a client sends before its first frame (RFC 9113 §3.4).
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A connection on which HTTP/2 is spoken.
#[derive(Debug)]
pub struct Duplex {
    stream: Rc<Stream>,
    /// What has come and was not taken yet.
    come: BytesMut,
    /// Of the client's preface, what was not taken yet.
    preface: usize,
    block: OpenBlock,
    open_since: Rc<Cell<Option<Instant>>>,
    reads: Rc<Cell<u64>>,
    /// Bytes that were read without a pause.
    run: usize,
}

impl Duplex {
    /// The connection to a client; `come` was read from it already.
    pub fn of_client(stream: Rc<Stream>, come: BytesMut) -> Self {
        Self {
            stream,
            come,
            preface: PREFACE.len(),
            block: OpenBlock::default(),
            open_since: Rc::default(),
            reads: Rc::default(),
            run: 0,
        }
    }

    /// The connection to a backend.
    pub fn of_backend(stream: Rc<Stream>) -> Self {
        Self { preface: 0, ..Self::of_client(stream, BytesMut::new()) }
    }

    /// Tells, as long as the connection lives, since when a block of fields is open.
    pub fn open_since(&self) -> Rc<Cell<Option<Instant>>> {
        Rc::clone(&self.open_since)
    }

    /// Tells, as long as the connection lives, how often something came through it.
    pub fn reads(&self) -> Rc<Cell<u64>> {
        Rc::clone(&self.reads)
    }

    fn watch(&mut self, taken: usize) {
        let before_frames = self.preface.min(taken);
        self.preface -= before_frames;
        self.block.advance(&self.come[before_frames..taken]);
        match (self.block.is_open(), self.open_since.get()) {
            (true, None) => self.open_since.set(Some(now())),
            (false, Some(_)) => self.open_since.set(None),
            _ => {}
        }
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
                return Poll::Pending;
            };
            this.run += read?;
            this.reads.set(this.reads.get() + 1);
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
        self.stream.poll_write(context, bytes, &[])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut filled = slices.iter().map(|slice| &**slice).filter(|slice| !slice.is_empty());
        let (first, second) = (filled.next(), filled.next());
        self.stream.poll_write(context, first.unwrap_or_default(), second.unwrap_or_default())
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.stream.poll_flush(context))?;
        Poll::Ready(self.stream.close_sending())
    }
}
