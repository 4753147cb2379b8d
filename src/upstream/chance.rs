//! Numbers that nobody need guess: which server is next, not a secret.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};

/// A stream of pseudo-random numbers (`SplitMix64`).
#[derive(Debug)]
pub(super) struct Chance {
    state: u64,
}

impl Chance {
    /// The same seed gives the same numbers.
    pub(super) fn seeded(seed: u64) -> Self {
        Self { state: seed }
    }

    /// Numbers that no other worker draws.
    pub(super) fn new() -> Self {
        Self::seeded(RandomState::new().build_hasher().finish())
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed(self.state)
    }

    /// A number below `bound`, which is at least 1.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        let wide = u128::from(self.next()) * u128::from(bound);
        u64::try_from(wide >> 64).unwrap_or(0)
    }
}

/// Spreads each bit of a number over all of them.
pub(super) fn mixed(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}
