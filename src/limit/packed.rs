//! A state in two numbers: what a store keeps of every algorithm but the sliding log.

use super::units::Timestamp;

/// A state as a moment and what is used then: ticks of a bucket's meter, the count of a fixed window, or both counts
/// of a sliding one. Nothing used is a fresh state, whatever the moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Packed {
    /// When it stood so: below 2^53 µs.
    pub at: Timestamp,
    /// What was used, in the algorithm's own terms.
    pub used: u64,
}

impl Packed {
    /// The low half of what is used.
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "the low half is meant")]
    pub(super) const fn low(self) -> u32 {
        self.used as u32
    }

    /// The high half of what is used.
    #[inline(always)]
    pub(super) const fn high(self) -> u32 {
        (self.used >> u32::BITS) as u32
    }
}
