//! The leaky bucket as a queue: the first passes at once, the next wait their turn and leave at `rate`.
//!
//! The state is how long the bucket is held by those before: a request leaves when they are through, and holds it
//! cost ÷ rate itself. Whether it may join depends on those before it and not on its own cost.
//!
//! Bound: those that pass leave cost ÷ rate apart. A refund shortens the queue for those who come later, not for those
//! who wait already, so one who comes after a refund may leave with or before one of these.
//!
//! When the clock has run backwards, a delay is what it would have been at the state's own time: never above `max_wait`.

use std::fmt::{self, Formatter};

use super::limiter::Limiter;
use super::meter::Meter;
use super::pace::{Pace, Span, Written};
use super::packed::Packed;
use super::units::{Cost, Micros, Rate, Timestamp};
use super::{Algorithm, Decision, Verdict, Wait};

pub use super::meter::Level as State;

/// A leaky bucket's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LeakyBucket {
    rate: Rate,
    queue: Cost,
    max_wait: Micros,
    meter: Meter,
    /// The most ticks ahead with which a request still joins.
    limit: u64,
}

impl Algorithm {
    /// The first passes at once, the next wait their turn and leave at `rate`. More than `queue` units ahead, or a longer
    /// wait than `max_wait`: refused.
    pub fn leaky_bucket(rate: Rate, queue: Cost, max_wait: Micros) -> Self {
        Self::LeakyBucket(LeakyBucket::new(rate, queue, max_wait))
    }
}

impl LeakyBucket {
    /// A queue of `queue` units, in which none waits longer than `max_wait`.
    pub fn new(rate: Rate, queue: Cost, max_wait: Micros) -> Self {
        let meter = Meter::timing(rate);
        let limit = meter.ticks(queue.units().into()).min(meter.drained_in(max_wait));
        Self { rate, queue, max_wait, meter, limit }
    }

    #[inline(always)]
    fn verdict(&self, ahead: State, now: Timestamp) -> Verdict {
        match ahead.ticks() {
            0 => Verdict::Allow,
            ticks if ticks <= self.limit => Verdict::Delay(self.meter.span(ticks)),
            _ => Verdict::Deny(Wait::After(self.meter.falls_to(ahead, self.limit).since(now))),
        }
    }

    #[inline(always)]
    fn report(&self, verdict: Verdict, ahead: State, now: Timestamp) -> Decision {
        let remaining = self.joining(ahead.ticks());
        let reset_after = if remaining == self.joining(0) {
            Micros(0)
        } else {
            // One more than `remaining` can join when the last of them would find the queue just short enough.
            self.meter.falls_to(ahead, self.limit - remaining * self.meter.unit()).since(now)
        };
        Decision { verdict, remaining, reset_after }
    }

    /// How many requests of one unit could join a queue of `ticks`; no more than `queue` are told.
    #[inline]
    fn joining(&self, ticks: u64) -> u64 {
        match self.limit.checked_sub(ticks) {
            Some(room) => (self.meter.units(room) + 1).min(self.queue.units().into()),
            None => 0,
        }
    }
}

impl Limiter for LeakyBucket {
    type State = State;

    const MODULE: (&'static str, &'static str) = ("leaky_bucket", include_str!("leaky_bucket.lua"));

    fn name(&self) -> &'static str {
        "leaky-bucket"
    }

    fn letter(&self) -> char {
        'l'
    }

    /// A `Delay` is charged like an `Allow`.
    #[inline(always)]
    fn decide(&self, state: State, now: Timestamp, cost: Cost) -> (State, Decision) {
        let ahead = self.meter.drained(state, now);
        match self.verdict(ahead, now) {
            refusal @ Verdict::Deny(_) => (state, self.report(refusal, ahead, now)),
            pass => {
                let ahead = self.meter.charged(ahead, cost);
                (ahead, self.report(pass, ahead, now))
            }
        }
    }

    fn peek(&self, state: &State, now: Timestamp, _cost: Cost) -> Decision {
        let ahead = self.meter.drained(*state, now);
        self.report(self.verdict(ahead, now), ahead, now)
    }

    /// A queue that takes as many as an empty one may have up to a
    /// unit in it: it has, then.
    fn resume(&self, remaining: u64, reset_after: Micros, now: Timestamp) -> State {
        // The last to join finds no more than `limit` ahead, and leaves a unit more.
        let full = self.limit + self.meter.unit();
        let most = self.joining(0);
        if remaining < most {
            return self.meter.resumed(full, remaining, reset_after, now);
        }
        match full.saturating_sub(most * self.meter.unit()) {
            0 => State::default(),
            ticks => State::new(now, ticks),
        }
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
        (self.meter.drained(*state, now).ticks(), self.limit)
    }

    fn quota(&self) -> u64 {
        self.queue.units().into()
    }

    fn quota_parameter(&self) -> &'static str {
        "queue"
    }

    fn window(&self) -> Micros {
        self.rate.span_of(self.queue)
    }

    fn period(&self) -> Option<Micros> {
        None
    }

    /// Any cost may join the queue.
    fn max_cost(&self) -> u64 {
        Cost::MAX.into()
    }

    fn numbers(&self) -> [u64; 5] {
        let [unit, drain, step] = self.meter.numbers();
        [unit, drain, step, self.limit, self.queue.units().into()]
    }

    fn explain(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (pace, wait) = (Pace(self.rate), Span(self.max_wait));
        write!(f, "{pace} in turn, up to {} waiting, at most {wait}", self.queue.units())
    }

    fn abridge(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}, queue {}", Written(self.rate), self.queue.units())
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
