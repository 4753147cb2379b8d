//! Places in flight that change hands: another process holds them, too, until it is told that they are free.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::RequestsInFlight;
use crate::limit::units::Fingerprint;

/// What is told of places that become free.
pub(super) struct FreedPlaces(Box<dyn Fn(PlacesOfKey) + Send + Sync>);

impl FreedPlaces {
    pub(super) fn tell(&self, places: PlacesOfKey) {
        (self.0)(places);
    }
}

impl fmt::Debug for FreedPlaces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FreedPlaces")
    }
}

/// Places of a key that requests in flight hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlacesOfKey {
    /// The key of the counter.
    pub key: u128,
    /// The policy's [`SharedKeyInfo::identity`](crate::store::SharedKeyInfo::identity).
    pub policy: u128,
    /// Their number.
    pub places: u32,
}

impl RequestsInFlight {
    /// All places that are held. From now on `freed` is told of those that become free. Requests that wait are woken: they
    /// decide again.
    pub(in crate::store) fn hand_over(
        &self,
        freed: impl Fn(PlacesOfKey) + Send + Sync + 'static,
    ) -> Vec<PlacesOfKey> {
        let shards: Vec<_> = self.shards.iter().map(Mutex::lock).collect();
        self.freed.store(Some(Arc::new(FreedPlaces(Box::new(freed)))));
        let mut held = Vec::new();
        for (key, limited) in shards.iter().flat_map(|shard| shard.iter()) {
            limited.queue.iter().flat_map(|queue| queue.iter()).for_each(|waiting| waiting.waiter.wake());
            if limited.held > 0 {
                held.push(PlacesOfKey { key: key.0, policy: limited.policy, places: limited.held });
            }
        }
        held
    }

    /// The successor is gone.
    pub(in crate::store) fn take_back(&self) {
        let _shards: Vec<_> = self.shards.iter().map(Mutex::lock).collect();
        self.freed.store(None);
    }

    /// Takes places for requests in flight of another process, whatever the maximum. They are released.
    pub(in crate::store) fn hold_for_other(&self, key: Fingerprint, policy: u128, places: u32) {
        let mut shard = self.shard(key).lock();
        let entry = shard.entry(key).or_default();
        entry.policy = policy;
        entry.held = entry.held.saturating_add(places);
    }
}
