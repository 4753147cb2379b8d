//! The memory store.

use crate::limit::Algorithm;
use crate::limit::units::Timestamp;
use crate::store::{Charge, Outcome};

/// Counters in this process, bounded by `max_keys`.
#[derive(Debug)]
pub struct MemoryStore {}

impl MemoryStore {
    /// An empty store that never holds more than `max_keys` entries (at least one).
    pub fn new(_max_keys: usize) -> Self {
        Self {}
    }

    /// See [`crate::store::Store::register`].
    pub fn register(&self, _algorithm: &Algorithm) {}

    /// See [`crate::store::Store::decide`].
    pub fn decide(&self, _charges: &[Charge<'_>], _now: Timestamp) -> Outcome {
        Outcome::default()
    }

    /// See [`crate::store::Store::keys`].
    pub fn keys(&self) -> u64 {
        0
    }

    /// See [`crate::store::Store::evictions`].
    pub fn evictions(&self) -> u64 {
        0
    }
}
