//! Chunked bodies (RFC 9112 §7.1): taken apart on one side, put together on the other.
//!
//! Chunks are never passed on as they came: extensions stay behind, and the next hop sees only our own framing.

use bytes::{BufMut as _, BytesMut};

use super::name::Name;
use super::syntax::{has_item, is_token, split_field};

/// Bytes of a chunk-size line: its extensions are ignored, so they need no more.
const MAX_CHUNK_LINE: usize = 1 << 10;
/// Bytes of a trailer section.
const MAX_TRAILERS: usize = 16 << 10;

/// Trailers that are dropped beside those that a proxy knows: they authenticate, control or describe the message
/// (RFC 9110 §6.5.1).
const FORBIDDEN: [&[u8]; 14] = [
    b"authorization",
    b"cache-control",
    b"content-encoding",
    b"content-range",
    b"content-type",
    b"cookie",
    b"if-match",
    b"if-none-match",
    b"max-forwards",
    b"range",
    b"set-cookie",
    b"vary",
    b"via",
    b"www-authenticate",
];

/// A chunked body breaks the grammar, or a bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the chunked body is malformed")]
pub struct Malformed;

/// Which trailers may travel on, of those that neither frame nor route nor authenticate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trailers {
    /// Those that the message's `trailer` field names: its value.
    Declared(Vec<u8>),
    /// All. Where both sides speak HTTP/2, nobody declares them: they cannot be taken for anything else there.
    All,
}

impl Trailers {
    /// None.
    pub const NONE: Self = Self::Declared(Vec::new());

    fn name(&self, name: &[u8]) -> bool {
        match self {
            Self::Declared(names) => has_item(names, name),
            Self::All => true,
        }
    }
}

/// Takes a chunked body apart, in whatever pieces it comes.
#[derive(Debug)]
pub struct ChunkDecoder {
    state: ChunkState,
    /// Bytes of the line or trailer section being read.
    length: usize,
    /// The trailer lines so far, each with its CR LF.
    trailers: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChunkState {
    /// In the digits of a chunk's size.
    Size { size: u64, digits: u8 },
    /// In the blanks or extension behind the size.
    Extension { size: u64 },
    /// The size line's CR was seen.
    SizeLf { size: u64 },
    /// In the data.
    Data { left: u64 },
    /// The CR behind the data is due.
    DataCr,
    /// The LF behind the data is due.
    DataLf,
    /// At the start of a trailer line.
    TrailerStart,
    /// Inside a trailer line.
    Trailer,
    /// A trailer line's CR was seen.
    TrailerLf,
    /// The last CR was seen.
    EndLf,
    /// All there.
    Done,
}

impl Default for ChunkDecoder {
    fn default() -> Self {
        Self { state: ChunkState::Size { size: 0, digits: 0 }, length: 0, trailers: Vec::new() }
    }
}

impl ChunkDecoder {
    /// Whether the body is complete.
    pub fn is_done(&self) -> bool {
        self.state == ChunkState::Done
    }

    /// The next piece of data in `bytes`, and how many bytes it and what stands before it take. No data: all bytes are
    /// taken, or the body is done.
    ///
    /// # Errors
    /// A malformed body. Nothing can be read behind it.
    pub fn decode<'b>(&mut self, bytes: &'b [u8]) -> Result<(usize, &'b [u8]), Malformed> {
        let mut at = 0;
        while at < bytes.len() && !self.is_done() {
            if let ChunkState::Data { left } = self.state {
                let here = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len() - at);
                let left = left - here as u64;
                self.state = if left == 0 { ChunkState::DataCr } else { ChunkState::Data { left } };
                return Ok((at + here, &bytes[at..at + here]));
            }
            self.state = self.step(bytes[at])?;
            at += 1;
        }
        Ok((at, &[]))
    }

    /// The trailers that may travel on. Lines with their CR LF.
    pub fn trailers(&self, which: &Trailers) -> Vec<u8> {
        let lines = self.trailers.split_inclusive(|&byte| byte == b'\n');
        let allowed = lines.filter(|line| {
            let line = line.strip_suffix(b"\r\n").unwrap_or(line);
            split_field(line).is_ok_and(|(name, _, _)| which.name(name) && !is_forbidden(name))
        });
        allowed.flatten().copied().collect()
    }

    /// Whether every trailer line is a field.
    fn trailers_are_fields(&self) -> bool {
        let mut lines = self.trailers.split_inclusive(|&byte| byte == b'\n');
        lines.all(|line| split_field(line.strip_suffix(b"\r\n").unwrap_or(line)).is_ok())
    }

    fn step(&mut self, byte: u8) -> Result<ChunkState, Malformed> {
        use ChunkState as S;
        self.length += 1;
        let bound = if matches!(self.state, S::TrailerStart | S::Trailer | S::TrailerLf) {
            MAX_TRAILERS
        } else {
            MAX_CHUNK_LINE
        };
        if self.length > bound {
            return Err(Malformed);
        }
        if matches!((self.state, byte), (S::TrailerStart, 0x21..) | (S::Trailer | S::TrailerLf, _)) {
            self.trailers.push(byte);
        }
        match (self.state, byte) {
            (S::Size { size, digits }, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                size_digit(size, digits, byte)
            }
            (S::Size { size, digits: 1.. }, b'\r') | (S::Extension { size }, b'\r') => Ok(S::SizeLf { size }),
            (S::Size { size, digits: 1.. }, b';') => Ok(S::Extension { size }),
            (S::Extension { size }, b'\t' | 0x20..=0x7e | 0x80..) => Ok(S::Extension { size }),
            (S::SizeLf { size: 0 }, b'\n') => Ok(self.line_done(S::TrailerStart)),
            (S::SizeLf { size }, b'\n') => Ok(self.line_done(S::Data { left: size })),
            (S::DataCr, b'\r') => Ok(S::DataLf),
            (S::DataLf, b'\n') => Ok(self.line_done(S::Size { size: 0, digits: 0 })),
            (S::TrailerStart, b'\r') => Ok(S::EndLf),
            (S::TrailerStart, byte) if is_token(byte) => Ok(S::Trailer),
            (S::Trailer, b'\r') => Ok(S::TrailerLf),
            (S::Trailer, b'\t' | 0x20..=0x7e | 0x80..) => Ok(S::Trailer),
            (S::TrailerLf, b'\n') => Ok(S::TrailerStart),
            (S::EndLf, b'\n') if self.trailers_are_fields() => Ok(S::Done),
            _ => Err(Malformed),
        }
    }

    const fn line_done(&mut self, next: ChunkState) -> ChunkState {
        self.length = 0;
        next
    }
}

/// At most 15 hexadecimal digits: below 2^60, which no body reaches and no sum overflows.
fn size_digit(size: u64, digits: u8, byte: u8) -> Result<ChunkState, Malformed> {
    let digit = char::from(byte).to_digit(16).map_or(0, u64::from);
    if digits >= 15 {
        return Err(Malformed);
    }
    Ok(ChunkState::Size { size: size * 16 + digit, digits: digits + 1 })
}

/// Whether no trailer may have this name.
fn is_forbidden(name: &[u8]) -> bool {
    Name::of(name) != Name::Other || FORBIDDEN.iter().any(|forbidden| forbidden.eq_ignore_ascii_case(name))
}

/// Writes data as one chunk. Nothing is written for no data: an empty chunk would be the last.
pub fn encode(data: &[u8], out: &mut BytesMut) {
    if data.is_empty() {
        return;
    }
    let digits = (usize::BITS - data.len().leading_zeros()).div_ceil(4);
    out.reserve(data.len() + 20);
    for place in (0..digits).rev() {
        out.put_u8(b"0123456789abcdef"[data.len() >> (4 * place) & 0xf]);
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
