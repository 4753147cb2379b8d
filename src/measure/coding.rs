//! Content codings (RFC 9110, 8.4.1), decoded piece by piece into a buffer of the caller.
//!
//! What a decoder keeps has a bound: 32 KiB of window for gzip and deflate, 8 MiB for zstd (RFC 9659), and the 16 MiB of
//! the format for br, of which memory is used as far as the body reaches. Windows beyond these are refused.

use std::fmt::{self, Debug, Formatter};

use brotli_decompressor::{BrotliDecompressStream, BrotliResult, BrotliState, StandardAlloc};
use flate2::Decompress;
use smallvec::SmallVec;
use zstd_safe::{DCtx, DParameter, InBuffer, OutBuffer};

use super::inflate::{Damaged, DecodeStep, GzipDecoder, inflate_step};

/// Maximum number of codings in a row.
pub const MAX_CODINGS: usize = 2;
/// The binary logarithm of the largest window of zstd.
const ZSTD_WINDOW: u32 = 23;

/// A content coding that can be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Coding {
    Gzip,
    Deflate,
    Brotli,
    Zstd,
}

impl Coding {
    /// The codings of a field's value, in the order in which they are decoded; `None` if one is unknown or they are more
    /// than [`MAX_CODINGS`].
    pub(super) fn parse(value: &[u8]) -> Option<SmallVec<[Self; MAX_CODINGS]>> {
        let mut codings = SmallVec::new();
        for name in value.split(|byte| *byte == b',').rev().map(<[u8]>::trim_ascii) {
            let is = |names: &[&str]| names.iter().any(|known| name.eq_ignore_ascii_case(known.as_bytes()));
            let coding = match name {
                _ if is(&["", "identity"]) => continue,
                _ if is(&["gzip", "x-gzip"]) => Self::Gzip,
                _ if is(&["deflate"]) => Self::Deflate,
                _ if is(&["br"]) => Self::Brotli,
                _ if is(&["zstd"]) => Self::Zstd,
                _ => return None,
            };
            if codings.len() == MAX_CODINGS {
                return None;
            }
            codings.push(coding);
        }
        Some(codings)
    }
}

/// A decoder in the middle of a body.
pub(super) enum ContentDecoder {
    Gzip(GzipDecoder),
    Deflate(Decompress),
    Brotli(Box<BrotliState<StandardAlloc, StandardAlloc, StandardAlloc>>),
    Zstd(DCtx<'static>),
}

impl Debug for ContentDecoder {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Gzip(_) => "Gzip",
            Self::Deflate(_) => "Deflate",
            Self::Brotli(_) => "Brotli",
            Self::Zstd(_) => "Zstd",
        })
    }
}

impl ContentDecoder {
    /// `None` if there is no memory for it.
    pub(super) fn new(coding: Coding) -> Option<Self> {
        let alloc = StandardAlloc::default;
        Some(match coding {
            Coding::Gzip => Self::Gzip(GzipDecoder::new()),
            Coding::Deflate => Self::Deflate(Decompress::new(true)),
            // Strict: no window beyond the 16 MiB of RFC 7932.
            Coding::Brotli => Self::Brotli(Box::new(BrotliState::new_strict(alloc(), alloc(), alloc()))),
            Coding::Zstd => {
                let mut context = DCtx::try_create()?;
                context.set_parameter(DParameter::WindowLogMax(ZSTD_WINDOW)).ok()?;
                Self::Zstd(context)
            }
        })
    }

    /// Decodes as much as there is input and room.
    ///
    /// # Errors
    ///
    /// [`Damaged`]; the decoder is not used again.
    pub(super) fn decode(&mut self, input: &[u8], output: &mut [u8]) -> Result<DecodeStep, Damaged> {
        match self {
            Self::Gzip(decoder) => decoder.decode(input, output),
            Self::Deflate(inflate) => inflate_step(inflate, input, output).map(|(step, _)| step),
            Self::Brotli(state) => {
                let (mut left, mut read, mut room, mut written) = (input.len(), 0, output.len(), 0);
                let result = BrotliDecompressStream(
                    &mut left,
                    &mut read,
                    input,
                    &mut room,
                    &mut written,
                    output,
                    &mut 0,
                    state,
                );
                let is_behind_end = matches!(result, BrotliResult::ResultSuccess) && read < input.len();
                let is_damaged =
                    is_behind_end && written == 0 || matches!(result, BrotliResult::ResultFailure);
                if is_damaged { Err(Damaged) } else { Ok(DecodeStep { read, written }) }
            }
            Self::Zstd(context) => {
                let (mut from, mut to) = (InBuffer::around(input), OutBuffer::around(output));
                context.decompress_stream(&mut to, &mut from).map_err(|_| Damaged)?;
                Ok(DecodeStep { read: from.pos(), written: to.pos() })
            }
        }
    }
}
