//! One stream of a client's connection: its request's body as it comes, and its answer as it goes.

use std::cell::{Cell, RefCell};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::BytesMut;
use tokio::time::Instant;

use super::connection::{StreamHandle, StreamLost};
use super::frame::ErrorCode;
use crate::clock::deadline::{Deadline, now};

/// What a gRPC call is told when its answer breaks off.
const UNAVAILABLE: &[u8] = b"grpc-status: 14\r\ngrpc-message: the upstream broke off\r\n";

/// One stream of a client's connection. The parts of its request's task share it.
#[derive(Debug)]
pub struct ServerStream {
    stream: StreamHandle,
    /// How long the client's window may stay closed. While the connection's socket blocks, it is not known whether the client has
    /// opened the window, and the kernel judges the client by what it acknowledges.
    write_timeout: Duration,
    answer: Cell<Answer>,
    stall: RefCell<Stall>,
}

/// How far the answer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Awaited,
    /// Its head went out. A gRPC call can still be told that something went wrong.
    Begun {
        grpc: bool,
    },
    /// All of it went out, or the stream was reset.
    Ended,
}

/// Whether the client's window stays closed for too long.
#[derive(Debug, Default)]
struct Stall {
    closed_since: Option<Instant>,
    stalled: bool,
    deadline: Deadline,
}

/// How an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseOutcome {
    /// It went out whole, or the client was told that it did not.
    Told,
    /// The client took its request back before the answer began, or there was none for it.
    Unanswered,
}

impl ServerStream {
    /// The stream of a request whose head has come.
    pub fn new(stream: StreamHandle, write_timeout: Duration) -> Self {
        Self { stream, write_timeout, answer: Cell::new(Answer::Awaited), stall: RefCell::default() }
    }

    /// Appends what has come of the request's body. Ready with 0 at its end.
    ///
    /// # Errors
    /// The client has taken its request back.
    pub fn poll_read(&self, context: &Context<'_>, into: &mut BytesMut) -> Poll<Result<usize, StreamLost>> {
        self.stream.poll_read(context, into)
    }

    /// The lines of the trailers behind the request's body, once it has come whole and was taken.
    pub fn trailers(&self) -> Option<BytesMut> {
        self.stream.trailers()
    }

    /// Opens the client's window by `bytes`.
    pub fn release(&self, bytes: usize) {
        self.stream.release(bytes);
    }

    /// See [`StreamHandle::discard`].
    pub fn discard(&self, context: &Context<'_>) -> (bool, usize) {
        self.stream.discard(context)
    }

    /// Ready once the client has taken its request back, or the connection is lost.
    pub fn poll_reset(&self, context: &Context<'_>) -> Poll<()> {
        self.stream.poll_reset(context)
    }

    /// Sends a head that only precedes the answer, as HTTP/1.1 has it.
    ///
    /// # Errors
    /// The stream is of no use any more.
    pub fn send_interim(&self, head: &[u8]) -> Result<(), StreamLost> {
        match self.answer.get() {
            Answer::Awaited => self.stream.send_response(head, false).map(drop),
            Answer::Begun { .. } | Answer::Ended => Ok(()),
        }
    }

    /// Begins the answer, whose head is as HTTP/1.1 has it. `ended`: nothing follows the head.
    ///
    /// # Errors
    /// The stream is of no use any more.
    pub fn send_head(&self, head: &[u8], ended: bool) -> Result<(), StreamLost> {
        if self.answer.get() != Answer::Awaited {
            return Err(StreamLost);
        }
        let grpc = self.stream.send_response(head, ended)?;
        self.answer.set(if ended { Answer::Ended } else { Answer::Begun { grpc } });
        Ok(())
    }

    /// Bytes, of `wanted`, that may be sent now: see [`StreamHandle::poll_room`].
    ///
    /// # Errors
    /// The stream is of no use any more, or its window stayed closed for too long.
    pub fn poll_room(&self, context: &mut Context<'_>, wanted: usize) -> Poll<Result<usize, StreamLost>> {
        match self.stream.poll_room(context, wanted) {
            Poll::Pending => self.poll_stall(context).map_ok(|()| 0),
            room => {
                self.stall.borrow_mut().closed_since = None;
                room
            }
        }
    }

    /// Sends `data`, and takes what was sent off its front. Ready once all was sent. `last`: the answer ends behind it.
    ///
    /// # Errors
    /// The stream is of no use any more.
    pub fn poll_send(
        &self,
        context: &mut Context<'_>,
        data: &mut &[u8],
        last: bool,
    ) -> Poll<Result<(), StreamLost>> {
        while !data.is_empty() {
            ready!(self.poll_room(context, data.len()))?;
            let sent = self.stream.send_data(data, last)?;
            *data = data.get(sent..).unwrap_or_default();
        }
        if last {
            self.answer.set(Answer::Ended);
        }
        Poll::Ready(Ok(()))
    }

    /// Fails once the client's window has been closed for too long.
    fn poll_stall(&self, context: &mut Context<'_>) -> Poll<Result<(), StreamLost>> {
        let mut stall = self.stall.borrow_mut();
        let closed_since = *stall.closed_since.get_or_insert_with(now);
        let last_blocked = self.stream.connection().traffic().last_blocked();
        let since = last_blocked.map_or(closed_since, |blocked| blocked.max(closed_since));
        ready!(stall.deadline.poll(context, since + self.write_timeout));
        stall.stalled = true;
        self.answer.set(Answer::Ended);
        self.stream.reset(ErrorCode::CANCEL);
        Poll::Ready(Err(StreamLost))
    }

    /// Ends the answer's body. `trailers` are lines; there may be none.
    ///
    /// # Errors
    /// The stream is of no use any more.
    pub fn end(&self, trailers: &[u8]) -> Result<(), StreamLost> {
        match self.answer.get() {
            Answer::Begun { .. } => {
                self.answer.set(Answer::Ended);
                self.stream.send_end(trailers)
            }
            Answer::Awaited | Answer::Ended => Err(StreamLost),
        }
    }

    /// Whether the client took nothing for too long.
    pub fn is_stalled(&self) -> bool {
        self.stall.borrow().stalled || self.stream.connection().traffic().is_stalled()
    }

    /// Tells the client of an answer that is not whole, and how it ended.
    pub fn finish(&self) -> ResponseOutcome {
        match self.answer.get() {
            Answer::Awaited => {
                self.stream.reset(ErrorCode::INTERNAL_ERROR);
                ResponseOutcome::Unanswered
            }
            Answer::Begun { grpc } => {
                if !grpc || self.end(UNAVAILABLE).is_err() {
                    self.stream.reset(ErrorCode::INTERNAL_ERROR);
                }
                ResponseOutcome::Told
            }
            Answer::Ended => ResponseOutcome::Told,
        }
    }
}
