//! One request on a shared connection, and its answer.

use std::future::{Future as _, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use h2::Reason;
use h2::client::{ResponseFuture, SendRequest};
use http::uri::Scheme;
use http::{HeaderMap, Request, StatusCode, response};

use super::super::Failure;
use super::super::exchange::Ending;
use super::{Link, Seat};
use crate::http2::data::{DataReader, DataWriter, Lost};

/// One request on a shared connection. Dropped before its time, it is cancelled.
#[derive(Debug)]
pub(in crate::upstream) struct ClientStream {
    seat: Seat,
    state: State,
}

#[derive(Debug)]
enum State {
    /// The request waits for its turn.
    Unsent(SendRequest<Bytes>),
    Awaited {
        upload: DataWriter,
        answer: ResponseFuture,
    },
    Answered {
        upload: DataWriter,
        answer: DataReader,
        /// Bytes of the server's window that are under way to the client.
        held: usize,
    },
    /// There is no answer.
    Failed,
}

/// What a server says.
#[derive(Debug)]
pub(in crate::upstream) enum Head {
    /// A head that only precedes the answer.
    Interim(response::Parts),
    /// The answer's. Whether nothing follows it.
    Answer(response::Parts, bool),
}

/// Why a stream has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::upstream) struct NoAnswer {
    pub(in crate::upstream) ending: Ending,
    pub(in crate::upstream) failure: Failure,
}

impl NoAnswer {
    /// The request cannot be said in HTTP/2: no fault of the server.
    pub(in crate::upstream) const UNFIT: Self = Self { ending: Ending::Aborted, failure: Failure::Upload };
}

impl ClientStream {
    pub(super) fn new(link: &Rc<Link>) -> Self {
        link.open.set(link.open.get() + 1);
        Self { seat: Seat(Rc::clone(link)), state: State::Unsent(link.sender.clone()) }
    }

    /// How the connection was reached.
    pub(in crate::upstream) fn scheme(&self) -> &Scheme {
        &self.seat.0.scheme
    }

    /// Whether the request's head is out.
    pub(in crate::upstream) fn is_begun(&self) -> bool {
        !matches!(self.state, State::Unsent(_))
    }

    /// Ready once the server takes another request.
    ///
    /// # Errors
    /// It takes none here: nothing was sent.
    pub(in crate::upstream) fn poll_turn(&mut self, context: &mut Context<'_>) -> Poll<Result<(), NoAnswer>> {
        let State::Unsent(sender) = &mut self.state else { return Poll::Ready(Ok(())) };
        let ready = ready!(sender.poll_ready(context));
        Poll::Ready(ready.map_err(|_| self.refused()))
    }

    /// Sends the request's head. `ended`: nothing follows it.
    ///
    /// # Errors
    /// Nothing was sent.
    pub(in crate::upstream) fn begin(&mut self, head: Request<()>, ended: bool) -> Result<(), NoAnswer> {
        let State::Unsent(sender) = &mut self.state else { return Ok(()) };
        let Ok((answer, upload)) = sender.send_request(head, ended) else { return Err(self.refused()) };
        self.seat.0.wait();
        // The upload is bounded by the time-out for the answer.
        self.state = State::Awaited { upload: DataWriter::new(upload, ended, None), answer };
        Ok(())
    }

    fn refused(&mut self) -> NoAnswer {
        self.seat.0.retired.set(true);
        self.state = State::Failed;
        NoAnswer { ending: Ending::Closing, failure: Failure::Reset }
    }

    /// The body of the request that goes out.
    pub(in crate::upstream) fn upload(&mut self) -> Option<&mut DataWriter> {
        match &mut self.state {
            State::Awaited { upload, .. } | State::Answered { upload, .. } => Some(upload),
            State::Unsent(_) | State::Failed => None,
        }
    }

    /// Waits for a head.
    ///
    /// # Errors
    /// There is no answer.
    pub(in crate::upstream) fn poll_head(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<Head, NoAnswer>> {
        let State::Awaited { answer, .. } = &mut self.state else {
            return Poll::Ready(Err(NoAnswer { ending: Ending::Lost, failure: Failure::Reset }));
        };
        if let Poll::Ready(Some(Ok(hint))) = answer.poll_informational(context) {
            return Poll::Ready(Ok(Head::Interim(hint.into_parts().0)));
        }
        let said = ready!(Pin::new(answer).poll(context));
        let State::Awaited { upload, .. } = std::mem::replace(&mut self.state, State::Failed) else {
            return Poll::Pending;
        };
        Poll::Ready(match said {
            Ok(said) => {
                let (head, body) = said.into_parts();
                let ended = body.is_end_stream();
                self.state = State::Answered { upload, answer: DataReader::new(body), held: 0 };
                Ok(Head::Answer(head, ended))
            }
            Err(fault) => {
                if fault.is_go_away() {
                    self.seat.0.retired.set(true);
                }
                Err(meaning(&fault))
            }
        })
    }

    /// Takes what has come of the answer's body, which the server may send while the client does not read.
    pub(in crate::upstream) fn pull(&mut self, context: &mut Context<'_>) {
        if let State::Answered { answer, .. } = &mut self.state
            && answer.poll_pull(context).is_ready()
        {
            // The end is told by the next read.
        }
    }

    /// Appends more of the answer's body, as what came before has gone to the client. Ready with 0 at the end.
    ///
    /// # Errors
    /// The server broke it off.
    pub(in crate::upstream) fn poll_body(
        &mut self,
        context: &mut Context<'_>,
        into: &mut BytesMut,
    ) -> Poll<Result<usize, Lost>> {
        let State::Answered { answer, held, .. } = &mut self.state else { return Poll::Ready(Err(Lost)) };
        answer.release(std::mem::take(held));
        let read = ready!(answer.poll_read(context, into));
        *held = read.unwrap_or_default();
        Poll::Ready(read)
    }

    /// What followed the answer's body.
    pub(in crate::upstream) fn trailers(&self) -> Option<&HeaderMap> {
        match &self.state {
            State::Answered { answer, .. } => answer.trailers(),
            _ => None,
        }
    }

    /// Sends a request without a body, and waits for the status of its answer.
    ///
    /// # Errors
    /// There is no answer.
    pub(in crate::upstream) async fn ask(mut self, head: Request<()>) -> Result<StatusCode, NoAnswer> {
        poll_fn(|context| self.poll_turn(context)).await?;
        self.begin(head, true)?;
        loop {
            if let Head::Answer(head, _) = poll_fn(|context| self.poll_head(context)).await? {
                return Ok(head.status);
            }
        }
    }
}

impl Drop for ClientStream {
    fn drop(&mut self) {
        if matches!(self.state, State::Awaited { .. }) {
            self.seat.0.doubt();
        }
    }
}

/// What an error says about the request.
fn meaning(fault: &h2::Error) -> NoAnswer {
    let (ending, failure) = match fault.reason() {
        // The server says that it did nothing (RFC 9113 §8.7).
        Some(Reason::REFUSED_STREAM) => (Ending::Busy, Failure::Reset),
        Some(_) if fault.is_go_away() && fault.is_remote() => (Ending::Closing, Failure::Reset),
        // It was to be HTTP/2, and is not.
        Some(_) if fault.is_library() => (Ending::Lost, Failure::Protocol),
        Some(_) => (Ending::Aborted, Failure::Reset),
        None => (Ending::Lost, Failure::Reset),
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
