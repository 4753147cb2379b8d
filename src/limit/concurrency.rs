//! The concurrency limit: at most `max` requests in flight. A request takes as many places as it costs, and gives them
//! back when its response has ended.
//!
//! The state is the number of places held. It does not depend on time: a store that keeps it must learn of the end of
//! each request, and must not evict it.
//!
//! Bound: the sum of the costs of the requests in flight never exceeds `max`.
//!
//! A refusal has no known wait, since a place becomes free when another request ends. The requests that wait for a
//! place (`queue`, `max_wait`) are the store's concern.

use std::fmt::{self, Formatter};
use std::num::NonZeroU32;

use super::adaptive_concurrency::CapacityBounds;
use super::limiter::{Limiter, Names, Packed, Stored};
use super::rate_params::Window;
use super::units::{Cost, Micros, Timestamp};
use super::{Algorithm, Decision, Verdict, Wait, changed};

/// The parameters of a concurrency limit.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Concurrency {
    /// Of [`Self::capacity_bounds`] the ceiling.
    max: Cost,
    queue: u32,
    max_wait: Micros,
    /// The least maximum, if the maximum is found from latency.
    found_from: Option<Cost>,
}

/// The text of a limit whose maximum is written is that of its three parameters, by which processes agree on them: see
/// [`ParamsId`](crate::store::ParamsId).
impl fmt::Debug for Concurrency {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { max, queue, max_wait, found_from } = self;
        let mut text = f.debug_struct("Concurrency");
        text.field("max", max).field("queue", queue).field("max_wait", max_wait);
        if let Some(min) = found_from {
            text.field("min", min);
        }
        text.finish()
    }
}

/// The places held: at most 2^32 - 1. The default is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct State {
    pub(super) held: u32,
}

impl State {
    /// A state with this many places held.
    pub fn new(held: u32) -> Self {
        Self { held }
    }
}

impl Stored for State {
    fn pack(&self) -> Option<Packed> {
        Some(Packed { at: Timestamp(0), used: self.held.into() })
    }

    fn unpack(packed: Packed) -> Option<Self> {
        Some(Self { held: packed.low() })
    }
}

impl Algorithm {
    /// At most `max` in flight; `queue` more wait for a place, each for at most `max_wait`.
    pub fn concurrency(max: Cost, queue: u32, max_wait: Micros) -> Self {
        Self::Concurrency(Concurrency { max, queue, max_wait, found_from: None })
    }

    /// The same, with a maximum from `min` to `ceiling` that is found from latency.
    pub fn adaptive_concurrency(min: Cost, ceiling: Cost, queue: u32, max_wait: Micros) -> Self {
        Self::Concurrency(Concurrency { max: ceiling, queue, max_wait, found_from: Some(min) })
    }

    /// The concurrency limit, if it is one.
    #[inline(always)]
    pub fn as_concurrency(&self) -> Option<&Concurrency> {
        if let Self::Concurrency(limit) = self { Some(limit) } else { None }
    }
}

impl Concurrency {
    /// The maximum number of places of a key.
    pub fn max(&self) -> Cost {
        self.max
    }

    /// The bounds of the maximum, if it is found from latency.
    #[inline]
    pub fn capacity_bounds(&self) -> Option<CapacityBounds> {
        let min = self.found_from?.units().min(self.max.units());
        Some(CapacityBounds { min: NonZeroU32::new(min)?, ceiling: NonZeroU32::new(self.max.units())? })
    }

    /// The limit with this maximum, at least one.
    pub fn with_max(&self, max: u32) -> Self {
        Self { max: Cost::new(max).unwrap_or(Cost::ONE), ..*self }
    }

    /// The maximum number of requests of a key that wait for a place.
    pub fn queue(&self) -> usize {
        self.queue as usize
    }

    /// The longest wait for a place.
    pub fn max_wait(&self) -> Micros {
        self.max_wait
    }

    fn verdict(&self, state: State, cost: Cost) -> Verdict {
        match self.max.units().checked_sub(cost.units()) {
            None => Verdict::Deny(Wait::Never),
            Some(room) if state.held <= room => Verdict::Allow,
            Some(_) => Verdict::Deny(Wait::Unknown),
        }
    }

    fn report(&self, verdict: Verdict, state: State) -> Decision {
        let remaining = self.max.units().saturating_sub(state.held).into();
        Decision { verdict, remaining, reset_after: Micros(0) }
    }
}

impl Limiter for Concurrency {
    type State = State;

    const NAMES: Names = Names {
        name: "concurrency",
        letter: 'c',
        quota: "max",
        module: ("concurrency", include_str!("concurrency.lua")),
    };

    fn decide(&self, state: State, _now: Timestamp, cost: Cost) -> (State, Decision) {
        let verdict = self.verdict(state, cost);
        let state = match verdict {
            Verdict::Deny(_) => state,
            _ => State { held: state.held.saturating_add(cost.units()) },
        };
        (state, self.report(verdict, state))
    }

    fn peek(&self, state: &State, _now: Timestamp, cost: Cost) -> Decision {
        self.report(self.verdict(*state, cost), *state)
    }

    /// Gives places back, or takes more: whatever the time.
    fn settle(&self, state: State, _admitted_at: Timestamp, difference: i64, _now: Timestamp) -> State {
        State { held: changed(state.held, difference) }
    }

    fn resume(&self, remaining: u64, _reset_after: Micros, _now: Timestamp) -> State {
        let remaining = u32::try_from(remaining).unwrap_or(u32::MAX);
        State { held: self.max.units().saturating_sub(remaining) }
    }

    /// Requests in flight stay in flight.
    fn convert(&self, _from: &Self, state: State, _now: Timestamp) -> State {
        state
    }

    /// Never, while a place is held.
    fn forget_at(&self, state: &State) -> Timestamp {
        if state.held == 0 { Timestamp(0) } else { Timestamp(u64::MAX) }
    }

    fn in_use(&self, state: &State, _now: Timestamp) -> u64 {
        state.held.into()
    }

    fn quota(&self) -> u64 {
        self.max.units().into()
    }

    /// It has none.
    fn window(&self) -> Micros {
        Micros(0)
    }

    fn period(&self) -> Option<Micros> {
        None
    }

    fn params(&self) -> [u64; 5] {
        [self.max.units().into(), 0, 0, 0, 0]
    }

    fn explain(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.found_from {
            None => write!(f, "{} at the same time", self.max.units())?,
            Some(min) => {
                let max = self.max.units();
                write!(f, "as many at the same time as its backends work on, {} to {max}", min.units())?;
            }
        }
        match self.queue {
            0 => Ok(()),
            queue => write!(f, ", up to {queue} waiting, at most {}", Window(self.max_wait)),
        }
    }

    fn abridge(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.found_from {
            None => write!(f, "max {}", self.max.units())?,
            Some(min) => write!(f, "max auto {} to {}", min.units(), self.max.units())?,
        }
        match self.queue {
            0 => Ok(()),
            queue => write!(f, ", queue {queue}"),
        }
    }
}
