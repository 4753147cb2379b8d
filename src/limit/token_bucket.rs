//! The token bucket: up to `burst` at once, refilled evenly at `rate`.
//!
//! The state is what has been *used*, draining at the rate, and not what is left: so that an empty state is a full bucket.
//!
//! Bound: in any span of t no more than `burst` + t × rate units are admitted, less what was given back in it.

use std::fmt::{self, Formatter};

use super::limiter::Limiter;
use super::meter::Meter;
use super::pace::{Written, burst};
use super::packed::Packed;
use super::units::{Cost, Micros, Rate, Timestamp};
use super::{Algorithm, Decision, Verdict, Wait};

pub use super::meter::Level as State;

/// A token bucket's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TokenBucket {
    rate: Rate,
    burst: Cost,
    meter: Meter,
    capacity: u64,
}

impl Algorithm {
    /// Up to `burst` at once, refilled evenly at `rate`.
    pub fn token_bucket(rate: Rate, burst: Cost) -> Self {
        Self::TokenBucket(TokenBucket::new(rate, burst))
    }
}

impl TokenBucket {
    /// A bucket that holds `burst` units.
    pub fn new(rate: Rate, burst: Cost) -> Self {
        let meter = Meter::counting(rate, burst);
        Self { rate, burst, meter, capacity: meter.ticks(burst.units().into()) }
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

impl Limiter for TokenBucket {
    type State = State;

    const MODULE: (&'static str, &'static str) = ("token_bucket", include_str!("token_bucket.lua"));

    fn name(&self) -> &'static str {
        "token-bucket"
    }

    fn letter(&self) -> char {
        't'
    }

    #[inline(always)]
    fn decide(&self, state: State, now: Timestamp, cost: Cost) -> (State, Decision) {
        let used = self.meter.drained(state, now);
        match self.verdict(used, now, cost) {
            refusal @ Verdict::Deny(_) => (state, self.report(refusal, used, now)),
            pass => {
                let used = self.meter.charged(used, cost);
                (used, self.report(pass, used, now))
            }
        }
    }

    fn peek(&self, state: &State, now: Timestamp, cost: Cost) -> Decision {
        let used = self.meter.drained(*state, now);
        self.report(self.verdict(used, now, cost), used, now)
    }

    fn resume(&self, remaining: u64, reset_after: Micros, now: Timestamp) -> State {
        if remaining >= self.burst.units().into() {
            return State::default();
        }
        self.meter.resumed(self.capacity, remaining, reset_after, now)
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
        (self.meter.drained(*state, now).ticks(), self.capacity)
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
        [unit, drain, step, self.capacity, self.burst.units().into()]
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
