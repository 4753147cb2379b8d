//! The decoder of field sections (RFC 9204 §4.5).

use super::static_table;
use crate::http2::hpack::decoder::{FieldBlock, Scratch};

/// A field section breaks the rules of QPACK, or needs a dynamic table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecompressionFailed;

/// Decodes a whole field section. Each name and value is passed to `field`, in their order.
///
/// A byte of the section may stand for a whole field of the static table, so `field` has to bound what it keeps.
///
/// # Errors
///
/// The section breaks a rule of RFC 9204, or refers to a dynamic table, which there is not. The fields before that place were
/// passed.
pub fn decode(section: &[u8], mut field: impl FnMut(&[u8], &[u8])) -> Result<(), DecompressionFailed> {
    let mut input = FieldBlock::new(section);
    let mut scratch = Scratch::default();
    // §4.5.1: no entry of the dynamic table is needed. The base has no meaning then, but must not be below 0.
    if integer(&mut input, 8)? != 0 || input.peek().is_none_or(|base| base & 0x80 != 0) {
        return Err(DecompressionFailed);
    }
    integer(&mut input, 7)?;
    while let Some(first) = input.peek() {
        match first {
            // §4.5.2: an indexed field of the static table.
            0xc0.. => {
                let (name, value) = entry(integer(&mut input, 6)?)?;
                field(name, value);
            }
            // §4.5.4: a literal with a name of the static table.
            0x40..=0x7f if first & 0x10 != 0 => {
                let (name, _) = entry(integer(&mut input, 4)?)?;
                let value = input.string(7, &mut scratch.value).map_err(|_| DecompressionFailed)?;
                field(name, value);
            }
            // §4.5.6: a literal with its name.
            0x20..=0x3f => {
                let Scratch { name, value } = &mut scratch;
                let name = input.string(3, name).map_err(|_| DecompressionFailed)?;
                let value = input.string(7, value).map_err(|_| DecompressionFailed)?;
                field(name, value);
            }
            // All others refer to the dynamic table.
            _ => return Err(DecompressionFailed),
        }
    }
    Ok(())
}

fn integer(input: &mut FieldBlock<'_>, prefix: u32) -> Result<usize, DecompressionFailed> {
    input.integer(prefix).map_err(|_| DecompressionFailed)
}

fn entry(index: usize) -> Result<static_table::QpackEntry, DecompressionFailed> {
    static_table::get(index).ok_or(DecompressionFailed)
}
