//! The sets that one request has locked, and its states in them.

use smallvec::SmallVec;

use super::eviction_policy::EvictionPolicy;
use super::set::Locked;
use super::share::LimitShare;
use super::slot::{Content, CounterSlot, Tag};
use super::table::CounterTable;
use super::transaction::LoadedState;
use crate::limit::State;
use crate::limit::units::Fingerprint;
use crate::store::Charge;

/// The sets of one request, locked until this is dropped.
pub(super) struct LockedSets<'a> {
    pub(super) table: &'a CounterTable,
    /// Indices and sets: first those of the charges, then those visited for eviction.
    pub(super) sets: SmallVec<[(usize, Locked<'a>); 8]>,
}

/// The position of a slot: the index of the locked set, and of the slot in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SlotRef {
    pub(super) set: usize,
    pub(super) slot: usize,
}

type SetIndices = SmallVec<[usize; 8]>;

impl<'a> LockedSets<'a> {
    /// Locks the sets of the charges' keys: the set of a stored key, or both sets of a key that is not stored.
    pub(super) fn new(table: &'a CounterTable, charges: &[Charge<'_>]) -> Self {
        let mut set_indices = SetIndices::new();
        for Charge { key, .. } in charges {
            let (both, tag) = (table.set_indices(*key), Tag::of(*key));
            match both.into_iter().find(|set_index| table.set(*set_index).find(tag).is_some()) {
                Some(set_index) => set_indices.push(set_index),
                None => set_indices.extend(both),
            }
        }
        let held = Self::lock(table, set_indices);
        if charges.iter().all(|charge| held.has(charge.key)) {
            return held;
        }
        // A key has moved or was removed before the sets were locked.
        drop(held);
        Self::lock(table, charges.iter().flat_map(|charge| table.set_indices(charge.key)).collect())
    }

    /// No set yet.
    pub(super) fn none(table: &'a CounterTable) -> Self {
        Self { table, sets: SmallVec::new() }
    }

    /// Locks each index once and in ascending order: no two requests can wait for each other.
    fn lock(table: &'a CounterTable, mut set_indices: SetIndices) -> Self {
        set_indices.sort_unstable();
        set_indices.dedup();
        let sets =
            set_indices.into_iter().map(|set_index| (set_index, table.set(set_index).lock())).collect();
        Self { table, sets }
    }

    /// Whether the locked sets suffice for the key.
    fn has(&self, key: Fingerprint) -> bool {
        self.find(key).is_some() || self.own(key).count() == 2
    }

    /// The position among the locked sets of the one at index `set_index`.
    pub(super) fn index(&self, set_index: usize) -> Option<usize> {
        self.sets.iter().position(|(held, _)| *held == set_index)
    }

    /// The positions of the key's sets among the locked sets.
    pub(super) fn own(&self, key: Fingerprint) -> impl Iterator<Item = usize> + use<> {
        self.table.set_indices(key).map(|set_index| self.index(set_index)).into_iter().flatten()
    }

    /// The slot of the key.
    pub(super) fn find(&self, key: Fingerprint) -> Option<SlotRef> {
        let tag = Tag::of(key);
        let seat_in = |set: usize| {
            let slot = self.sets[set].1.find(tag)?;
            Some(SlotRef { set, slot })
        };
        self.own(key).find_map(seat_in)
    }

    pub(super) fn get(&self, slot_ref: SlotRef) -> CounterSlot {
        self.sets[slot_ref.set].1.get(slot_ref.slot)
    }

    pub(super) fn put(&mut self, slot_ref: SlotRef, slot: CounterSlot) {
        self.sets[slot_ref.set].1.put(slot_ref.slot, slot);
    }

    /// A copy of the state of the charge's key, converted for the charge's algorithm.
    pub(super) fn copy(&self, charge: &Charge<'_>, policy: &EvictionPolicy<'_>) -> LoadedState {
        let found = self.find(charge.key).map(|slot_ref| self.get(slot_ref).params());
        let state = self.load(charge, policy, |id| self.table.logs.copy(id));
        LoadedState { state, converted: found.is_some_and(|params| params != charge.params) }
    }

    /// The charge under the parameters of the stored state, where these are known.
    pub(super) fn as_stored<'c>(&self, charge: &Charge<'c>, policy: &'c EvictionPolicy<'_>) -> Charge<'c> {
        let params = self.find(charge.key).map(|slot_ref| self.get(slot_ref).params());
        let stored = params.and_then(|params| Some((params, policy.algorithm(params)?)));
        stored.map_or(*charge, |(params, algorithm)| Charge { params, algorithm, ..*charge })
    }

    /// As [`Self::copy`], but a log is moved out of the log storage: it must be stored again before the lock is dropped.
    pub(super) fn take(&self, charge: &Charge<'_>, policy: &EvictionPolicy<'_>) -> State {
        self.load(charge, policy, |id| self.table.logs.take(id))
    }

    fn load(
        &self,
        charge: &Charge<'_>,
        policy: &EvictionPolicy<'_>,
        log: impl FnOnce(u64) -> State,
    ) -> State {
        let Some(slot) = self.find(charge.key).map(|slot_ref| self.get(slot_ref)) else {
            return State::Fresh;
        };
        let same = slot.params() == charge.params;
        // Converted if it was written under other parameters, fresh if those are unknown.
        let Some(from) = (if same { Some(charge.algorithm) } else { policy.algorithm(slot.params()) }) else {
            return State::Fresh;
        };
        let state = match slot.content() {
            Content::State(state) => from.unpacked(state),
            Content::Log { id, .. } => log(id),
        };
        if same { state } else { charge.algorithm.convert(from, state, policy.now) }
    }

    /// Stores `state` for the charge's key: in its slot, in that of an expired neighbour, in free capacity, or in place
    /// of the least used neighbour. A fresh state takes no slot. If no counter can be evicted, `state` itself is
    /// dropped, and counted as evicted. A limit with a share evicts counters of its own to stay within it.
    pub(super) fn store(&mut self, charge: &Charge<'_>, state: State, policy: &EvictionPolicy<'_>) {
        let before = self.find(charge.key).map_or(0, |slot_ref| self.get(slot_ref).weight());
        let share = if weigh(&state) > before { policy.share(charge.params) } else { None };
        match share {
            None => self.store_unshared(charge, state, policy),
            Some(share) => self.store_in_share(share, before, charge, state, policy),
        }
    }

    fn store_in_share(
        &mut self,
        share: &LimitShare,
        before: u64,
        charge: &Charge<'_>,
        state: State,
        policy: &EvictionPolicy<'_>,
    ) {
        let (needed, is_new) = (weigh(&state) - before, before == 0);
        let mut members = share.members.lock();
        if !self.fit_share(share, &mut members, (charge, needed, is_new), policy) {
            self.table.count_eviction();
            return self.store_unshared(charge, State::Fresh, policy);
        }
        self.store_unshared(charge, state, policy);
        if is_new {
            self.list_member(&mut members, charge.key);
        }
    }

    fn store_unshared(&mut self, charge: &Charge<'_>, state: State, policy: &EvictionPolicy<'_>) {
        match (self.find(charge.key), weigh(&state)) {
            (Some(slot_ref), 0) => self.free(slot_ref, policy),
            (Some(slot_ref), weight) => self.replace(slot_ref, weight, charge, state, policy),
            (None, 0) => {}
            (None, weight) => self.insert(weight, charge, state, policy),
        }
    }

    fn replace(
        &mut self,
        slot_ref: SlotRef,
        weight: u64,
        charge: &Charge<'_>,
        state: State,
        policy: &EvictionPolicy<'_>,
    ) {
        let before = self.get(slot_ref).weight();
        let missing = weight.saturating_sub(before);
        let room = self.make_room(charge, missing, policy);
        if room < missing {
            self.table.count_eviction();
            self.table.room.give_back(room);
            return self.free(slot_ref, policy);
        }
        self.fill(slot_ref, charge, state, policy);
        self.table.room.give_back(before + room - weight);
    }

    fn insert(&mut self, weight: u64, charge: &Charge<'_>, state: State, policy: &EvictionPolicy<'_>) {
        let mut room = self.make_room(charge, weight, policy);
        let slot_ref = if room < weight { None } else { self.vacancy(charge, policy) };
        match slot_ref {
            Some(slot_ref) => {
                self.fill(slot_ref, charge, state, policy);
                room -= weight;
            }
            None => self.table.count_eviction(),
        }
        self.table.room.give_back(room);
    }

    /// Writes the slot. A log keeps its id.
    fn fill(&mut self, slot_ref: SlotRef, charge: &Charge<'_>, state: State, policy: &EvictionPolicy<'_>) {
        let before = self.get(slot_ref);
        let events = weigh(&state);
        if before.params() != charge.params || before.weight() != events {
            discount(&before, policy);
            policy.usage(charge.params).inspect(|usage| usage.add(events));
        }
        let content = match (state.packed(), before.log()) {
            (None, Some(id)) => {
                self.table.logs.put(id, state);
                Content::Log { id, events }
            }
            (None, None) => Content::Log { id: self.table.logs.insert(state), events },
            (Some(packed), _) => {
                self.table.empty(&before);
                Content::State(packed)
            }
        };
        self.put(slot_ref, CounterSlot::new(Tag::of(charge.key), charge.params, content));
    }

    /// Empties the slot and returns its entries to the capacity.
    fn free(&mut self, slot_ref: SlotRef, policy: &EvictionPolicy<'_>) {
        let room = self.clear(slot_ref, policy);
        self.table.room.give_back(room);
    }

    /// Empties the slot and returns the number of entries freed.
    pub(super) fn clear(&mut self, slot_ref: SlotRef, policy: &EvictionPolicy<'_>) -> u64 {
        let before = self.get(slot_ref);
        discount(&before, policy);
        let room = self.table.empty(&before);
        self.put(slot_ref, CounterSlot::EMPTY);
        room
    }
}

/// Subtracts the slot's entries from the usage of its policy.
fn discount(slot: &CounterSlot, policy: &EvictionPolicy<'_>) {
    if !slot.is_empty() {
        policy.usage(slot.params()).inspect(|usage| usage.remove(slot.weight()));
    }
}

/// The number of entries that a state counts as: none if it is unused.
fn weigh(state: &State) -> u64 {
    match state.packed() {
        Some(packed) => u64::from(packed.used > 0),
        None => state.weight() as u64,
    }
}
