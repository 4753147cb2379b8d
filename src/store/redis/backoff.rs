//! The delay between connection attempts, with jitter so that workers do not reconnect in step. Pure: the caller passes
//! the random number.

use std::time::Duration;

/// The first delay, ± a quarter.
const FIRST: Duration = Duration::from_millis(100);
/// The longest delay, ± a quarter: with it an attempt begins at least every 2 s.
const LONGEST: Duration = Duration::from_millis(1_500);

/// Doubling delays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Backoff {
    tries: u32,
}

impl Backoff {
    /// From the beginning of the last attempt to the beginning of the next: 100 ms, then twice as long each time up to
    /// 1.5 s; ± a quarter, by `chance`.
    pub(super) fn next(&mut self, chance: u64) -> Duration {
        let rest = FIRST.saturating_mul(1 << self.tries.min(16)).min(LONGEST);
        self.tries = self.tries.saturating_add(1);
        // 0 to 1000 thousandths of a half, on top of three quarters.
        let thousandths = u32::try_from(chance % 1_001).unwrap_or(0);
        rest * 3 / 4 + rest * thousandths / 2_000
    }

    /// An attempt succeeded: the next delay is the first again.
    pub(super) fn reset(&mut self) {
        self.tries = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rests_double_and_stay_below_two_seconds() {
        let rests = |chance| {
            let mut backoff = Backoff::default();
            [(); 7].map(|()| backoff.next(chance).as_millis())
        };
        assert_eq!(rests(0), [75, 150, 300, 600, 1_125, 1_125, 1_125]);
        assert_eq!(rests(500), [100, 200, 400, 800, 1_500, 1_500, 1_500]);
        assert_eq!(rests(1_000), [125, 250, 500, 1_000, 1_875, 1_875, 1_875]);
        let mut backoff = Backoff { tries: u32::MAX };
        assert!(backoff.next(u64::MAX) < Duration::from_secs(2));
        backoff.reset();
        assert_eq!(backoff.next(500), FIRST);
    }
}
