//! The common part of the algorithms with a meter: the token bucket, GCRA and the leaky bucket.

use std::fmt::{self, Formatter};

use super::limiter::{Limiter, Names, Viewed};
use super::meter::{Level, Meter};
use super::rate_params::{WrittenRate, burst};
use super::units::{Cost, Micros, Rate, Timestamp};
use super::{Decision, Verdict};

/// The parameters in terms of the meter. Computed on demand: a limit keeps its parameters under its own names, since an
/// id is made of its `Debug` text ([`ParamsId`](crate::store::ParamsId)).
pub(super) struct Bucket {
    pub(super) rate: Rate,
    /// `burst`, or `queue`.
    pub(super) quota: Cost,
    pub(super) meter: Meter,
    /// The maximum number of ticks in use: those of the quota, or fewer.
    pub(super) full: u64,
}

/// An algorithm with a meter. The default methods are those of a `burst`.
pub(super) trait Metered {
    /// The algorithm's names.
    const NAMES: Names;

    /// The parameters.
    fn bucket(&self) -> Bucket;

    /// The verdict on a request of this cost, with `used` in use.
    fn verdict(&self, used: Level, now: Timestamp, cost: Cost) -> Verdict;

    /// See [`Viewed::report`].
    #[inline(always)]
    fn report(&self, verdict: Verdict, used: Level, now: Timestamp) -> Decision {
        let Bucket { meter, full, .. } = self.bucket();
        meter.report(verdict, used, full, now)
    }

    /// See [`Limiter::resume`].
    fn resume(&self, remaining: u64, reset_after: Micros, now: Timestamp) -> Level {
        let Bucket { quota, meter, full, .. } = self.bucket();
        if remaining >= quota.units().into() {
            return Level::default();
        }
        meter.resumed(full, remaining, reset_after, now)
    }

    /// See [`Limiter::max_cost`].
    fn max_cost(&self) -> u64 {
        self.bucket().quota.units().into()
    }

    /// See `Limiter::explain`.
    fn explain(&self, f: &mut Formatter<'_>) -> fmt::Result {
        burst(f, self.bucket().rate, self.bucket().quota.units())
    }
}

impl<L: Metered> Limiter for L {
    type State = Level;

    const NAMES: Names = L::NAMES;

    fn rate(&self) -> Option<Rate> {
        Some(self.bucket().rate)
    }

    #[inline(always)]
    fn decide(&self, state: Level, now: Timestamp, cost: Cost) -> (Level, Decision) {
        self.decide_by_view(state, now, cost)
    }

    fn peek(&self, state: &Level, now: Timestamp, cost: Cost) -> Decision {
        self.peek_by_view(*state, now, cost)
    }

    fn settle(&self, state: Level, _admitted_at: Timestamp, difference: i64, now: Timestamp) -> Level {
        self.bucket().meter.settled(state, difference, now)
    }

    fn resume(&self, remaining: u64, reset_after: Micros, now: Timestamp) -> Level {
        Metered::resume(self, remaining, reset_after, now)
    }

    fn convert(&self, from: &Self, state: Level, now: Timestamp) -> Level {
        self.bucket().meter.converted(&from.bucket().meter, state, now)
    }

    fn forget_at(&self, state: &Level) -> Timestamp {
        self.bucket().meter.forget_at(*state)
    }

    fn in_use(&self, state: &Level, now: Timestamp) -> u64 {
        self.bucket().meter.in_use(*state, now)
    }

    fn used(&self, state: &Level, now: Timestamp) -> (u64, u64) {
        (self.view(*state, now).ticks(), self.bucket().full)
    }

    fn quota(&self) -> u64 {
        self.bucket().quota.units().into()
    }

    fn window(&self) -> Micros {
        self.bucket().rate.span_of(self.bucket().quota)
    }

    fn period(&self) -> Option<Micros> {
        None
    }

    fn max_cost(&self) -> u64 {
        Metered::max_cost(self)
    }

    fn params(&self) -> [u64; 5] {
        let Bucket { quota, meter, full, .. } = self.bucket();
        let [unit, drain, step] = meter.params();
        [unit, drain, step, full, quota.units().into()]
    }

    fn explain(&self, f: &mut Formatter<'_>) -> fmt::Result {
        Metered::explain(self, f)
    }

    fn abridge(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {} {}", WrittenRate(self.bucket().rate), L::NAMES.quota, self.quota())
    }
}

impl<L: Metered> Viewed for L {
    type View = Level;

    #[inline(always)]
    fn view(&self, state: Level, now: Timestamp) -> Level {
        self.bucket().meter.drained(state, now)
    }

    #[inline(always)]
    fn verdict(&self, used: Level, now: Timestamp, cost: Cost) -> Verdict {
        Metered::verdict(self, used, now, cost)
    }

    #[inline(always)]
    fn report(&self, verdict: Verdict, used: Level, now: Timestamp) -> Decision {
        Metered::report(self, verdict, used, now)
    }

    #[inline(always)]
    fn charged(&self, used: Level, cost: Cost) -> Level {
        self.bucket().meter.charged(used, cost)
    }
}
