//! Bodies on their way between a pipe, where they are framed as HTTP/1.1, and a stream's frames. Neither direction holds
//! more than a pipe and a stream's window do.

use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf as _, Bytes, BytesMut};
use h2::{Reason, RecvStream, SendStream};
use http::HeaderMap;
use tokio::time::Instant;

use super::duplex::Traffic;
use super::head::{read_trailers, write_trailers};
use crate::clock::deadline::{Deadline, now};
use crate::http1::body::Body;
use crate::http1::chunks::{ChunkDecoder, encode, encode_end};
use crate::http1::trailers::Trailers;
use crate::socket::Pipe;

/// Taken from a pipe at once.
const READ: usize = 32 << 10;

/// Why a body is not whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// The other side of HTTP/2 reset the stream, or its connection is lost.
    Peer,
    /// The pipe broke off, or what came through it is no body.
    Pipe,
}

/// A body on its way from a pipe into frames.
#[derive(Debug)]
pub struct Outgoing {
    stream: SendStream<Bytes>,
    rest: Rest,
    /// Taken from the pipe, without framing, and waiting for the peer's window.
    piece: Bytes,
    /// How long the window may stay closed; `None`: somebody else watches over it.
    patience: Option<Patience>,
    closed_since: Option<Instant>,
    /// It stayed closed for longer than that.
    stalled: bool,
    deadline: Deadline,
}

/// How long a peer's window may stay closed. While the connection's socket blocks, it is not known whether the peer has opened
/// the window, and the kernel judges the peer by what it acknowledges.
#[derive(Clone, Debug)]
pub struct Patience {
    /// For so long.
    pub timeout: Duration,
    /// What is seen of the connection.
    pub traffic: Rc<Traffic>,
}

/// What is to be sent still.
#[derive(Debug)]
pub enum Rest {
    /// So many bytes, at least one.
    Length(u64),
    /// Chunks, and trailers behind them.
    Chunked(ChunkDecoder),
    /// Nothing: the end was told.
    Nothing,
}

impl Rest {
    /// What is to be sent of a request.
    pub fn of(body: Body) -> Self {
        match body {
            Body::EMPTY => Self::Nothing,
            Body::Length(length) => Self::Length(length),
            Body::Chunked => Self::Chunked(ChunkDecoder::of_request()),
        }
    }

    /// Whether there is nothing left.
    pub fn is_over(&self) -> bool {
        matches!(self, Self::Nothing)
    }
}

impl Outgoing {
    /// The body of the message whose head went out on `stream`.
    pub fn new(stream: SendStream<Bytes>, rest: Rest, patience: Option<Patience>) -> Self {
        let deadline = Deadline::default();
        Self { stream, rest, piece: Bytes::new(), patience, closed_since: None, stalled: false, deadline }
    }

    /// Passes on what `come` begins with, and what comes through the pipe behind that. Ready once all was handed over.
    ///
    /// # Errors
    /// The stream is of no use any more. Whoever holds it resets it if the pipe was the cause.
    pub fn poll_pass(
        &mut self,
        context: &mut Context<'_>,
        pipe: &Pipe,
        come: &mut BytesMut,
    ) -> Poll<Result<(), Cut>> {
        loop {
            ready!(self.poll_send(context))?;
            self.next_piece(come)?;
            if !self.piece.is_empty() {
                continue;
            }
            if matches!(self.rest, Rest::Nothing) {
                return Poll::Ready(Ok(()));
            }
            match pipe.poll_read(context, come, READ) {
                Poll::Ready(Ok(1..)) => {}
                Poll::Ready(Ok(0) | Err(_)) => return Poll::Ready(Err(Cut::Pipe)),
                Poll::Pending => {
                    return self.stream.poll_reset(context).map(|_| Err(Cut::Peer));
                }
            }
        }
    }

    /// Whether it failed because the peer's window stayed closed for too long, or the peer acknowledged nothing.
    pub fn is_stalled(&self) -> bool {
        self.stalled || self.patience.as_ref().is_some_and(|patience| patience.traffic.is_stalled())
    }

    /// Resets the stream: the peer learns that the body is not whole.
    pub fn reset(&mut self, reason: Reason) {
        self.stream.send_reset(reason);
    }

    /// Ends the body before its time, with these trailers.
    pub fn end_with(&mut self, trailers: HeaderMap) {
        if self.stream.send_trailers(trailers).is_err() {
            self.reset(Reason::INTERNAL_ERROR);
        }
    }

    fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Cut>> {
        while !self.piece.is_empty() {
            self.stream.reserve_capacity(self.piece.len());
            while self.stream.capacity() == 0 {
                match self.stream.poll_capacity(context) {
                    Poll::Ready(Some(Ok(_))) => {}
                    Poll::Ready(Some(Err(_)) | None) => return Poll::Ready(Err(Cut::Peer)),
                    Poll::Pending => return self.poll_patience(context),
                }
            }
            self.closed_since = None;
            let part = self.piece.split_to(self.stream.capacity().min(self.piece.len()));
            self.hand_over(part)?;
        }
        Poll::Ready(Ok(()))
    }

    /// Fails once the peer's window has been closed for too long.
    fn poll_patience(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Cut>> {
        let Some(Patience { timeout, traffic }) = &self.patience else { return Poll::Pending };
        let closed_since = *self.closed_since.get_or_insert_with(now);
        let since = traffic.last_blocked().map_or(closed_since, |blocked| blocked.max(closed_since));
        ready!(self.deadline.poll(context, since + *timeout));
        self.stalled = true;
        self.reset(Reason::CANCEL);
        Poll::Ready(Err(Cut::Peer))
    }

    fn hand_over(&mut self, part: Bytes) -> Result<(), Cut> {
        if let Rest::Length(left) = &mut self.rest {
            *left -= part.len() as u64;
            if *left == 0 {
                self.rest = Rest::Nothing;
            }
        }
        let last = matches!(self.rest, Rest::Nothing);
        self.stream.send_data(part, last).map_err(|_| Cut::Peer)
    }

    /// Takes the next piece, if some of it is there. The end of chunks is told at once.
    fn next_piece(&mut self, come: &mut BytesMut) -> Result<(), Cut> {
        match &mut self.rest {
            Rest::Nothing => {}
            Rest::Length(left) => {
                let here = usize::try_from(*left).unwrap_or(usize::MAX).min(come.len());
                self.piece = come.split_to(here).freeze();
            }
            Rest::Chunked(decoder) => {
                while self.piece.is_empty() && !come.is_empty() && !decoder.is_done() {
                    let (taken, data) = decoder.decode(come).map_err(|_| Cut::Pipe)?;
                    // The data stands at the end of what was taken.
                    let framing = taken - data.len();
                    self.piece = come.split_to(taken).freeze();
                    self.piece.advance(framing);
                }
                if self.piece.is_empty() && decoder.is_done() {
                    let trailers = decoder.trailers(&Trailers::All);
                    self.rest = Rest::Nothing;
                    return self.end(&trailers);
                }
            }
        }
        Ok(())
    }

    fn end(&mut self, trailers: &[u8]) -> Result<(), Cut> {
        let ended = if trailers.is_empty() {
            self.stream.send_data(Bytes::new(), true)
        } else {
            self.stream.send_trailers(read_trailers(trailers))
        };
        ended.map_err(|_| Cut::Peer)
    }
}

/// A body on its way from frames into a pipe.
#[derive(Debug)]
pub struct Incoming {
    stream: RecvStream,
    /// Framed in chunks; else its length stands in the head.
    chunked: bool,
    /// What frames brought: taken from them at once, since many small ones hold much more memory than their bytes. The
    /// peer's window bounds it.
    come: BytesMut,
    /// Framed, and waiting for room in the pipe.
    framed: BytesMut,
    /// Bytes of the peer's window that `framed` holds.
    held: usize,
    end: End,
}

/// How far a body has come.
#[derive(Debug)]
enum End {
    Awaited,
    /// All of it has come, and trailers behind it: as lines.
    Come(BytesMut),
    /// The peer broke it off.
    Broken,
    /// That was all, and is framed.
    Framed,
}

impl Incoming {
    /// The body that comes on `stream`, in chunks or with a length that is known already.
    pub fn new(stream: RecvStream, chunked: bool) -> Self {
        Self::behind(BytesMut::new(), stream, chunked)
    }

    /// As [`Self::new`], behind this head.
    pub fn behind(head: BytesMut, stream: RecvStream, chunked: bool) -> Self {
        let end = if stream.is_end_stream() { End::Framed } else { End::Awaited };
        Self { stream, chunked, come: BytesMut::new(), framed: head, held: 0, end }
    }

    /// Passes on what comes. Ready once all of it went into the pipe.
    ///
    /// # Errors
    /// The peer broke the body off, or nobody reads the pipe any more.
    pub fn poll_pass(&mut self, context: &mut Context<'_>, pipe: &Pipe) -> Poll<Result<(), Cut>> {
        loop {
            let taken = self.poll_take(context);
            while !self.framed.is_empty() {
                let written = ready!(pipe.poll_write(context, &self.framed, &[])).map_err(|_| Cut::Pipe)?;
                self.framed.advance(written);
            }
            if self.held > 0 {
                let released = self.stream.flow_control().release_capacity(std::mem::take(&mut self.held));
                released.map_err(|_| Cut::Peer)?;
            }
            self.frame();
            if self.framed.is_empty() {
                match self.end {
                    End::Framed => return Poll::Ready(Ok(())),
                    End::Broken => return Poll::Ready(Err(Cut::Peer)),
                    End::Awaited | End::Come(_) => ready!(taken),
                }
            }
        }
    }

    /// Takes all that frames have brought. Ready once no more will come.
    fn poll_take(&mut self, context: &mut Context<'_>) -> Poll<()> {
        while matches!(self.end, End::Awaited) {
            match ready!(self.stream.poll_data(context)) {
                Some(Ok(data)) => self.come.extend_from_slice(&data),
                Some(Err(_)) => self.end = End::Broken,
                None => {
                    let mut lines = BytesMut::new();
                    self.end = match ready!(self.stream.poll_trailers(context)) {
                        Ok(trailers) => {
                            trailers.iter().for_each(|trailers| write_trailers(trailers, &mut lines));
                            End::Come(lines)
                        }
                        Err(_) => End::Broken,
                    };
                }
            }
        }
        Poll::Ready(())
    }

    /// Frames what has come, and the end behind it.
    fn frame(&mut self) {
        self.held = self.come.len();
        if !self.chunked {
            std::mem::swap(&mut self.framed, &mut self.come);
        } else if !self.come.is_empty() {
            encode(&self.come, &mut self.framed);
        }
        self.come.clear();
        if let End::Come(lines) = &self.end {
            if self.chunked {
                encode_end(lines, &mut self.framed);
            }
            self.end = End::Framed;
        }
    }
}
