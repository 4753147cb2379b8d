//! Request bodies that are read before the request is decided, because a limit counts by a value in them.
//!
//! The bytes stay as they came: the backend gets them as if they had not been read.

use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::BytesMut;

use super::request_body::CONTINUE;
use super::request_reader::{BodyDeadlines, BodyFault, RequestReader, Source};
use super::response_writer::SocketWriter;
use crate::http1::chunks::ChunkDecoder;
use crate::http1::request::{Body, RequestHead};
use crate::route::content::{MAX_CONTENT, RequestContent, UnreadableBody};

/// A body, or the begin of one that is too large.
#[derive(Debug)]
pub(super) struct ReadBody {
    /// All bytes received behind the head, with their framing; `None`: none was read.
    pub(super) received: Option<BytesMut>,
    /// How many of these bytes the client may send again.
    pub(super) released: usize,
    /// Its content.
    pub(super) content: RequestContent,
}

/// Reads the body of a request. `ahead`: the bytes received behind its head. A body with an unreadable type or a declared
/// length beyond the maximum is not read.
pub(super) async fn read_content(
    reader: &mut RequestReader,
    head: &RequestHead<'_>,
    ahead: &[u8],
) -> Result<ReadBody, BodyFault> {
    let unread = |content| Ok(ReadBody { received: None, released: 0, content });
    if head.body == Body::EMPTY {
        return unread(RequestContent::Empty);
    }
    if matches!(head.body, Body::Length(length) if length > MAX_CONTENT as u64) {
        return unread(RequestContent::Unreadable(UnreadableBody::TooLarge));
    }
    if !RequestContent::has_readable_type(head.fields) {
        return unread(RequestContent::Unreadable(UnreadableBody::Type));
    }
    if head.expects_continue() {
        ask_for_body(reader).await?;
    }
    reader.turn_to_body(BodyDeadlines::Bytes);
    let mut received = BytesMut::from(ahead);
    let mut decoder = BodyDecoder::new(head.body, reader);
    let end = poll_fn(|context| decoder.poll_end(context, reader, &mut received)).await?;
    let content = match end {
        BodyEnd::Whole => RequestContent::new(head.fields, decoder.data(&received)),
        BodyEnd::TooLarge => RequestContent::Unreadable(UnreadableBody::TooLarge),
    };
    let released = received.len() - ahead.len();
    Ok(ReadBody { received: Some(received), released, content })
}

/// RFC 9110 §10.1.1: the client waits for `100 Continue`.
async fn ask_for_body(reader: &RequestReader) -> Result<(), BodyFault> {
    let stream = match reader.source() {
        Source::Http1(stream) => Rc::clone(stream),
        Source::Http2(stream) => return stream.send_interim(CONTINUE).map_err(|_| BodyFault::Gone),
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BodyEnd {
    Whole,
    TooLarge,
}

/// Finds the end of a body.
enum BodyDecoder {
    Length(usize),
    Chunked {
        decoder: ChunkDecoder,
        /// Bytes decoded, with the framing.
        at: usize,
        data: Vec<u8>,
    },
    /// Bytes until the HTTP/2 stream ends.
    Frames,
}

impl BodyDecoder {
    fn new(body: Body, reader: &RequestReader) -> Self {
        match (body, reader.source()) {
            // The caller has bounded it.
            (Body::Length(length), _) => Self::Length(usize::try_from(length).unwrap_or(usize::MAX)),
            (Body::Chunked, Source::Http1(_)) => {
                Self::Chunked { decoder: ChunkDecoder::of_request(), at: 0, data: Vec::new() }
            }
            (Body::Chunked, Source::Http2(_)) => Self::Frames,
        }
    }

    fn poll_end(
        &mut self,
        context: &mut Context<'_>,
        reader: &mut RequestReader,
        received: &mut BytesMut,
    ) -> Poll<Result<BodyEnd, BodyFault>> {
        loop {
            if let Some(end) = self.end(reader, received)? {
                return Poll::Ready(Ok(end));
            }
            let before = received.len();
            ready!(reader.poll_body(context, received))?;
            // Else the window of an HTTP/2 stream could be too small for the body.
            reader.release(received.len() - before);
            // The stream has ended before the body.
            if received.len() == before && self.end(reader, received)?.is_none() {
                return Poll::Ready(Err(BodyFault::Gone));
            }
        }
    }

    /// `None`: the end was not received yet.
    fn end(&mut self, reader: &RequestReader, received: &[u8]) -> Result<Option<BodyEnd>, BodyFault> {
        Ok(match self {
            Self::Length(length) => (received.len() >= *length).then_some(BodyEnd::Whole),
            Self::Chunked { decoder, at, data } => {
                while *at < received.len() && !decoder.is_done() && data.len() <= MAX_CONTENT {
                    let (consumed, piece) =
                        decoder.decode(&received[*at..]).map_err(|_| BodyFault::Malformed)?;
                    data.extend_from_slice(piece);
                    *at += consumed;
                }
                match decoder.is_done() {
                    _ if data.len() > MAX_CONTENT => Some(BodyEnd::TooLarge),
                    true => Some(BodyEnd::Whole),
                    false => None,
                }
            }
            Self::Frames if received.len() > MAX_CONTENT => Some(BodyEnd::TooLarge),
            Self::Frames => match reader.source() {
                Source::Http2(stream) => stream.trailers().map(|_| BodyEnd::Whole),
                Source::Http1(_) => None,
            },
        })
    }

    /// The body without its framing.
    fn data<'d>(&'d self, received: &'d [u8]) -> &'d [u8] {
        match self {
            Self::Length(length) => received.get(..*length).unwrap_or_default(),
            Self::Chunked { data, .. } => data,
            Self::Frames => received,
        }
    }
}
