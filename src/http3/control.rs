//! The client's streams in one direction (RFC 9114 §6.2): its control stream, and those of QPACK.

use super::Http3ErrorCode;
use super::frame::{self, FrameReader};
use super::varint;
use crate::http2::hpack::decoder::FieldBlock;

/// The bytes of a control frame that are held; those that are known are short.
const MAX_PAYLOAD: usize = 1 << 10;
/// Frames on the control stream, instructions of QPACK and streams of unknown types that a connection may have without
/// requests. A client sends few: none is needed after SETTINGS.
const MAX_FRAMES: u32 = 10_000;
/// Further ones with each request: browsers change the priorities of requests on the control stream (RFC 9218 §7.2).
const FRAMES_PER_REQUEST: u32 = 8;
/// The longest payload of the frames that consist of one integer.
const MAX_INTEGER: u64 = 8;

/// The types of streams (§6.2).
const PUSH_STREAM: u64 = 0x1;
/// RFC 9204 §4.2.
const QPACK_ENCODER_STREAM: u64 = 0x2;
/// RFC 9204 §4.2.
const QPACK_DECODER_STREAM: u64 = 0x3;

/// A stream breaks a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnidirectionalFault {
    /// Its type is not known: it is to be stopped.
    Unknown,
    /// The connection is to be closed.
    Connection(Http3ErrorCode),
}

impl From<Http3ErrorCode> for UnidirectionalFault {
    fn from(code: Http3ErrorCode) -> Self {
        Self::Connection(code)
    }
}

/// The kinds of streams that a client has opened: each is there once. Also how much they may still bring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenedKinds {
    control: bool,
    encoder: bool,
    decoder: bool,
    /// Frames, instructions and unknown streams that may still come.
    left: u32,
}

impl Default for OpenedKinds {
    fn default() -> Self {
        Self { control: false, encoder: false, decoder: false, left: MAX_FRAMES }
    }
}

impl OpenedKinds {
    /// The connection has received a request, so that some more frames of control are no flood.
    pub fn request_received(&mut self) {
        self.left = self.left.saturating_add(FRAMES_PER_REQUEST).min(MAX_FRAMES);
    }

    /// Counts a frame, an instruction or an unknown stream.
    fn count(&mut self) -> Result<(), Http3ErrorCode> {
        self.left = self.left.checked_sub(1).ok_or(Http3ErrorCode::EXCESSIVE_LOAD)?;
        Ok(())
    }
}

/// Reads a stream in one direction, however its bytes arrive.
#[derive(Debug, Default)]
pub struct UnidirectionalDecoder {
    /// The begin of the type.
    kind: smallvec::SmallVec<[u8; 8]>,
    stream: StreamKind,
    ended: bool,
}

#[derive(Debug, Default)]
enum StreamKind {
    /// Not known yet.
    #[default]
    Unread,
    Control(Box<ControlDecoder>),
    /// Instructions for a dynamic table that there is not.
    Encoder(Instructions),
    Decoder(Instructions),
}

impl UnidirectionalDecoder {
    /// Takes bytes of the stream, all of them. `opened`: the streams of the connection.
    ///
    /// # Errors
    ///
    /// The stream must not be read any more.
    pub fn decode(&mut self, mut input: &[u8], opened: &mut OpenedKinds) -> Result<(), UnidirectionalFault> {
        while let StreamKind::Unread = self.stream {
            let Some((first, rest)) = input.split_first() else { return Ok(()) };
            self.kind.push(*first);
            input = rest;
            if let Some((kind, _)) = varint::read(&self.kind) {
                self.stream = StreamKind::open(kind, opened)?;
            }
        }
        match &mut self.stream {
            StreamKind::Unread => Ok(()),
            StreamKind::Control(control) => Ok(control.decode(input, opened)?),
            StreamKind::Encoder(instructions) => Ok(instructions.decode_encoder(input, opened)?),
            StreamKind::Decoder(instructions) => Ok(instructions.decode_decoder(input, opened)?),
        }
    }

    /// The stream has ended or was reset.
    ///
    /// # Errors
    ///
    /// The connection needs the stream.
    pub fn end(&mut self) -> Result<(), UnidirectionalFault> {
        self.ended = true;
        match self.stream {
            StreamKind::Unread => Ok(()),
            StreamKind::Control(_) | StreamKind::Encoder(_) | StreamKind::Decoder(_) => {
                Err(Http3ErrorCode::CLOSED_CRITICAL_STREAM.into())
            }
        }
    }

    /// Whether the stream has ended.
    pub fn is_ended(&self) -> bool {
        self.ended
    }
}

impl StreamKind {
    fn open(kind: u64, opened: &mut OpenedKinds) -> Result<Self, UnidirectionalFault> {
        let (slot, stream) = match kind {
            frame::CONTROL_STREAM => (&mut opened.control, Self::Control(Box::default())),
            QPACK_ENCODER_STREAM => (&mut opened.encoder, Self::Encoder(Instructions::default())),
            QPACK_DECODER_STREAM => (&mut opened.decoder, Self::Decoder(Instructions::default())),
            // §6.2.2: a client does not push.
            PUSH_STREAM => return Err(Http3ErrorCode::STREAM_CREATION_ERROR.into()),
            _ => return Err(opened.count().map_or_else(Into::into, |()| UnidirectionalFault::Unknown)),
        };
        match std::mem::replace(slot, true) {
            true => Err(Http3ErrorCode::STREAM_CREATION_ERROR.into()),
            false => Ok(stream),
        }
    }
}

/// Reads the client's control stream (§6.2.1).
#[derive(Debug, Default)]
struct ControlDecoder {
    frames: FrameReader,
    /// The frame whose payload is being received, and how many bytes of it are to come.
    present: Option<(u64, u64)>,
    payload: Vec<u8>,
    has_settings: bool,
    goaway: Option<u64>,
    max_push_id: Option<u64>,
}

impl ControlDecoder {
    fn decode(&mut self, mut input: &[u8], opened: &mut OpenedKinds) -> Result<(), Http3ErrorCode> {
        loop {
            let Some((kind, left)) = self.present else {
                let Some(header) = self.frames.read(&mut input) else { return Ok(()) };
                self.begin(header)?;
                opened.count()?;
                continue;
            };
            let length = usize::try_from(left).unwrap_or(usize::MAX).min(input.len());
            let (part, rest) = input.split_at_checked(length).unwrap_or_default();
            input = rest;
            if is_known(kind) {
                self.payload.extend_from_slice(part);
            }
            let left = left - part.len() as u64;
            if left > 0 {
                self.present = Some((kind, left));
                return Ok(());
            }
            self.present = None;
            let payload = std::mem::take(&mut self.payload);
            self.end(kind, &payload)?;
        }
    }

    fn begin(&mut self, header: frame::Http3FrameHeader) -> Result<(), Http3ErrorCode> {
        let frame::Http3FrameHeader { kind, length } = header;
        match kind {
            frame::SETTINGS if self.has_settings => return Err(Http3ErrorCode::FRAME_UNEXPECTED),
            frame::SETTINGS => self.has_settings = true,
            _ if !self.has_settings => return Err(Http3ErrorCode::MISSING_SETTINGS),
            frame::DATA | frame::HEADERS | frame::PUSH_PROMISE => {
                return Err(Http3ErrorCode::FRAME_UNEXPECTED);
            }
            _ if frame::is_of_http2(kind) => return Err(Http3ErrorCode::FRAME_UNEXPECTED),
            _ => {}
        }
        match kind {
            frame::SETTINGS if length > MAX_PAYLOAD as u64 => return Err(Http3ErrorCode::EXCESSIVE_LOAD),
            // §7.1: bytes after the field.
            frame::GOAWAY | frame::MAX_PUSH_ID | frame::CANCEL_PUSH if length > MAX_INTEGER => {
                return Err(Http3ErrorCode::FRAME_ERROR);
            }
            _ => {}
        }
        self.present = Some((kind, length));
        Ok(())
    }

    fn end(&mut self, kind: u64, payload: &[u8]) -> Result<(), Http3ErrorCode> {
        match kind {
            frame::SETTINGS => check_settings(payload),
            frame::GOAWAY => {
                let id = only(payload)?;
                if self.goaway.is_some_and(|earlier| id > earlier) {
                    return Err(Http3ErrorCode::ID_ERROR);
                }
                self.goaway = Some(id);
                Ok(())
            }
            frame::MAX_PUSH_ID => {
                let id = only(payload)?;
                if self.max_push_id.is_some_and(|earlier| id < earlier) {
                    return Err(Http3ErrorCode::ID_ERROR);
                }
                self.max_push_id = Some(id);
                Ok(())
            }
            // Nothing was pushed.
            frame::CANCEL_PUSH => only(payload).and(Err(Http3ErrorCode::ID_ERROR)),
            _ => Ok(()),
        }
    }
}

/// Whether the payload of a frame is looked at.
fn is_known(kind: u64) -> bool {
    matches!(kind, frame::SETTINGS | frame::GOAWAY | frame::MAX_PUSH_ID | frame::CANCEL_PUSH)
}

/// The integer that a payload consists of.
fn only(payload: &[u8]) -> Result<u64, Http3ErrorCode> {
    match varint::read(payload) {
        Some((value, length)) if length == payload.len() => Ok(value),
        _ => Err(Http3ErrorCode::FRAME_ERROR),
    }
}

/// Checks settings (§7.2.4). None of them changes what the gateway sends: it uses no dynamic table, and a client that cannot take
/// the head of a response drops it.
fn check_settings(mut payload: &[u8]) -> Result<(), Http3ErrorCode> {
    let mut seen = smallvec::SmallVec::<[u64; 16]>::new();
    while !payload.is_empty() {
        let (id, length) = varint::read(payload).ok_or(Http3ErrorCode::FRAME_ERROR)?;
        payload = payload.get(length..).unwrap_or_default();
        let (value, length) = varint::read(payload).ok_or(Http3ErrorCode::FRAME_ERROR)?;
        payload = payload.get(length..).unwrap_or_default();
        // §7.2.4.1: those of HTTP/2 are reserved.
        let is_reserved = matches!(id, 0x0 | 0x2..=0x5);
        let is_flag = matches!(id, 0x8 | 0x33);
        if is_reserved || seen.contains(&id) || is_flag && value > 1 {
            return Err(Http3ErrorCode::SETTINGS_ERROR);
        }
        seen.push(id);
    }
    Ok(())
}

/// Reads the instructions of a stream of QPACK.
#[derive(Debug, Default)]
struct Instructions {
    /// The begin of one.
    held: smallvec::SmallVec<[u8; 8]>,
}

impl Instructions {
    /// Those for a dynamic table (RFC 9204 §4.3). Only its capacity may be set, to 0.
    fn decode_encoder(&mut self, input: &[u8], opened: &mut OpenedKinds) -> Result<(), Http3ErrorCode> {
        self.each((input, opened), Http3ErrorCode::QPACK_ENCODER_STREAM_ERROR, |first| match first {
            0x20..=0x3f => Some((5, Some(0))),
            _ => None,
        })
    }

    /// Those about field sections (RFC 9204 §4.4): none was sent that could be acknowledged.
    fn decode_decoder(&mut self, input: &[u8], opened: &mut OpenedKinds) -> Result<(), Http3ErrorCode> {
        self.each((input, opened), Http3ErrorCode::QPACK_DECODER_STREAM_ERROR, |first| match first {
            // Stream cancellation.
            0x40..=0x7f => Some((6, None)),
            _ => None,
        })
    }

    /// Reads instructions that are an integer each: by the first byte, its prefix and the one value that it may have.
    fn each(
        &mut self,
        (input, opened): (&[u8], &mut OpenedKinds),
        code: Http3ErrorCode,
        known: impl Fn(u8) -> Option<(u32, Option<usize>)>,
    ) -> Result<(), Http3ErrorCode> {
        for byte in input {
            self.held.push(*byte);
            let Some(first) = self.held.first() else { continue };
            let (prefix, only) = known(*first).ok_or(code)?;
            let mut read = FieldBlock::new(&self.held);
            match read.integer(prefix) {
                Ok(value) if only.is_none_or(|only| only == value) => {
                    self.held.clear();
                    opened.count()?;
                }
                Ok(_) => return Err(code),
                // More bytes are needed, unless the integer is too large.
                Err(_) if self.held.len() < 6 => {}
                Err(_) => return Err(code),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
