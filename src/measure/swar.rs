//! Eight bytes at a time, as a number whose lowest byte comes first.

/// A one in each byte.
pub(super) const ONES: u64 = 0x0101_0101_0101_0101;
/// The low seven bits of each byte.
pub(super) const LOW: u64 = 0x7f * ONES;
/// The high bit of each byte.
const HIGH: u64 = 0x80 * ONES;

/// The words that are searched before a search with a start of its own takes over.
const FIRST: usize = 4;

/// The high bit of each byte that equals `byte`. `low` has the low seven bits of the bytes of `word`, or what they
/// were mapped to.
#[inline]
pub(super) fn equal(word: u64, low: u64, byte: u8) -> u64 {
    !(((low ^ (u64::from(byte) * ONES)) + LOW) | word) & HIGH
}

/// The place of the first quote or backslash. Most strings of JSON are short.
#[inline]
pub(super) fn find_quote(bytes: &[u8]) -> Option<usize> {
    let (words, _) = bytes.as_chunks::<8>();
    let first = words.get(..FIRST).unwrap_or(words);
    for (index, word) in first.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        let found = equal(word, word & LOW, b'"') | equal(word, word & LOW, b'\\');
        if found != 0 {
            return Some(index * 8 + usize::try_from(found.trailing_zeros() / 8).unwrap_or(0));
        }
    }
    let behind = first.len() * 8;
    memchr::memchr2(b'"', b'\\', bytes.get(behind..)?).map(|at| behind + at)
}
