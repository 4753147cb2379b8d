//! The token bucket: up to `burst` at once, refilled evenly at `rate`.
//!
//! The state is what has been *used*, draining at the rate, and not what is left: so that an empty state is a full bucket.
//!
//! Bound: in any span of t no more than `burst` + t × rate units are admitted, less what was given back in it.

use super::meter::Meter;
use super::units::{Cost, Micros, Rate, Timestamp};
use super::{Decision, Verdict, Wait};

pub use super::meter::Level as State;

/// A token bucket's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TokenBucket {
    pub(super) rate: Rate,
    pub(super) burst: Cost,
    pub(super) meter: Meter,
    pub(super) capacity: u64,
}

impl TokenBucket {
    /// A bucket that holds `burst` units.
    pub fn new(rate: Rate, burst: Cost) -> Self {
        let meter = Meter::counting(rate, burst);
        Self { rate, burst, meter, capacity: meter.ticks(burst.units().into()) }
    }

    /// Decides one request.
    #[inline(always)]
    pub fn decide(&self, state: State, now: Timestamp, cost: Cost) -> (State, Decision) {
        let used = self.meter.drained(state, now);
        match self.verdict(used, now, cost) {
            refusal @ Verdict::Deny(_) => (state, self.report(refusal, used, now)),
            pass => {
                let used = self.meter.charged(used, cost);
                (used, self.report(pass, used, now))
            }
        }
    }

    /// What [`Self::decide`] would say, with the numbers of the uncharged state.
    pub fn peek(&self, state: State, now: Timestamp, cost: Cost) -> Decision {
        let used = self.meter.drained(state, now);
        self.report(self.verdict(used, now, cost), used, now)
    }

    /// See [`Algorithm::resume`](super::Algorithm::resume).
    pub fn resume(&self, remaining: u64, reset_after: Micros, now: Timestamp) -> State {
        if remaining >= self.burst.units().into() {
            return State::default();
        }
        self.meter.resumed(self.capacity, remaining, reset_after, now)
    }

    #[inline(always)]
    fn verdict(&self, used: State, now: Timestamp, cost: Cost) -> Verdict {
        if cost > self.burst {
            return Verdict::Deny(Wait::Never);
        }
        let most = self.capacity - self.meter.ticks(cost.units().into());
        if used.ticks() <= most {
            Verdict::Allow
        } else {
            Verdict::Deny(Wait::After(self.meter.falls_to(used, most).since(now)))
        }
    }

    #[inline(always)]
    fn report(&self, verdict: Verdict, used: State, now: Timestamp) -> Decision {
        self.meter.report(verdict, used, self.capacity, now)
    }
}
