//! Counters as data: copied while requests are decided, and put back into the store of another process.
//!
//! A slot does not hold its key, only the index of its set and a tag. So a table takes counters of a table with as many
//! sets, which has been made for the same `max_keys`, and of no other.

use super::MemoryStore;
use super::registry::RegisteredPolicy;
use super::set::SLOTS;
use super::slot::{Content, CounterSlot, Tag};
use crate::limit::{Algorithm, Packed, State};
use crate::store::ParamsId;

/// A policy whose counters a store may hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredPolicy {
    /// The version of the states.
    pub params: ParamsId,
    /// The identity of the policy.
    pub identity: u128,
    /// The algorithm with its parameters.
    pub algorithm: Algorithm,
}

/// A counter, without its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredCounter {
    /// The index of the set that it is stored in.
    pub set: u64,
    /// The part of its key that distinguishes the keys of one set.
    pub tag: u64,
    /// The version of its state.
    pub params: ParamsId,
    /// Its state.
    pub state: StoredState,
}

/// The state of a counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoredState {
    /// Of an algorithm whose states have a fixed size.
    Packed(Packed),
    /// Of one that keeps events: [`State::words`].
    Log(Vec<u64>),
}

/// Why a counter was not put back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestoreFault {
    /// No policy with these parameters is registered.
    UnknownPolicy,
    /// The table has no such set, its set is full, or it holds the key already.
    NoRoom,
    /// The state is unused, or none of the policy's algorithm.
    Unused,
}

impl MemoryStore {
    /// The number of sets of the table.
    pub fn sets(&self) -> u64 {
        self.table.sets() as u64
    }

    /// Whether a policy with these parameters is registered.
    pub fn knows(&self, params: ParamsId) -> bool {
        self.registry.read().get(params).is_some()
    }

    /// The policies whose counters the store may hold, but for leases: units that a process has taken are its own. The number
    /// of policies that were registered lately is bounded.
    pub fn stored_policies(&self) -> Vec<StoredPolicy> {
        let registry = self.registry.read();
        let stored = |(params, policy): (ParamsId, &RegisteredPolicy)| StoredPolicy {
            params,
            identity: policy.identity,
            algorithm: policy.algorithm,
        };
        registry.all().map(stored).filter(|policy| policy.algorithm.as_lease().is_none()).collect()
    }

    /// Visits all counters, each as it was at some moment of the visit. Counters that requests move meanwhile from one
    /// set to another may be visited twice, or not at all.
    ///
    /// # Errors
    ///
    /// That of `visit`, which ends the visit.
    pub fn each_counter<E>(&self, mut visit: impl FnMut(StoredCounter) -> Result<(), E>) -> Result<(), E> {
        for index in 0..self.table.sets() {
            let set = self.table.set(index);
            if set.is_untouched() {
                continue;
            }
            let mut counters: [Option<StoredCounter>; SLOTS] = Default::default();
            {
                let locked = set.lock();
                for (counter, slot) in counters.iter_mut().zip(locked.slots()) {
                    *counter = self.stored(index, &slot);
                }
            }
            counters.into_iter().flatten().try_for_each(&mut visit)?;
        }
        Ok(())
    }

    fn stored(&self, set: usize, slot: &CounterSlot) -> Option<StoredCounter> {
        if slot.is_empty() {
            return None;
        }
        let state = match slot.content() {
            Content::State(packed) => StoredState::Packed(packed),
            Content::Log { id, .. } => StoredState::Log(self.table.logs.ask(id, State::words)?),
        };
        Some(StoredCounter { set: set as u64, tag: slot.tag().bits(), params: slot.params(), state })
    }

    /// Puts a counter back that [`Self::each_counter`] has visited, in a store with as many sets. Its policy is
    /// registered.
    ///
    /// # Errors
    ///
    /// The counter is not stored: it begins anew.
    pub fn restore(&self, counter: StoredCounter) -> Result<(), RestoreFault> {
        let StoredCounter { set, tag, params, state } = counter;
        let registry = self.registry.read();
        let policy = registry.get(params).ok_or(RestoreFault::UnknownPolicy)?;
        let index = usize::try_from(set).ok().filter(|set| *set < self.table.sets());
        let (index, tag) = (index.ok_or(RestoreFault::NoRoom)?, Tag::of_bits(tag));
        let other = self.table.set(self.table.other_set(index, tag));
        let mut set = self.table.set(index).lock();
        // A counter that was moved during the visit may have been visited twice.
        let is_there = set.find(tag).is_some() || other.find(tag).is_some();
        let index = set.position(CounterSlot::is_empty).filter(|_| !is_there).ok_or(RestoreFault::NoRoom)?;
        let content = match state {
            StoredState::Packed(Packed { used: 0, .. }) => return Err(RestoreFault::Unused),
            StoredState::Packed(packed) => Content::State(packed),
            StoredState::Log(words) => self.restored_log(policy, &words)?,
        };
        let slot = CounterSlot::new(tag, params, content);
        let weight = slot.weight();
        let taken = self.table.room.take(weight);
        if taken < weight {
            self.table.room.give_back(taken);
            self.table.empty(&slot);
            return Err(RestoreFault::NoRoom);
        }
        policy.usage.add(weight);
        set.put(index, slot);
        Ok(())
    }

    fn restored_log(&self, policy: &RegisteredPolicy, words: &[u64]) -> Result<Content, RestoreFault> {
        let log = policy.algorithm.state_of_words(words).ok_or(RestoreFault::Unused)?;
        let events = log.weight() as u64;
        Ok(Content::Log { id: self.table.logs.insert(log), events })
    }
}
