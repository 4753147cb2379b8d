//! The gate between a client's socket and hyper: strict framing and time-outs.
//!
//! The gate follows the framing of requests and hands hyper only bytes that have exactly one reading. A head that is
//! refused reaches the service as a harmless stand-in, so that the answer leaves in its turn behind those of pipelined
//! requests, and is logged and counted like every other.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf as _, BufMut as _, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::framing::{self, Body, ChunkScanner, Fault, HeadScanner};
use super::wire::{BodyFault, Wire};
use crate::clock::deadline::{Deadline, now};

/// Room made for one read from the socket, at least.
const LEAST_READ: usize = 4 << 10;
/// The same at most; also what a client may send ahead while its upgrade is being decided.
const READ_AHEAD: usize = 64 << 10;
/// The least average rate of an awaited request body, in bytes a second, over [`RATE_WINDOW`].
const LEAST_BODY_RATE: u64 = 256;
/// See [`LEAST_BODY_RATE`].
const RATE_WINDOW: Duration = Duration::from_secs(30);
/// What hyper is given in place of a refused head: `GET`, or `HEAD` where the answer must have no body, and this.
const STAND_IN: &[u8] = b" / HTTP/1.1\r\nhost: refused\r\nconnection: close\r\n\r\n";

/// The bounds of one connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) max_header_bytes: usize,
    pub(crate) header_timeout: Duration,
    pub(crate) body_timeout: Duration,
    pub(crate) idle_timeout: Duration,
    pub(crate) write_timeout: Duration,
}

/// Where in the stream of requests the gate stands.
#[derive(Debug)]
enum Stage {
    /// In or before a head.
    Head(HeadScanner),
    /// In a body of known length.
    Length(u64),
    /// In a chunked body.
    Chunked(ChunkScanner),
    /// Behind a head that asks for an upgrade: what follows is HTTP or not, as the service decides.
    Undecided,
    /// Behind a granted upgrade: bytes pass as they come.
    Tunnel,
    /// Behind a refused head or body, or overdue: nothing more is read.
    Over,
}

/// The client's side of a connection, as hyper reads and writes it.
#[derive(Debug)]
pub(crate) struct Gate {
    wire: Rc<Wire>,
    bounds: Bounds,
    stage: Stage,
    /// Bytes read from the socket.
    inbound: BytesMut,
    /// How many of them have been checked and may be handed on.
    checked: usize,
    /// Since when the gate waits for what it waits for: a head's first byte, a body's next.
    since: Option<Instant>,
    /// Whether a byte of the head has come.
    head_begun: bool,
    /// Since when, and from how many body bytes on, the body's rate is measured.
    rate: Option<(Instant, u64)>,
    reading: Deadline,
    writing: Deadline,
    /// Since when the client takes no byte.
    blocked: Option<Instant>,
}

impl Gate {
    pub(crate) fn new(wire: Rc<Wire>, bounds: Bounds) -> Self {
        Self {
            wire,
            bounds,
            stage: Stage::Head(HeadScanner::default()),
            inbound: BytesMut::new(),
            checked: 0,
            since: None,
            head_begun: false,
            rate: None,
            reading: Deadline::default(),
            writing: Deadline::default(),
            blocked: None,
        }
    }

    fn poll_discard(&mut self, context: &mut Context<'_>) -> Poll<()> {
        while !self.wire.ended.get() {
            self.inbound.clear();
            match ready!(self.poll_fill(context, READ_AHEAD)) {
                Ok(true) => {}
                Ok(false) | Err(_) => break,
            }
        }
        Poll::Ready(())
    }

    /// Whether the client owes nothing and is owed nothing.
    fn is_at_rest(&self) -> bool {
        matches!(self.stage, Stage::Head(_)) && !self.head_begun && self.wire.is_idle()
    }

    /// Checks what has come, as far as it goes.
    fn check(&mut self) {
        loop {
            let before = (self.checked, std::mem::discriminant(&self.stage));
            let unchecked = &self.inbound[self.checked..];
            match &mut self.stage {
                Stage::Head(_) => match self.check_head() {
                    Ok(()) => {}
                    Err(fault) => self.refuse(fault),
                },
                Stage::Length(left) => {
                    let here = usize::try_from(*left).unwrap_or(usize::MAX).min(unchecked.len());
                    *left -= here as u64;
                    let done = *left == 0;
                    self.checked += here;
                    self.take_body(here, done);
                }
                Stage::Chunked(scanner) => match scanner.advance(unchecked) {
                    Ok(here) => {
                        let done = scanner.is_done();
                        self.checked += here;
                        self.take_body(here, done);
                    }
                    Err(_) => self.break_body(BodyFault::Malformed),
                },
                Stage::Undecided => self.check_upgrade(),
                Stage::Tunnel => self.checked = self.inbound.len(),
                Stage::Over => {}
            }
            if before == (self.checked, std::mem::discriminant(&self.stage)) {
                return;
            }
        }
    }

    fn check_head(&mut self) -> Result<(), Fault> {
        let Stage::Head(scanner) = &mut self.stage else { return Ok(()) };
        if self.inbound.len() > self.checked
            && !std::mem::replace(&mut self.head_begun, true)
            && self.wire.heads.get() > 0
        {
            // The head's time runs from its first byte, not from the end of the last answer.
            self.since = None;
        }
        // RFC 9112 §2.2: empty lines before the request line are ignored, once what stands before them is handed on.
        if self.inbound[self.checked..].starts_with(b"\r") {
            if self.checked > 0 {
                return Ok(());
            }
            while self.inbound.starts_with(b"\r\n") {
                self.inbound.advance(2);
                *scanner = HeadScanner::default();
            }
        }
        let bytes = &self.inbound[self.checked..];
        let Some(length) = scanner.advance(bytes, self.bounds.max_header_bytes)? else { return Ok(()) };
        let head = framing::check_head(&bytes[..length])?;
        self.stage = match head.body {
            _ if head.upgrade => Stage::Undecided,
            Body::Length(0) => Stage::Head(HeadScanner::default()),
            Body::Length(length) => Stage::Length(length),
            Body::Chunked => Stage::Chunked(ChunkScanner::new()),
        };
        self.checked += length;
        self.wire.upgrade.set(None);
        self.wire.heads.set(self.wire.heads.get() + 1);
        self.wire.rest(None);
        self.since = None;
        self.rate = None;
        self.head_begun = false;
        Ok(())
    }

    fn take_body(&mut self, bytes: usize, done: bool) {
        self.wire.body_bytes.set(self.wire.body_bytes.get() + bytes as u64);
        if bytes > 0 {
            self.since = None;
        }
        if done {
            self.stage = Stage::Head(HeadScanner::default());
        }
    }

    fn check_upgrade(&mut self) {
        match self.wire.upgrade.get() {
            None => {}
            Some(true) => self.stage = Stage::Tunnel,
            Some(false) => self.stage = Stage::Head(HeadScanner::default()),
        }
    }

    /// Puts the stand-in in the place of what was not yet checked, and reads no further.
    fn refuse(&mut self, fault: Fault) {
        let head = self.inbound[self.checked..].starts_with(b"HEAD ");
        self.inbound.truncate(self.checked);
        self.inbound.extend_from_slice(if head { b"HEAD" } else { b"GET" });
        self.inbound.extend_from_slice(STAND_IN);
        self.checked = self.inbound.len();
        self.wire.fault.set(Some((self.wire.heads.get(), fault)));
        self.wire.heads.set(self.wire.heads.get() + 1);
        self.stage = Stage::Over;
    }

    fn break_body(&mut self, fault: BodyFault) {
        self.wire.body_fault.set(Some(fault));
        self.stage = Stage::Over;
    }

    /// Reads more from the socket. Ready with `false` at its end.
    fn poll_fill(&mut self, context: &mut Context<'_>, wanted: usize) -> Poll<io::Result<bool>> {
        loop {
            ready!(self.wire.stream.poll_read_ready(context))?;
            self.inbound.reserve(wanted.clamp(LEAST_READ, READ_AHEAD));
            match self.wire.stream.try_read_buf(&mut self.inbound) {
                Ok(0) => {
                    self.wire.ended.set(true);
                    return Poll::Ready(Ok(false));
                }
                Ok(_) => return Poll::Ready(Ok(true)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    /// Nothing has come. Ready once that has lasted too long, and been acted on.
    fn poll_overdue(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let started = self.head_begun;
        let allowed = match self.stage {
            // While a request is served, or a tunnel is being decided, the client owes nothing.
            Stage::Undecided | Stage::Tunnel | Stage::Over => return Poll::Pending,
            Stage::Head(_) if !self.wire.is_idle() => {
                self.since = None;
                return Poll::Pending;
            }
            // A connection that never brought a head gets no longer than the head itself.
            Stage::Head(_) if started || self.wire.heads.get() == 0 => self.bounds.header_timeout,
            Stage::Head(_) => self.bounds.idle_timeout,
            Stage::Length(_) | Stage::Chunked(_) => self.bounds.body_timeout,
        };
        let since = *self.since.get_or_insert_with(now);
        if matches!(self.stage, Stage::Head(_)) && !started {
            self.wire.rest(Some(since));
            self.wire.wait(context.waker());
        }
        if !self.body_crawls() {
            ready!(self.reading.poll(context, since + allowed));
        }
        match self.stage {
            Stage::Head(_) if started => self.refuse(Fault::HeadTimeout),
            Stage::Head(_) => self.stage = Stage::Over,
            _ => self.break_body(BodyFault::Timeout),
        }
        Poll::Ready(())
    }

    /// Whether the body has come slower than [`LEAST_BODY_RATE`] for a whole [`RATE_WINDOW`].
    fn body_crawls(&mut self) -> bool {
        if !matches!(self.stage, Stage::Length(_) | Stage::Chunked(_)) {
            return false;
        }
        let now = now();
        let bytes = self.wire.body_bytes.get();
        let (since, from) = *self.rate.get_or_insert((now, bytes));
        if now - since < RATE_WINDOW {
            return false;
        }
        self.rate = Some((now, bytes));
        bytes - from < LEAST_BODY_RATE * RATE_WINDOW.as_secs()
    }

    /// Reads a body of known length straight into hyper's buffer, but not a byte of what follows it. Ready with `false` at the end.
    fn poll_straight(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
        left: u64,
    ) -> Poll<io::Result<bool>> {
        let most = usize::try_from(left).unwrap_or(usize::MAX);
        loop {
            ready!(self.wire.stream.poll_read_ready(context))?;
            match self.wire.stream.try_read_buf(&mut (&mut *buffer).limit(most)) {
                Ok(0) => {
                    self.wire.ended.set(true);
                    return Poll::Ready(Ok(false));
                }
                Ok(read) => {
                    let left = left - read as u64;
                    self.stage = Stage::Length(left);
                    self.take_body(read, left == 0);
                    return Poll::Ready(Ok(true));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    fn hand_on(&mut self, buffer: &mut ReadBuf<'_>) {
        let length = self.checked.min(buffer.remaining());
        buffer.put_slice(&self.inbound[..length]);
        self.inbound.advance(length);
        self.checked -= length;
    }
}

impl AsyncRead for Gate {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let gate = self.get_mut();
        let filled = buffer.filled().len();
        loop {
            gate.check();
            if gate.checked > 0 {
                gate.hand_on(buffer);
                return Poll::Ready(Ok(()));
            }
            if gate.wire.body_fault.get().is_some() {
                return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
            }
            if matches!(gate.stage, Stage::Over) || (gate.wire.is_evicted() && gate.is_at_rest()) {
                return Poll::Ready(Ok(()));
            }
            if matches!(gate.stage, Stage::Undecided) {
                gate.wire.wait(context.waker());
                if gate.inbound.len() >= READ_AHEAD {
                    return Poll::Pending;
                }
            }
            let straight = gate.inbound.is_empty();
            let read = match gate.stage {
                Stage::Length(left) if straight => gate.poll_straight(context, buffer, left),
                _ => gate.poll_fill(context, buffer.remaining()),
            };
            match read {
                Poll::Ready(Ok(true)) if buffer.filled().len() > filled => return Poll::Ready(Ok(())),
                Poll::Ready(Ok(true)) => {}
                Poll::Ready(Ok(false)) => {
                    if matches!(gate.stage, Stage::Length(_) | Stage::Chunked(_)) {
                        gate.break_body(BodyFault::Gone);
                    }
                    return Poll::Ready(Ok(()));
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => {
                    ready!(gate.poll_overdue(context));
                }
            }
        }
    }
}

impl Gate {
    /// Ready with an error once the client has taken no byte for `write_timeout`.
    fn poll_blocked(&mut self, context: &mut Context<'_>) -> Poll<io::Error> {
        let since = *self.blocked.get_or_insert_with(now);
        ready!(self.writing.poll(context, since + self.bounds.write_timeout));
        self.wire.reset();
        Poll::Ready(io::ErrorKind::TimedOut.into())
    }

    fn poll_send(
        &mut self,
        context: &mut Context<'_>,
        mut send: impl FnMut(&TcpStream) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            match self.wire.stream.poll_write_ready(context)? {
                Poll::Pending => return self.poll_blocked(context).map(Err),
                Poll::Ready(()) => match send(&self.wire.stream) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    result => {
                        self.blocked = None;
                        return Poll::Ready(result);
                    }
                },
            }
        }
    }
}

impl AsyncWrite for Gate {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.get_mut().poll_send(context, |stream| stream.try_write(bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().poll_send(context, |stream| stream.try_write_vectored(slices))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(socket2::SockRef::from(&self.wire.stream).shutdown(std::net::Shutdown::Write))
    }
}

/// A gate that hyper holds and that is still at hand when hyper is done with it.
#[derive(Clone, Debug)]
pub(crate) struct SharedGate(Rc<RefCell<Gate>>);

impl SharedGate {
    pub(crate) fn new(gate: Gate) -> Self {
        Self(Rc::new(RefCell::new(gate)))
    }

    /// Reads and drops whatever the client still sends, until it closes.
    pub(crate) async fn discard(&self) {
        std::future::poll_fn(|context| self.0.borrow_mut().poll_discard(context)).await;
    }
}

impl AsyncRead for SharedGate {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0.borrow_mut()).poll_read(context, buffer)
    }
}

impl AsyncWrite for SharedGate {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.0.borrow_mut()).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.0.borrow_mut()).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0.borrow_mut()).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0.borrow_mut()).poll_shutdown(context)
    }
}
