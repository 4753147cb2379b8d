//! One request on a shared connection, and its response.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, BytesMut};

use super::super::Failure;
use super::super::cause::AbortReason;
use super::{Http2Connection, StreamPermit};
use crate::http2::connection::{OpenError, Reset, StreamHandle, StreamLost};
use crate::http2::frame::ErrorCode;
use crate::http2::head::ReceivedHead;

/// One request on a shared connection. Dropped before its end, it is cancelled.
#[derive(Debug)]
pub(in crate::upstream) struct ClientStream {
    permit: StreamPermit,
    /// `None`: the request waits for a free stream, or was refused.
    stream: Option<StreamHandle>,
    /// The request was sent completely.
    ended: bool,
    /// The response head was received.
    answered: bool,
    /// Bytes of the server's flow-control window that are on their way to the client.
    held: usize,
}

/// Whether a request is sent as an extended CONNECT (RFC 8441) to a server of HTTP/2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectRule {
    /// It is not the handshake of a WebSocket.
    Never,
    /// If the server announces that it serves that; else as a GET, which asks for no WebSocket.
    IfAnnounced,
    /// If the server announces it; else it fails: its client would take a success for an open WebSocket.
    Always,
}

/// Why a stream has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::upstream) struct NoAnswer {
    pub(in crate::upstream) ending: AbortReason,
    pub(in crate::upstream) failure: Failure,
}

impl NoAnswer {
    /// The request cannot be expressed in HTTP/2: not the server's fault.
    const UNFIT: Self = Self { ending: AbortReason::Aborted, failure: Failure::Upload };
    /// The server serves no WebSocket over HTTP/2. Nothing was sent.
    const NO_WEBSOCKET: Self = Self { ending: AbortReason::Aborted, failure: Failure::NoWebSocket };
    /// The connection accepts no more requests. Nothing was sent.
    const CLOSED: Self = Self { ending: AbortReason::Closing, failure: Failure::Reset };
}

impl ClientStream {
    pub(super) fn new(connection: &Rc<Http2Connection>) -> Self {
        connection.open.set(connection.open.get() + 1);
        connection.begun.set(connection.begun.get() + 1);
        Self {
            permit: StreamPermit(Rc::clone(connection)),
            stream: None,
            ended: false,
            answered: false,
            held: 0,
        }
    }

    /// Whether the request head was sent.
    pub(in crate::upstream) fn is_begun(&self) -> bool {
        self.stream.is_some()
    }

    /// Whether the request was sent completely.
    pub(in crate::upstream) fn is_ended(&self) -> bool {
        self.ended
    }

    /// Ready once the server accepts another stream.
    ///
    /// # Errors
    ///
    /// The connection accepts no more requests, or fewer at once than were assigned to it: nothing was sent.
    pub(in crate::upstream) fn poll_turn(&mut self, context: &mut Context<'_>) -> Poll<Result<(), NoAnswer>> {
        match self.permit.0.codec.poll_open(context) {
            Poll::Ready(turn) => Poll::Ready(turn.map_err(|error| self.refused(error))),
            // Another connection may have room.
            Poll::Pending if self.permit.0.is_overbooked() => Poll::Ready(Err(NoAnswer::CLOSED)),
            Poll::Pending => Poll::Pending,
        }
    }

    /// Ready with whether the request is sent as an extended CONNECT, once the server has announced its settings.
    ///
    /// # Errors
    ///
    /// The connection accepts no more requests, or no WebSocket, which the request needs: nothing was sent.
    pub(in crate::upstream) fn poll_connect(
        &mut self,
        context: &mut Context<'_>,
        rule: ConnectRule,
    ) -> Poll<Result<bool, NoAnswer>> {
        if rule == ConnectRule::Never {
            return Poll::Ready(Ok(false));
        }
        Poll::Ready(match ready!(self.permit.0.codec.poll_connect_protocol(context)) {
            Ok(false) if rule == ConnectRule::Always => Err(NoAnswer::NO_WEBSOCKET),
            Ok(accepts) => Ok(accepts),
            Err(error) => Err(self.refused(error)),
        })
    }

    /// Sends the request head, given as the header block of a GET, as an extended CONNECT.
    ///
    /// # Errors
    ///
    /// Nothing was sent.
    pub(in crate::upstream) fn begin_connect(&mut self, block: &[u8]) -> Result<(), NoAnswer> {
        let Http2Connection { codec, scheme, .. } = &*self.permit.0;
        self.opened(codec.open_connect(block, *scheme), false)
    }

    /// The stream itself, for a WebSocket after a successful response.
    pub(in crate::upstream) fn handle(&self) -> Option<&StreamHandle> {
        self.stream.as_ref()
    }

    /// Sends the request head, given as a header block. `to_head`: the method is HEAD. `ended`: nothing follows it.
    ///
    /// # Errors
    ///
    /// Nothing was sent.
    pub(in crate::upstream) fn begin(
        &mut self,
        block: &[u8],
        to_head: bool,
        ended: bool,
    ) -> Result<(), NoAnswer> {
        let Http2Connection { codec, scheme, .. } = &*self.permit.0;
        self.opened(codec.open_block(block, *scheme, (to_head, ended)), ended)
    }

    /// The stream of the request, if it was opened.
    fn opened(&mut self, opened: Result<StreamHandle, OpenError>, ended: bool) -> Result<(), NoAnswer> {
        let connection = &self.permit.0;
        match opened {
            Ok(stream) => {
                connection.liveness.request_sent(&connection.codec);
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
                self.permit.0.note_going_away();
                NoAnswer::CLOSED
            }
        }
    }

    /// Sends as much of the request body as the server accepts; returns the number of bytes. `last`: the request ends
    /// after it.
    ///
    /// # Errors
    ///
    /// The server accepts no more.
    pub(in crate::upstream) fn poll_send(
        &mut self,
        context: &mut Context<'_>,
        data: &[u8],
        last: bool,
    ) -> Poll<Result<usize, StreamLost>> {
        // The response timeout bounds this wait.
        let Some(stream) = &self.stream else { return Poll::Ready(Err(StreamLost)) };
        ready!(stream.poll_room(context, data.len()))?;
        let sent = stream.send_data(data, last)?;
        self.ended = last && sent == data.len();
        Poll::Ready(Ok(sent))
    }

    /// Ends the request with trailers, as lines; there may be none.
    ///
    /// # Errors
    ///
    /// The server accepts no more.
    pub(in crate::upstream) fn send_end(&mut self, trailers: &[u8]) -> Result<(), StreamLost> {
        self.ended = true;
        self.stream.as_ref().ok_or(StreamLost)?.send_end(trailers)
    }

    /// Waits for a head, interim or final. Returns it, and whether nothing follows.
    ///
    /// # Errors
    ///
    /// There is no response.
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
                    self.permit.0.note_going_away();
                }
                Err(meaning(reset))
            }
        })
    }

    /// Appends more of the response body, once the earlier bytes have gone to the client. Ready with 0 at the end.
    ///
    /// # Errors
    ///
    /// The server broke the body off.
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

    /// The lines of the trailers that followed the response body.
    pub(in crate::upstream) fn trailers(&self) -> Option<BytesMut> {
        self.stream.as_ref()?.trailers()
    }

    /// Sends a request, and waits for the head of its response. Returns it, and whether nothing follows.
    ///
    /// # Errors
    ///
    /// There is no response.
    pub(in crate::upstream) async fn ask(
        &mut self,
        head: &[u8],
        mut body: &[u8],
    ) -> Result<(ReceivedHead, bool), NoAnswer> {
        poll_fn(|context| self.poll_turn(context)).await?;
        let Http2Connection { codec, scheme, .. } = &*self.permit.0;
        self.opened(codec.open(head, *scheme, body.is_empty()), body.is_empty())?;
        while !body.is_empty() {
            // A server may answer before it has all of the body, and end the stream.
            let Ok(sent) = poll_fn(|context| self.poll_send(context, body, true)).await else { break };
            body.advance(sent);
        }
        loop {
            let head = poll_fn(|context| self.poll_head(context)).await?;
            if self.answered {
                return Ok(head);
            }
        }
    }
}

impl Drop for ClientStream {
    fn drop(&mut self) {
        if self.is_begun() && !self.answered {
            self.permit.0.mark_suspect();
        }
    }
}

/// What the end of a stream means for the request.
fn meaning(reset: Reset) -> NoAnswer {
    let (ending, failure) = match reset {
        // The server reports that it did not process the request (RFC 9113 §8.7).
        Reset::Remote(ErrorCode::REFUSED_STREAM) => (AbortReason::Busy, Failure::Reset),
        Reset::Remote(_) => (AbortReason::Aborted, Failure::Reset),
        Reset::GoneAway => (AbortReason::Closing, Failure::Reset),
        // The bytes are not valid HTTP/2.
        Reset::Fault => (AbortReason::Lost, Failure::Protocol),
        Reset::Lost => (AbortReason::Lost, Failure::Reset),
    };
    NoAnswer { ending, failure }
}

#[cfg(test)]
impl ClientStream {
    /// The address of the connection's server.
    pub(in crate::upstream) fn address(&self) -> super::super::dns::ConnectedAddress {
        self.permit.0.address
    }
}
