//! The usage of the store by one policy.

use std::sync::atomic::{AtomicI64, Ordering};

/// The entries of the store held by the counters of one policy, under any of its parameters.
#[derive(Debug, Default)]
pub(super) struct PolicyUsage(AtomicI64);

impl PolicyUsage {
    /// The number of entries.
    pub(super) fn held(&self) -> u64 {
        // Negative only if states outlived the registry entry of their policy.
        u64::try_from(self.0.load(Ordering::Relaxed)).unwrap_or(0)
    }

    pub(super) fn add(&self, weight: u64) {
        self.0.fetch_add(weight.cast_signed(), Ordering::Relaxed);
    }

    pub(super) fn remove(&self, weight: u64) {
        self.0.fetch_sub(weight.cast_signed(), Ordering::Relaxed);
    }
}
