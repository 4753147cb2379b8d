//! Deflate data (RFC 1951), with or without the frame of zlib, and gzip (RFC 1952): members, each with a head and a
//! trailer around deflate data.
//!
//! Trailers are skipped: a value has been read before the checksum after it arrives.

use flate2::{Decompress, FlushDecompress, Status};

/// Data that is not of its coding, or beyond the bounds of its decoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Damaged;

/// How far a decoder came: bytes read and bytes written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DecodeStep {
    pub(super) read: usize,
    pub(super) written: usize,
}

/// Decodes a piece of deflate data. Returns also whether the data has ended.
pub(super) fn inflate_step(
    inflate: &mut Decompress,
    input: &[u8],
    output: &mut [u8],
) -> Result<(DecodeStep, bool), Damaged> {
    let (before_in, before_out) = (inflate.total_in(), inflate.total_out());
    let status = inflate.decompress(input, output, FlushDecompress::None).map_err(|_| Damaged)?;
    let difference = |now: u64, before: u64| usize::try_from(now - before).unwrap_or(0);
    let step = DecodeStep {
        read: difference(inflate.total_in(), before_in),
        written: difference(inflate.total_out(), before_out),
    };
    Ok((step, status == Status::StreamEnd))
}

/// A decoder of one or several members.
#[derive(Debug)]
pub(super) struct GzipDecoder {
    part: BlockPart,
    /// Of the member's head.
    flags: u8,
    inflate: Decompress,
    has_member: bool,
}

/// What is read next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BlockPart {
    /// The byte at this index of the ten that begin a member.
    Head(u8),
    /// The first byte of the length of the extra field, and the second one after the first.
    ExtraLength,
    ExtraLengthEnd(u8),
    /// The number of bytes of the extra field that are still to come.
    Extra(u16),
    Name,
    Comment,
    /// The number of bytes of the head's checksum that are still to come.
    Check(u8),
    Data,
    /// The number of bytes after the data that are still to come.
    Trailer(u8),
}

const HAS_CHECK: u8 = 1 << 1;
const HAS_EXTRA: u8 = 1 << 2;
const HAS_NAME: u8 = 1 << 3;
const HAS_COMMENT: u8 = 1 << 4;
const RESERVED: u8 = 0b1110_0000;

impl GzipDecoder {
    pub(super) fn new() -> Self {
        Self { part: BlockPart::Head(0), flags: 0, inflate: Decompress::new(false), has_member: false }
    }

    /// Decodes as much as there is input and room.
    pub(super) fn decode(&mut self, input: &[u8], output: &mut [u8]) -> Result<DecodeStep, Damaged> {
        let mut read = 0;
        loop {
            if self.part == BlockPart::Data {
                let rest = input.get(read..).unwrap_or_default();
                let (step, has_ended) = inflate_step(&mut self.inflate, rest, output)?;
                if has_ended {
                    self.part = BlockPart::Trailer(8);
                    self.inflate.reset(false);
                }
                return Ok(DecodeStep { read: read + step.read, written: step.written });
            }
            let Some(&byte) = input.get(read) else { return Ok(DecodeStep { read, written: 0 }) };
            self.part = self.after(byte)?;
            read += 1;
        }
    }

    /// What comes after a byte of a head or a trailer.
    fn after(&mut self, byte: u8) -> Result<BlockPart, Damaged> {
        Ok(match self.part {
            // Zeros fill up the last block of a tape.
            BlockPart::Head(0) if byte == 0 && self.has_member => BlockPart::Head(0),
            BlockPart::Head(at @ 0..=2) => {
                let magic: [u8; 3] = [0x1f, 0x8b, 8];
                if magic[usize::from(at)] == byte { BlockPart::Head(at + 1) } else { return Err(Damaged) }
            }
            BlockPart::Head(3) if byte & RESERVED != 0 => return Err(Damaged),
            BlockPart::Head(3) => {
                self.flags = byte;
                BlockPart::Head(4)
            }
            BlockPart::Head(at) if at < 9 => BlockPart::Head(at + 1),
            BlockPart::Head(_) => self.next(HAS_EXTRA),
            BlockPart::ExtraLength => BlockPart::ExtraLengthEnd(byte),
            BlockPart::ExtraLengthEnd(low) => match u16::from_le_bytes([low, byte]) {
                0 => self.next(HAS_NAME),
                length => BlockPart::Extra(length),
            },
            BlockPart::Extra(1) => self.next(HAS_NAME),
            BlockPart::Extra(left) => BlockPart::Extra(left - 1),
            BlockPart::Name if byte == 0 => self.next(HAS_COMMENT),
            BlockPart::Comment if byte == 0 => self.next(HAS_CHECK),
            BlockPart::Check(2) => BlockPart::Check(1),
            BlockPart::Check(_) => BlockPart::Data,
            BlockPart::Trailer(1) => {
                self.has_member = true;
                BlockPart::Head(0)
            }
            BlockPart::Trailer(left) => BlockPart::Trailer(left - 1),
            part @ (BlockPart::Name | BlockPart::Comment | BlockPart::Data) => part,
        })
    }

    /// The first part of a head, from this one on, that the flags announce.
    fn next(&self, first: u8) -> BlockPart {
        let parts = [
            (HAS_EXTRA, BlockPart::ExtraLength),
            (HAS_NAME, BlockPart::Name),
            (HAS_COMMENT, BlockPart::Comment),
            (HAS_CHECK, BlockPart::Check(2)),
        ];
        let from = parts.iter().skip_while(|(flag, _)| *flag != first);
        from.into_iter().find(|(flag, _)| self.flags & flag != 0).map_or(BlockPart::Data, |(_, part)| *part)
    }
}
