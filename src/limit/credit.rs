//! Giving back a part of what a key has used, whenever it was used: for whoever runs the gateway, not for a request.

use super::algorithms::{Chosen as _, each};
use super::units::{Cost, Timestamp};
use super::{Algorithm, State};

impl Algorithm {
    /// `state` with `units` fewer in use at `now`, or with nothing used where it were less; and how many that are, a part of a unit
    /// counted as one. So just so many more are admitted at `now`, unless they exceed what the limit holds at all.
    ///
    /// Of a sliding window this one's count goes first, of a log what came last; so `spacing` counts from what is left.
    pub fn grant(&self, state: State, units: Cost, now: Timestamp) -> (State, u64) {
        each!(self, limit => limit.grant_stored(state, units, now))
    }
}
