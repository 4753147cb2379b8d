//! Chunked bodies (RFC 9112 §7.1): decoded on one side, encoded on the other.
//!
//! Chunks are never forwarded as received: extensions are dropped, and the next hop sees only the gateway's own
//! framing.

mod size_line;

use bytes::{BufMut as _, BytesMut};

use super::syntax::{is_token, split_field};
use super::trailers::Trailers;
use size_line::{Padding, SizeLine};

/// Bytes of a chunk-size line: its extensions are ignored, so they need no more.
const MAX_CHUNK_LINE: usize = 1 << 10;
/// Bytes of a trailer section, its empty line included.
pub const MAX_TRAILERS: usize = 16 << 10;
/// Bytes of framing that a request body may have beyond its data and the framing that each chunk needs. Chunks of one byte
/// with long extensions would cost a thousand times their data.
const MAX_EXTRA_FRAMING: u64 = 16 << 10;
/// The framing that each chunk needs: a digit and two line ends. A client that writes byte by byte sends nothing else.
const LEAST_FRAMING: u64 = 5;

/// A chunked body violates the grammar, or a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the chunked body is malformed")]
#[must_use]
pub struct MalformedChunk;

/// Decodes a chunked body, in any pieces. After an error every later call fails: the decoder no longer knows the
/// position of the next byte.
#[derive(Debug)]
pub struct ChunkDecoder {
    state: ChunkState,
    padding: Padding,
    /// Bytes of the line or trailer section being read.
    length: usize,
    /// The trailer lines so far, each with its CR LF.
    trailers: Vec<u8>,
    /// Bytes of size lines and line ends that may still come; each byte of data adds one, and each chunk
    /// [`LEAST_FRAMING`]. `None`: no bound.
    framing: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChunkState {
    /// In the line before the data.
    SizeLine(SizeLine),
    /// The size line's CR was seen.
    SizeLf { size: u64 },
    /// In the data.
    Data { left: u64 },
    /// The CR after the data is expected.
    DataCr,
    /// The LF after the data is expected.
    DataLf,
    /// At the start of a trailer line.
    TrailerStart,
    /// Inside a trailer line.
    Trailer,
    /// A trailer line's CR was seen.
    TrailerLf,
    /// The last CR was seen.
    EndLf,
    /// The body is complete.
    Done,
    /// Malformed.
    Broken,
}

impl ChunkDecoder {
    /// For a request body: parsed strictly. Beyond what each chunk needs, its framing may have 16 KiB more bytes than
    /// its data.
    pub fn of_request() -> Self {
        Self::new(Padding::Refused, Some(MAX_EXTRA_FRAMING))
    }

    /// For a response body: blanks between a chunk's size and the end of its line are accepted.
    pub fn of_response() -> Self {
        Self::new(Padding::Read, None)
    }

    const fn new(padding: Padding, framing: Option<u64>) -> Self {
        let state = ChunkState::SizeLine(SizeLine::START);
        Self { state, padding, length: 0, trailers: Vec::new(), framing }
    }

    /// Whether the body is complete.
    pub fn is_done(&self) -> bool {
        self.state == ChunkState::Done
    }

    /// The next piece of data in `bytes`, and the number of bytes consumed up to its end. No data: all bytes are
    /// consumed, or the body is done.
    ///
    /// # Errors
    ///
    /// A malformed body. Nothing can be read after it: every later call fails, too.
    pub fn decode<'b>(&mut self, bytes: &'b [u8]) -> Result<(usize, &'b [u8]), MalformedChunk> {
        if self.state == ChunkState::Broken {
            return Err(MalformedChunk);
        }
        let mut at = 0;
        while at < bytes.len() && !self.is_done() {
            if let ChunkState::Data { left } = self.state {
                let here = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len() - at);
                let left = left - here as u64;
                let chunk = if left == 0 { LEAST_FRAMING } else { 0 };
                self.framing = self.framing.map(|framing| framing.saturating_add(here as u64 + chunk));
                self.state = if left == 0 { ChunkState::DataCr } else { ChunkState::Data { left } };
                return Ok((at + here, &bytes[at..at + here]));
            }
            self.state = self.step(bytes[at]).unwrap_or(ChunkState::Broken);
            if self.state == ChunkState::Broken {
                return Err(MalformedChunk);
            }
            at += 1;
        }
        Ok((at, &[]))
    }

    /// The trailers that may be forwarded. Lines with their CR LF.
    pub fn trailers(&self, which: &Trailers) -> Vec<u8> {
        which.pick(&self.trailers)
    }

    /// All trailer lines, with their CR LF: for reading, not for forwarding.
    pub fn raw_trailers(&self) -> &[u8] {
        &self.trailers
    }

    /// Whether every trailer line is a field.
    fn trailers_are_fields(&self) -> bool {
        let mut lines = self.trailers.split_inclusive(|&byte| byte == b'\n');
        lines.all(|line| split_field(line.strip_suffix(b"\r\n").unwrap_or(line)).is_ok())
    }

    /// The state after the next byte. `None`: it is malformed.
    fn step(&mut self, byte: u8) -> Option<ChunkState> {
        use ChunkState as S;
        self.length += 1;
        let in_trailers = matches!(self.state, S::TrailerStart | S::Trailer | S::TrailerLf | S::EndLf);
        if let Some(framing) = self.framing.as_mut().filter(|_| !in_trailers) {
            *framing = framing.checked_sub(1)?;
        }
        if self.length > if in_trailers { MAX_TRAILERS } else { MAX_CHUNK_LINE } {
            return None;
        }
        if matches!((self.state, byte), (S::TrailerStart, 0x21..) | (S::Trailer | S::TrailerLf, _)) {
            self.trailers.push(byte);
        }
        Some(match (self.state, byte) {
            (S::SizeLine(line), b'\r') if line.may_end(self.padding) => S::SizeLf { size: line.size },
            (S::SizeLine(line), byte) => S::SizeLine(line.next(byte)?),
            (S::SizeLf { size: 0 }, b'\n') => self.line_done(S::TrailerStart),
            (S::SizeLf { size }, b'\n') => self.line_done(S::Data { left: size }),
            (S::DataCr, b'\r') => S::DataLf,
            (S::DataLf, b'\n') => self.line_done(S::SizeLine(SizeLine::START)),
            (S::TrailerStart, b'\r') => S::EndLf,
            (S::TrailerStart, byte) if is_token(byte) => S::Trailer,
            (S::Trailer, b'\r') => S::TrailerLf,
            (S::Trailer, b'\t' | 0x20..=0x7e | 0x80..) => S::Trailer,
            (S::TrailerLf, b'\n') => S::TrailerStart,
            (S::EndLf, b'\n') if self.trailers_are_fields() => S::Done,
            _ => return None,
        })
    }

    const fn line_done(&mut self, next: ChunkState) -> ChunkState {
        self.length = 0;
        next
    }
}

/// Writes data as one chunk. Empty data is not written: an empty chunk would be the last.
pub fn encode(data: &[u8], out: &mut BytesMut) {
    if data.is_empty() {
        return;
    }
    let digits = (usize::BITS - data.len().leading_zeros()).div_ceil(4);
    out.reserve(data.len() + 20);
    for digit_index in (0..digits).rev() {
        out.put_u8(b"0123456789abcdef"[data.len() >> (4 * digit_index) & 0xf]);
    }
    out.put_slice(b"\r\n");
    out.put_slice(data);
    out.put_slice(b"\r\n");
}

/// Writes the last chunk, with these trailer lines.
pub fn encode_end(trailers: &[u8], out: &mut BytesMut) {
    out.extend_from_slice(b"0\r\n");
    out.extend_from_slice(trailers);
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests;
