//! The slot map of one worker, shared by the task that reads it and the connections to the nodes.

use std::cell::RefCell;

use tokio::sync::Notify;

use super::settings::RedisServer;
use super::slot::HashSlot;
use super::slots::SlotMap;

/// A worker's slot map, and the request for a newer one.
#[derive(Debug)]
pub(super) struct SharedSlotMap {
    map: RefCell<SlotMap>,
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

    /// See [`SlotMap::masters`].
    pub(super) fn masters(&self) -> Vec<RedisServer> {
        self.map.borrow().masters().to_vec()
    }

    /// The node at this index among the masters.
    pub(super) fn master(&self, index: usize) -> Option<RedisServer> {
        self.map.borrow().masters().get(index).cloned()
    }

    /// See [`SlotMap::owner`].
    pub(super) fn owner(&self, slot: HashSlot) -> Option<usize> {
        self.map.borrow().owner(slot)
    }

    /// See [`SlotMap::learn`].
    pub(super) fn learn(&self, slot: HashSlot, server: &RedisServer) -> Option<usize> {
        self.map.borrow_mut().learn(slot, server)
    }

    /// See [`SlotMap::place_of`].
    pub(super) fn index_of(&self, server: &RedisServer) -> Option<usize> {
        self.map.borrow_mut().index_of(server)
    }

    /// See [`SlotMap::tag_of`].
    pub(super) fn tag_of(&self, server: &RedisServer) -> Option<u32> {
        self.map.borrow().tag_of(server)
    }
}
