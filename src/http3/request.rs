//! The bytes of a request stream (RFC 9114 §4.1): a head, the body in DATA frames, and perhaps trailers.

use bytes::BytesMut;

use super::Http3ErrorCode;
use super::frame::{self, FrameReader};
use super::qpack;
use crate::http1::chunks::MAX_TRAILERS;
use crate::http2::head::{BlockKind, HeadBuilder, HeadError, ReceivedHead};

/// Frames without a byte of the body that may come one after the other.
const MAX_EMPTY_FRAMES: u32 = 1_000;
/// The maximum size of trailers: names, values and 32 each (RFC 9114 §4.2.2).
const MAX_TRAILER_FIELDS: usize = 2 * MAX_TRAILERS;

/// A request stream is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestFault {
    /// The stream is to be reset.
    Stream(Http3ErrorCode),
    /// The connection is to be closed.
    Connection(Http3ErrorCode),
}

/// Reads a request from the bytes of its stream, however they arrive.
#[derive(Debug)]
pub struct RequestDecoder {
    max_header_list: usize,
    frames: FrameReader,
    payload: FramePayload,
    /// The field section being received.
    section: BytesMut,
    phase: Phase,
    /// The request is a CONNECT: nothing but DATA follows (§4.4).
    is_connect: bool,
    head: Option<Result<HeadBuilder, HeadError>>,
    /// The length that the head declares.
    declared: Option<u64>,
    /// Bytes of the body so far.
    received: u64,
    empty_frames: u32,
    trailers: BytesMut,
    ended: bool,
}

/// The payload of the present frame, of which this many bytes are still to come.
#[derive(Clone, Copy, Debug)]
enum FramePayload {
    /// There is none: a header follows.
    None,
    Section(u64),
    Data(u64),
    Skipped(u64),
}

/// What has been received completely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Nothing,
    Head,
    Trailers,
}

impl RequestDecoder {
    /// A stream that begins. The fields of its head have at most `max_header_list` bytes: names, values and 32 each.
    pub fn new(max_header_list: usize) -> Self {
        Self {
            max_header_list,
            frames: FrameReader::default(),
            payload: FramePayload::None,
            section: BytesMut::new(),
            phase: Phase::Nothing,
            is_connect: false,
            head: None,
            declared: None,
            received: 0,
            empty_frames: 0,
            trailers: BytesMut::new(),
            ended: false,
        }
    }

    /// Takes bytes of the stream, all of them. Those of the body are appended to `body`.
    ///
    /// # Errors
    ///
    /// The stream is broken, and must not be read any more.
    pub fn decode(&mut self, mut input: &[u8], body: &mut BytesMut) -> Result<(), RequestFault> {
        loop {
            match self.payload {
                FramePayload::None => {
                    let Some(header) = self.frames.read(&mut input) else { return Ok(()) };
                    self.begin(header)?;
                }
                FramePayload::Section(left) => {
                    let part = take(&mut input, left);
                    self.section.extend_from_slice(part);
                    let left = left - part.len() as u64;
                    self.payload = FramePayload::Section(left);
                    if left == 0 {
                        self.payload = FramePayload::None;
                        self.end_section()?;
                    } else if input.is_empty() {
                        return Ok(());
                    }
                }
                FramePayload::Data(left) => {
                    let part = take(&mut input, left);
                    body.extend_from_slice(part);
                    let left = left - part.len() as u64;
                    self.payload = if left == 0 { FramePayload::None } else { FramePayload::Data(left) };
                    if left > 0 {
                        return Ok(());
                    }
                }
                FramePayload::Skipped(left) => {
                    let left = left - take(&mut input, left).len() as u64;
                    self.payload = if left == 0 { FramePayload::None } else { FramePayload::Skipped(left) };
                    if left > 0 {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Begins the payload of a frame.
    fn begin(&mut self, header: frame::Http3FrameHeader) -> Result<(), RequestFault> {
        let frame::Http3FrameHeader { kind, length } = header;
        match kind {
            frame::DATA if length > 0 => self.empty_frames = 0,
            _ => self.empty_frames += 1,
        }
        if self.empty_frames > MAX_EMPTY_FRAMES {
            return Err(RequestFault::Connection(Http3ErrorCode::EXCESSIVE_LOAD));
        }
        self.payload = match (kind, self.phase) {
            (frame::HEADERS, Phase::Nothing | Phase::Head) if !self.is_connect => {
                let max =
                    if self.phase == Phase::Nothing { self.max_header_list } else { MAX_TRAILER_FIELDS };
                // A field takes fewer bytes here than its name, its value and the 32 that are counted for it. Only a field that
                // the Huffman code makes longer takes more.
                match usize::try_from(length) {
                    Ok(length) if length <= max => FramePayload::Section(length as u64),
                    _ => {
                        self.end_oversized()?;
                        FramePayload::Skipped(length)
                    }
                }
            }
            (frame::DATA, Phase::Head) => {
                self.received = self.received.saturating_add(length);
                if self.declared.is_some_and(|declared| self.received > declared) {
                    return Err(RequestFault::Stream(Http3ErrorCode::MESSAGE_ERROR));
                }
                FramePayload::Data(length)
            }
            (
                frame::HEADERS
                | frame::DATA
                | frame::CANCEL_PUSH
                | frame::SETTINGS
                | frame::PUSH_PROMISE
                | frame::GOAWAY
                | frame::MAX_PUSH_ID,
                _,
            ) => return Err(RequestFault::Connection(Http3ErrorCode::FRAME_UNEXPECTED)),
            _ if frame::is_of_http2(kind) => {
                return Err(RequestFault::Connection(Http3ErrorCode::FRAME_UNEXPECTED));
            }
            // §9: frames of types that are not known are skipped.
            _ => FramePayload::Skipped(length),
        };
        Ok(())
    }

    /// A field section is larger than the maximum: it is not held.
    fn end_oversized(&mut self) -> Result<(), RequestFault> {
        match self.phase {
            Phase::Nothing => {
                self.head = Some(Err(HeadError::TooLarge));
                self.phase = Phase::Head;
                Ok(())
            }
            Phase::Head | Phase::Trailers => Err(RequestFault::Stream(Http3ErrorCode::EXCESSIVE_LOAD)),
        }
    }

    /// A whole field section was received.
    fn end_section(&mut self) -> Result<(), RequestFault> {
        let section = std::mem::take(&mut self.section);
        let (kind, max) = match self.phase {
            Phase::Nothing => (BlockKind::Request, self.max_header_list),
            Phase::Head | Phase::Trailers => (BlockKind::Trailers, MAX_TRAILER_FIELDS),
        };
        let mut builder = HeadBuilder::new(kind, max);
        qpack::decode(&section, |name, value| builder.field(name, value))
            .map_err(|_| RequestFault::Connection(Http3ErrorCode::QPACK_DECOMPRESSION_FAILED))?;
        match self.phase {
            Phase::Nothing => {
                self.declared = builder.content_length();
                self.is_connect = builder.is_connect();
                self.head = Some(Ok(builder));
                self.phase = Phase::Head;
            }
            Phase::Head | Phase::Trailers => {
                let trailers = builder.finish(true).map_err(|fault| match fault {
                    HeadError::TooLarge => RequestFault::Stream(Http3ErrorCode::EXCESSIVE_LOAD),
                    HeadError::Malformed | HeadError::Protocol => {
                        RequestFault::Stream(Http3ErrorCode::MESSAGE_ERROR)
                    }
                });
                self.trailers = trailers?.text;
                self.phase = Phase::Trailers;
            }
        }
        Ok(())
    }

    /// The stream has ended.
    ///
    /// # Errors
    ///
    /// It ended before the request was complete.
    pub fn end(&mut self) -> Result<(), RequestFault> {
        if !self.frames.is_between_frames() || !matches!(self.payload, FramePayload::None) {
            return Err(RequestFault::Connection(Http3ErrorCode::FRAME_ERROR));
        }
        if self.phase == Phase::Nothing {
            return Err(RequestFault::Stream(Http3ErrorCode::REQUEST_INCOMPLETE));
        }
        if self.declared.is_some_and(|declared| declared != self.received) {
            return Err(RequestFault::Stream(Http3ErrorCode::MESSAGE_ERROR));
        }
        self.ended = true;
        Ok(())
    }

    /// Whether a head was received and not taken.
    pub fn has_head(&self) -> bool {
        self.head.is_some()
    }

    /// The head, once. `ended`: the stream is known to have ended after it, so that there is no body. A client may say so in a
    /// later packet; the body then has an unknown length.
    pub fn take_head(&mut self, ended: bool) -> Option<Result<ReceivedHead, HeadError>> {
        Some(self.head.take()?.and_then(|builder| builder.finish(ended)))
    }

    /// The lines of the trailers, once the whole request was received. There may be none.
    pub fn trailers(&self) -> Option<&BytesMut> {
        self.ended.then_some(&self.trailers)
    }
}

/// The first bytes of `input`, at most `max`; they are removed from it.
fn take<'i>(input: &mut &'i [u8], max: u64) -> &'i [u8] {
    let length = usize::try_from(max).unwrap_or(usize::MAX).min(input.len());
    let (part, rest) = input.split_at_checked(length).unwrap_or_default();
    *input = rest;
    part
}

#[cfg(test)]
mod tests;
