//! One request on a shared connection, and its answer.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::BytesMut;

use super::super::Failure;
use super::super::abort_reason::AbortReason;
use super::{Http2Connection, StreamPermit};
use crate::http2::connection::{OpenError, Reset, StreamHandle, StreamLost};
use crate::http2::frame::ErrorCode;
use crate::http2::head::ReceivedHead;

/// One request on a shared connection. Dropped before its time, it is cancelled.
#[derive(Debug)]
pub(in crate::upstream) struct ClientStream {
    seat: StreamPermit,
    /// `None`: the request waits for its turn, or was refused.
    stream: Option<StreamHandle>,
    /// The request went out whole.
    ended: bool,
    /// The answer's head has come.
    answered: bool,
    /// Bytes of the server's window that are under way to the client.
    held: usize,
}

/// Why a stream has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::upstream) struct NoAnswer {
    pub(in crate::upstream) ending: AbortReason,
    pub(in crate::upstream) failure: Failure,
}

impl NoAnswer {
    /// The request cannot be said in HTTP/2: no fault of the server.
    const UNFIT: Self = Self { ending: AbortReason::Aborted, failure: Failure::Upload };
    /// The connection takes no more requests. Nothing was sent.
    const CLOSED: Self = Self { ending: AbortReason::Closing, failure: Failure::Reset };
}

impl ClientStream {
    pub(super) fn new(link: &Rc<Http2Connection>) -> Self {
        link.open.set(link.open.get() + 1);
        Self { seat: StreamPermit(Rc::clone(link)), stream: None, ended: false, answered: false, held: 0 }
    }

    /// Whether the request's head is out.
    pub(in crate::upstream) fn is_begun(&self) -> bool {
        self.stream.is_some()
    }

    /// Whether the request went out whole.
    pub(in crate::upstream) fn is_ended(&self) -> bool {
        self.ended
    }

    /// Ready once the server takes another request.
    ///
    /// # Errors
    /// It takes none here: nothing was sent.
    pub(in crate::upstream) fn poll_turn(&mut self, context: &mut Context<'_>) -> Poll<Result<(), NoAnswer>> {
        let turn = ready!(self.seat.0.connection.poll_open(context));
        Poll::Ready(turn.map_err(|error| self.refused(error)))
    }

    /// Sends the request's head, as HTTP/1.1 has it. `ended`: nothing follows it.
    ///
    /// # Errors
    /// Nothing was sent.
    pub(in crate::upstream) fn begin(&mut self, head: &[u8], ended: bool) -> Result<(), NoAnswer> {
        let link = &self.seat.0;
        match link.connection.open(head, link.scheme, ended) {
            Ok(stream) => {
                link.wait();
                (self.stream, self.ended) = (Some(stream), ended);
                Ok(())
            }
            Err(error) => Err(self.refused(error)),
        }
    }

    fn refused(&self, error: OpenError) -> NoAnswer {
        match error {
            OpenError::Unfit => NoAnswer::UNFIT,
            OpenError::Closed => {
                self.seat.0.retired.set(true);
                NoAnswer::CLOSED
            }
        }
    }

    /// Sends as much of the request's body as the server takes: how much that is. `last`: the request ends behind it.
    ///
    /// # Errors
    /// The server takes no more.
    pub(in crate::upstream) fn poll_send(
        &mut self,
        context: &mut Context<'_>,
        data: &[u8],
        last: bool,
    ) -> Poll<Result<usize, StreamLost>> {
        // How long that takes is bounded by the time-out for the answer.
        let Some(stream) = &self.stream else { return Poll::Ready(Err(StreamLost)) };
        ready!(stream.poll_room(context, data.len()))?;
        let sent = stream.send_data(data, last)?;
        self.ended = last && sent == data.len();
        Poll::Ready(Ok(sent))
    }

    /// Ends the request with trailers, as lines; there may be none.
    ///
    /// # Errors
    /// The server takes no more.
    pub(in crate::upstream) fn send_end(&mut self, trailers: &[u8]) -> Result<(), StreamLost> {
        self.ended = true;
        self.stream.as_ref().ok_or(StreamLost)?.send_end(trailers)
    }

    /// Waits for a head, be it an interim one. Gives it, and whether nothing follows.
    ///
    /// # Errors
    /// There is no answer.
    pub(in crate::upstream) fn poll_head(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<(ReceivedHead, bool), NoAnswer>> {
        let Some(stream) = &self.stream else { return Poll::Ready(Err(NoAnswer::CLOSED)) };
        let head = ready!(stream.poll_head(context));
        Poll::Ready(match head {
            Ok(head) => {
                self.answered |= head.0.status >= 200;
                Ok(head)
            }
            Err(reset) => {
                if reset == Reset::GoneAway {
                    self.seat.0.retired.set(true);
                }
                Err(meaning(reset))
            }
        })
    }

    /// Appends more of the answer's body, as what came before has gone to the client. Ready with 0 at the end.
    ///
    /// # Errors
    /// The server broke it off.
    pub(in crate::upstream) fn poll_body(
        &mut self,
        context: &mut Context<'_>,
        into: &mut BytesMut,
    ) -> Poll<Result<usize, StreamLost>> {
        let Some(stream) = &self.stream else { return Poll::Ready(Err(StreamLost)) };
        stream.release(std::mem::take(&mut self.held));
        let read = ready!(stream.poll_read(context, into));
        self.held = read.unwrap_or_default();
        Poll::Ready(read)
    }

    /// The lines of the trailers that followed the answer's body.
    pub(in crate::upstream) fn trailers(&self) -> Option<BytesMut> {
        self.stream.as_ref()?.trailers()
    }

    /// Sends a request without a body, and waits for the status of its answer.
    ///
    /// # Errors
    /// There is no answer.
    pub(in crate::upstream) async fn ask(mut self, head: &[u8]) -> Result<u16, NoAnswer> {
        poll_fn(|context| self.poll_turn(context)).await?;
        self.begin(head, true)?;
        loop {
            let (head, _) = poll_fn(|context| self.poll_head(context)).await?;
            if self.answered {
                return Ok(head.status);
            }
        }
    }
}

impl Drop for ClientStream {
    fn drop(&mut self) {
        if self.is_begun() && !self.answered {
            self.seat.0.mark_suspect();
        }
    }
}

/// What the end of a stream says about the request.
fn meaning(reset: Reset) -> NoAnswer {
    let (ending, failure) = match reset {
        // The server says that it did nothing (RFC 9113 §8.7).
        Reset::Remote(ErrorCode::REFUSED_STREAM) => (AbortReason::Busy, Failure::Reset),
        Reset::Remote(_) => (AbortReason::Aborted, Failure::Reset),
        Reset::GoneAway => (AbortReason::Closing, Failure::Reset),
        // It was to be HTTP/2, and is not.
        Reset::Fault => (AbortReason::Lost, Failure::Protocol),
        Reset::Lost => (AbortReason::Lost, Failure::Reset),
    };
    NoAnswer { ending, failure }
}

#[cfg(test)]
impl ClientStream {
    /// Where the connection leads to.
    pub(in crate::upstream) fn address(&self) -> std::net::IpAddr {
        self.seat.0.address
    }
}
