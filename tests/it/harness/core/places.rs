//! Random histories of requests that take places and give them back.

use proptest::prelude::*;
use tollgate::limit::units::{Micros, Timestamp};

/// A request begins, or one of those in flight ends. Time has moved by this many µs since the last event.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    Begin { share: Share, moved: i64 },
    End { index: usize, moved: i64 },
}

/// How many places a request takes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Share {
    Units(u32),
    /// The maximum, and this many more.
    Max(u32),
}

impl Event {
    pub(crate) fn moment(self, now: Timestamp) -> Timestamp {
        let (Self::Begin { moved, .. } | Self::End { moved, .. }) = self;
        match u64::try_from(moved) {
            Ok(moved) => now.plus(Micros(moved)),
            Err(_) => Timestamp(now.0 - moved.unsigned_abs()),
        }
    }

    /// The places of a request that begins.
    pub(crate) fn units(self, max: u32) -> u32 {
        match self {
            Self::Begin { share: Share::Units(units), .. } => units,
            Self::Begin { share: Share::Max(more), .. } => (max + more).min(1_000_000_000),
            Self::End { .. } => 0,
        }
    }

    /// Which of this many requests ends.
    pub(crate) fn index(self, requests: usize) -> Option<usize> {
        match self {
            Self::End { index, .. } => index.checked_rem(requests),
            Self::Begin { .. } => None,
        }
    }
}

pub(crate) fn max() -> impl Strategy<Value = u32> {
    prop_oneof![6 => 1..12_u32, 1 => Just(1_000_000_000), 1 => 1..=1_000_000_000_u32]
}

/// In all less than the 14 s for which a server keeps a place without renewal.
pub(crate) fn events() -> impl Strategy<Value = Vec<Event>> {
    let moved = || prop_oneof![3 => Just(0), 5 => 0..200_000_i64, 1 => -200_000..0_i64];
    let share = prop_oneof![
        8 => (1..4_u32).prop_map(Share::Units),
        1 => (0..2_u32).prop_map(Share::Max),
        1 => (1..=1_000_000_000_u32).prop_map(Share::Units),
    ];
    let event = prop_oneof![
        3 => (share, moved()).prop_map(|(share, moved)| Event::Begin { share, moved }),
        2 => (any::<usize>(), moved()).prop_map(|(index, moved)| Event::End { index, moved }),
    ];
    prop::collection::vec(event, 1..60)
}
