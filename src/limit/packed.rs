//! A state in two numbers: what a store keeps of every algorithm but the sliding log.

use super::units::Timestamp;
use super::{Algorithm, Cost, Decision, State};
use super::{fixed_window, meter, sliding_window};

/// A state as a moment and what is used then: ticks of a bucket's meter, the count of a fixed window, or both counts
/// of a sliding one. Nothing used is a fresh state, whatever the moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Packed {
    /// When it stood so: below 2^53 µs.
    pub at: Timestamp,
    /// What was used, in the algorithm's own terms.
    pub used: u64,
}

impl Algorithm {
    /// [`Self::decide`] on a packed state, for a store's hot path. `None` for a sliding log, which has no such state.
    #[inline(always)]
    pub fn decide_packed(&self, state: Packed, now: Timestamp, cost: Cost) -> Option<(Packed, Decision)> {
        Some(match self {
            Self::TokenBucket(limit) => packed(limit.decide(state.into(), now, cost)),
            Self::Gcra(limit) => packed(limit.decide(state.into(), now, cost)),
            Self::LeakyBucket(limit) => packed(limit.decide(state.into(), now, cost)),
            Self::FixedWindow(limit) => packed(limit.decide(state.into(), now, cost)),
            Self::SlidingWindow(limit) => packed(limit.decide(state.into(), now, cost)),
            Self::SlidingLog(_) => return None,
        })
    }

    /// The state of this algorithm that was packed. A sliding log's is fresh: none is ever packed.
    pub fn unpacked(&self, state: Packed) -> State {
        if state.used == 0 {
            return State::Fresh;
        }
        match self {
            Self::TokenBucket(_) => State::TokenBucket(state.into()),
            Self::Gcra(_) => State::Gcra(state.into()),
            Self::LeakyBucket(_) => State::LeakyBucket(state.into()),
            Self::FixedWindow(_) => State::FixedWindow(state.into()),
            Self::SlidingWindow(_) => State::SlidingWindow(state.into()),
            Self::SlidingLog(_) => State::Fresh,
        }
    }
}

impl State {
    /// The state in two numbers; `None` for a sliding log.
    pub fn packed(&self) -> Option<Packed> {
        Some(match self {
            Self::Fresh => Packed::default(),
            Self::TokenBucket(level) | Self::Gcra(level) | Self::LeakyBucket(level) => (*level).into(),
            Self::FixedWindow(window) => (*window).into(),
            Self::SlidingWindow(windows) => (*windows).into(),
            Self::SlidingLog(_) => return None,
        })
    }
}

fn packed<S: Into<Packed>>((state, decision): (S, Decision)) -> (Packed, Decision) {
    (state.into(), decision)
}

impl From<Packed> for meter::Level {
    fn from(state: Packed) -> Self {
        Self::new(state.at, state.used)
    }
}

impl From<meter::Level> for Packed {
    fn from(level: meter::Level) -> Self {
        Self { at: level.at(), used: level.ticks() }
    }
}

impl From<Packed> for fixed_window::State {
    fn from(state: Packed) -> Self {
        Self { start: state.at, count: low(state.used) }
    }
}

impl From<fixed_window::State> for Packed {
    fn from(window: fixed_window::State) -> Self {
        Self { at: window.start, used: window.count.into() }
    }
}

impl From<Packed> for sliding_window::State {
    fn from(state: Packed) -> Self {
        Self { last: state.at, current: low(state.used), previous: low(state.used >> u32::BITS) }
    }
}

impl From<sliding_window::State> for Packed {
    fn from(windows: sliding_window::State) -> Self {
        let used = u64::from(windows.previous) << u32::BITS | u64::from(windows.current);
        Self { at: windows.last, used }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the low half is meant")]
fn low(number: u64) -> u32 {
    number as u32
}
