//! When operators reset counters: a refund of a charge from before is void, since the counter has begun afresh.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::limit::units::{Fingerprint, Timestamp};

/// The maximum number of resets that are remembered; the oldest is forgotten first.
const MAX_RESETS: usize = 10_000;

/// The last resets of counters.
#[derive(Debug, Default)]
pub(super) struct Resets {
    /// Usually there are none, and nothing is locked.
    any: AtomicBool,
    times: Mutex<HashMap<Fingerprint, Timestamp>>,
}

impl Resets {
    /// Counters with these keys are reset at `now`.
    pub(super) fn note(&self, keys: impl Iterator<Item = Fingerprint>, now: Timestamp) {
        let mut times = self.times.lock();
        for key in keys {
            if times.len() >= MAX_RESETS
                && !times.contains_key(&key)
                && let Some(oldest) = times.iter().min_by_key(|(_, at)| **at).map(|(key, _)| *key)
            {
                times.remove(&oldest);
            }
            times.insert(key, now);
        }
        self.any.store(true, Ordering::Release);
    }

    /// Whether the counter was reset after `counted_at`.
    pub(super) fn was_reset_since(&self, key: Fingerprint, counted_at: Timestamp) -> bool {
        self.any.load(Ordering::Acquire) && self.times.lock().get(&key).is_some_and(|at| *at >= counted_at)
    }
}
