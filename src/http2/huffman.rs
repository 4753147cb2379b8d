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
/// For each length but the last, the first code behind those of that length; in the upper bits of a word, as if all codes
/// had 64.
const ENDS: [(u32, u64); 20] = ends();
/// The shortest and the longest.
const SHORTEST: u32 = 5;
/// See [`SHORTEST`].
const LONGEST: u32 = 30;
/// The code of `#`: it has 12 bits, and begins with nine ones.
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
    /// Of a code that is not whole, in the upper bits.
    bits: u64,
    /// How many they are.
    count: u32,
}

impl Huffman {
    /// Whether `#` is among what these bytes, which come next, are the end of. `last`: no more will come.
    pub fn has_hash(&mut self, bytes: &[u8], last: bool) -> bool {
        // Hardly any string without it has so many ones together, and to see that takes no walk from code to code.
        if last && self.count == 0 && !has_nine_ones(bytes) {
            return false;
        }
        let mut found = false;
        for byte in bytes {
            self.bits |= u64::from(*byte) << (56 - self.count);
            self.count += 8;
            while self.count >= SHORTEST {
                // Zeros stand for what is to come: no code that is whole already looks different for them.
                let length = length(self.bits);
                if length > self.count {
                    break;
                }
                found |= self.bits >> (64 - 12) == HASH;
                self.bits <<= length;
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

/// Whether nine bits in a row are set.
fn has_nine_ones(bytes: &[u8]) -> bool {
    let runs = bytes.iter().zip(bytes.iter().skip(1)).fold(0, |runs, (first, second)| {
        let one = u16::from_be_bytes([*first, *second]);
        let two = one & one << 1;
        let four = two & two << 2;
        let eight = four & four << 4;
        runs | (eight & one << 8)
    });
    runs != 0
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
        let found = |bytes: &[u8]| Huffman::default().has_hash(bytes, true);
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
        assert!(
            !string.has_hash(&[0x07], false)
                && !string.has_hash(&[0xfd], false)
                && string.has_hash(&[0x7f], true)
        );
        assert!(!string.has_hash(&[], true));
    }

    #[test]
    fn nine_ones_are_seen_wherever_they_stand() {
        for at in 0..16 {
            let bits = 0x00ff_8000_u32 >> at;
            assert!(has_nine_ones(&bits.to_be_bytes()), "{at}");
            assert!(!has_nine_ones(&(bits & bits << 1).to_be_bytes()), "eight, {at}");
        }
    }
}
