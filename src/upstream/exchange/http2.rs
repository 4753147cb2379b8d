//! The HTTP/2 part of an exchange.

use std::task::{Context, Poll, ready};

use bytes::BytesMut;
use http::StatusCode;

use super::super::Failure;
use super::super::http2::NoAnswer;
use super::{BodyFailed, Exchange, MAX_KEPT, RequestBody, UpstreamRequest};
use crate::clock::now;
use crate::http1::response::{Framing, ResponseHead};
use crate::http2::connection::StreamLost;

impl<U: RequestBody> Exchange<'_, U> {
    /// The next head on an HTTP/2 stream; `None` for an interim head.
    pub(super) fn poll_head_http2(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<Option<ResponseHead>, Failure>> {
        if let Some(refused) = self.refused {
            return Poll::Ready(Err(self.unanswered(refused)));
        }
        let Some(stream) = self.connection.http2().filter(|stream| stream.is_begun()) else {
            return Poll::Pending;
        };
        let (head, ended) = match ready!(stream.poll_head(context)) {
            Ok(head) => head,
            Err(none) => return Poll::Ready(Err(self.unanswered(none))),
        };
        self.receiving.answered = true;
        self.request.answer.bytes = head.text;
        Poll::Ready(self.read_head(context, ended))
    }

    /// Parses an HTTP/2 head as strictly as one of HTTP/1.1.
    fn read_head(&mut self, context: &mut Context<'_>, ended: bool) -> Result<Option<ResponseHead>, Failure> {
        let answer = &mut *self.request.answer;
        let head = ResponseHead::parse(&answer.bytes, self.request.to_head, &mut answer.spans);
        let mut head = head.map_err(|_| Failure::Protocol)?;
        if head.status == StatusCode::SWITCHING_PROTOCOLS {
            return Err(Failure::Protocol);
        }
        if head.is_interim() {
            self.show_interim(context, &head)?;
            return Ok(None);
        }
        if ended && head.framing == Framing::UntilClose {
            (head.framing, head.content_length) = (Framing::Length(0), Some(0));
        }
        Ok(Some(head))
    }

    /// Ends an exchange without a response on its HTTP/2 stream.
    fn unanswered(&mut self, NoAnswer { ending, failure }: NoAnswer) -> Failure {
        self.ending = ending;
        failure
    }

    /// As `poll_send`, in frames.
    pub(super) fn poll_send_http2(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BodyFailed>> {
        let Some(stream) = self.connection.http2() else { return Poll::Ready(Ok(())) };
        let UpstreamRequest { message, head_length, body, to_head, connect, .. } = &mut self.request;
        let (length, to_head, connect) = (*head_length, *to_head, *connect);
        while !self.sending.write_closed && self.refused.is_none() && !stream.is_ended() {
            if !stream.is_begun() {
                let begun = match ready!(stream.poll_turn(context)) {
                    Ok(()) => ready!(stream.poll_connect(context, connect)),
                    Err(refused) => Err(refused),
                };
                let ended = body.is_done() && message.len() == length && body.trailers().is_empty();
                let begun = begun.and_then(|is_connect| {
                    self.sending.is_connect = is_connect;
                    match is_connect {
                        true => stream.begin_connect(&message[..length]),
                        false => stream.begin(&message[..length], to_head, ended),
                    }
                });
                match begun {
                    Ok(()) => (self.sending.sent, self.sending.written) = (length, true),
                    Err(refused) => self.refused = Some(refused),
                }
            } else if self.sending.is_connect {
                // What follows are bytes of the WebSocket, once it is open.
                break;
            } else if self.sending.sent < message.len() {
                let last = body.is_done() && body.trailers().is_empty();
                match ready!(stream.poll_send(context, &message[self.sending.sent..], last)) {
                    // A response may be on its way nevertheless.
                    Err(StreamLost) => self.sending.write_closed = true,
                    Ok(sent) => {
                        self.sending.sent += sent;
                        if self.sending.begun {
                            self.sending.progress = now();
                        }
                    }
                }
            } else if body.is_done() {
                // The wait for the response detects that the stream is broken.
                self.sending.write_closed = stream.send_end(body.trailers()).is_err();
            } else {
                // A small request is kept, since the backend may report that it has not processed it.
                if !self.sending.head_kept || message.len() >= MAX_KEPT {
                    message.clear();
                    (self.sending.sent, self.sending.head_kept) = (0, false);
                }
                if let Err(body_failed) = ready!(body.poll_part(context, message)) {
                    (self.sending.write_closed, self.sending.body_failed) = (true, true);
                    return Poll::Ready(Err(body_failed));
                }
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Whether the backend has opened a WebSocket with this response, on a stream of HTTP/2.
    pub fn opens_websocket(&self, head: &ResponseHead) -> bool {
        self.sending.is_connect && head.status == StatusCode::OK
    }

    /// The trailers of a response in frames, as lines, once its whole body was received and read.
    pub fn trailers(&mut self) -> Option<BytesMut> {
        self.connection.http2()?.trailers()
    }
}
