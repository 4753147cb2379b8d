//! A packed state: two numbers, the form in which a store keeps all states but those of the sliding log.

use super::units::Timestamp;

/// A state as a time and the use at that time: ticks of a bucket's meter, the count of a fixed window, or both counts
/// of a sliding one. No use is a fresh state, whatever the time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Packed {
    /// The time of the state: below 2^53 µs.
    pub at: Timestamp,
    /// The use, in the algorithm's own units.
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

/// The stored state of one key under one algorithm. The default is an unused key.
pub(super) trait Stored: Default + PartialEq {
    /// The state in two numbers. `None`: it has no such form.
    fn pack(&self) -> Option<Packed>;

    /// The state from its packed form. `None`: states of this algorithm are never packed.
    fn unpack(packed: Packed) -> Option<Self>;

    /// The number of entries, of the store's `max_keys`, that the state counts as.
    fn weight(&self) -> usize {
        1
    }
}
