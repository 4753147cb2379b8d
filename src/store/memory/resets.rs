//! The last resets of counters by operators.

use std::sync::atomic::{AtomicBool, Ordering};

use dashmap::DashMap;
use foldhash::fast::RandomState;

use crate::limit::units::{Fingerprint, Timestamp};

/// The maximum number of resets that are remembered; of more, the oldest are forgotten.
const MAX_RESETS: usize = 10_000;

/// The last resets of counters by operators: a refund of a charge from before is void, since the counter has begun
/// afresh.
#[derive(Debug, Default)]
pub(super) struct Resets {
    /// Usually there are none, and nothing is locked.
    any: AtomicBool,
    /// Keys are keyed hashes already, so a fast hash spreads them.
    times: DashMap<Fingerprint, Timestamp, RandomState>,
}

impl Resets {
    /// Counters with these keys are reset at `now`.
    pub(super) fn note(&self, keys: impl Iterator<Item = Fingerprint>, now: Timestamp) {
        for key in keys {
            self.times.insert(key, now);
            while self.times.len() > MAX_RESETS
                // Copied, so that no shard is locked when the oldest is removed.
                && let Some((_, oldest)) = self.times.iter().map(|reset| (*reset, *reset.key())).min()
            {
                self.times.remove(&oldest);
            }
        }
        self.any.store(true, Ordering::Release);
    }

    /// Whether the counter was reset after `counted_at`.
    pub(super) fn was_reset_since(&self, key: Fingerprint, counted_at: Timestamp) -> bool {
        self.any.load(Ordering::Acquire) && self.times.get(&key).is_some_and(|at| *at >= counted_at)
    }
}
