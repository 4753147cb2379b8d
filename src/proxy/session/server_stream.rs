//! One stream of a client connection: the body of its request, and its response. It is one of HTTP/2 or of HTTP/3.

mod transport;

use std::cell::{Cell, RefCell};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::BytesMut;
use tokio::time::Instant;

use crate::clock::{Deadline, now};
use crate::http2::connection::StreamLost;
use crate::http2::head_sink::HeadFormat;

use transport::StreamEnd;
pub(crate) use transport::StreamTransport;

/// The trailers of a gRPC call with a truncated response.
const UNAVAILABLE: &[u8] = b"grpc-status: 14\r\ngrpc-message: the upstream broke off\r\n";

/// One stream of a client connection, shared by the parts of its request's task.
#[derive(Debug)]
pub(crate) struct ServerStream {
    stream: StreamTransport,
    /// The length of the request's body is unknown.
    unknown_length: bool,
    /// How long the client's flow-control window may stay closed. While the connection's socket blocks, it is unknown
    /// whether the client has opened the window, and the kernel judges the client by acknowledged bytes.
    write_timeout: Duration,
    answer: Cell<Answer>,
    stall: RefCell<Stall>,
}

/// The progress of the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Awaited,
    /// Its head was sent. A gRPC call can still be sent an error status.
    Begun {
        grpc: bool,
    },
    /// All of it was sent, or the stream was reset.
    Ended,
}

/// Whether the client's window stays closed for too long.
#[derive(Debug, Default)]
struct Stall {
    closed_since: Option<Instant>,
    stalled: bool,
    deadline: Deadline,
}

/// How a response ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResponseOutcome {
    /// It was sent completely, or the client was told that it is truncated.
    Told,
    /// The client reset the stream before the response began, or there was no response.
    Unanswered,
}

impl ServerStream {
    /// The stream of a request with a complete head. `unknown_length`: as in
    /// [`ReceivedHead`](crate::http2::head::ReceivedHead).
    pub(crate) fn new(stream: StreamTransport, unknown_length: bool, write_timeout: Duration) -> Self {
        let (answer, stall) = (Cell::new(Answer::Awaited), RefCell::default());
        Self { stream, unknown_length, write_timeout, answer, stall }
    }

    /// Whether the length of the request's body is unknown until the stream ends.
    pub(crate) fn has_unknown_length(&self) -> bool {
        self.unknown_length
    }

    /// Appends received bytes of the request body. Ready with 0 at its end.
    ///
    /// # Errors
    ///
    /// The client has reset the stream.
    pub(crate) fn poll_read(
        &self,
        context: &Context<'_>,
        into: &mut BytesMut,
    ) -> Poll<Result<usize, StreamLost>> {
        self.stream.poll_read(context, into)
    }

    /// The lines of the trailers after the request body, once it was received and read completely.
    pub(crate) fn trailers(&self) -> Option<BytesMut> {
        self.stream.trailers()
    }

    /// See [`StreamHandle::poll_unread`].
    pub(crate) fn poll_unread(&self, context: &Context<'_>) -> usize {
        self.stream.poll_unread(context)
    }

    /// See [`StreamHandle::is_window_closed`].
    pub(crate) fn is_window_closed(&self) -> bool {
        self.stream.is_window_closed()
    }

    /// Opens the client's window by `bytes`.
    pub(crate) fn release(&self, bytes: usize) {
        self.stream.release(bytes);
    }

    /// See [`StreamHandle::discard`].
    pub(crate) fn discard(&self, context: &Context<'_>) -> (bool, usize) {
        self.stream.discard(context)
    }

    /// Ready once the client has reset the stream, or the connection is lost.
    pub(crate) fn poll_reset(&self, context: &Context<'_>) -> Poll<()> {
        self.stream.poll_reset(context)
    }

    /// Sends an interim head, given as HTTP/1.1.
    ///
    /// # Errors
    ///
    /// The stream can no longer be used.
    pub(crate) fn send_interim(&self, head: &[u8]) -> Result<(), StreamLost> {
        match self.answer.get() {
            Answer::Awaited => self.stream.send_response(head, false).map(drop),
            Answer::Begun { .. } | Answer::Ended => Ok(()),
        }
    }

    /// Begins the response, with its head in this format. `ended`: nothing follows the head.
    ///
    /// # Errors
    ///
    /// The stream can no longer be used.
    pub(crate) fn send_head(&self, head: &[u8], format: HeadFormat, ended: bool) -> Result<(), StreamLost> {
        if self.answer.get() != Answer::Awaited {
            return Err(StreamLost);
        }
        let grpc = match format {
            HeadFormat::Http1 => self.stream.send_response(head, ended)?,
            HeadFormat::Http2 { grpc } => {
                self.stream.send_block(head, ended)?;
                grpc
            }
        };
        self.answer.set(if ended { Answer::Ended } else { Answer::Begun { grpc } });
        Ok(())
    }

    /// The number of bytes, of `wanted`, that may be sent now: see [`StreamHandle::poll_room`].
    ///
    /// # Errors
    ///
    /// The stream can no longer be used, or its window stayed closed for too long.
    pub(crate) fn poll_room(
        &self,
        context: &mut Context<'_>,
        wanted: usize,
    ) -> Poll<Result<usize, StreamLost>> {
        match self.stream.poll_room(context, wanted) {
            Poll::Pending => self.poll_stall(context).map_ok(|()| 0),
            room => {
                self.stall.borrow_mut().closed_since = None;
                room
            }
        }
    }

    /// Sends `data`, and removes the bytes sent from its front. Ready once all was sent. `last`: the response ends
    /// after it.
    ///
    /// # Errors
    ///
    /// The stream can no longer be used.
    pub(crate) fn poll_send(
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
        let last_blocked = self.stream.last_blocked();
        let since = last_blocked.map_or(closed_since, |blocked| blocked.max(closed_since));
        ready!(stall.deadline.poll(context, since + self.write_timeout));
        stall.stalled = true;
        self.answer.set(Answer::Ended);
        self.stream.reset(StreamEnd::Cancelled);
        Poll::Ready(Err(StreamLost))
    }

    /// The stream itself, for a WebSocket after a successful response.
    pub(crate) fn transport(&self) -> &StreamTransport {
        &self.stream
    }

    /// Resets a stream that was joined to a backend, since the backend broke off or the time is over.
    pub(crate) fn cancel(&self) {
        self.answer.set(Answer::Ended);
        self.stream.reset(StreamEnd::Cancelled);
    }

    /// Ends the response body. `trailers` are lines; there may be none.
    ///
    /// # Errors
    ///
    /// The stream can no longer be used.
    pub(crate) fn end(&self, trailers: &[u8]) -> Result<(), StreamLost> {
        match self.answer.get() {
            Answer::Begun { .. } => {
                self.answer.set(Answer::Ended);
                self.stream.send_end(trailers)
            }
            Answer::Awaited | Answer::Ended => Err(StreamLost),
        }
    }

    /// The time between a frame and its acknowledgement, if it is known.
    pub(crate) fn round_trip(&self) -> Option<Duration> {
        self.stream.round_trip()
    }

    /// Whether the client accepted nothing for too long.
    pub(crate) fn is_stalled(&self) -> bool {
        self.stall.borrow().stalled || self.stream.is_stalled()
    }

    /// Signals a truncated response to the client, and returns how it ended.
    pub(crate) fn finish(&self) -> ResponseOutcome {
        match self.answer.get() {
            Answer::Awaited => {
                self.stream.reset(StreamEnd::Failed);
                ResponseOutcome::Unanswered
            }
            Answer::Begun { grpc } => {
                if !grpc || self.end(UNAVAILABLE).is_err() {
                    self.stream.reset(StreamEnd::Failed);
                }
                ResponseOutcome::Told
            }
            Answer::Ended => ResponseOutcome::Told,
        }
    }
}
