//! The slot map of one worker, shared by the task that reads it and the connections to the nodes.

use std::cell::RefCell;

use tokio::sync::Notify;

use super::slots::SlotMap;

/// A worker's slot map, and the request for a newer one.
#[derive(Debug)]
pub(super) struct SharedSlotMap {
    /// Never borrowed across a wait.
    pub(super) map: RefCell<SlotMap>,
    suspicion: Notify,
}

impl SharedSlotMap {
    /// A map in which no slot has a node.
    pub(super) fn new() -> Self {
        Self { map: RefCell::new(SlotMap::new()), suspicion: Notify::new() }
    }

    /// Requests a new map, since this one may be wrong.
    pub(super) fn suspect(&self) {
        self.suspicion.notify_one();
    }

    /// Ready once a new map was requested.
    pub(super) async fn suspected(&self) {
        self.suspicion.notified().await;
    }

    /// Replaces the map: returns the old one. `None` if both are the same.
    pub(super) fn replace(&self, map: SlotMap) -> Option<SlotMap> {
        let mut known = self.map.borrow_mut();
        (*known != map).then(|| std::mem::replace(&mut *known, map))
    }
}
