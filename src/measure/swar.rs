//! Reads JSON eight bytes at a time, as a number whose lowest byte comes first: the end of a string, and the end of a
//! container that no pointer leads into.
//!
//! In such a container only strings and brackets are read. The grammar is not checked.

/// A one in each byte.
const ONES: u64 = 0x0101_0101_0101_0101;
/// The low seven bits of each byte.
const LOW: u64 = 0x7f * ONES;
/// The high bit of each byte.
const HIGH: u64 = 0x80 * ONES;

/// The words that are searched before a search with a start of its own takes over.
const FIRST: usize = 4;

/// The high bit of each byte that equals `byte`. `low` has the low seven bits of the bytes of `word`, or what they
/// were mapped to.
#[inline]
fn equal(word: u64, low: u64, byte: u8) -> u64 {
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
    let after = first.len() * 8;
    memchr::memchr2(b'"', b'\\', bytes.get(after..)?).map(|at| after + at)
}

/// A container of which some bytes were read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Beside {
    /// The number of open brackets.
    depth: u64,
    in_text: bool,
    is_escaped: bool,
}

impl Beside {
    /// Behind the bracket that begins the container.
    pub(super) fn new() -> Self {
        Self { depth: 1, in_text: false, is_escaped: false }
    }

    /// Reads up to the end of the container. Returns how many bytes it took, if the container ends in them.
    pub(super) fn scan(&mut self, bytes: &[u8]) -> Option<usize> {
        let (words, tail) = bytes.as_chunks::<8>();
        for (index, word) in words.iter().enumerate() {
            if !self.scan_word(u64::from_le_bytes(*word))
                && let Some(length) = self.scan_bytes(word)
            {
                return Some(index * 8 + length);
            }
        }
        self.scan_bytes(tail).map(|length| words.len() * 8 + length)
    }

    /// Reads eight bytes, unless they need a closer look: an escape, or an end of the container.
    #[inline]
    fn scan_word(&mut self, word: u64) -> bool {
        let low = word & LOW;
        // Without the bit that tells `[` from `{`, and `]` from `}`.
        let folded = (word | (0x20 * ONES)) & LOW;
        if equal(word, low, b'\\') != 0 || self.is_escaped {
            return false;
        }
        // The parity of the quotes up to each byte: 1 from an opening quote up to the byte before the closing one.
        let quotes = equal(word, low, b'"') >> 7;
        let parity = quotes.wrapping_mul(ONES) & ONES;
        let inside = parity ^ if self.in_text { ONES } else { 0 };
        let opened = equal(word, folded, b'{') >> 7 & !inside;
        let closed = equal(word, folded, b'}') >> 7 & !inside;
        if (opened | closed) != 0 {
            let count = |ones: u64| ones.wrapping_mul(ONES) >> 56;
            if count(closed) >= self.depth {
                return false;
            }
            self.depth = self.depth + count(opened) - count(closed);
        }
        self.in_text = inside >> 56 != 0;
        true
    }

    fn scan_bytes(&mut self, bytes: &[u8]) -> Option<usize> {
        for (at, byte) in bytes.iter().enumerate() {
            if self.is_escaped {
                self.is_escaped = false;
            } else if self.in_text {
                match byte {
                    b'"' => self.in_text = false,
                    b'\\' => self.is_escaped = true,
                    _ => {}
                }
            } else {
                match byte {
                    b'"' => self.in_text = true,
                    b'{' | b'[' => self.depth += 1,
                    b'}' | b']' => {
                        self.depth -= 1;
                        if self.depth == 0 {
                            return Some(at + 1);
                        }
                    }
                    _ => {}
                }
            }
        }
        None
    }
}
