//! Integers of variable length (RFC 9000 §16).

use bytes::{BufMut as _, BytesMut};

/// The largest integer.
pub const MAX: u64 = (1 << 62) - 1;

/// Appends an integer, of at most [`MAX`].
pub fn put(value: u64, out: &mut BytesMut) {
    let value = value.min(MAX);
    match value {
        0..=0x3f => out.put_uint(value, 1),
        0x40..=0x3fff => out.put_uint(value | 0x4000, 2),
        0x4000..=0x3fff_ffff => out.put_uint(value | 0x8000_0000, 4),
        _ => out.put_u64(value | 0xc000_0000_0000_0000),
    }
}

/// The integer that the bytes begin with, and its length. `None`: more bytes are needed.
pub fn read(bytes: &[u8]) -> Option<(u64, usize)> {
    let first = *bytes.first()?;
    let length = 1_usize << (first >> 6);
    let rest = bytes.get(1..length)?;
    let value = rest.iter().fold(u64::from(first & 0x3f), |value, byte| value << 8 | u64::from(*byte));
    Some((value, length))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(value in prop_oneof![0..=MAX, 0..70_000_u64]) {
            let mut bytes = BytesMut::new();
            put(value, &mut bytes);
            prop_assert_eq!(read(&bytes), Some((value, bytes.len())));
            for cut in 0..bytes.len() {
                prop_assert_eq!(read(&bytes[..cut]), None);
            }
        }
    }

    /// RFC 9000 appendix A.1.
    #[test]
    fn the_examples_of_the_standard() {
        for (bytes, value) in [
            (&[0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c][..], 151_288_809_941_952_652),
            (&[0x9d, 0x7f, 0x3e, 0x7d], 494_878_333),
            (&[0x7b, 0xbd], 15_293),
            (&[0x25], 37),
            (&[0x40, 0x25], 37),
        ] {
            assert_eq!(read(bytes), Some((value, bytes.len())));
        }
    }
}
