//! Credit: gives back a part of a key's use, whenever it was used. For operators, not for requests.

use super::algorithms::{Chosen as _, each};
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
}
