//! A step of a decoder; that of deflate data (RFC 1951), with or without the frame of zlib.

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
