//! Where a chunked body ends (RFC 9112 §7.1).

use super::{Fault, is_token};

/// Bytes of a chunk-size line: its extensions are ignored, so they need no more.
const MAX_CHUNK_LINE: usize = 1 << 10;
/// Bytes of a trailer section.
const MAX_TRAILERS: usize = 16 << 10;

/// Follows a chunked body (RFC 9112 §7.1) without keeping it.
#[derive(Debug)]
pub(crate) struct ChunkScanner {
    state: ChunkState,
    /// Bytes of the line or trailer section being read.
    length: usize,
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

impl ChunkScanner {
    pub(crate) const fn new() -> Self {
        Self { state: ChunkState::Size { size: 0, digits: 0 }, length: 0 }
    }

    /// Whether the body is complete.
    pub(crate) fn is_done(&self) -> bool {
        self.state == ChunkState::Done
    }

    /// How many of `bytes` belong to the body. Fewer than all of them only when it is done.
    pub(crate) fn advance(&mut self, bytes: &[u8]) -> Result<usize, Fault> {
        let mut at = 0;
        while at < bytes.len() && !self.is_done() {
            if let ChunkState::Data { left } = self.state {
                let here = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len() - at);
                at += here;
                let left = left - here as u64;
                self.state = if left == 0 { ChunkState::DataCr } else { ChunkState::Data { left } };
            } else {
                self.state = self.step(bytes[at])?;
                at += 1;
            }
        }
        Ok(at)
    }

    fn step(&mut self, byte: u8) -> Result<ChunkState, Fault> {
        use ChunkState as S;
        self.length += 1;
        let bound = if matches!(self.state, S::TrailerStart | S::Trailer | S::TrailerLf) {
            MAX_TRAILERS
        } else {
            MAX_CHUNK_LINE
        };
        if self.length > bound {
            return Err(Fault::Malformed("a chunk's size line or the trailers are too long"));
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
            (S::EndLf, b'\n') => Ok(S::Done),
            _ => Err(Fault::Malformed("the chunked body is malformed")),
        }
    }

    const fn line_done(&mut self, next: ChunkState) -> ChunkState {
        self.length = 0;
        next
    }
}

/// At most 15 hexadecimal digits: below 2^60, which no body reaches and no sum overflows.
fn size_digit(size: u64, digits: u8, byte: u8) -> Result<ChunkState, Fault> {
    let digit = char::from(byte).to_digit(16).map_or(0, u64::from);
    if digits >= 15 {
        return Err(Fault::Malformed("a chunk's size is too large"));
    }
    Ok(ChunkState::Size { size: size * 16 + digit, digits: digits + 1 })
}
