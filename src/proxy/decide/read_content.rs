//! Request bodies that are read before the request is decided, because a limit counts by a value in them.
//!
//! Only their data are kept. They are framed anew for the backend, as if they had not been read.

use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, BytesMut};

use super::undecided::HeldBytes;
use crate::http1::request::{Body, RequestHead};
use crate::measure::JsonPointer;
use crate::proxy::session::request_body::{BegunBody, CONTINUE, RequestRest};
use crate::proxy::session::request_reader::{BodyDeadlines, BodyFault, RequestReader, Source};
use crate::proxy::session::response_writer::SocketWriter;
use crate::route::content::{RequestContent, UnreadableBody};

/// A body that was read, or the begin of one that is too large.
#[derive(Debug)]
pub(crate) struct ReadPart {
    /// Its data.
    pub(crate) begun: BegunBody,
    /// The bytes received after them, with their framing.
    pub(crate) received: BytesMut,
}

/// Reads the body of a request. `ahead`: the bytes received after its head. `pointers`: see [`RequestContent::new`].
/// A body with an unreadable type or a declared length beyond `max` bytes is not read.
pub(crate) async fn read_content(
    reader: &mut RequestReader,
    head: &RequestHead<'_>,
    ahead: &[u8],
    (pointers, max): (&[JsonPointer], usize),
    held: &HeldBytes,
) -> Result<(RequestContent, Option<ReadPart>), BodyFault> {
    let unread = |content| Ok((content, None));
    if head.body == Body::EMPTY {
        return unread(RequestContent::Empty);
    }
    if matches!(head.body, Body::Length(length) if length > max as u64) {
        return unread(RequestContent::Unreadable(UnreadableBody::TooLarge));
    }
    if !RequestContent::has_readable_type(head.fields) {
        return unread(RequestContent::Unreadable(UnreadableBody::Type));
    }
    let (end, part) = read_body(reader, head, ahead, max, held).await?;
    let content = match end {
        BodyEnd::Whole => RequestContent::new(head.fields, part.begun.data.clone(), pointers),
        BodyEnd::TooLarge => RequestContent::Unreadable(UnreadableBody::TooLarge),
    };
    Ok((content, Some(part)))
}

/// Reads a body, or the begin of one with more than `max` bytes. The other arguments as for [`read_content`].
pub(crate) async fn read_body(
    reader: &mut RequestReader,
    head: &RequestHead<'_>,
    ahead: &[u8],
    max: usize,
    held: &HeldBytes,
) -> Result<(BodyEnd, ReadPart), BodyFault> {
    if head.expects_continue() {
        ask_for_body(reader).await?;
    }
    reader.turn_to_body(BodyDeadlines::Bytes);
    reader.release(ahead.len());
    let rest = RequestRest::of(head.body, reader.source());
    let mut reading = BodyReading { rest, max, data: BytesMut::new(), received: BytesMut::from(ahead) };
    let end = poll_fn(|context| {
        let end = reading.poll_end(context, reader);
        held.set_body(reading.data.capacity() + reading.received.capacity());
        end
    })
    .await?;
    let BodyReading { rest, data, received, .. } = reading;
    Ok((end, ReadPart { begun: BegunBody { data: data.freeze(), rest }, received }))
}

/// RFC 9110 §10.1.1: the client waits for `100 Continue`.
async fn ask_for_body(reader: &RequestReader) -> Result<(), BodyFault> {
    let stream = match reader.source() {
        Source::Http1(stream) => Rc::clone(stream),
        Source::Stream(stream) => return stream.send_interim(CONTINUE).map_err(|_| BodyFault::Gone),
    };
    let mut writer = SocketWriter::new(stream, reader.write_timeout());
    let mut rest = CONTINUE;
    let sent: io::Result<()> = poll_fn(|context| {
        while !rest.is_empty() {
            let sent = ready!(writer.poll_write(context, rest, &[]))?;
            rest = rest.get(sent..).unwrap_or_default();
        }
        Poll::Ready(Ok(()))
    })
    .await;
    sent.map_err(|_| if writer.is_stalled() { BodyFault::Stalled } else { BodyFault::Gone })
}

/// How much of a body was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyEnd {
    /// All of it.
    Whole,
    /// The begin: the body has more bytes than are read.
    TooLarge,
}

/// A body being read.
struct BodyReading {
    /// The body, with the data that were read.
    rest: RequestRest,
    /// The maximum number of bytes.
    max: usize,
    /// Its data so far.
    data: BytesMut,
    /// Bytes received and not decoded.
    received: BytesMut,
}

impl BodyReading {
    fn poll_end(
        &mut self,
        context: &mut Context<'_>,
        reader: &mut RequestReader,
    ) -> Poll<Result<BodyEnd, BodyFault>> {
        loop {
            if let Some(end) = self.decode(reader.source())? {
                return Poll::Ready(Ok(end));
            }
            if self.received.is_empty() {
                // The buffer is given back while the client is waited for.
                self.received = BytesMut::new();
            }
            let before = self.received.len();
            ready!(reader.poll_body(context, &mut self.received))?;
            let read = self.received.len() - before;
            // Else the window of an HTTP/2 stream could be too small for the body.
            reader.release(read);
            // The stream has ended before the body.
            if read == 0 && self.decode(reader.source())?.is_none() {
                return Poll::Ready(Err(BodyFault::Gone));
            }
        }
    }

    /// Decodes the bytes received. `None`: the end of the body is not among them.
    fn decode(&mut self, source: &Source) -> Result<Option<BodyEnd>, BodyFault> {
        let Self { rest, max, data, received } = self;
        let is_whole = match rest {
            RequestRest::Nothing => true,
            RequestRest::Length(length) => {
                let left = usize::try_from(*length).unwrap_or(usize::MAX).saturating_sub(data.len());
                // A byte more than the maximum tells that it is exceeded.
                let room = (*max + 1).saturating_sub(data.len());
                let here = left.min(received.len()).min(room);
                data.extend_from_slice(&received[..here]);
                received.advance(here);
                here == left
            }
            RequestRest::Chunked(decoder) => {
                while !received.is_empty() && !decoder.is_done() && data.len() <= *max {
                    let (consumed, piece) = decoder.decode(received).map_err(|_| BodyFault::Malformed)?;
                    data.extend_from_slice(piece);
                    received.advance(consumed);
                }
                decoder.is_done()
            }
            RequestRest::Frames => {
                data.extend_from_slice(received);
                received.clear();
                matches!(source, Source::Stream(stream) if stream.trailers().is_some())
            }
        };
        Ok(match is_whole {
            _ if data.len() > *max => Some(BodyEnd::TooLarge),
            true => Some(BodyEnd::Whole),
            false => None,
        })
    }
}
