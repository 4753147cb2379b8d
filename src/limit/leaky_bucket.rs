//! The leaky bucket as a queue: the first passes at once, the next wait their turn and leave at `rate`.
//!
//! The state is how long the bucket is held by those before: a request leaves when they are through, and holds it
//! cost ÷ rate itself. Whether it may join depends on those before it and not on its own cost.
//!
//! Bound: those that pass leave cost ÷ rate apart. A refund shortens the queue for those who come later, not for those
//! who wait already, so one who comes after a refund may leave with or before one of these.
//!
//! When the clock has run backwards, a delay is what it would have been at the state's own time: never above `max_wait`.

use super::meter::Meter;
use super::units::{Cost, Micros, Rate, Timestamp};
use super::{Decision, Verdict, Wait};

pub use super::meter::Level as State;

/// A leaky bucket's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LeakyBucket {
    pub(super) rate: Rate,
    pub(super) queue: Cost,
    pub(super) max_wait: Micros,
    pub(super) meter: Meter,
    /// The most ticks ahead with which a request still joins.
    pub(super) limit: u64,
}

impl LeakyBucket {
    /// A queue of `queue` units, in which none waits longer than `max_wait`.
    pub fn new(rate: Rate, queue: Cost, max_wait: Micros) -> Self {
        let meter = Meter::timing(rate);
        let limit = meter.ticks(queue.units().into()).min(meter.drained_in(max_wait));
        Self { rate, queue, max_wait, meter, limit }
    }

    /// Decides one request. A `Delay` is charged like an `Allow`.
    #[inline(always)]
    pub fn decide(&self, state: State, now: Timestamp, cost: Cost) -> (State, Decision) {
        let ahead = self.meter.drained(state, now);
        match self.verdict(ahead, now) {
            refusal @ Verdict::Deny(_) => (state, self.report(refusal, ahead, now)),
            pass => {
                let ahead = self.meter.charged(ahead, cost);
                (ahead, self.report(pass, ahead, now))
            }
        }
    }

    /// What [`Self::decide`] would say, with the numbers of the uncharged state.
    pub fn peek(&self, state: State, now: Timestamp) -> Decision {
        let ahead = self.meter.drained(state, now);
        self.report(self.verdict(ahead, now), ahead, now)
    }

    /// See [`Algorithm::resume`](super::Algorithm::resume). A queue that takes as many as an empty one may have up to a
    /// unit in it: it has, then.
    pub fn resume(&self, remaining: u64, reset_after: Micros, now: Timestamp) -> State {
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
