//! A set of charges of one request.

use super::MAX_CHARGES;

/// Some of a request's charges, by index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChargeSet(u32);

impl ChargeSet {
    /// Adds the charge at index `index`, which is below [`MAX_CHARGES`].
    pub fn insert(&mut self, index: usize) {
        self.0 |= 1 << (index % MAX_CHARGES);
    }

    /// Whether it contains the charge at index `index`.
    pub fn contains(self, index: usize) -> bool {
        index < MAX_CHARGES && self.0 & 1 << index != 0
    }

    /// Whether there are none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}
