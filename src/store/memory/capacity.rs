//! The bound on everything that is stored.

use std::sync::atomic::{AtomicU64, Ordering};

/// How much of the bound is taken. Only what grows or shrinks the table touches it, never a state changed in place.
#[derive(Debug)]
pub(super) struct Capacity {
    bound: u64,
    taken: AtomicU64,
}

impl Capacity {
    /// All free.
    pub(super) fn new(bound: usize) -> Self {
        Self { bound: u64::try_from(bound).unwrap_or(u64::MAX), taken: AtomicU64::new(0) }
    }

    /// Takes up to `wanted` and says how much it got. The bound holds at every moment.
    pub(super) fn take(&self, wanted: u64) -> u64 {
        let grant = |taken: u64| wanted.min(self.bound.saturating_sub(taken));
        let mut taken = self.taken.load(Ordering::Relaxed);
        loop {
            let granted = grant(taken);
            if granted == 0 {
                return 0;
            }
            let new = taken + granted;
            match self.taken.compare_exchange_weak(taken, new, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return granted,
                Err(now) => taken = now,
            }
        }
    }

    /// Gives back what was taken before.
    pub(super) fn give_back(&self, amount: u64) {
        if amount > 0 {
            self.taken.fetch_sub(amount, Ordering::Relaxed);
        }
    }

    /// How much there is in all.
    pub(super) fn bound(&self) -> u64 {
        self.bound
    }

    /// How much is taken.
    pub(super) fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }
}
