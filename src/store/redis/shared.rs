//! The shared store as the whole process knows it.

use std::sync::Arc;

use parking_lot::Mutex;

use super::client::Client;
use super::counts::Counts;
use super::health::Healths;
use super::script::Script;
use super::settings::Settings;
use crate::store::memory::MemoryStore;

/// Counters in a server, or in several: one for the process. Workers open their own ways there.
#[derive(Debug)]
pub struct SharedStore {
    settings: Arc<Settings>,
    script: Arc<Script>,
    health: Arc<Healths>,
    /// What each worker has counted.
    counts: Mutex<Vec<Arc<Counts>>>,
}

impl SharedStore {
    pub(in crate::store) fn new(settings: Arc<Settings>) -> Self {
        Self { settings, script: Arc::default(), health: Arc::default(), counts: Mutex::default() }
    }

    /// A worker's way there; see [`Store::open`](crate::store::Store::open).
    pub(in crate::store) fn open(&self, memory: Arc<MemoryStore>) -> Client {
        let counts = Arc::<Counts>::default();
        self.counts.lock().push(Arc::clone(&counts));
        Client::open(&self.settings, &self.script, &self.health, memory, counts)
    }

    /// Which servers can be asked.
    pub fn health(&self) -> &Healths {
        &self.health
    }

    /// What each worker has counted so far; workers never end before the process does.
    pub fn counts(&self) -> Vec<Arc<Counts>> {
        self.counts.lock().clone()
    }
}
