//! The core. A limit is a pure function of *(state, now, cost)* → *(state', decision)*.
//!
//! Only `std` below here: no clock, no I/O, no async, no logging. Each algorithm file exports its parameters, its
//! `State` and the same few functions; [`Algorithm`] and [`State`] are the closed choice between them.
//!
//! Time is the caller's. A `now` before the moment at which the state was last charged is taken for that moment: it
//! grants nothing, and what is charged is charged there. Waits count from `now` all the same. Where a moment would lie
//! past 2^53 µs (the year 2255) it stands at 2^53.

mod divisor;
pub mod fixed_window;
pub mod gcra;
pub mod leaky_bucket;
pub mod lua;
mod meter;
pub mod packed;
pub mod sliding_log;
pub mod sliding_window;
pub mod token_bucket;
pub mod units;
pub mod words;

use fixed_window::FixedWindow;
use gcra::Gcra;
use leaky_bucket::LeakyBucket;
use sliding_log::SlidingLog;
use sliding_window::SlidingWindow;
use token_bucket::TokenBucket;
use units::{Cost, EXACT, Micros, Rate, Timestamp};

/// What an algorithm says of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Pass, wait, or refuse.
    pub verdict: Verdict,
    /// How many more requests of one unit would be admitted at this same moment, after this decision; never above the quota.
    pub remaining: u64,
    /// The least span after which `remaining` is larger than now (if nothing else happens); zero if it is as large as it
    /// gets. Never above the wait of a refusal.
    pub reset_after: Micros,
}

/// Pass, wait, or refuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Forward now.
    Allow,
    /// Forward after this span: the request holds its place in the queue.
    Delay(Micros),
    /// Refuse.
    Deny(Wait),
}

/// How long a refused request has to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wait {
    /// A client alone on its key is admitted, for the same cost, exactly this span later; not one microsecond before.
    After(Micros),
    /// Waiting cannot help: the cost exceeds what the limit ever holds.
    Never,
}

/// An algorithm with its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// Up to `burst` at once, refilled evenly.
    TokenBucket(TokenBucket),
    /// Evenly spaced, `burst` tolerated.
    Gcra(Gcra),
    /// A queue that is served evenly.
    LeakyBucket(LeakyBucket),
    /// A count per window.
    FixedWindow(FixedWindow),
    /// The counts of two windows, weighted.
    SlidingWindow(SlidingWindow),
    /// Every event of the last period.
    SlidingLog(SlidingLog),
}

/// Where fixed windows begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Align {
    /// At multiples of the window since 1970 UTC.
    #[default]
    Clock,
    /// At the first request.
    FirstRequest,
}

/// What is stored for one key under one algorithm. The default state is a fresh key: missing, expired and default are one
/// thing, and so is a state of another algorithm.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// Nothing used.
    #[default]
    Fresh,
    /// Of a token bucket.
    TokenBucket(token_bucket::State),
    /// Of a GCRA limit.
    Gcra(gcra::State),
    /// Of a leaky bucket.
    LeakyBucket(leaky_bucket::State),
    /// Of a fixed window.
    FixedWindow(fixed_window::State),
    /// Of a sliding window.
    SlidingWindow(sliding_window::State),
    /// Of a sliding log.
    SlidingLog(Box<sliding_log::State>),
}

impl Algorithm {
    /// Up to `burst` at once, refilled evenly at `rate`.
    pub fn token_bucket(rate: Rate, burst: Cost) -> Self {
        Self::TokenBucket(TokenBucket::new(rate, burst))
    }

    /// Evenly spaced at `rate`, `burst` tolerated.
    pub fn gcra(rate: Rate, burst: Cost) -> Self {
        Self::Gcra(Gcra::new(rate, burst))
    }

    /// The first passes at once, the next wait their turn and leave at `rate`. More than `queue` units ahead, or a longer
    /// wait than `max_wait`: refused.
    pub fn leaky_bucket(rate: Rate, queue: Cost, max_wait: Micros) -> Self {
        Self::LeakyBucket(LeakyBucket::new(rate, queue, max_wait))
    }

    /// `rate`'s count per window of `rate`'s period.
    pub fn fixed_window(rate: Rate, align: Align) -> Self {
        Self::FixedWindow(FixedWindow::new(rate, align))
    }

    /// Current count + previous count x overlap, windows aligned to the clock.
    pub fn sliding_window(rate: Rate) -> Self {
        Self::SlidingWindow(SlidingWindow::new(rate))
    }

    /// Exact; `spacing` is the least distance between admitted requests; with `count_denied` refused attempts count too.
    pub fn sliding_log(rate: Rate, spacing: Option<Micros>, count_denied: bool) -> Self {
        Self::SlidingLog(SlidingLog::new(rate, spacing, count_denied))
    }

    /// Decides one request. A refusal returns the state unchanged (but for a sliding log with `count_denied`).
    pub fn decide(&self, state: State, now: Timestamp, cost: Cost) -> (State, Decision) {
        match (self, state) {
            (Self::TokenBucket(limit), State::TokenBucket(state)) => {
                stored(State::TokenBucket, limit.decide(state, now, cost))
            }
            (Self::Gcra(limit), State::Gcra(state)) => stored(State::Gcra, limit.decide(state, now, cost)),
            (Self::LeakyBucket(limit), State::LeakyBucket(state)) => {
                stored(State::LeakyBucket, limit.decide(state, now, cost))
            }
            (Self::FixedWindow(limit), State::FixedWindow(state)) => {
                stored(State::FixedWindow, limit.decide(state, now, cost))
            }
            (Self::SlidingWindow(limit), State::SlidingWindow(state)) => {
                stored(State::SlidingWindow, limit.decide(state, now, cost))
            }
            (Self::SlidingLog(limit), State::SlidingLog(mut state)) => {
                // The log stays in its box.
                let (log, decision) = limit.decide(std::mem::take(&mut *state), now, cost);
                *state = log;
                (State::SlidingLog(state), decision)
            }
            (_, other) => match self.decide(self.fresh(), now, cost) {
                // What is refused from the start is refused for ever: nothing to remember.
                (_, decision @ Decision { verdict: Verdict::Deny(_), .. }) => (other, decision),
                charged => charged,
            },
        }
    }

    /// The decision that [`Self::decide`] would give, without charging: its `remaining` and `reset_after` are those of the uncharged state.
    pub fn peek(&self, state: &State, now: Timestamp, cost: Cost) -> Decision {
        match (self, state) {
            (Self::TokenBucket(limit), State::TokenBucket(state)) => limit.peek(*state, now, cost),
            (Self::Gcra(limit), State::Gcra(state)) => limit.peek(*state, now, cost),
            (Self::LeakyBucket(limit), State::LeakyBucket(state)) => limit.peek(*state, now),
            (Self::FixedWindow(limit), State::FixedWindow(state)) => limit.peek(*state, now, cost),
            (Self::SlidingWindow(limit), State::SlidingWindow(state)) => limit.peek(*state, now, cost),
            (Self::SlidingLog(limit), State::SlidingLog(state)) => limit.peek(state, now, cost),
            (_, _) => self.peek(&self.fresh(), now, cost),
        }
    }

    /// Corrects a cost admitted at `admitted_at` by `difference` units: into debt if need be, when nothing is admitted
    /// until it is paid off, or as a refund when negative, down to nothing used.
    ///
    /// The buckets give back in full whatever has been refilled meanwhile: over any span, units admitted less units given
    /// back keep the bound. The windows and the log correct only what still counts at `now`, and the log only an
    /// admission that it finds at `admitted_at`. Debt is bounded: by 2^53 ticks of a bucket's meter (at least as much as
    /// the whole burst), by 2^32 - 1 units of a window or an event.
    pub fn settle(&self, state: State, admitted_at: Timestamp, difference: i64, now: Timestamp) -> State {
        match (self, state) {
            (Self::TokenBucket(limit), State::TokenBucket(state)) => {
                State::TokenBucket(limit.meter.settled(state, difference, now))
            }
            (Self::Gcra(limit), State::Gcra(state)) => {
                State::Gcra(limit.meter.settled(state, difference, now))
            }
            (Self::LeakyBucket(limit), State::LeakyBucket(state)) => {
                State::LeakyBucket(limit.meter.settled(state, difference, now))
            }
            (Self::FixedWindow(limit), State::FixedWindow(state)) => {
                State::FixedWindow(limit.settle(state, admitted_at, difference, now))
            }
            (Self::SlidingWindow(limit), State::SlidingWindow(state)) => {
                State::SlidingWindow(limit.settle(state, admitted_at, difference, now))
            }
            (Self::SlidingLog(limit), State::SlidingLog(state)) => {
                State::SlidingLog(Box::new(limit.settle(*state, admitted_at, difference, now)))
            }
            (_, _) => self.settle(self.fresh(), admitted_at, difference, now),
        }
    }

    /// A state of which [`Self::peek`] tells this `remaining` at `now`: for going on from what a shared store has told of a
    /// counter. Numbers that no state has are taken for the nearest that one has.
    ///
    /// Where they leave several states open it is the one that stays full for longest, so as not to admit what that
    /// counter would have refused:
    /// - A bucket and a fixed window tell the same `reset_after`, too. If the clock ran backwards, a bucket may admit 1 µs earlier.
    /// - A sliding window tells the same or a later `reset_after`; a sliding log mostly a later one: what is in use counts from `now`
    ///   on for a whole period. If the clock ran backwards, either may forget sooner.
    /// - A sliding log with `spacing` tells nothing of its count: only the spacing is kept, and a count that is known to be used up.
    pub fn resume(&self, remaining: u64, reset_after: Micros, now: Timestamp) -> State {
        match self {
            Self::TokenBucket(limit) => State::TokenBucket(limit.resume(remaining, reset_after, now)),
            Self::Gcra(limit) => State::Gcra(limit.resume(remaining, reset_after, now)),
            Self::LeakyBucket(limit) => State::LeakyBucket(limit.resume(remaining, reset_after, now)),
            Self::FixedWindow(limit) => State::FixedWindow(limit.resume(remaining, reset_after, now)),
            Self::SlidingWindow(limit) => State::SlidingWindow(limit.resume(remaining, reset_after, now)),
            Self::SlidingLog(limit) => match limit.resume(remaining, reset_after, now) {
                log if log.events() == 0 => State::Fresh,
                log => State::SlidingLog(Box::new(log)),
            },
        }
    }

    /// Converts a state written under `from`, the same algorithm with other numbers, rounding against the client by
    /// less than one unit. A new window length starts afresh, and so does another algorithm.
    pub fn convert(&self, from: &Self, state: State, now: Timestamp) -> State {
        match (self, from, state) {
            (Self::TokenBucket(to), Self::TokenBucket(from), State::TokenBucket(state)) => {
                State::TokenBucket(to.meter.converted(&from.meter, state, now))
            }
            (Self::Gcra(to), Self::Gcra(from), State::Gcra(state)) => {
                State::Gcra(to.meter.converted(&from.meter, state, now))
            }
            (Self::LeakyBucket(to), Self::LeakyBucket(from), State::LeakyBucket(state)) => {
                State::LeakyBucket(to.meter.converted(&from.meter, state, now))
            }
            (Self::FixedWindow(to), Self::FixedWindow(from), State::FixedWindow(state)) => {
                State::FixedWindow(to.convert(from, state))
            }
            (Self::SlidingWindow(to), Self::SlidingWindow(from), State::SlidingWindow(state)) => {
                State::SlidingWindow(to.convert(from, state))
            }
            (Self::SlidingLog(to), Self::SlidingLog(from), State::SlidingLog(state)) => {
                State::SlidingLog(Box::new(to.convert(from, *state)))
            }
            (_, _, _) => State::Fresh,
        }
    }

    /// From when on `state` equals the default state.
    pub fn forget_at(&self, state: &State) -> Timestamp {
        match (self, state) {
            (Self::TokenBucket(limit), State::TokenBucket(state)) => limit.meter.forget_at(*state),
            (Self::Gcra(limit), State::Gcra(state)) => limit.meter.forget_at(*state),
            (Self::LeakyBucket(limit), State::LeakyBucket(state)) => limit.meter.forget_at(*state),
            (Self::FixedWindow(limit), State::FixedWindow(state)) => limit.forget_at(*state),
            (Self::SlidingWindow(limit), State::SlidingWindow(state)) => limit.forget_at(*state),
            (Self::SlidingLog(limit), State::SlidingLog(state)) => limit.forget_at(state),
            (_, _) => Timestamp(0),
        }
    }

    /// Used ÷ quota at `now` as a fraction of 2^16 (65,536 = all used; more = in debt), for choosing whom to evict. Rounded
    /// up: nothing but a fresh state is 0.
    pub fn used(&self, state: &State, now: Timestamp) -> u32 {
        let (used, quota) = match (self, state) {
            (Self::TokenBucket(limit), State::TokenBucket(state)) => {
                (limit.meter.drained(*state, now).ticks(), limit.capacity)
            }
            (Self::Gcra(limit), State::Gcra(state)) => {
                (limit.meter.drained(*state, now).ticks(), limit.tolerance)
            }
            (Self::LeakyBucket(limit), State::LeakyBucket(state)) => {
                (limit.meter.drained(*state, now).ticks(), limit.limit)
            }
            (Self::FixedWindow(limit), State::FixedWindow(state)) => (limit.used(*state, now), self.quota()),
            (Self::SlidingWindow(limit), State::SlidingWindow(state)) => {
                (limit.used(*state, now), self.quota())
            }
            (Self::SlidingLog(limit), State::SlidingLog(state)) => (limit.used(state, now), self.quota()),
            (_, _) => (0, 1),
        };
        fraction(used, quota)
    }

    /// `q` of the RateLimit fields: burst, window count, or queue.
    pub fn quota(&self) -> u64 {
        match self {
            Self::TokenBucket(limit) => limit.burst.units().into(),
            Self::Gcra(limit) => limit.burst.units().into(),
            Self::LeakyBucket(limit) => limit.queue.units().into(),
            Self::FixedWindow(limit) => limit.rate.count().into(),
            Self::SlidingWindow(limit) => limit.rate.count().into(),
            Self::SlidingLog(limit) => limit.rate.count().into(),
        }
    }

    /// `w` of the RateLimit fields: the window, or for buckets the quota ÷ rate, rounded up; at most 2^53 µs.
    pub fn window(&self) -> Micros {
        match self {
            Self::TokenBucket(limit) => filled_in(limit.rate, limit.burst),
            Self::Gcra(limit) => filled_in(limit.rate, limit.burst),
            Self::LeakyBucket(limit) => filled_in(limit.rate, limit.queue),
            Self::FixedWindow(limit) => limit.rate.period(),
            Self::SlidingWindow(limit) => limit.rate.period(),
            Self::SlidingLog(limit) => limit.rate.period(),
        }
    }

    /// The cost of a request that takes the whole quota.
    pub fn whole(&self) -> Cost {
        // A quota is a count of the file, and those are costs, too.
        u32::try_from(self.quota()).ok().and_then(Cost::new).unwrap_or(Cost::ONE)
    }

    /// The largest cost that can ever be admitted. (Any cost may join a leaky bucket's queue.)
    pub fn max_cost(&self) -> u64 {
        match self {
            Self::LeakyBucket(_) => Cost::MAX.into(),
            _ => self.quota(),
        }
    }

    /// Whether refused attempts count, too: then a refusal changes the state.
    pub fn counts_denied(&self) -> bool {
        matches!(self, Self::SlidingLog(limit) if limit.count_denied)
    }

    /// The algorithm's name as configured: `token-bucket`, …
    pub fn name(&self) -> &'static str {
        match self {
            Self::TokenBucket(_) => "token-bucket",
            Self::Gcra(_) => "gcra",
            Self::LeakyBucket(_) => "leaky-bucket",
            Self::FixedWindow(_) => "fixed-window",
            Self::SlidingWindow(_) => "sliding-window",
            Self::SlidingLog(_) => "sliding-log",
        }
    }

    /// A fresh state of this algorithm's own kind.
    fn fresh(&self) -> State {
        match self {
            Self::TokenBucket(_) => State::TokenBucket(token_bucket::State::default()),
            Self::Gcra(_) => State::Gcra(gcra::State::default()),
            Self::LeakyBucket(_) => State::LeakyBucket(leaky_bucket::State::default()),
            Self::FixedWindow(_) => State::FixedWindow(fixed_window::State::default()),
            Self::SlidingWindow(_) => State::SlidingWindow(sliding_window::State::default()),
            Self::SlidingLog(_) => State::SlidingLog(Box::default()),
        }
    }
}

impl State {
    /// How many of the store's `max_keys` this state takes: one, or one per event that a sliding log keeps.
    pub fn weight(&self) -> usize {
        match self {
            Self::SlidingLog(log) => log.events().max(1),
            _ => 1,
        }
    }
}

fn stored<S>(wrap: impl FnOnce(S) -> State, (state, decision): (S, Decision)) -> (State, Decision) {
    (wrap(state), decision)
}

/// `count` corrected by `difference`, within 0 to 2^32 - 1.
fn changed(count: u32, difference: i64) -> u32 {
    let changed = i64::from(count).saturating_add(difference).max(0);
    u32::try_from(changed).unwrap_or(u32::MAX)
}

/// How long `units` take at `rate`, rounded up.
fn filled_in(rate: Rate, units: Cost) -> Micros {
    let span = u128::from(rate.period().0) * u128::from(units.units());
    Micros(u64::try_from(span.div_ceil(rate.count().into())).unwrap_or(u64::MAX).min(EXACT))
}

/// `used` ÷ `quota` in 2^-16, rounded up.
fn fraction(used: u64, quota: u64) -> u32 {
    let parts = if used < 1 << 48 {
        (used << 16).div_ceil(quota.max(1))
    } else {
        used.div_ceil((quota >> 16).max(1))
    };
    u32::try_from(parts).unwrap_or(u32::MAX)
}
