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

/// What is stored of one key under one algorithm. The default is a fresh key.
pub(super) trait Stored: Default + PartialEq {
    /// The state in two numbers. `None`: it has no such form.
    fn pack(&self) -> Option<Packed>;

    /// The state that was packed. `None`: none ever is.
    fn unpack(packed: Packed) -> Option<Self>;

    /// How many of the store's `max_keys` the state takes.
    fn weight(&self) -> usize {
        1
    }
}
