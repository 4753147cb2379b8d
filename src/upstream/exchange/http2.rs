//! The arm of an exchange for a stream of HTTP/2.

use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http::StatusCode;

use super::super::Failure;
use super::super::http2::{Head, NoAnswer};
use super::{Broken, Exchange, MAX_KEPT, Request, Upload};
use crate::clock::deadline::now;
use crate::http1::response::{Framing, ResponseHead};
use crate::http2::head::{request_of, write_response, write_trailers};

impl<U: Upload> Exchange<'_, U> {
    /// The next head on a stream of HTTP/2; `None` if it only preceded the answer.
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
        let said = match ready!(stream.poll_head(context)) {
            Ok(said) => said,
            Err(none) => return Poll::Ready(Err(self.unanswered(none))),
        };
        self.answered = true;
        let (parts, ended) = match &said {
            Head::Interim(parts) => (parts, false),
            Head::Answer(parts, ended) => (parts, *ended),
        };
        self.request.answer.bytes.clear();
        write_response(parts, &mut self.request.answer.bytes);
        Poll::Ready(self.read_head(context, ended))
    }

    /// Reads a head of HTTP/2 as strictly as any other.
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

    /// There is no answer on a stream of HTTP/2.
    fn unanswered(&mut self, NoAnswer { ending, failure }: NoAnswer) -> Failure {
        self.ending = ending;
        failure
    }

    /// As `poll_send`, in frames.
    pub(super) fn poll_send_http2(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        let Some(stream) = self.connection.http2() else { return Poll::Ready(Ok(())) };
        let Request { message, body, .. } = &mut self.request;
        while !self.deaf {
            let Some(upload) = stream.upload() else {
                if self.refused.is_some() {
                    break;
                }
                let turn = ready!(stream.poll_turn(context));
                let length = memchr::memmem::find(message, b"\r\n\r\n").map_or(message.len(), |end| end + 4);
                let ended = body.is_done() && message.len() == length && body.trailers().is_empty();
                let begun = turn.and_then(|()| {
                    let head = request_of(&message[..length], stream.scheme().clone());
                    stream.begin(head.map_err(|_| NoAnswer::UNFIT)?, ended)
                });
                match begun {
                    Ok(()) => (self.sent, self.written) = (length, true),
                    Err(refused) => self.refused = Some(refused),
                }
                continue;
            };
            let waited = !upload.is_clear();
            if ready!(upload.poll_send(context)).is_err() {
                // An answer may be on its way all the same.
                self.deaf = true;
                break;
            }
            if waited && self.begun {
                self.progress = now();
            }
            if upload.is_ended() {
                break;
            }
            if self.sent < message.len() {
                let last = body.is_done() && body.trailers().is_empty();
                let piece = match self.intact {
                    true => Bytes::copy_from_slice(&message[self.sent..]),
                    false => message.split().freeze(),
                };
                self.sent = message.len();
                upload.push(piece, last);
            } else if body.is_done() {
                // Whoever waits for the answer finds the stream broken.
                self.deaf = upload.end(body.trailers()).is_err();
            } else {
                // A small request is kept, as the backend may say that it has done nothing with it.
                if !self.intact || message.len() >= MAX_KEPT {
                    message.clear();
                    (self.sent, self.intact) = (0, false);
                }
                if let Err(broken) = ready!(body.poll_part(context, message)) {
                    (self.deaf, self.broken) = (true, true);
                    return Poll::Ready(Err(broken));
                }
            }
        }
        Poll::Ready(Ok(()))
    }

    /// The trailers behind the body of an answer in frames, as lines, once it has come whole and was taken.
    pub fn trailers(&mut self) -> Option<BytesMut> {
        let trailers = self.connection.http2()?.trailers()?;
        let mut lines = BytesMut::new();
        write_trailers(trailers, &mut lines);
        Some(lines)
    }
}
