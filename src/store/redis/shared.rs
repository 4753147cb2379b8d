//! The shared store, for the whole process.

use std::sync::Arc;

use parking_lot::Mutex;

use super::client::RedisClient;
use super::client_context::ClientContext;
use super::health::ServerHealths;
use super::script_client::RedisCounts;
use super::settings::RedisSettings;
use crate::store::bans::Bans;
use crate::store::fleet::Fleet;
use crate::store::memory::MemoryStore;

/// Counters in one or several servers: one for the process. Each worker opens a client of its own.
#[derive(Debug)]
pub struct SharedStore {
    settings: Arc<RedisSettings>,
    context: ClientContext,
    /// Each worker's counts, by its number.
    counts: Mutex<Vec<Arc<RedisCounts>>>,
}

impl SharedStore {
    pub(in crate::store) fn new(settings: Arc<RedisSettings>) -> Self {
        Self { settings, context: ClientContext::default(), counts: Mutex::default() }
    }

    /// Replaces another shared store: its counts are kept.
    pub(in crate::store) fn after(last: Option<&Self>, settings: Arc<RedisSettings>) -> Self {
        let counts = last.map(Self::counts).unwrap_or_default();
        Self { counts: Mutex::new(counts), ..Self::new(settings) }
    }

    /// The address and settings.
    pub fn settings(&self) -> &Arc<RedisSettings> {
        &self.settings
    }

    /// A worker's client; see [`Store::open`](crate::store::Store::open).
    pub(in crate::store) fn open(
        &self,
        worker: usize,
        memory: Arc<MemoryStore>,
        bans: Arc<Bans>,
    ) -> RedisClient {
        let mut all = self.counts.lock();
        while all.len() <= worker {
            all.push(Arc::default());
        }
        let counts = all.get(worker).cloned().unwrap_or_default();
        RedisClient::open(&self.settings, &self.context, memory, bans, counts)
    }

    /// The availability of the servers.
    pub fn health(&self) -> &ServerHealths {
        &self.context.health
    }

    /// The gateways that share the store.
    pub fn fleet(&self) -> &Fleet {
        &self.context.fleet
    }

    /// Each worker's counts so far.
    pub fn counts(&self) -> Vec<Arc<RedisCounts>> {
        self.counts.lock().clone()
    }
}
