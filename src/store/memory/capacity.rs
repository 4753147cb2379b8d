//! The capacity of the store: the bound on all its entries.

use std::sync::atomic::{AtomicU64, Ordering};

/// The entries used of the capacity. Only changes of the number of entries touch it, never a state changed in place.
#[derive(Debug)]
pub(super) struct Capacity {
    bound: u64,
    used: AtomicU64,
}

impl Capacity {
    /// A capacity with all entries free.
    pub(super) fn new(bound: usize) -> Self {
        Self { bound: u64::try_from(bound).unwrap_or(u64::MAX), used: AtomicU64::new(0) }
    }

    /// Takes up to `wanted` entries, and returns how many. The bound holds at every moment.
    pub(super) fn take(&self, wanted: u64) -> u64 {
        let grant = |used: u64| wanted.min(self.bound.saturating_sub(used));
        let mut used = self.used.load(Ordering::Relaxed);
        loop {
            let granted = grant(used);
            if granted == 0 {
                return 0;
            }
            let new = used + granted;
            match self.used.compare_exchange_weak(used, new, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return granted,
                Err(now) => used = now,
            }
        }
    }

    /// Returns entries that were taken before.
    pub(super) fn give_back(&self, amount: u64) {
        if amount > 0 {
            self.used.fetch_sub(amount, Ordering::Relaxed);
        }
    }

    /// The maximum number of entries.
    pub(super) fn bound(&self) -> u64 {
        self.bound
    }

    /// The number of entries used.
    pub(super) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }
}
