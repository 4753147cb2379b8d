//! Places held and requests waiting, for views.

use std::collections::HashMap;

use super::RequestsInFlight;
use crate::limit::units::Fingerprint;
use crate::store::Store;

/// The places and the queue of a policy, all keys together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlaceUsage {
    /// Places held.
    pub held: u64,
    /// Requests that wait for a place.
    pub waiting: u64,
    /// Of an adaptive limit, the sum of what was found as the maximum of each key.
    pub max: u64,
}

impl RequestsInFlight {
    /// Places held and requests waiting, by policy.
    pub fn usage(&self) -> HashMap<u128, PlaceUsage> {
        let mut usages = HashMap::<u128, PlaceUsage>::new();
        for shard in &self.shards {
            for key in shard.lock().values() {
                let usage = usages.entry(key.policy).or_default();
                usage.held += u64::from(key.held);
                usage.waiting += key.queue.as_ref().map_or(0, |queue| queue.len()) as u64;
                usage.max += key.found_max();
            }
        }
        usages
    }

    /// The requests that wait for a place of this key.
    fn waiting(&self, key: Fingerprint) -> usize {
        let shard = self.shard(key).lock();
        shard.get(&key).and_then(|key| key.queue.as_ref()).map_or(0, |queue| queue.len())
    }
}

impl Store {
    /// The requests of this process that wait for a place of this key, a [`Charge::key`](crate::store::Charge::key).
    pub fn waiting_for_place(&self, key: Fingerprint) -> usize {
        self.memory.in_flight().waiting(key)
    }
}
