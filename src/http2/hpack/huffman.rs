//! The Huffman code of HPACK strings (RFC 7541 §5.2 and appendix B).
//!
//! The code is canonical: codes are counted up from zero, ordered by length and then by symbol. The lengths alone
//! define it.

use super::CompressionError;

/// Bits of the code of each byte.
const LENGTHS: [u8; 256] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28, 28, 28,
    28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6,
    6, 6, 7, 8, 15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7,
    8, 13, 19, 13, 14, 6, 15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7,
    15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24,
    23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23,
    23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23, 26, 26, 20, 19, 22, 23, 22, 25, 26,
    26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20,
    21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27,
    27, 27, 26,
];
/// Bits of the shortest and of the longest code.
const MIN_LENGTH: usize = 5;
/// See [`MIN_LENGTH`].
const MAX_LENGTH: usize = 30;
/// A code of up to this many bits is found with one lookup.
const LOOKUP_BITS: usize = 10;
/// Bits of padding after the last code.
const MAX_PADDING: u32 = 7;

/// The symbol of a code, and the bits of that code.
#[derive(Clone, Copy)]
struct Code {
    symbol: u8,
    length: u8,
}

/// The codes of one length.
#[derive(Clone, Copy)]
struct Range {
    /// The first code.
    first: u64,
    /// The first code beyond the range, followed by zeros: it has 32 bits.
    end: u64,
    /// Index of the symbol of the first code in [`ORDERED`].
    index: u64,
}

/// Bytes in the order of their codes. EOS has the last code of all and no place here.
static ORDERED: [u8; 256] = ordered();
/// The codes of each length.
static RANGES: [Range; MAX_LENGTH + 1] = ranges();
/// The code with which each sequence of [`LOOKUP_BITS`] bits begins. Length 0: the code is longer.
static LOOKUP: [Code; 1 << LOOKUP_BITS] = lookup();

#[expect(clippy::cast_possible_truncation, reason = "symbols are below 256")]
const fn ordered() -> [u8; 256] {
    let mut ordered = [0; 256];
    let (mut length, mut index) = (MIN_LENGTH, 0);
    while length <= MAX_LENGTH {
        let mut symbol = 0;
        while symbol < 256 {
            if LENGTHS[symbol] as usize == length {
                ordered[index] = symbol as u8;
                index += 1;
            }
            symbol += 1;
        }
        length += 1;
    }
    ordered
}

const fn ranges() -> [Range; MAX_LENGTH + 1] {
    let mut ranges = [Range { first: 0, end: 0, index: 0 }; MAX_LENGTH + 1];
    let (mut length, mut code, mut index) = (1, 0, 0);
    while length <= MAX_LENGTH {
        // EOS has the last code of the longest.
        let mut count = (length == MAX_LENGTH) as u64;
        let mut symbol = 0;
        while symbol < 256 {
            count += (LENGTHS[symbol] as usize == length) as u64;
            symbol += 1;
        }
        code <<= 1;
        ranges[length] = Range { first: code, end: (code + count) << (32 - length), index };
        code += count;
        index += count;
        length += 1;
    }
    ranges
}

const fn lookup() -> [Code; 1 << LOOKUP_BITS] {
    let ordered = ordered();
    let mut lookup = [Code { symbol: 0, length: 0 }; 1 << LOOKUP_BITS];
    let (mut index, mut bits) = (0, 0);
    while LENGTHS[ordered[index] as usize] as usize <= LOOKUP_BITS {
        let symbol = ordered[index];
        let length = LENGTHS[symbol as usize];
        let end = bits + (1 << (LOOKUP_BITS - length as usize));
        while bits < end {
            lookup[bits] = Code { symbol, length };
            bits += 1;
        }
        index += 1;
    }
    lookup
}

/// The code with which `bits` begin, from the highest bit on. An error: it is the code of EOS.
#[inline]
fn first_code(bits: u64) -> Result<Code, CompressionError> {
    let index = usize::try_from(bits >> (64 - LOOKUP_BITS)).map_err(|_| CompressionError)?;
    match LOOKUP[index] {
        Code { length: 0, .. } => long_code(bits >> 32),
        code => Ok(code),
    }
}

/// See [`first_code`], for the first 32 bits.
fn long_code(bits: u64) -> Result<Code, CompressionError> {
    let mut ranges = (0_u8..).zip(&RANGES).skip(LOOKUP_BITS + 1);
    let (length, range) = ranges.find(|(_, range)| bits < range.end).ok_or(CompressionError)?;
    let index = (bits >> (32 - length)) - range.first + range.index;
    let symbol = usize::try_from(index).ok().and_then(|index| ORDERED.get(index));
    symbol.map(|symbol| Code { symbol: *symbol, length }).ok_or(CompressionError)
}

/// Replaces the contents of `out` by the decoded string: at most 1.6 times as many bytes.
///
/// # Errors
/// The string has the code of EOS, or the padding is longer than 7 bits or not all ones.
pub(super) fn decode(mut coded: &[u8], out: &mut Vec<u8>) -> Result<(), CompressionError> {
    out.clear();
    out.reserve(coded.len() * 8 / MIN_LENGTH);
    // Bits not decoded yet stand highest, followed by zeros.
    let (mut bits, mut count) = (0_u64, 0_u32);
    while let Some((word, rest)) = coded.split_first_chunk() {
        bits |= u64::from(u32::from_be_bytes(*word)) << (32 - count);
        count += 32;
        coded = rest;
        while count >= 32 {
            let code = first_code(bits)?;
            out.push(code.symbol);
            bits <<= code.length;
            count -= u32::from(code.length);
        }
    }
    for byte in coded {
        bits |= u64::from(*byte) << (56 - count);
        count += 8;
    }
    while count > 0 {
        let code = first_code(bits)?;
        let Some(left) = count.checked_sub(u32::from(code.length)) else { break };
        out.push(code.symbol);
        bits <<= code.length;
        count = left;
    }
    let is_padding = count <= MAX_PADDING && bits == !(u64::MAX >> count);
    if is_padding { Ok(()) } else { Err(CompressionError) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(coded: &[u8]) -> Result<Vec<u8>, CompressionError> {
        let mut out = b"old".to_vec();
        decode(coded, &mut out).map(|()| out)
    }

    #[test]
    fn the_code_is_complete() {
        assert_eq!(RANGES[MAX_LENGTH].end, 1 << 32);
        assert_eq!(RANGES[MAX_LENGTH].index + 4, 257);
    }

    #[test]
    fn examples_of_the_rfc_are_decoded() {
        let coded = [0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff];
        assert_eq!(decoded(&coded).unwrap(), b"www.example.com");
        assert_eq!(decoded(&[0xa8, 0xeb, 0x10, 0x64, 0x9c, 0xbf]).unwrap(), b"no-cache");
        assert_eq!(decoded(&[]).unwrap(), b"");
    }

    #[test]
    fn padding_is_up_to_seven_ones() {
        assert_eq!(decoded(&[0x07]).unwrap(), b"0");
        assert_eq!(decoded(&[0x00]), Err(CompressionError), "zeros");
        assert_eq!(decoded(&[0x06]), Err(CompressionError), "a zero at the end");
        assert_eq!(decoded(&[0x07, 0xff]), Err(CompressionError), "eleven bits");
        assert_eq!(decoded(&[0xff]), Err(CompressionError), "eight bits");
        // Byte 1 has a code of 23 bits, and byte 249 one of 28.
        assert_eq!(decoded(&[0xff, 0xff, 0xb1]).unwrap(), [1]);
        assert_eq!(decoded(&[0xff, 0xff, 0xb0]), Err(CompressionError));
        assert_eq!(decoded(&[0xff, 0xff, 0xff, 0xef]).unwrap(), [249]);
    }

    #[test]
    fn eos_is_an_error() {
        assert_eq!(decoded(&[0xff, 0xff, 0xff, 0xff]), Err(CompressionError));
        assert_eq!(decoded(&[0x07, 0xff, 0xff, 0xff, 0xff, 0xff]), Err(CompressionError));
        // The code of byte 22 differs from EOS in the last bit.
        assert_eq!(decoded(&[0xff, 0xff, 0xff, 0xfb]).unwrap(), [22]);
    }
}
