//! Exact division by a number that is known beforehand: a multiplication and two shifts.
//!
//! With 2^s ≥ d and m = ⌈2^(53 + s) ÷ d⌉, n ÷ d rounded down is n × m ÷ 2^(53 + s) rounded down, for any n below 2^53:
//! m is too large by e ÷ d with e < d, so the product is too large by n × e ÷ (d × 2^(53 + s)) < 1 ÷ d, which carries
//! no quotient past the next whole number. (Granlund and Montgomery, *Division by invariant integers using
//! multiplication*, 1994.)

use std::fmt::{self, Debug, Formatter};

use super::units::EXACT;

/// A divisor of 1 to 2^53, with the factors for fast division.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Divisor {
    number: u64,
    /// ⌈2^(53 + shift) ÷ number⌉, at most 2^54.
    multiplier: u64,
    shift: u32,
}

impl Divisor {
    /// How far a dividend below 2^53 is shifted, so that the quotient is in the high half of the product.
    const HEAD: u32 = u64::BITS - 53;

    /// A divisor of `number`, which must lie in 1 to 2^53.
    pub(super) fn new(number: u64) -> Self {
        let shift = number.next_power_of_two().trailing_zeros();
        let multiplier = (u128::from(EXACT) << shift).div_ceil(number.into());
        Self { number, multiplier: u64::try_from(multiplier).unwrap_or(u64::MAX), shift }
    }

    /// The number divided by.
    pub(super) const fn get(self) -> u64 {
        self.number
    }

    /// `dividend` ÷ this, rounded down. Any dividend; fast below 2^53, and fastest by one, the drain of most rates.
    #[inline]
    pub(super) fn divide(self, dividend: u64) -> u64 {
        if self.shift == 0 {
            return dividend;
        }
        if dividend >= EXACT {
            return dividend / self.number;
        }
        let product = u128::from(dividend << Self::HEAD) * u128::from(self.multiplier);
        let high = (product >> u64::BITS) as u64;
        high >> self.shift
    }

    /// `dividend` ÷ this, rounded up.
    #[inline]
    pub(super) fn divide_up(self, dividend: u64) -> u64 {
        if self.shift == 0 {
            return dividend;
        }
        let quotient = self.divide(dividend);
        quotient + u64::from(quotient * self.number < dividend)
    }
}

/// As the number alone: an algorithm's id is a hash of this text.
impl Debug for Divisor {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        Debug::fmt(&self.number, f)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn agrees(dividend: u64, number: u64) {
        let divisor = Divisor::new(number);
        assert_eq!(divisor.divide(dividend), dividend / number, "{dividend} by {number}");
        assert_eq!(divisor.divide_up(dividend), dividend.div_ceil(number), "{dividend} by {number}");
    }

    /// Of any size: as many small ones as large ones.
    fn sized() -> impl Strategy<Value = u64> {
        (0..=53_u32, any::<u64>()).prop_map(|(bits, number)| number & ((1 << bits) - 1))
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 20_000, ..ProptestConfig::default() })]

        #[test]
        fn divides_as_division_does(dividend in sized(), number in sized(), large: u64) {
            let number = number.max(1);
            agrees(dividend, number);
            agrees(large, number);
            // Around the edges of a quotient.
            let edge = dividend - dividend % number;
            [edge.saturating_sub(1), edge, edge + 1].into_iter().for_each(|edge| agrees(edge, number));
        }
    }

    #[test]
    fn divides_at_the_ends_of_the_range() {
        let ends = [1, 2, 3, 5, 7, EXACT / 2 - 1, EXACT / 2, EXACT / 2 + 1, EXACT - 2, EXACT - 1, EXACT];
        for number in ends {
            ends.into_iter().chain([0, EXACT + 1, u64::MAX]).for_each(|dividend| agrees(dividend, number));
        }
    }
}
