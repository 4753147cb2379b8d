//! Where the states stand: a fixed array of small sets, each under its own lock, within one bound for all.
//!
//! A key's set follows from its fingerprint, so nothing is ever moved or resized as a whole. A set is a short list; as
//! fingerprints are uniformly distributed and keyed, no client can make one long. The bound is a count of what all sets
//! hold: while there is room nothing is evicted, and when there is none, whoever comes makes room among its neighbours.
//! No sweep: an expired slot is overwritten by the next key that comes to its set.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};
use smallvec::SmallVec;

use super::census::Census;
use super::room::Room;
use crate::limit::State;
use crate::limit::units::Fingerprint;
use crate::store::{Charge, NumbersId};

/// All states.
#[derive(Debug)]
pub(super) struct Table {
    sets: Box<[Mutex<Set>]>,
    room: Room,
    evictions: AtomicU64,
}

/// The sets that one request touches, locked until it is dropped.
pub(super) struct Held<'a> {
    table: &'a Table,
    sets: SmallVec<[(usize, MutexGuard<'a, Set>); 4]>,
}

/// One key's state.
#[derive(Debug)]
pub(super) struct Slot {
    tag: u64,
    /// The numbers that `state` was written under.
    pub(super) numbers: NumbersId,
    weight: u32,
    /// What is stored.
    pub(super) state: State,
}

type Set = Vec<Slot>;

impl Table {
    /// Keys in a set when the table is full, on average: long enough to make good company at an eviction, short enough to
    /// be searched in a few cache lines.
    const MEAN: usize = 8;
    /// Up to so many keys stand in a single set, so that the least used of all is found exactly.
    const ONE_SET: usize = 64;
    /// At most so many sets (128 MiB of them); beyond, sets become longer.
    const MAX_SETS: usize = 1 << 22;

    /// An empty table that never holds more than `max_keys` (at least one).
    pub(super) fn new(max_keys: usize) -> Self {
        let max_keys = max_keys.max(1);
        let sets =
            if max_keys <= Self::ONE_SET { 1 } else { max_keys.div_ceil(Self::MEAN).min(Self::MAX_SETS) };
        Self {
            sets: (0..sets).map(|_| Mutex::default()).collect(),
            room: Room::new(max_keys),
            evictions: AtomicU64::new(0),
        }
    }

    /// Locks the sets of the charges' keys, each once and in ascending order: no two requests can wait for each other.
    pub(super) fn lock(&self, charges: &[Charge<'_>]) -> Held<'_> {
        if let [charge] = charges {
            let place = self.place(charge.key);
            let mut sets = SmallVec::new();
            sets.push((place, self.sets[place].lock()));
            return Held { table: self, sets };
        }
        let mut places: SmallVec<[usize; 8]> = charges.iter().map(|charge| self.place(charge.key)).collect();
        places.sort_unstable();
        places.dedup();
        let sets = places.into_iter().map(|place| (place, self.sets[place].lock())).collect();
        Held { table: self, sets }
    }

    /// Drops every state written under `numbers`. Walks the whole table, one set at a time; not for the request path.
    pub(super) fn forget(&self, numbers: NumbersId) {
        for set in &self.sets {
            let mut freed = 0;
            set.lock().retain(|slot| {
                let keep = slot.numbers != numbers;
                freed += if keep { 0 } else { u64::from(slot.weight) };
                keep
            });
            self.room.give_back(freed);
        }
    }

    /// What all slots weigh together.
    pub(super) fn weight(&self) -> u64 {
        self.room.taken()
    }

    /// Live states dropped for want of room.
    pub(super) fn evictions(&self) -> u64 {
        self.evictions.load(Ordering::Relaxed)
    }

    /// [`Self::weight`] as counted slot by slot.
    #[cfg(test)]
    pub(super) fn recounted(&self) -> u64 {
        let weigh =
            |set: &Mutex<Set>| set.lock().iter().map(|slot| weigh(&slot.state)).map(u64::from).sum::<u64>();
        self.sets.iter().map(weigh).sum()
    }

    fn count_eviction(&self) {
        self.evictions.fetch_add(1, Ordering::Relaxed);
    }

    /// Spreads the high half of the fingerprint evenly over the sets; the low half is left for the tag.
    fn place(&self, key: Fingerprint) -> usize {
        let sets = self.sets.len() as u128;
        #[expect(clippy::cast_possible_truncation, reason = "below the number of sets")]
        let place = (((key.0 >> 64) * sets) >> 64) as usize;
        place
    }
}

impl<'a> Held<'a> {
    /// How many slots an eviction chooses from, if there are as many nearby. If half of all keys are to be kept, the
    /// chance that these are all such is 2^-32.
    const COMPANY: usize = 32;
    /// How many sets are visited for company. Only logs of very many events leave so many sets empty.
    const MAX_VISITS: usize = 1_024;
    /// By how many slots a set grows: doubling would leave a quarter of the memory unused.
    const GROWTH: usize = 4;

    /// The slot of `key`, which must be one of those locked.
    pub(super) fn slot(&mut self, key: Fingerprint) -> Option<&mut Slot> {
        let tag = tag(key);
        self.set(self.table.place(key))?.iter_mut().find(|slot| slot.tag == tag)
    }

    /// Stores `state` for the charge's key: in its slot, in that of an expired neighbour, in free room, or in place of the
    /// least used neighbour. A fresh state takes no new slot. If there is nobody to evict, `state` itself is dropped, and
    /// counted as evicted.
    pub(super) fn store(&mut self, charge: &Charge<'_>, state: State, census: impl FnOnce() -> Census<'a>) {
        let weight = weigh(&state);
        match self.slot(charge.key) {
            Some(slot) if slot.weight == weight => {
                slot.numbers = charge.numbers;
                slot.state = state;
            }
            None if state == State::default() => {}
            _ => self.insert(self.table.place(charge.key), Slot::new(charge, weight, state), &census()),
        }
    }

    fn set(&mut self, place: usize) -> Option<&mut Set> {
        self.sets.iter_mut().find(|(held, _)| *held == place).map(|(_, set)| &mut **set)
    }

    /// Puts in a slot that is new or of a new weight.
    fn insert(&mut self, place: usize, slot: Slot, census: &Census<'_>) {
        let needed = u64::from(slot.weight);
        let mut room = self.vacate(place, |old| old.tag == slot.tag || census.is_expired(old));
        room += self.table.room.take(needed.saturating_sub(room));
        while room < needed {
            let Some(freed) = self.evict(place, census) else { break };
            room += freed;
        }
        match self.set(place) {
            Some(set) if room >= needed => {
                if set.len() == set.capacity() {
                    set.reserve_exact(Self::GROWTH);
                }
                set.push(slot);
                room -= needed;
            }
            _ => self.table.count_eviction(),
        }
        self.table.room.give_back(room);
    }

    /// Empties every slot of the set that `is_vacant` and says how much room that makes.
    fn vacate(&mut self, place: usize, is_vacant: impl Fn(&Slot) -> bool) -> u64 {
        let mut freed = 0;
        if let Some(set) = self.set(place) {
            set.retain(|slot| {
                let vacant = is_vacant(slot);
                freed += if vacant { u64::from(slot.weight) } else { 0 };
                !vacant
            });
        }
        freed
    }

    /// Empties the slot of the least used in the neighbourhood and says how much room that makes; `None` if there is nobody.
    fn evict(&mut self, place: usize, census: &Census<'_>) -> Option<u64> {
        self.gather(place, census);
        let slots = self.sets.iter().enumerate().flat_map(|(held, (_, set))| {
            set.iter().enumerate().map(move |(index, slot)| (held, index, slot))
        });
        let (standing, held, index) = slots
            .filter(|(_, _, slot)| census.is_evictable(slot))
            .map(|(held, index, slot)| (census.standing(slot), held, index))
            .min()?;
        let slot = self.sets[held].1.swap_remove(index);
        if !census.has_expired(standing) {
            self.table.count_eviction();
        }
        Some(u64::from(slot.weight))
    }

    /// Locks further sets, from `place` on, until there is enough company. It never waits for a lock, so it cannot
    /// deadlock; a set that another request holds is passed over.
    fn gather(&mut self, place: usize, census: &Census<'_>) {
        let count = |set: &Set| set.iter().filter(|slot| census.is_evictable(slot)).count();
        let mut company: usize = self.sets.iter().map(|(_, set)| count(set)).sum();
        let table = self.table;
        for next in (place..table.sets.len()).chain(0..place).take(Self::MAX_VISITS) {
            if company >= Self::COMPANY {
                break;
            }
            if self.sets.iter().any(|(held, _)| *held == next) {
                continue;
            }
            let found = table.sets[next].try_lock().map(|set| (count(&set), set));
            if let Some((found @ 1.., set)) = found {
                company += found;
                self.sets.push((next, set));
            }
        }
    }
}

impl Slot {
    fn new(charge: &Charge<'_>, weight: u32, state: State) -> Self {
        Self { tag: tag(charge.key), numbers: charge.numbers, weight, state }
    }

    /// Takes the state out, to be stored again before the lock is dropped: meanwhile the slot keeps its weight.
    pub(super) fn take(&mut self) -> (State, NumbersId) {
        (std::mem::take(&mut self.state), self.numbers)
    }

    /// Whether this is the slot of `key`, if it stands in the key's set.
    pub(super) fn is_of(&self, key: Fingerprint) -> bool {
        self.tag == tag(key)
    }
}

/// An entry of nothing weighs nothing: what is stored weighs at least one.
fn weigh(state: &State) -> u32 {
    u32::try_from(state.weight()).unwrap_or(u32::MAX).max(1)
}

/// The half of the fingerprint that tells the keys of one set apart.
fn tag(key: Fingerprint) -> u64 {
    #[expect(clippy::cast_possible_truncation, reason = "the low half is meant")]
    let tag = key.0 as u64;
    tag
}
