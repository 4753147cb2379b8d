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
    /// What each worker has counted, by its number.
    counts: Mutex<Vec<Arc<Counts>>>,
}

impl SharedStore {
    pub(in crate::store) fn new(settings: Arc<Settings>) -> Self {
        Self { settings, script: Arc::default(), health: Arc::default(), counts: Mutex::default() }
    }

    /// One in place of another: what was counted so far is not forgotten.
    pub(in crate::store) fn after(last: Option<&Self>, settings: Arc<Settings>) -> Self {
        let counts = last.map(Self::counts).unwrap_or_default();
        Self { counts: Mutex::new(counts), ..Self::new(settings) }
    }

    /// Where it is, and how it is asked.
    pub fn settings(&self) -> &Arc<Settings> {
        &self.settings
    }

    /// A worker's way there; see [`Store::open`](crate::store::Store::open).
    pub(in crate::store) fn open(&self, worker: usize, memory: Arc<MemoryStore>) -> Client {
        let mut all = self.counts.lock();
        while all.len() <= worker {
            all.push(Arc::default());
        }
        let counts = all.get(worker).cloned().unwrap_or_default();
        Client::open(&self.settings, &self.script, &self.health, memory, counts)
    }

    /// Which servers can be asked.
    pub fn health(&self) -> &Healths {
        &self.health
    }

    /// What each worker has counted so far.
    pub fn counts(&self) -> Vec<Arc<Counts>> {
        self.counts.lock().clone()
    }
}
