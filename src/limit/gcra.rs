//! The generic cell rate algorithm: evenly spaced at `rate`, `burst` tolerated.
//!
//! Source: ITU-T I.371, the virtual scheduling algorithm. A request may come before its theoretical arrival time by up to
//! the tolerance; each unit that passes moves that time on by period ÷ count. Here the tolerance counts the request's own
//! units too, so that `burst` is the number that pass at once. The state is how far the theoretical arrival time lies ahead.
//!
//! Bound: that of a token bucket with the same numbers; the two admit the same requests.

use std::fmt::{self, Formatter};

use super::limiter::Limiter;
use super::meter::Meter;
use super::pace::{Written, burst};
use super::packed::Packed;
use super::units::{Cost, Micros, Rate, Timestamp};
use super::{Algorithm, Decision, Verdict, Wait};

pub use super::meter::Level as State;

/// The numbers of a GCRA limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Gcra {
    rate: Rate,
    burst: Cost,
    meter: Meter,
    tolerance: u64,
}

impl Algorithm {
    /// Evenly spaced at `rate`, `burst` tolerated.
    pub fn gcra(rate: Rate, burst: Cost) -> Self {
        Self::Gcra(Gcra::new(rate, burst))
    }
}

impl Gcra {
    /// A schedule of one unit every period ÷ count, up to `burst` units early.
    pub fn new(rate: Rate, burst: Cost) -> Self {
        let meter = Meter::counting(rate, burst);
        Self { rate, burst, meter, tolerance: meter.ticks(burst.units().into()) }
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

impl Limiter for Gcra {
    type State = State;

    const MODULE: (&'static str, &'static str) = ("gcra", include_str!("gcra.lua"));

    fn name(&self) -> &'static str {
        "gcra"
    }

    fn letter(&self) -> char {
        'g'
    }

    #[inline(always)]
    fn decide(&self, state: State, now: Timestamp, cost: Cost) -> (State, Decision) {
        let ahead = self.meter.drained(state, now);
        match self.verdict(ahead, now.max(state.at()), now, cost) {
            refusal @ Verdict::Deny(_) => (state, self.report(refusal, ahead, now)),
            pass => {
                let ahead = self.meter.charged(ahead, cost);
                (ahead, self.report(pass, ahead, now))
            }
        }
    }

    fn peek(&self, state: &State, now: Timestamp, cost: Cost) -> Decision {
        let ahead = self.meter.drained(*state, now);
        self.report(self.verdict(ahead, now.max(state.at()), now, cost), ahead, now)
    }

    fn resume(&self, remaining: u64, reset_after: Micros, now: Timestamp) -> State {
        if remaining >= self.burst.units().into() {
            return State::default();
        }
        self.meter.resumed(self.tolerance, remaining, reset_after, now)
    }

    fn settle(&self, state: State, _admitted_at: Timestamp, difference: i64, now: Timestamp) -> State {
        self.meter.settled(state, difference, now)
    }

    fn convert(&self, from: &Self, state: State, now: Timestamp) -> State {
        self.meter.converted(&from.meter, state, now)
    }

    fn forget_at(&self, state: &State) -> Timestamp {
        self.meter.forget_at(*state)
    }

    fn in_use(&self, state: &State, now: Timestamp) -> u64 {
        self.meter.in_use(*state, now)
    }

    fn used(&self, state: &State, now: Timestamp) -> (u64, u64) {
        (self.meter.drained(*state, now).ticks(), self.tolerance)
    }

    fn quota(&self) -> u64 {
        self.burst.units().into()
    }

    fn quota_parameter(&self) -> &'static str {
        "burst"
    }

    fn window(&self) -> Micros {
        self.rate.span_of(self.burst)
    }

    fn period(&self) -> Option<Micros> {
        None
    }

    fn numbers(&self) -> [u64; 5] {
        let [unit, drain, step] = self.meter.numbers();
        [unit, drain, step, self.tolerance, self.burst.units().into()]
    }

    fn explain(&self, f: &mut Formatter<'_>) -> fmt::Result {
        burst(f, self.rate, self.burst.units())
    }

    fn abridge(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}, burst {}", Written(self.rate), self.burst.units())
    }

    #[inline(always)]
    fn pack(state: &State) -> Option<Packed> {
        Some((*state).into())
    }

    #[inline(always)]
    fn unpack(packed: Packed) -> Option<State> {
        Some(packed.into())
    }
}
