//! What every algorithm does: the functions that [`Algorithm`](super::Algorithm) hands on to the one that was chosen.
//!
//! An algorithm implements this in its own file. Besides that it has its Lua twin, its line in the list of `algorithms.rs`, and the
//! parser of its parameters in `config`.

use std::fmt::{self, Formatter};

use super::Decision;
use super::lua::Twin;
use super::packed::Packed;
use super::units::{Cost, Micros, Timestamp};

/// One algorithm with its numbers.
pub(super) trait Limiter: Sized {
    /// What is stored for one key. The default is a fresh key.
    type State: Default + PartialEq;

    /// The Lua twin: the name of its module, and the text of a function's body that returns it.
    const MODULE: (&'static str, &'static str);

    /// The algorithm's name as configured.
    fn name(&self) -> &'static str;

    /// The letter that stands for the algorithm in the names of shared counters.
    fn letter(&self) -> char;

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

    /// See [`Algorithm::convert`](super::Algorithm::convert).
    fn convert(&self, from: &Self, state: Self::State, now: Timestamp) -> Self::State;

    /// From when on `state` equals the default state.
    fn forget_at(&self, state: &Self::State) -> Timestamp;

    /// Units in use at `now`, rounded up.
    fn in_use(&self, state: &Self::State, now: Timestamp) -> u64;

    /// What is in use at `now`, and the most that may be, in the finest unit that the state counts.
    fn used(&self, state: &Self::State, now: Timestamp) -> (u64, u64) {
        (self.in_use(state, now), self.quota())
    }

    /// See [`Algorithm::quota`](super::Algorithm::quota).
    fn quota(&self) -> u64;

    /// The parameter that sets the quota.
    fn quota_parameter(&self) -> &'static str {
        "rate"
    }

    /// See [`Algorithm::window`](super::Algorithm::window).
    fn window(&self) -> Micros;

    /// The period that a state depends on: states of another period start afresh. `None`: states are converted.
    fn period(&self) -> Option<Micros>;

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
    fn twin(&self) -> Twin {
        Twin { module: Self::MODULE.0, numbers: self.numbers() }
    }

    /// Writes what the limit means, in words.
    fn explain(&self, f: &mut Formatter<'_>) -> fmt::Result;

    /// Writes the limit as short as in the file.
    fn abridge(&self, f: &mut Formatter<'_>) -> fmt::Result;

    /// How many of the store's `max_keys` a state takes.
    fn weight(_state: &Self::State) -> usize {
        1
    }

    /// The state in two numbers. `None`: it has no such form.
    fn pack(state: &Self::State) -> Option<Packed>;

    /// The state that was packed. `None`: none ever is.
    fn unpack(packed: Packed) -> Option<Self::State>;
}
