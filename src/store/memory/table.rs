//! Where the states stand: a fixed array of sets. A key stands in one of two, or nowhere.
//!
//! The first place follows from the fingerprint's high half, the other from the first and the tag, so that a slot can move
//! from either to the other without its key being known: what is left of cuckoo hashing when there are five slots a
//! set. While it is filled, 95 of 100 keys find room in their first set, and moves make room for all others (see
//! `displacement.rs`). Nothing is ever resized or swept.
//!
//! The array is zeroed memory of the system: a page takes room when the first key comes to it.

use std::sync::atomic::{AtomicU64, Ordering};

use super::backing_memory::BackingMemory;
use super::capacity::Capacity;
use super::logs::Logs;
use super::set::{Busy, Set, SlotView, WORDS};
#[cfg(test)]
use super::slot::Content;
use super::slot::{CounterSlot, Tag};
use crate::limit::units::Fingerprint;
use crate::store::ParamsId;

/// All states.
#[derive(Debug)]
pub(super) struct CounterTable {
    words: BackingMemory,
    /// Words before the first set, so that a set fills whole cache lines.
    skipped: usize,
    sets: usize,
    pub(super) logs: Logs,
    pub(super) room: Capacity,
    evictions: AtomicU64,
}

impl CounterTable {
    /// Sets for each key of the bound: 15 slots for 14 keys, 27.4 bytes a key. Fuller, moves would become long.
    const SETS_PER_KEY: (usize, usize) = (3, 14);
    /// Sets on top, so that small tables, too, find room for every key.
    const SPARE_SETS: usize = 16;
    /// How often the fast way is tried while others write to the same set.
    const TRIES: u32 = 8;

    /// An empty table that never holds more than `max_keys` (at least one); `None` if there is no memory for it.
    pub(super) fn new(max_keys: usize) -> Option<Self> {
        let max_keys = max_keys.max(1);
        let (sets, keys) = Self::SETS_PER_KEY;
        let sets = max_keys.div_ceil(keys).saturating_mul(sets).saturating_add(Self::SPARE_SETS);
        let words = BackingMemory::zeroed(sets.saturating_add(1).saturating_mul(WORDS))?;
        let skipped = words.as_slice().as_ptr().align_offset(WORDS * size_of::<AtomicU64>()).min(WORDS);
        let (logs, room) = (Logs::new(), Capacity::new(max_keys));
        Some(Self { words, skipped, sets, logs, room, evictions: AtomicU64::new(0) })
    }

    /// The slot that agrees with `wanted`, in either of the key's sets. `None` if it is not there, or others keep on
    /// writing to its set.
    #[inline(always)]
    pub(super) fn look(&self, key: Fingerprint, wanted: &CounterSlot) -> Option<SlotView<'_>> {
        let first = self.first_place(key);
        let other = self.other_place(first, wanted.tag());
        self.set(other).prefetch();
        match self.look_at(first, wanted) {
            Some(seen) => Some(seen),
            None => self.look_elsewhere(other, wanted),
        }
    }

    #[inline(never)]
    fn look_elsewhere(&self, other: usize, wanted: &CounterSlot) -> Option<SlotView<'_>> {
        self.look_at(other, wanted)
    }

    #[inline(always)]
    fn look_at(&self, place: usize, wanted: &CounterSlot) -> Option<SlotView<'_>> {
        for _ in 0..Self::TRIES {
            match self.set(place).look(wanted) {
                Ok(found) => return found,
                Err(Busy) => std::hint::spin_loop(),
            }
        }
        None
    }

    /// The sets in which a key may stand.
    pub(super) fn places(&self, key: Fingerprint) -> [usize; 2] {
        let first = self.first_place(key);
        [first, self.other_place(first, Tag::of(key))]
    }

    #[inline]
    fn first_place(&self, key: Fingerprint) -> usize {
        let high = (key.0 >> u64::BITS) as u64;
        self.spread(high)
    }

    /// The other set of a key that stands at `place`: the other one's other is `place` again.
    pub(super) fn other_place(&self, place: usize, tag: Tag) -> usize {
        let both = self.spread(tag.spread());
        if both >= place { both - place } else { both + self.sets - place }
    }

    /// Spreads the numbers of 64 bits evenly over the sets.
    #[inline]
    fn spread(&self, number: u64) -> usize {
        #[expect(clippy::cast_possible_truncation, reason = "below the number of sets")]
        let place = ((u128::from(number) * self.sets as u128) >> u64::BITS) as usize;
        place
    }

    /// The set at `place`, which is below [`Self::sets`].
    #[inline]
    pub(super) fn set(&self, place: usize) -> Set<'_> {
        Set(&self.words.as_slice()[self.skipped..].as_chunks().0[place])
    }

    /// How many sets there are.
    pub(super) fn sets(&self) -> usize {
        self.sets
    }

    /// Drops every state written under `numbers` and says how much room that makes. Walks the whole table, one set at a time; not
    /// for the request path.
    pub(super) fn forget(&self, numbers: ParamsId) -> u64 {
        let mut freed = 0;
        for set in (0..self.sets).map(|place| self.set(place)).filter(|set| !set.is_untouched()) {
            let mut set = set.lock();
            let is_such = |slot: &CounterSlot| !slot.is_empty() && slot.numbers() == numbers;
            while let Some(index) = set.position(is_such) {
                freed += self.empty(&set.get(index));
                set.put(index, CounterSlot::EMPTY);
            }
        }
        self.room.give_back(freed);
        freed
    }

    /// Forgets what `slot`, which is about to be overwritten, holds elsewhere, and says how much room it took.
    pub(super) fn empty(&self, slot: &CounterSlot) -> u64 {
        if let Some(id) = slot.log() {
            self.logs.remove(id);
        }
        slot.weight()
    }

    /// Live states dropped for want of room.
    pub(super) fn evictions(&self) -> u64 {
        self.evictions.load(Ordering::Relaxed)
    }

    /// One more of them.
    pub(super) fn count_eviction(&self) {
        self.evictions.fetch_add(1, Ordering::Relaxed);
    }

    /// The room taken, as counted slot by slot.
    #[cfg(test)]
    pub(super) fn recounted(&self) -> u64 {
        self.recounted_where(|_| true)
    }

    /// The same of states under these numbers.
    #[cfg(test)]
    pub(super) fn recounted_of(&self, numbers: ParamsId) -> u64 {
        self.recounted_where(|slot| slot.numbers() == numbers)
    }

    #[cfg(test)]
    fn recounted_where(&self, is_such: impl Fn(&CounterSlot) -> bool) -> u64 {
        let slots = |place| self.set(place).lock().slots().collect::<Vec<_>>();
        let weigh = |slot: CounterSlot| match slot.content() {
            Content::Log { id, events } if !slot.is_empty() => {
                assert_eq!(self.logs.copy(id).weight() as u64, events);
                events
            }
            _ => slot.weight(),
        };
        (0..self.sets).flat_map(slots).filter(is_such).map(weigh).sum()
    }
}
