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

use super::bucket::{Bucket, Metered};
use super::limiter::Names;
use super::meter::{Level, Meter};
use super::rate_params::{Interval, Window};
use super::units::{Cost, Micros, Rate, Timestamp};
use super::{Algorithm, Decision, Verdict, Wait};

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
        let meter = Meter::timing(rate);
        let limit = meter.ticks(queue.units().into()).min(meter.drained_in(max_wait));
        Self::LeakyBucket(LeakyBucket { rate, queue, max_wait, meter, limit })
    }
}

impl LeakyBucket {
    /// How many requests of one unit could join a queue of `ticks`; no more than `queue` are told.
    #[inline]
    fn joining(&self, ticks: u64) -> u64 {
        match self.limit.checked_sub(ticks) {
            Some(room) => (self.meter.units(room) + 1).min(self.queue.units().into()),
            None => 0,
        }
    }
}

impl Metered for LeakyBucket {
    const NAMES: Names = Names {
        name: "leaky-bucket",
        letter: 'l',
        quota: "queue",
        module: ("leaky_bucket", include_str!("leaky_bucket.lua")),
    };

    #[inline(always)]
    fn bucket(&self) -> Bucket {
        Bucket { rate: self.rate, quota: self.queue, meter: self.meter, full: self.limit }
    }

    #[inline(always)]
    fn verdict(&self, ahead: Level, now: Timestamp, _cost: Cost) -> Verdict {
        match ahead.ticks() {
            0 => Verdict::Allow,
            ticks if ticks <= self.limit => Verdict::Delay(self.meter.span(ticks)),
            _ => Verdict::Deny(Wait::After(self.meter.falls_to(ahead, self.limit).since(now))),
        }
    }

    #[inline(always)]
    fn report(&self, verdict: Verdict, ahead: Level, now: Timestamp) -> Decision {
        let remaining = self.joining(ahead.ticks());
        let reset_after = if remaining == self.joining(0) {
            Micros(0)
        } else {
            // One more than `remaining` can join when the last of them would find the queue just short enough.
            self.meter.falls_to(ahead, self.limit - remaining * self.meter.unit()).since(now)
        };
        Decision { verdict, remaining, reset_after }
    }

    /// A queue that takes as many as an empty one may have up to a unit in it: it has, then.
    fn resume(&self, remaining: u64, reset_after: Micros, now: Timestamp) -> Level {
        // The last to join finds no more than `limit` ahead, and leaves a unit more.
        let full = self.limit + self.meter.unit();
        let most = self.joining(0);
        if remaining < most {
            return self.meter.resumed(full, remaining, reset_after, now);
        }
        match full.saturating_sub(most * self.meter.unit()) {
            0 => Level::default(),
            ticks => Level::new(now, ticks),
        }
    }

    /// Any cost may join the queue.
    fn max_cost(&self) -> u64 {
        Cost::MAX.into()
    }

    fn explain(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (pace, wait) = (Interval(self.rate), Window(self.max_wait));
        write!(f, "{pace} in turn, up to {} waiting, at most {wait}", self.queue.units())
    }
}
