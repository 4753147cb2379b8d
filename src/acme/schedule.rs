//! When certificates are due, and how long failures wait. Pure: the time and the random numbers are given.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::micros;
use crate::limit::units::Micros;
use crate::limit::wall_clock::WallTime;

/// The wait after the first failure; each further one doubles it.
const FIRST_WAIT: Micros = Micros(60 * Micros::SECOND.0);
/// The longest wait that is not the authority's wish.
const LONGEST_WAIT: Micros = Micros(12 * 3_600 * Micros::SECOND.0);
/// The longest wait that the authority may wish for.
const LONGEST_WISH: Micros = Micros(7 * 86_400 * Micros::SECOND.0);
/// The part of the lifetime, of which a renewal needs so much to be left; and by how much of it the moment varies.
const LEFT: u64 = 3;
const VARIES: f64 = 0.1;
/// The part of the lifetime that is left at the latest, whatever the authority suggests.
const LEFT_AT_LEAST: u64 = 6;

/// When a certificate is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// From this moment on.
    pub begin: WallTime,
    /// Until this one.
    pub end: WallTime,
}

impl Validity {
    fn lifetime(self) -> u64 {
        self.end.since(self.begin).0
    }

    /// The share of the lifetime that is left at `now`, 0 to 1.
    #[expect(clippy::cast_precision_loss, reason = "a share")]
    pub fn left(self, now: WallTime) -> f64 {
        let lifetime = self.lifetime().max(1) as f64;
        (self.end.since(now).0 as f64 / lifetime).min(1.0)
    }

    /// When the certificate is renewed: a third of the lifetime before its end, up to a tenth of that later by `jitter` (0
    /// to 1), or when the authority suggests. No suggestion leaves less than a sixth.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share of a span below 2^53"
    )]
    pub fn renewal(self, jitter: f64, suggested: Option<WallTime>) -> WallTime {
        let third = self.lifetime() / LEFT;
        let before = |span: u64| WallTime(self.end.0.saturating_sub(span));
        match suggested {
            Some(suggested) => suggested.min(before(self.lifetime() / LEFT_AT_LEAST)),
            None => before(third - (third as f64 * VARIES * jitter.clamp(0.0, 1.0)) as u64),
        }
    }
}

/// The failures of orders for a certificate since the last success.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedOrders {
    /// How many.
    pub count: u32,
    /// When the last one failed, in µs since 1970.
    pub failed: u64,
    /// How long nothing is ordered after it, in µs.
    pub wait: u64,
    /// Why it failed.
    pub error: String,
}

impl FailedOrders {
    /// One more. `wish`: the authority asks for at least this wait. `jitter`: 0 to 1.
    pub fn fail(&mut self, now: WallTime, error: String, wish: Option<Duration>, jitter: f64) {
        self.count = self.count.saturating_add(1);
        self.failed = now.0;
        self.wait = wait_after(self.count, wish, jitter).0;
        self.error = error;
    }

    /// When the next order may be made. A clock that was set back since then does not make it wait for longer.
    pub fn next(&self, now: WallTime) -> WallTime {
        let wait = Micros(self.wait.min(LONGEST_WISH.0));
        let failed = WallTime(self.failed);
        if self.count == 0 { WallTime(0) } else { failed.min(now).plus(wait) }
    }

    /// Notes a clock that was set back: the wait begins now. Returns whether it was.
    pub fn follow(&mut self, now: WallTime) -> bool {
        let is_ahead = self.count > 0 && self.failed > now.0;
        if is_ahead {
            self.failed = now.0;
        }
        is_ahead
    }
}

/// How long to wait after so many failures.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a share of a span below 2^53"
)]
fn wait_after(failures: u32, wish: Option<Duration>, jitter: f64) -> Micros {
    let doubled = FIRST_WAIT.0.saturating_mul(1 << failures.saturating_sub(1).min(20));
    let own = doubled.min(LONGEST_WAIT.0);
    let own = own + (own as f64 * 0.25 * jitter.clamp(0.0, 1.0)) as u64;
    let wish = wish.map_or(Micros(0), |wish| micros(wish.min(Duration::from_secs(7 * 86_400))));
    Micros(own.min(LONGEST_WAIT.0).max(wish.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u64 = 3_600 * Micros::SECOND.0;
    const DAY: u64 = 24 * HOUR;

    #[test]
    fn a_third_of_the_lifetime_is_left_less_the_jitter() {
        for days in [1, 6, 90, 365] {
            let validity = Validity { begin: WallTime(1_000 * DAY), end: WallTime((1_000 + days) * DAY) };
            let left = |jitter| (validity.end.0 - validity.renewal(jitter, None).0) as f64 / DAY as f64;
            assert!((left(0.0) - days as f64 / 3.0).abs() < 1e-6, "{days}");
            assert!((left(1.0) - days as f64 * 0.3).abs() < 1e-6, "{days}");
        }
        let empty = Validity { begin: WallTime(5), end: WallTime(5) };
        assert_eq!((empty.renewal(0.5, None), empty.left(WallTime(1))), (WallTime(5), 1.0));
    }

    #[test]
    fn a_suggestion_comes_first_but_not_too_late() {
        let validity = Validity { begin: WallTime(0), end: WallTime(60 * DAY) };
        assert_eq!(validity.renewal(0.0, Some(WallTime(DAY))), WallTime(DAY));
        assert_eq!(validity.renewal(0.0, Some(WallTime(45 * DAY))), WallTime(45 * DAY));
        assert_eq!(validity.renewal(0.0, Some(WallTime(u64::MAX))), WallTime(50 * DAY));
    }

    #[test]
    fn waits_double_up_to_half_a_day_and_the_authority_may_ask_for_more() {
        let minutes = |failures| wait_after(failures, None, 0.0).0 / 60_000_000;
        assert_eq!([1, 2, 3, 10, 11, 99].map(minutes), [1, 2, 4, 512, 720, 720]);
        assert_eq!(wait_after(1, None, 1.0).0, 75_000_000);
        assert_eq!(wait_after(u32::MAX, None, 1.0), LONGEST_WAIT);
        let wish = |seconds| wait_after(1, Some(Duration::from_secs(seconds)), 0.0).0 / 1_000_000;
        assert_eq!([1, 3_600, 86_400, u64::MAX].map(wish), [60, 3_600, 86_400, 7 * 86_400]);
    }

    #[test]
    fn a_clock_that_is_set_back_lengthens_no_wait() {
        let mut failed = FailedOrders::default();
        assert_eq!(failed.next(WallTime(7)), WallTime(0));
        failed.fail(WallTime(100 * DAY), "no".into(), None, 0.0);
        assert_eq!(failed.next(WallTime(100 * DAY)), WallTime(100 * DAY).plus(FIRST_WAIT));
        assert_eq!(failed.next(WallTime(101 * DAY)), WallTime(100 * DAY).plus(FIRST_WAIT));
        assert!(!failed.follow(WallTime(101 * DAY)));
        assert!(failed.follow(WallTime(DAY)));
        assert_eq!(failed.next(WallTime(DAY)), WallTime(DAY).plus(FIRST_WAIT));
        let tampered = FailedOrders { count: 1, failed: 0, wait: u64::MAX, error: String::new() };
        assert_eq!(tampered.next(WallTime(DAY)), WallTime(0).plus(LONGEST_WISH));
    }
}
