//! The shared store as the whole process knows it.

use std::sync::Arc;

use parking_lot::Mutex;

use super::client::RedisClient;
use super::counts::RedisCounts;
use super::health::ServerHealths;
use super::script::Script;
use super::settings::RedisSettings;
use crate::store::memory::MemoryStore;

/// Counters in a server, or in several: one for the process. Workers open their own ways there.
#[derive(Debug)]
pub struct SharedStore {
    settings: Arc<RedisSettings>,
    script: Arc<Script>,
    health: Arc<ServerHealths>,
    /// What each worker has counted, by its number.
    counts: Mutex<Vec<Arc<RedisCounts>>>,
}

impl SharedStore {
    pub(in crate::store) fn new(settings: Arc<RedisSettings>) -> Self {
        Self { settings, script: Arc::default(), health: Arc::default(), counts: Mutex::default() }
    }

    /// One in place of another: what was counted so far is not forgotten.
    pub(in crate::store) fn after(last: Option<&Self>, settings: Arc<RedisSettings>) -> Self {
        let counts = last.map(Self::counts).unwrap_or_default();
        Self { counts: Mutex::new(counts), ..Self::new(settings) }
    }

    /// Where it is, and how it is asked.
    pub fn settings(&self) -> &Arc<RedisSettings> {
        &self.settings
    }

    /// A worker's way there; see [`Store::open`](crate::store::Store::open).
    pub(in crate::store) fn open(&self, worker: usize, memory: Arc<MemoryStore>) -> RedisClient {
        let mut all = self.counts.lock();
        while all.len() <= worker {
            all.push(Arc::default());
        }
        let counts = all.get(worker).cloned().unwrap_or_default();
        RedisClient::open(&self.settings, &self.script, &self.health, memory, counts)
    }

    /// Which servers can be asked.
    pub fn health(&self) -> &ServerHealths {
        &self.health
    }

    /// What each worker has counted so far.
    pub fn counts(&self) -> Vec<Arc<RedisCounts>> {
        self.counts.lock().clone()
    }
}
