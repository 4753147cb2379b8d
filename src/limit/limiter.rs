//! What every algorithm does: the functions that [`Algorithm`](super::Algorithm) hands on to the one that was chosen.
//!
//! An algorithm implements this in its own file. Besides that it has its Lua twin, its line in the list of `algorithms.rs`, and the
//! parser of its parameters in `config`.

use std::fmt::{self, Display as _, Formatter};

use super::lua::LuaParams;
use super::packed::Stored;
use super::rate_params::WrittenRate;
use super::units::{Cost, Micros, Rate, Timestamp};
use super::{Decision, Verdict};

/// What an algorithm is called: by users, in keys, and in Lua.
pub(super) struct Names {
    /// The algorithm's name as configured.
    pub(super) name: &'static str,
    /// The letter that stands for the algorithm in the names of shared counters.
    pub(super) letter: char,
    /// The parameter that sets the quota.
    pub(super) quota: &'static str,
    /// The Lua twin: the name of its module, and the text of a function's body that returns it.
    pub(super) module: (&'static str, &'static str),
}

/// One algorithm with its numbers. The default methods are those of a count per window.
pub(super) trait Limiter: Sized {
    /// What is stored for one key. The default is a fresh key.
    type State: Stored;

    /// What the algorithm is called.
    const NAMES: Names;

    /// The names, whatever the numbers.
    fn names(&self) -> &'static Names {
        &Self::NAMES
    }

    /// The rate as configured.
    fn rate(&self) -> Rate;

    /// Decides one request. A refusal returns the state unchanged, unless refused attempts count.
    fn decide(&self, state: Self::State, now: Timestamp, cost: Cost) -> (Self::State, Decision);

    /// What [`Self::decide`] would say, with the numbers of the uncharged state.
    fn peek(&self, state: &Self::State, now: Timestamp, cost: Cost) -> Decision;

    /// See [`Algorithm::settle`](super::Algorithm::settle).
    fn settle(
        &self,
        state: Self::State,
        admitted_at: Timestamp,
        difference: i64,
        now: Timestamp,
    ) -> Self::State;

    /// `state` with `units` fewer in use at `now`. See [`Algorithm::grant`](super::Algorithm::grant).
    fn grant(&self, state: Self::State, units: Cost, now: Timestamp) -> Self::State {
        self.settle(state, now, -i64::from(units.units()), now)
    }

    /// See [`Algorithm::resume`](super::Algorithm::resume).
    fn resume(&self, remaining: u64, reset_after: Micros, now: Timestamp) -> Self::State;

    /// See [`Algorithm::convert`](super::Algorithm::convert). Windows keep their state if they are as long as under `from`.
    fn convert(&self, from: &Self, state: Self::State, _now: Timestamp) -> Self::State {
        if from.rate().period() == self.rate().period() { state } else { Self::State::default() }
    }

    /// From when on `state` equals the default state.
    fn forget_at(&self, state: &Self::State) -> Timestamp;

    /// Units in use at `now`, rounded up.
    fn in_use(&self, state: &Self::State, now: Timestamp) -> u64;

    /// What is in use at `now`, and the most that may be, in the finest unit that the state counts.
    fn used(&self, state: &Self::State, now: Timestamp) -> (u64, u64) {
        (self.in_use(state, now), self.quota())
    }

    /// See [`Algorithm::quota`](super::Algorithm::quota).
    fn quota(&self) -> u64 {
        self.rate().count().into()
    }

    /// See [`Algorithm::window`](super::Algorithm::window).
    fn window(&self) -> Micros {
        self.rate().period()
    }

    /// The period that a state depends on: states of another period start afresh. `None`: states are converted.
    fn period(&self) -> Option<Micros> {
        Some(self.rate().period())
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

    /// The numbers that the Lua twin is handed.
    fn numbers(&self) -> [u64; 5];

    /// The algorithm as its twin knows it.
    fn twin(&self) -> LuaParams {
        LuaParams { module: Self::NAMES.module.0, numbers: self.numbers() }
    }

    /// Writes what the limit means, in words.
    fn explain(&self, f: &mut Formatter<'_>) -> fmt::Result;

    /// Writes the limit as short as in the file.
    fn abridge(&self, f: &mut Formatter<'_>) -> fmt::Result {
        WrittenRate(self.rate()).fmt(f)
    }
}

/// An algorithm with a small state: it decides by how the state stands at the moment, and stores that with the charge on top.
pub(super) trait Viewed: Limiter<State: Copy> {
    /// A state as it stands at a moment.
    type View: Copy + Into<Self::State>;

    /// The state as it stands at `now`.
    fn view(&self, state: Self::State, now: Timestamp) -> Self::View;

    /// Whether a request of this cost passes.
    fn verdict(&self, view: Self::View, now: Timestamp, cost: Cost) -> Verdict;

    /// The decision, where the state stands so after it.
    fn report(&self, verdict: Verdict, view: Self::View, now: Timestamp) -> Decision;

    /// `view` with `cost` on top.
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
