//! One request on its stream, and its answer.

use std::future::{Future as _, poll_fn};
use std::io::ErrorKind;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes, BytesMut};
use h2::client::ResponseFuture;
use h2::{Reason, SendStream};
use http::Response;
use http::header::CONTENT_LENGTH;

use crate::http2::body::{Cut, Incoming, Outgoing, Rest};
use crate::http2::head::write_response;
use crate::socket::{Pipe, Sight};

/// The way between a pipe and a stream.
pub(super) struct Passage {
    pipe: Pipe,
    /// Of the request's body, what has come and was not taken.
    come: BytesMut,
    /// `None` once it has gone out whole, or the server wants no more of it.
    upload: Option<Outgoing>,
    /// Heads of answers that only precede the real one.
    interim: BytesMut,
    answer: Answer,
    to_head: bool,
}

enum Answer {
    Awaited(ResponseFuture),
    Begun(Incoming),
}

impl Passage {
    pub(super) fn new(
        pipe: Pipe,
        come: BytesMut,
        rest: Rest,
        stream: SendStream<Bytes>,
        response: ResponseFuture,
        to_head: bool,
    ) -> Self {
        let upload = (!rest.is_over()).then(|| Outgoing::new(stream, rest, None));
        Self { pipe, come, upload, interim: BytesMut::new(), answer: Answer::Awaited(response), to_head }
    }

    /// Whether the answer has begun.
    pub(super) fn is_answered(&self) -> bool {
        matches!(self.answer, Answer::Begun(_))
    }

    /// Ends with the answer, or when nobody waits for it any more.
    ///
    /// # Errors
    /// There is no answer.
    pub(super) async fn run(&mut self) -> Result<(), h2::Error> {
        poll_fn(|context| self.poll(context)).await
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<(), h2::Error>> {
        if let Poll::Ready(Sight::Broken) = self.pipe.poll_look(context) {
            // A stream that is let go of is cancelled.
            return Poll::Ready(Ok(()));
        }
        if let Some(upload) = &mut self.upload {
            match upload.poll_pass(context, &self.pipe, &mut self.come) {
                Poll::Pending => {}
                Poll::Ready(Ok(()) | Err(Cut::Peer)) => self.upload = None,
                Poll::Ready(Err(Cut::Pipe)) => {
                    upload.reset(Reason::CANCEL);
                    return Poll::Ready(Ok(()));
                }
            }
        }
        self.poll_answer(context)
    }

    fn poll_answer(&mut self, context: &mut Context<'_>) -> Poll<Result<(), h2::Error>> {
        loop {
            let answer = match &mut self.answer {
                Answer::Begun(body) => {
                    if ready!(body.poll_pass(context, &self.pipe)).is_ok() {
                        self.pipe.close_sending();
                    }
                    return Poll::Ready(Ok(()));
                }
                Answer::Awaited(response) => {
                    if !self.interim.is_empty() {
                        let Ok(written) = ready!(self.pipe.poll_write(context, &self.interim, &[])) else {
                            return Poll::Ready(Ok(()));
                        };
                        self.interim.advance(written);
                        continue;
                    }
                    if let Poll::Ready(Some(Ok(hint))) = response.poll_informational(context) {
                        write_response(&hint.into_parts().0, true, self.to_head, &mut self.interim);
                        continue;
                    }
                    ready!(Pin::new(response).poll(context))
                }
            };
            match answer {
                Ok(answer) => self.answer = Answer::Begun(begin(answer, self.to_head)),
                Err(fault) => {
                    self.pipe.fail(meaning(&fault));
                    return Poll::Ready(Err(fault));
                }
            }
        }
    }
}

/// What a request without an answer makes of that: see [`Ending`](super::super::exchange::Ending).
fn meaning(fault: &h2::Error) -> ErrorKind {
    match fault.reason() {
        // The server says that it did nothing (RFC 9113 §8.7).
        Some(Reason::REFUSED_STREAM) => ErrorKind::ResourceBusy,
        Some(_) if fault.is_go_away() && fault.is_remote() => ErrorKind::ConnectionRefused,
        Some(_) if fault.is_library() => ErrorKind::Unsupported,
        Some(_) => ErrorKind::ConnectionAborted,
        None => ErrorKind::ConnectionReset,
    }
}

/// An answer as HTTP/1.1: its head, and its body behind that.
fn begin(answer: Response<h2::RecvStream>, to_head: bool) -> Incoming {
    let (head, body) = answer.into_parts();
    let chunked = !head.headers.contains_key(CONTENT_LENGTH);
    let mut text = BytesMut::new();
    write_response(&head, body.is_end_stream(), to_head, &mut text);
    Incoming::behind(text, body, chunked)
}
