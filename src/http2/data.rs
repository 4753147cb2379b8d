//! Bodies as frames carry them: the data of one stream, in either direction.

use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use h2::{Reason, RecvStream, SendStream};
use http::HeaderMap;
use tokio::time::Instant;

use super::duplex::Traffic;
use crate::clock::deadline::{Deadline, now};

/// The other side of HTTP/2 reset the stream, or its connection is lost, or it takes nothing for too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Lost;

/// How long a peer's window may stay closed. While the connection's socket blocks, it is not known whether the peer has opened
/// the window, and the kernel judges the peer by what it acknowledges.
#[derive(Clone, Debug)]
pub struct Patience {
    /// For so long.
    pub timeout: Duration,
    /// What is seen of the connection.
    pub traffic: Rc<Traffic>,
}

/// A body that comes.
#[derive(Debug)]
pub struct DataReader {
    frames: RecvStream,
    /// What frames brought: taken from them at once, since many small ones hold much more memory than their bytes. The
    /// peer's window bounds it.
    come: BytesMut,
    end: End,
}

/// How far a body has come.
#[derive(Debug)]
enum End {
    Awaited,
    /// All of it has come, and these trailers behind it.
    Come(HeaderMap),
    /// The peer broke it off.
    Broken,
}

impl DataReader {
    /// The body that `frames` bring.
    pub fn new(frames: RecvStream) -> Self {
        let end = if frames.is_end_stream() { End::Come(HeaderMap::new()) } else { End::Awaited };
        Self { frames, come: BytesMut::new(), end }
    }

    /// Takes what frames have brought. Ready once no more will come.
    pub fn poll_pull(&mut self, context: &mut Context<'_>) -> Poll<()> {
        while matches!(self.end, End::Awaited) {
            match ready!(self.frames.poll_data(context)) {
                Some(Ok(data)) => self.come.extend_from_slice(&data),
                Some(Err(_)) => self.end = End::Broken,
                None => {
                    self.end = match ready!(self.frames.poll_trailers(context)) {
                        Ok(trailers) => End::Come(trailers.unwrap_or_default()),
                        Err(_) => End::Broken,
                    };
                }
            }
        }
        Poll::Ready(())
    }

    /// Appends what has come. Ready with 0 at the end.
    ///
    /// # Errors
    /// The peer broke the body off, and all that came before has been taken.
    pub fn poll_read(&mut self, context: &mut Context<'_>, into: &mut BytesMut) -> Poll<Result<usize, Lost>> {
        let pulled = self.poll_pull(context);
        let come = self.come.len();
        if come > 0 {
            if into.is_empty() {
                std::mem::swap(into, &mut self.come);
            } else {
                into.extend_from_slice(&self.come);
            }
            self.come.clear();
            return Poll::Ready(Ok(come));
        }
        ready!(pulled);
        Poll::Ready(if self.is_broken() { Err(Lost) } else { Ok(0) })
    }

    /// Whether the peer broke the body off.
    pub fn is_broken(&self) -> bool {
        matches!(self.end, End::Broken)
    }

    /// What followed a body that has come whole and was taken.
    pub fn trailers(&self) -> Option<&HeaderMap> {
        match &self.end {
            End::Come(trailers) if self.come.is_empty() => Some(trailers),
            End::Come(_) | End::Awaited | End::Broken => None,
        }
    }

    /// Opens the peer's window by `bytes`, which were taken and passed on.
    pub fn release(&mut self, bytes: usize) {
        if bytes > 0 && self.frames.flow_control().release_capacity(bytes).is_err() {
            self.end = End::Broken;
        }
    }

    /// Drops what has come, and lets the peer send as much more. How much that is.
    pub fn discard(&mut self) -> usize {
        let come = self.come.len();
        self.come.clear();
        self.release(come);
        come
    }
}

/// A body that goes.
#[derive(Debug)]
pub struct DataWriter {
    stream: SendStream<Bytes>,
    /// What waits for the peer's window.
    piece: Bytes,
    /// The piece is the last.
    last: bool,
    /// The end was told, or the stream was reset.
    ended: bool,
    /// How long the window may stay closed. `None`: the caller has a timer of its own.
    patience: Option<Patience>,
    closed_since: Option<Instant>,
    /// It stayed closed for longer than that.
    stalled: bool,
    deadline: Deadline,
}

impl DataWriter {
    /// The body of the message whose head went out on `stream`. `ended`: it has none.
    pub fn new(stream: SendStream<Bytes>, ended: bool, patience: Option<Patience>) -> Self {
        Self {
            stream,
            piece: Bytes::new(),
            last: false,
            ended,
            patience,
            closed_since: None,
            stalled: false,
            deadline: Deadline::default(),
        }
    }

    /// How many bytes, of `wanted`, the peer's window and the connection have room for. The room stays free for other streams until
    /// a piece takes it. Pending while there is none.
    ///
    /// # Errors
    /// The stream is of no use any more.
    pub fn poll_room(&mut self, context: &mut Context<'_>, wanted: usize) -> Poll<Result<usize, Lost>> {
        if let Some(Patience { traffic, .. }) = &self.patience
            && traffic.poll_unclogged(context).is_pending()
        {
            // The kernel judges how long that may go on.
            return Poll::Pending;
        }
        loop {
            self.stream.reserve_capacity(wanted);
            let room = self.stream.capacity();
            self.stream.reserve_capacity(usize::from(room == 0));
            if room > 0 {
                self.closed_since = None;
                return Poll::Ready(Ok(room.min(wanted)));
            }
            match self.stream.poll_capacity(context) {
                Poll::Ready(Some(Ok(_))) => {}
                Poll::Ready(Some(Err(_)) | None) => return Poll::Ready(Err(Lost)),
                Poll::Pending => return self.poll_patience(context).map_ok(|()| 0),
            }
        }
    }

    /// Takes a piece, which is not empty, to be sent by [`Self::poll_send`]: all pieces before have gone.
    pub fn push(&mut self, piece: Bytes, last: bool) {
        (self.piece, self.last) = (piece, last);
    }

    /// Ready once the piece was handed over. Pending: the peer's window is closed.
    ///
    /// # Errors
    /// The stream is of no use any more.
    pub fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Lost>> {
        while !self.piece.is_empty() {
            self.stream.reserve_capacity(self.piece.len());
            while self.stream.capacity() == 0 {
                match self.stream.poll_capacity(context) {
                    Poll::Ready(Some(Ok(_))) => {}
                    Poll::Ready(Some(Err(_)) | None) => return Poll::Ready(Err(Lost)),
                    Poll::Pending => return self.poll_patience(context),
                }
            }
            self.closed_since = None;
            let part = self.piece.split_to(self.stream.capacity().min(self.piece.len()));
            self.ended = self.last && self.piece.is_empty();
            if let Some(Patience { traffic, .. }) = &self.patience {
                traffic.queue(part.len());
            }
            self.stream.send_data(part, self.ended).map_err(|_| Lost)?;
        }
        Poll::Ready(Ok(()))
    }

    /// Fails once the peer's window has been closed for too long.
    fn poll_patience(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Lost>> {
        let Some(Patience { timeout, traffic }) = &self.patience else { return Poll::Pending };
        let closed_since = *self.closed_since.get_or_insert_with(now);
        let since = traffic.last_blocked().map_or(closed_since, |blocked| blocked.max(closed_since));
        ready!(self.deadline.poll(context, since + *timeout));
        self.stalled = true;
        self.reset(Reason::CANCEL);
        Poll::Ready(Err(Lost))
    }

    /// Ends the body behind the last piece.
    ///
    /// # Errors
    /// The stream is of no use any more.
    pub fn end(&mut self, trailers: HeaderMap) -> Result<(), Lost> {
        self.ended = true;
        let ended = if trailers.is_empty() {
            self.stream.send_data(Bytes::new(), true)
        } else {
            self.stream.send_trailers(trailers)
        };
        ended.map_err(|_| Lost)
    }

    /// Whether no piece waits.
    pub fn is_clear(&self) -> bool {
        self.piece.is_empty()
    }

    /// Whether the end was told, or the stream was reset.
    pub fn is_ended(&self) -> bool {
        self.ended
    }

    /// Whether it failed because the peer's window stayed closed for too long, or the peer acknowledged nothing.
    pub fn is_stalled(&self) -> bool {
        self.stalled || self.patience.as_ref().is_some_and(|patience| patience.traffic.is_stalled())
    }

    /// Resets the stream: the peer learns that the body is not whole.
    pub fn reset(&mut self, reason: Reason) {
        self.ended = true;
        self.stream.send_reset(reason);
    }

    /// Ready once the peer has reset the stream, or the connection is lost.
    pub fn poll_reset(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.stream.poll_reset(context).map(drop)
    }
}
