//! Interim responses to a client that still sends its body: `100 Continue`, and those of the backend.

use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Buf as _;
use http::StatusCode;

use super::{CONTINUE, MAX_HINTS, Upload};
use crate::http1::fields::Fields;
use crate::http1::head_writer::put_status;
use crate::http1::response::ResponseHead;
use crate::http2::head_sink::TextHead;
use crate::net::Stream;
use crate::proxy::session::passing_fields::put_passing_fields;
use crate::proxy::session::request_reader::{BodyFault, Source};
use crate::proxy::session::response_writer::SocketWriter;

impl Upload<'_> {
    /// Sends pending interim responses. Fails once the client has accepted none of their bytes for `write_timeout`.
    pub(super) fn poll_interim(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.interim.is_empty() && self.hints.is_empty() {
            return Poll::Ready(Ok(()));
        }
        let stream = match self.reader.source() {
            Source::Http1(stream) => Rc::clone(stream),
            Source::Stream(stream) => {
                let sent = stream.send_interim(CONTINUE);
                self.interim = b"";
                return Poll::Ready(sent.map_err(|_| io::ErrorKind::BrokenPipe.into()));
            }
        };
        ready!(self.poll_hints(context, &stream))?;
        while !self.interim.is_empty() {
            let interim = self.interim;
            let sent = ready!(self.writer(&stream).poll_write(context, interim, &[]))?;
            self.interim = interim.get(sent..).unwrap_or_default();
        }
        Poll::Ready(Ok(()))
    }

    fn poll_hints(&mut self, context: &mut Context<'_>, stream: &Rc<Stream>) -> Poll<io::Result<()>> {
        while !self.hints.is_empty() {
            let hints = std::mem::take(&mut self.hints);
            let sent = self.writer(stream).poll_write(context, &hints, &[]);
            self.hints = hints;
            self.hints.advance(ready!(sent)?);
        }
        Poll::Ready(Ok(()))
    }

    fn writer(&mut self, stream: &Rc<Stream>) -> &mut SocketWriter {
        let fresh = || Box::new(SocketWriter::new(Rc::clone(stream), self.reader.write_timeout()));
        self.writer.get_or_insert_with(fresh)
    }

    /// The fault of a client that did not accept an interim response.
    pub(super) fn interim_fault(&self) -> BodyFault {
        let is_stalled = self.writer.as_ref().is_some_and(|writer| writer.is_stalled());
        if is_stalled { BodyFault::Stalled } else { BodyFault::Gone }
    }

    /// The backend sends this interim response: it goes on to a client that accepts it.
    pub(super) fn put_hints(&mut self, context: &mut Context<'_>, head: &ResponseHead, fields: Fields<'_>) {
        let Some(edits) = self.edits else { return };
        // `100 Continue` is the gateway's to send, and must be sent in one piece.
        let saying = !self.interim.is_empty() && self.interim.len() < CONTINUE.len();
        if head.status == StatusCode::CONTINUE
            || saying
            || self.hints.len() + self.hinted + head.length > MAX_HINTS
        {
            return;
        }
        put_status(&mut self.hints, head.status, None);
        put_passing_fields(fields, edits, |_| false, &mut TextHead(&mut self.hints));
        self.hints.extend_from_slice(b"\r\n");
        let sent = match self.reader.source().clone() {
            // Bytes that the client does not accept now go before the response.
            Source::Http1(stream) => !matches!(self.poll_hints(context, &stream), Poll::Ready(Err(_))),
            Source::Stream(stream) => {
                self.hinted += self.hints.len();
                let sent = stream.send_interim(&self.hints).is_ok();
                self.hints.clear();
                sent
            }
        };
        if !sent {
            // The response cannot be written either, which ends the exchange.
            self.hints.clear();
        }
    }
}
