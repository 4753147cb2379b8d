//! Credit and charges by hand: gives back a part of a key's use, or adds to it, whenever it was used. For operators and
//! billing, not for requests.

use super::algorithms::{Chosen as _, each};
use super::limiter::Limiter as _;
use super::units::{Cost, Timestamp};
use super::{Algorithm, State};

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
    /// later. Requests in flight and refusals are not charged.
    pub fn charge(&self, state: State, units: Cost, now: Timestamp) -> State {
        if let Self::Concurrency(_) | Self::Ban(_) = self {
            return state;
        }
        let moment = self.counted_at(&state, now);
        self.settle(state, moment, units.units().into(), now)
    }

    /// Units in use at `now`, rounded up: more than the quota in debt.
    pub fn in_use(&self, state: &State, now: Timestamp) -> u64 {
        each!(self, limit => limit.ask(state, |own| limit.in_use(own, now)))
    }
}
