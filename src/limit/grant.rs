//! Giving back a part of what a key has used, whenever it was used: for whoever runs the gateway, not for a request.

use super::units::{Cost, Timestamp};
use super::{Algorithm, State};

impl Algorithm {
    /// `state` with `units` fewer in use at `now`, or with nothing used where it were less; and how many that are, a part of a unit
    /// counted as one. So just so many more are admitted at `now`, unless they exceed what the limit holds at all.
    ///
    /// Of a sliding window this one's count goes first, of a log what came last; so `spacing` counts from what is left.
    pub fn grant(&self, state: State, units: Cost, now: Timestamp) -> (State, u64) {
        let difference = -i64::from(units.units());
        let granted = self.in_use(&state, now).min(units.units().into());
        let state = match (self, state) {
            (Self::FixedWindow(limit), State::FixedWindow(state)) => {
                // Any moment of the window will do; the clock may have run backwards.
                State::FixedWindow(limit.settle(state, now.max(state.start), difference, now))
            }
            (Self::SlidingWindow(limit), State::SlidingWindow(state)) => {
                State::SlidingWindow(limit.grant(state, units, now))
            }
            (Self::SlidingLog(limit), State::SlidingLog(state)) => {
                match limit.grant(*state, units.units().into(), now) {
                    log if log.events() == 0 => State::Fresh,
                    log => State::SlidingLog(Box::new(log)),
                }
            }
            // Buckets do not ask when something was used.
            (_, state) => self.settle(state, now, difference, now),
        };
        (state, granted)
    }

    /// Units in use at `now`, rounded up.
    fn in_use(&self, state: &State, now: Timestamp) -> u64 {
        match (self, state) {
            (Self::TokenBucket(limit), State::TokenBucket(state)) => limit.meter.in_use(*state, now),
            (Self::Gcra(limit), State::Gcra(state)) => limit.meter.in_use(*state, now),
            (Self::LeakyBucket(limit), State::LeakyBucket(state)) => limit.meter.in_use(*state, now),
            (Self::FixedWindow(limit), State::FixedWindow(state)) => limit.used(*state, now),
            (Self::SlidingWindow(limit), State::SlidingWindow(state)) => limit.used(*state, now),
            (Self::SlidingLog(limit), State::SlidingLog(state)) => limit.used(state, now),
            (_, _) => 0,
        }
    }
}
