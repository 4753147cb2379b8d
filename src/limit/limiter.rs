//! The trait of all algorithms: [`Algorithm`](super::Algorithm) forwards its functions to the chosen one; and the
//! stored form of their states.
//!
//! An algorithm implements the trait in its own file. It also has a Lua implementation, a line in the list of
//! `algorithms.rs`, and the parser of its parameters in `config`.
//!
//! A store keeps a state as two numbers, [`Packed`], but for states of the sliding log.

use std::fmt::{self, Display as _, Formatter};

use super::lua::LuaParams;
use super::rate_params::WrittenRate;
use super::units::{Cost, Micros, Rate, Timestamp};
use super::wall_clock::WallTime;
use super::{Decision, Verdict};

/// A state as a time and the use at that time: ticks of a bucket's meter, the count of a fixed window, or both counts
/// of a sliding one. No use is a fresh state, whatever the time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Packed {
    /// The time of the state: below 2^53 µs.
    pub at: Timestamp,
    /// The use, in the algorithm's own units.
    pub used: u64,
}

impl Packed {
    /// The low half of what is used.
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "the low half is meant")]
    pub(super) const fn low(self) -> u32 {
        self.used as u32
    }

    /// The high half of what is used.
    #[inline(always)]
    pub(super) const fn high(self) -> u32 {
        (self.used >> u32::BITS) as u32
    }
}

/// The stored state of one key under one algorithm. The default is an unused key.
pub(super) trait Stored: Default + PartialEq {
    /// The state in two numbers. `None`: it has no such form.
    fn pack(&self) -> Option<Packed>;

    /// The state from its packed form. `None`: states of this algorithm are never packed.
    fn unpack(packed: Packed) -> Option<Self>;

    /// The number of entries, of the store's `max_keys`, that the state counts as.
    fn weight(&self) -> usize {
        1
    }
}

/// The names of an algorithm: in the config file, in keys, and in Lua.
pub(super) struct Names {
    /// The algorithm's name as configured.
    pub(super) name: &'static str,
    /// Its letter in the names of shared counters.
    pub(super) letter: char,
    /// The parameter that sets the quota.
    pub(super) quota: &'static str,
    /// The Lua module: its name, and the text of a function body that returns it.
    pub(super) module: (&'static str, &'static str),
}

/// One algorithm with its parameters. The default methods are those of a count per window.
pub(super) trait Limiter: Sized {
    /// The stored state of one key. The default is an unused key.
    type State: Stored;

    /// The algorithm's names.
    const NAMES: Names;

    /// The names, independent of the parameters.
    fn names(&self) -> &'static Names {
        &Self::NAMES
    }

    /// The rate as configured. `None`: it has none, and the methods that depend on it are its own.
    fn rate(&self) -> Option<Rate> {
        None
    }

    /// Decides one request. A refusal returns the state unchanged, unless refused attempts count.
    fn decide(&self, state: Self::State, now: Timestamp, cost: Cost) -> (Self::State, Decision);

    /// The decision of [`Self::decide`], with the numbers of the uncharged state.
    fn peek(&self, state: &Self::State, now: Timestamp, cost: Cost) -> Decision;

    /// See [`Algorithm::settle`](super::Algorithm::settle).
    fn settle(
        &self,
        state: Self::State,
        admitted_at: Timestamp,
        difference: i64,
        now: Timestamp,
    ) -> Self::State;

    /// When a charge at `now` counted that left this state: `now`, or the state's own time if that is later.
    fn counted_at(&self, _state: &Self::State, now: Timestamp) -> Timestamp {
        now
    }

    /// `state` with `units` fewer in use at `now`. See [`Algorithm::grant`](super::Algorithm::grant).
    fn grant(&self, state: Self::State, units: Cost, now: Timestamp) -> Self::State {
        self.settle(state, now, -i64::from(units.units()), now)
    }

    /// See [`Algorithm::resume`](super::Algorithm::resume).
    fn resume(&self, remaining: u64, reset_after: Micros, now: Timestamp) -> Self::State;

    /// See [`Algorithm::convert`](super::Algorithm::convert). Windows keep their state if they are as long as under
    /// `from`.
    fn convert(&self, from: &Self, state: Self::State, _now: Timestamp) -> Self::State {
        if from.period() == self.period() { state } else { Self::State::default() }
    }

    /// The time from which `state` equals the default state.
    fn forget_at(&self, state: &Self::State) -> Timestamp;

    /// Units in use at `now`, rounded up.
    fn in_use(&self, state: &Self::State, now: Timestamp) -> u64;

    /// The use at `now`, and its maximum, in the finest unit that the state counts.
    fn used(&self, state: &Self::State, now: Timestamp) -> (u64, u64) {
        (self.in_use(state, now), self.quota())
    }

    /// See [`Algorithm::quota`](super::Algorithm::quota).
    fn quota(&self) -> u64 {
        self.rate().map_or(0, |rate| rate.count().into())
    }

    /// See [`Algorithm::window`](super::Algorithm::window).
    fn window(&self) -> Micros {
        self.rate().map_or(Micros(0), Rate::period)
    }

    /// The period that a state depends on: states of another period start afresh. `None`: states are converted.
    fn period(&self) -> Option<Micros> {
        self.rate().map(Rate::period)
    }

    /// The largest cost that can ever be admitted.
    fn max_cost(&self) -> u64 {
        self.quota()
    }

    /// Whether refused attempts count.
    fn counts_denied(&self) -> bool {
        false
    }

    /// Whether a state keeps each event, so that it is never packed.
    #[inline(always)]
    fn keeps_events(&self) -> bool {
        false
    }

    /// The parameters of the Lua implementation.
    fn params(&self) -> [u64; 5];

    /// More parameters of the Lua implementation around `now`, as many as there are.
    fn spans(&self, _now: WallTime) -> &[Micros] {
        &[]
    }

    /// The Lua implementation and its parameters.
    fn twin(&self, now: WallTime) -> LuaParams<'_> {
        LuaParams { module: Self::NAMES.module.0, params: self.params(), spans: self.spans(now) }
    }

    /// Writes the meaning of the limit as text.
    fn explain(&self, f: &mut Formatter<'_>) -> fmt::Result;

    /// Writes the limit in the short form of the config file.
    fn abridge(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.rate().map_or(Ok(()), |rate| WrittenRate(rate).fmt(f))
    }
}

/// An algorithm with a small state: it decides by the state advanced to the present, and stores that with the charge
/// added.
pub(super) trait Viewed: Limiter<State: Copy> {
    /// A state advanced to a time.
    type View: Copy + Into<Self::State>;

    /// The state advanced to `now`.
    fn view(&self, state: Self::State, now: Timestamp) -> Self::View;

    /// The verdict on a request of this cost.
    fn verdict(&self, view: Self::View, now: Timestamp, cost: Cost) -> Verdict;

    /// The decision, with this state after it.
    fn report(&self, verdict: Verdict, view: Self::View, now: Timestamp) -> Decision;

    /// `view` with `cost` added.
    fn charged(&self, view: Self::View, cost: Cost) -> Self::View;

    /// [`Limiter::decide`] in these steps. A `Delay` is charged like an `Allow`.
    #[inline(always)]
    fn decide_by_view(&self, state: Self::State, now: Timestamp, cost: Cost) -> (Self::State, Decision) {
        let view = self.view(state, now);
        match self.verdict(view, now, cost) {
            refusal @ Verdict::Deny(_) => (state, self.report(refusal, view, now)),
            pass => {
                let view = self.charged(view, cost);
                (view.into(), self.report(pass, view, now))
            }
        }
    }

    /// [`Limiter::peek`] in these steps.
    fn peek_by_view(&self, state: Self::State, now: Timestamp, cost: Cost) -> Decision {
        let view = self.view(state, now);
        self.report(self.verdict(view, now, cost), view, now)
    }
}
