//! Strings in HPACK's Huffman code (RFC 7541 appendix B), as far as it takes to find `#` in them.

/// How many codes there are of each length in bits. The code is canonical: counted up from zero, shorter codes before
/// longer ones, so their number is all it takes to see where one ends.
const CODES: [(u32, u64); 21] = [
    (5, 10),
    (6, 26),
    (7, 32),
    (8, 6),
    (10, 5),
    (11, 3),
    (12, 2),
    (13, 6),
    (14, 2),
    (15, 3),
    (19, 3),
    (20, 8),
    (21, 13),
    (22, 26),
    (23, 29),
    (24, 12),
    (25, 4),
    (26, 15),
    (27, 19),
    (28, 29),
    (30, 4),
];
/// The shortest and the longest.
const SHORTEST: u32 = 5;
/// See [`SHORTEST`].
const LONGEST: u32 = 30;
/// For each length but the last, the first code behind those of that length; in the upper bits of a word, as if all codes
/// had 64.
const ENDS: [(u32, u64); 20] = ends();
/// The code of `#`, which has 12 bits.
const HASH: u64 = 0xffa;

const fn ends() -> [(u32, u64); 20] {
    let mut ends = [(0, 0); 20];
    let (mut place, mut end) = (0, 0);
    while place < ends.len() {
        let (length, count) = CODES[place];
        end += count << (64 - length);
        ends[place] = (length, end);
        place += 1;
    }
    ends
}

/// A string that comes in pieces.
#[derive(Clone, Copy, Debug, Default)]
pub struct Huffman {
    /// What has come, the last bit lowest. Above those that count, what is done with.
    bits: u64,
    /// Bits of a code that is not whole.
    count: u32,
}

impl Huffman {
    /// Whether `#` is among what these bytes, which come next, are the end of.
    pub fn has_hash(&mut self, bytes: &[u8]) -> bool {
        let mut found = false;
        for byte in bytes {
            self.bits = self.bits << 8 | u64::from(*byte);
            self.count += 8;
            while self.count >= SHORTEST {
                // Zeros stand for what is to come: no code that is whole already looks different for them.
                let next = self.bits << (64 - self.count);
                let length = length(next);
                if length > self.count {
                    break;
                }
                found |= next >> (64 - 12) == HASH;
                self.count -= length;
            }
        }
        found
    }
}

/// Of the code with which these bits begin.
fn length(bits: u64) -> u32 {
    ENDS.iter().find(|(_, end)| bits < *end).map_or(LONGEST, |(length, _)| *length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_codes_are_all_there_are() {
        assert_eq!(CODES.iter().map(|(_, count)| count).sum::<u64>(), 257, "all bytes, and the end");
        let (length, count) = CODES[20];
        assert_eq!(
            u128::from(ENDS[19].1) + (u128::from(count) << (64 - length)),
            1 << 64,
            "and no room left"
        );
        assert_eq!(length, LONGEST);
    }

    #[test]
    fn only_a_whole_code_is_a_hash() {
        let found = |bytes: &[u8]| Huffman::default().has_hash(bytes);
        assert!(found(&[0xff, 0xaf]), "#");
        assert!(found(&[0x07, 0xfd, 0x7f]), "0#, padded");
        assert!(!found(&[0xff, 0xbf]), ">");
        assert!(!found(&[0x0f, 0xfa]), "1', in which the bits of # stand across both");
        assert!(!found(&[0xff]), "half of it");
        // RFC 7541 C.4.1.
        assert!(!found(&[0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff]));
    }

    #[test]
    fn pieces_are_one_string() {
        let mut string = Huffman::default();
        assert!(!string.has_hash(&[0x07]) && !string.has_hash(&[0xfd]) && string.has_hash(&[0x7f]));
        assert!(!string.has_hash(&[]));
    }
}
