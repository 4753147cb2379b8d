//! The leaky bucket as a queue: the first request is admitted at once, the next ones are delayed and leave at `rate`.
//!
//! The state is how long the bucket is occupied by earlier requests: a request leaves when they are through, and
//! occupies it for cost ÷ rate itself. Whether a request may join depends on the earlier requests and not on its own
//! cost.
//!
//! Bound: admitted requests leave cost ÷ rate apart. A refund shortens the queue for later requests, not for those that
//! wait already, so a request after a refund may leave with or before one of these.
//!
//! If the clock has run backwards, the delay is that at the state's own time: never above `max_wait`.

use std::fmt::{self, Formatter};

use super::bucket::{Bucket, Metered};
use super::limiter::Names;
use super::meter::{Level, Meter};
use super::rate_params::{Interval, Window};
use super::units::{Cost, Micros, Rate, Timestamp};
use super::{Algorithm, Decision, Verdict, Wait};

/// The parameters of a leaky bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LeakyBucket {
    pub(crate) rate: Rate,
    pub(crate) queue: Cost,
    pub(crate) max_wait: Micros,
    meter: Meter,
    /// The maximum number of ticks ahead with which a request still joins.
    limit: u64,
}

impl Algorithm {
    /// The first request is admitted at once, the next ones are delayed and leave at `rate`. With more than `queue`
    /// units ahead, or a longer delay than `max_wait`, a request is refused.
    pub fn leaky_bucket(rate: Rate, queue: Cost, max_wait: Micros) -> Self {
        let meter = Meter::timing(rate);
        let limit = meter.ticks(queue.units().into()).min(meter.drained_in(max_wait));
        Self::LeakyBucket(LeakyBucket { rate, queue, max_wait, meter, limit })
    }
}

impl Algorithm {
    /// The units that a report of the allowance shows as used, beside what `decision` says remains. `used`: those that occupy
    /// it. Of a leaky bucket the one that leaves occupies no room of the queue.
    pub fn reported_use(&self, decision: &Decision, used: u64) -> u64 {
        match self {
            Self::LeakyBucket(_) => self.quota().saturating_sub(decision.remaining),
            _ => used,
        }
    }

    /// The parameters, if it is a leaky bucket.
    pub fn as_leaky_bucket(&self) -> Option<&LeakyBucket> {
        match self {
            Self::LeakyBucket(bucket) => Some(bucket),
            _ => None,
        }
    }
}

impl LeakyBucket {
    /// The delay above which a request is refused.
    pub fn max_wait(&self) -> Micros {
        self.max_wait
    }

    /// The longest delay that a request can have: that of the whole `queue`, rounded up, or `max_wait` if that is shorter.
    pub fn longest_delay(&self) -> Micros {
        let queue = u128::from(self.queue.units()) * u128::from(self.rate.period().0);
        let delay = queue.div_ceil(self.rate.count().into());
        self.max_wait.min(Micros(u64::try_from(delay).unwrap_or(u64::MAX)))
    }

    /// The wait after which the bucket is empty, as the verdict of a request that it would delay until then. `verdict`: of any
    /// request now.
    pub fn is_empty_after(&self, verdict: Verdict) -> Verdict {
        match verdict {
            // It is admitted when the queue has become short enough, and waits then for those ahead.
            Verdict::Deny(Wait::After(wait)) => {
                Verdict::Delay(Micros(wait.0.saturating_add(self.longest_delay().0)))
            }
            verdict => verdict,
        }
    }

    /// The units that leave within `span`, rounded up: so many less would have to be ahead of a request that is refused for so
    /// long.
    pub fn units_in(&self, span: Micros) -> u64 {
        self.meter.units_up(self.meter.drained_in(span))
    }

    /// How many requests of one unit could join a queue of `ticks`; at most `queue` are reported.
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

    /// A queue with room for as many requests as an empty one may contain up to a unit: that is assumed.
    fn resume(&self, remaining: u64, reset_after: Micros, now: Timestamp) -> Level {
        // The last request to join finds at most `limit` ahead, and adds a unit.
        let full = self.limit + self.meter.unit();
        let max = self.joining(0);
        if remaining < max {
            return self.meter.resumed(full, remaining, reset_after, now);
        }
        match full.saturating_sub(max * self.meter.unit()) {
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
