//! A slot of a cluster, and the slot of a key. Pure.

/// The number of slots.
pub(super) const SLOTS: usize = 1 << 14;

/// One of a cluster's 16,384 parts. A single server has only the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HashSlot(u16);

impl HashSlot {
    /// The slot of this number; `None` if the number is too large.
    pub(super) fn new(number: u16) -> Option<Self> {
        (usize::from(number) < SLOTS).then_some(Self(number))
    }

    /// Its number.
    pub(super) fn index(self) -> usize {
        self.0.into()
    }

    /// The slot of all keys with this hash tag.
    pub(super) fn of(tag: &[u8]) -> Self {
        Self(crc16(tag) % (1 << 14))
    }
}

/// CRC-16/XMODEM, as the cluster specification requires.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| (crc << 8) ^ CRC16[usize::from(crc.to_be_bytes()[0] ^ byte)])
}

static CRC16: [u16; 256] = table();

const fn table() -> [u16; 256] {
    let mut table = [0; 256];
    let mut byte: u16 = 0;
    while byte < 256 {
        let (mut crc, mut bit) = (byte << 8, 0);
        while bit < 8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 };
            bit += 1;
        }
        table[byte as usize] = crc;
        byte += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_clusters_specification() {
        assert_eq!(crc16(b"123456789"), 0x31C3);
        // As `CLUSTER KEYSLOT` replies.
        let slots = [("", 0), ("foo", 12_182), ("bar", 5_061), ("user1000", 3_443), ("somekey", 11_058)];
        for (tag, slot) in slots {
            assert_eq!(HashSlot::of(tag.as_bytes()), HashSlot(slot), "{tag}");
        }
    }
}
