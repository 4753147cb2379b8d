//! The storage of sliding logs, which have no fixed size: a slot of the table holds only the id.
//!
//! The holder of the lock of a slot's set owns its log. A thread that holds only the lock of the log's shard may change it too,
//! once it has found the set unlocked: a holder of the set's lock copies the log, or takes it out, under the shard's lock
//! and after it has locked the set. With a shard locked, no thread waits for a set.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use slab::Slab;

use crate::limit::State;

/// All logs by id. A missing state, for the moment or for good, is fresh.
#[derive(Debug)]
pub(super) struct Logs {
    shards: [Mutex<Slab<State>>; Logs::SHARDS],
    turn: AtomicU64,
}

impl Logs {
    const SHARDS: usize = 64;
    /// [`Self::SHARDS`], as a number of ids.
    const STRIDE: u64 = 64;

    /// An empty storage.
    pub(super) fn new() -> Self {
        Self { shards: std::array::from_fn(|_| Mutex::default()), turn: AtomicU64::new(0) }
    }

    /// Stores `state`, and returns its id. Never 0.
    pub(super) fn insert(&self, state: State) -> u64 {
        let number = self.turn.fetch_add(1, Ordering::Relaxed) % Self::STRIDE;
        let index = self.shard(number).lock().insert(state);
        1 + number + index as u64 * Self::STRIDE
    }

    /// Removes the log.
    pub(super) fn remove(&self, id: u64) {
        drop(self.with(id, |shard, index| shard.try_remove(index)));
    }

    /// Takes the log out. Its id is kept for [`Self::put`].
    pub(super) fn take(&self, id: u64) -> State {
        self.with(id, |shard, index| shard.get_mut(index).map(std::mem::take)).unwrap_or_default()
    }

    /// Puts a log back, or another in its place.
    pub(super) fn put(&self, id: u64, state: State) {
        drop(self.with(id, |shard, index| Some(std::mem::replace(shard.get_mut(index)?, state))));
    }

    /// A copy of the log.
    pub(super) fn copy(&self, id: u64) -> State {
        self.ask(id, State::clone)
    }

    /// The result of `ask` for the log.
    pub(super) fn ask<T>(&self, id: u64, ask: impl FnOnce(&State) -> T) -> T {
        self.with(id, |shard, index| ask(shard.get(index).unwrap_or(&State::Fresh)))
    }

    /// The result of `change` for the log, which it may change in place. `None` if there is no such log.
    pub(super) fn change<T>(&self, id: u64, change: impl FnOnce(&mut State) -> T) -> Option<T> {
        self.with(id, |shard, index| shard.get_mut(index).map(change))
    }

    fn with<T>(&self, id: u64, act: impl FnOnce(&mut Slab<State>, usize) -> T) -> T {
        let number = id.saturating_sub(1);
        let index = usize::try_from(number / Self::STRIDE).unwrap_or(usize::MAX);
        act(&mut self.shard(number % Self::STRIDE).lock(), index)
    }

    fn shard(&self, number: u64) -> &Mutex<Slab<State>> {
        #[expect(clippy::cast_possible_truncation, reason = "below the number of shards")]
        let number = number as usize;
        &self.shards[number]
    }
}
