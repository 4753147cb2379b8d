//! Skips a container that no pointer leads into, eight bytes at a time.
//!
//! Only strings and brackets are read. The grammar is not checked.

use super::swar::{LOW, ONES, equal};

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
