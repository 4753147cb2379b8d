//! The generic cell rate algorithm: evenly spaced at `rate`, `burst` tolerated.
//!
//! Source: ITU-T I.371, the virtual scheduling algorithm. A request may come before its theoretical arrival time by up to
//! the tolerance; each unit that passes moves that time on by period ÷ count. Here the tolerance counts the request's own
//! units too, so that `burst` is the number that pass at once. The state is how far the theoretical arrival time lies ahead.
//!
//! Bound: that of a token bucket with the same numbers; the two admit the same requests.

use super::meter::Meter;
use super::units::{Cost, Micros, Rate, Timestamp};
use super::{Decision, Verdict, Wait};

pub use super::meter::Level as State;

/// The numbers of a GCRA limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Gcra {
    pub(super) rate: Rate,
    pub(super) burst: Cost,
    pub(super) meter: Meter,
    pub(super) tolerance: u64,
}

impl Gcra {
    /// A schedule of one unit every period ÷ count, up to `burst` units early.
    pub fn new(rate: Rate, burst: Cost) -> Self {
        let meter = Meter::counting(rate, burst);
        Self { rate, burst, meter, tolerance: meter.ticks(burst.units().into()) }
    }

    /// Decides one request.
    #[inline(always)]
    pub fn decide(&self, state: State, now: Timestamp, cost: Cost) -> (State, Decision) {
        let ahead = self.meter.drained(state, now);
        match self.verdict(ahead, now.max(state.at()), now, cost) {
            refusal @ Verdict::Deny(_) => (state, self.report(refusal, ahead, now)),
            pass => {
                let ahead = self.meter.charged(ahead, cost);
                (ahead, self.report(pass, ahead, now))
            }
        }
    }

    /// What [`Self::decide`] would say, with the numbers of the uncharged state.
    pub fn peek(&self, state: State, now: Timestamp, cost: Cost) -> Decision {
        let ahead = self.meter.drained(state, now);
        self.report(self.verdict(ahead, now.max(state.at()), now, cost), ahead, now)
    }

    /// See [`Algorithm::resume`](super::Algorithm::resume).
    pub fn resume(&self, remaining: u64, reset_after: Micros, now: Timestamp) -> State {
        if remaining >= self.burst.units().into() {
            return State::default();
        }
        self.meter.resumed(self.tolerance, remaining, reset_after, now)
    }

    /// `seen` is `now`, or the state's own time if the clock has run backwards.
    #[inline(always)]
    fn verdict(&self, ahead: State, seen: Timestamp, now: Timestamp, cost: Cost) -> Verdict {
        if cost > self.burst {
            return Verdict::Deny(Wait::Never);
        }
        let early_by = self.tolerance - self.meter.ticks(cost.units().into());
        let conforms_at = self.meter.falls_to(ahead, early_by);
        if conforms_at <= seen { Verdict::Allow } else { Verdict::Deny(Wait::After(conforms_at.since(now))) }
    }

    #[inline(always)]
    fn report(&self, verdict: Verdict, ahead: State, now: Timestamp) -> Decision {
        self.meter.report(verdict, ahead, self.tolerance, now)
    }
}
