//! The list of algorithms, and the choice between them; also credit and charges by hand, for operators and billing.

use super::ban::{self, Ban};
use super::concurrency::{self, Concurrency};
use super::fixed_window::{self, CalendarWindow, FixedWindow};
use super::gcra::Gcra;
use super::leaky_bucket::LeakyBucket;
use super::lease::{self, Lease};
use super::limiter::{Limiter, Packed, Stored as _};
use super::meter::Level;
use super::sliding_log::{self, SlidingLog};
use super::sliding_window::{self, SlidingWindow};
use super::token_bucket::TokenBucket;
use super::units::{Cost, Micros, Rate, Timestamp};
use super::{Align, Decision, Verdict};

/// Makes the enums [`Algorithm`] and [`State`] from the list, and a macro with an arm for each algorithm. The first
/// argument is `$`, for the arguments of that macro.
macro_rules! algorithms {
    ($d:tt $($(#[$what:meta])+ $name:ident: $state:ty,)+) => {
        /// An algorithm with its parameters.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Algorithm {
            $($(#[$what])+ $name($name),)+
        }

        /// The stored state of one key under one algorithm. The default state is an unused key: missing, expired and
        /// default are the same, and so is a state of another algorithm.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub enum State {
            /// Unused.
            #[default]
            Fresh,
            $(#[doc = concat!("Of [`", stringify!($name), "`].")] $name($state),)+
        }

        impl Algorithm {
            /// The Lua modules: see [`Names::module`](super::limiter::Names::module).
            pub(super) const MODULES: &'static [(&'static str, &'static str)] =
                &[$(<$name as Limiter>::NAMES.module),+];
        }

        impl State {
            /// The number of entries, of the store's `max_keys`, that this state counts as: one, or one per event of a
            /// sliding log.
            pub fn weight(&self) -> usize {
                match self {
                    Self::Fresh => 1,
                    $(Self::$name(own) => own.weight(),)+
                }
            }

            /// The state in two numbers; `None` for a sliding log.
            pub fn packed(&self) -> Option<Packed> {
                match self {
                    Self::Fresh => Some(Packed::default()),
                    $(Self::$name(own) => own.pack(),)+
                }
            }
        }

        $(impl Chosen for $name {
            #[inline(always)]
            fn of(algorithm: &Algorithm) -> Option<&Self> {
                if let Algorithm::$name(limit) = algorithm { Some(limit) } else { None }
            }

            #[inline(always)]
            fn own(state: State) -> Result<Self::State, State> {
                if let State::$name(own) = state { Ok(own) } else { Err(state) }
            }

            #[inline(always)]
            fn own_ref(state: &State) -> Option<&Self::State> {
                if let State::$name(own) = state { Some(own) } else { None }
            }

            #[inline(always)]
            fn stored(own: Self::State) -> State {
                State::$name(own)
            }
        })+

        /// Evaluates an expression with the chosen algorithm.
        macro_rules! each {
            ($d algorithm:expr, $d limit:ident => $d result:expr) => {
                match $d algorithm { $($crate::limit::Algorithm::$name($d limit) => $d result,)+ }
            };
        }
    };
}

algorithms! { $
    /// Up to `burst` at once, refilled evenly.
    TokenBucket: Level,
    /// Evenly spaced, `burst` tolerated.
    Gcra: Level,
    /// A queue that is served evenly.
    LeakyBucket: Level,
    /// A count per window.
    FixedWindow: fixed_window::State,
    /// A count per window of a calendar.
    CalendarWindow: fixed_window::State,
    /// The counts of two windows, weighted.
    SlidingWindow: sliding_window::State,
    /// Every event of the last period.
    SlidingLog: Box<sliding_log::State>,
    /// The requests in flight.
    Concurrency: concurrency::State,
    /// The refusals of a limit. No limit is made of it alone.
    Ban: Box<ban::State>,
    /// Units of a shared counter in advance. No limit is made of it alone.
    Lease: lease::LeasedUnits,
}
pub(super) use each;

/// An algorithm as one of the choice: distinguishes its own states from others. A state of another algorithm counts as
/// fresh.
pub(super) trait Chosen: Limiter {
    /// The algorithm, if it is this one.
    fn of(algorithm: &Algorithm) -> Option<&Self>;

    /// The state, if it is one of this algorithm.
    fn own(state: State) -> Result<Self::State, State>;

    /// As [`Self::own`], by reference.
    fn own_ref(state: &State) -> Option<&Self::State>;

    /// A state of this algorithm, as it is stored.
    fn stored(own: Self::State) -> State;

    /// [`Limiter::decide`] on a stored state.
    #[inline(always)]
    fn decide_stored(&self, state: State, now: Timestamp, cost: Cost) -> (State, Decision) {
        match Self::own(state) {
            Ok(own) => {
                let (own, decision) = self.decide(own, now, cost);
                (Self::stored(own), decision)
            }
            Err(other) => self.decide_fresh(other, now, cost),
        }
    }

    /// [`Limiter::decide`] where `other` is not a state of this algorithm.
    #[inline(never)]
    fn decide_fresh(&self, other: State, now: Timestamp, cost: Cost) -> (State, Decision) {
        match self.decide(Self::State::default(), now, cost) {
            // A fresh state that a refusal has not changed: nothing to store. The first refusal may begin a ban.
            (own, decision @ Decision { verdict: Verdict::Deny(_), .. }) if own == Self::State::default() => {
                (other, decision)
            }
            (own, decision) => (Self::stored(own), decision),
        }
    }

    /// [`Limiter::decide`] on a packed state. `None`: states of this algorithm are never packed.
    #[inline(always)]
    fn decide_packed(&self, packed: Packed, now: Timestamp, cost: Cost) -> Option<(Packed, Decision)> {
        let (own, decision) = self.decide(Self::State::unpack(packed)?, now, cost);
        Some((own.pack()?, decision))
    }

    /// [`Stored::unpack`](super::limiter::Stored::unpack), as it is stored; fresh if states of this algorithm are never
    /// packed.
    fn unpack_stored(&self, packed: Packed) -> State {
        Self::State::unpack(packed).map_or(State::Fresh, Self::stored)
    }

    /// [`Limiter::resume`], as it is stored.
    fn resume_stored(&self, remaining: u64, reset_after: Micros, now: Timestamp) -> State {
        Self::stored_unless_fresh(self.resume(remaining, reset_after, now))
    }

    /// Evaluates a function of a stored state.
    fn ask<T>(&self, state: &State, question: impl FnOnce(&Self::State) -> T) -> T {
        match Self::own_ref(state) {
            Some(own) => question(own),
            None => question(&Self::State::default()),
        }
    }

    /// Changes a stored state.
    fn change(&self, state: State, change: impl FnOnce(Self::State) -> Self::State) -> State {
        Self::stored(change(Self::own(state).unwrap_or_default()))
    }

    /// A state as it is stored; an unused one is fresh.
    fn stored_unless_fresh(own: Self::State) -> State {
        if own == Self::State::default() { State::Fresh } else { Self::stored(own) }
    }

    /// [`Limiter::grant`] on a stored state, and the number of units given back.
    fn grant_stored(&self, state: State, units: Cost, now: Timestamp) -> (State, u64) {
        let own = Self::own(state).unwrap_or_default();
        let granted = self.in_use(&own, now).min(units.units().into());
        (Self::stored_unless_fresh(self.grant(own, units, now)), granted)
    }

    /// [`Limiter::convert`] on a stored state; fresh if it was written by another algorithm.
    fn convert_stored(&self, from: &Algorithm, state: State, now: Timestamp) -> State {
        match (Self::of(from), Self::own(state)) {
            (Some(from), Ok(own)) => Self::stored(self.convert(from, own, now)),
            _ => State::Fresh,
        }
    }
}

impl Algorithm {
    /// `state` with `units` fewer in use at `now`, or unused if fewer were in use; and the number of units given back,
    /// with a part of a unit counted as one. So exactly as many more are admitted at `now`, unless they exceed the
    /// quota.
    ///
    /// Of a sliding window this one's count is reduced first, of a log the newest events; so `spacing` counts from the
    /// rest.
    pub fn grant(&self, state: State, units: Cost, now: Timestamp) -> (State, u64) {
        each!(self, limit => limit.grant_stored(state, units, now))
    }

    /// `state` with `units` more in use from `now` on: if necessary in debt, during which nothing is admitted. The debt is
    /// bounded as that of [`Self::settle`] is.
    ///
    /// A window is charged in its present count, a log with an event at `now` or at the time of its last event if that is
    /// later. Requests in flight, refusals and leases are not charged.
    pub fn charge(&self, state: State, units: Cost, now: Timestamp) -> State {
        if let Self::Concurrency(_) | Self::Ban(_) | Self::Lease(_) = self {
            return state;
        }
        let moment = self.counted_at(&state, now);
        self.settle(state, moment, units.units().into(), now)
    }

    /// The rate as configured; none of a limit of requests in flight, or of a ban.
    pub fn rate(&self) -> Option<Rate> {
        each!(self, limit => limit.rate())
    }

    /// The same algorithm with another rate. A token bucket holds the rate's count; windows of a calendar stay that only
    /// if the period is the same. `None`: it has no rate, or a queue.
    pub fn with_rate(&self, rate: Rate) -> Option<Self> {
        match self {
            Self::TokenBucket(_) => Some(Self::token_bucket(rate, Cost::new(rate.count())?)),
            Self::Gcra(_) => Some(Self::gcra(rate, Cost::new(u32::try_from(self.quota()).ok()?)?)),
            Self::FixedWindow(limit) => Some(Self::FixedWindow(limit.with_rate(rate))),
            Self::CalendarWindow(limit) if self.rate()?.period() == rate.period() => {
                Some(Self::CalendarWindow(limit.with_rate(rate)))
            }
            Self::CalendarWindow(_) => Some(Self::fixed_window(rate, Align::Clock)),
            Self::SlidingWindow(_) => Some(Self::SlidingWindow(SlidingWindow::new(rate))),
            Self::SlidingLog(limit) => Some(Self::SlidingLog(limit.with_rate(rate))),
            Self::LeakyBucket(_) | Self::Concurrency(_) | Self::Ban(_) | Self::Lease(_) => None,
        }
    }

    /// The same algorithm with another count in the same period, and another burst if it has one. Without `burst` a bucket
    /// keeps its own. `None`: it has no rate, or no burst; or the numbers are out of range.
    pub fn with_numbers(&self, count: u32, burst: Option<u32>) -> Option<Self> {
        let rate = Rate::new(count, self.rate()?.period())?;
        let other = burst.map(Cost::new);
        match (self, other) {
            (_, Some(None)) => None,
            (Self::TokenBucket(own), other) => {
                Some(Self::token_bucket(rate, other.flatten().unwrap_or(own.burst)))
            }
            (Self::Gcra(own), other) => Some(Self::gcra(rate, other.flatten().unwrap_or(own.burst))),
            (Self::LeakyBucket(own), None) => Some(Self::leaky_bucket(rate, own.queue, own.max_wait)),
            (_, None) => self.with_rate(rate),
            (_, Some(_)) => None,
        }
    }

    /// Units in use at `now`, rounded up: more than the quota in debt.
    pub fn in_use(&self, state: &State, now: Timestamp) -> u64 {
        each!(self, limit => limit.ask(state, |own| limit.in_use(own, now)))
    }
}
impl State {
    /// A state that keeps events as numbers, for files that outlive the process. `None`: it is [packed](Self::packed).
    pub fn words(&self) -> Option<Vec<u64>> {
        match self {
            Self::SlidingLog(log) => Some(log.words()),
            Self::Ban(ban) => Some(ban.words()),
            _ => None,
        }
    }
}

impl Algorithm {
    /// The state of this algorithm with the numbers of [`State::words`]. `None`: it has no such state.
    pub fn state_of_words(&self, words: &[u64]) -> Option<State> {
        match self {
            Self::SlidingLog(_) => Some(State::SlidingLog(sliding_log::State::of_words(words)?.into())),
            Self::Ban(_) => Some(State::Ban(ban::State::of_words(words)?.into())),
            _ => None,
        }
    }
}
