//! The table of states: a fixed array of sets. A key is stored in one of two sets, or not at all.
//!
//! The first index follows from the fingerprint's high half, the other from the first and the tag. So a slot can be
//! moved from either to the other without its key: cuckoo hashing with five slots a set. While the table is filled, 95
//! of 100 keys find room in their first set, and moves make room for all others (see `displacement.rs`). The table is
//! never resized or swept.
//!
//! The array is zeroed memory of the system ([`BackingMemory`]): a page uses physical memory when its first key is
//! stored. [`Capacity`] bounds the entries.

use std::sync::atomic::{AtomicU64, Ordering};

use zerocopy::FromZeros as _;

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
    /// Sets for each key of the capacity: 15 slots for 14 keys, 27.4 bytes a key. In a fuller table, moves would become
    /// long.
    const SETS_PER_KEY: (usize, usize) = (3, 14);
    /// Additional sets, so that small tables, too, have room for every key.
    const SPARE_SETS: usize = 16;
    /// How often the lock-free path is tried while others write to the same set.
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

    /// The slot that agrees with `wanted`, in either of the key's sets. `None` if there is none, or others keep on
    /// writing to its set.
    #[inline(always)]
    pub(super) fn look(&self, key: Fingerprint, wanted: &CounterSlot) -> Option<SlotView<'_>> {
        let first = self.first_set(key);
        let other = self.other_set(first, wanted.tag());
        self.set(other).prefetch();
        match self.look_at(first, wanted) {
            Some(seen) => Some(seen),
            None => self.look_elsewhere(other, wanted),
        }
    }

    /// Prefetches the set in which the key most likely is.
    #[inline(always)]
    pub(super) fn prefetch(&self, key: Fingerprint) {
        self.set(self.first_set(key)).prefetch();
    }

    #[inline(never)]
    fn look_elsewhere(&self, other: usize, wanted: &CounterSlot) -> Option<SlotView<'_>> {
        self.look_at(other, wanted)
    }

    #[inline(always)]
    fn look_at(&self, set_index: usize, wanted: &CounterSlot) -> Option<SlotView<'_>> {
        for _ in 0..Self::TRIES {
            match self.set(set_index).look(wanted) {
                Ok(found) => return found,
                Err(Busy) => std::hint::spin_loop(),
            }
        }
        None
    }

    /// The indices of the sets in which a key may be stored.
    pub(super) fn set_indices(&self, key: Fingerprint) -> [usize; 2] {
        let first = self.first_set(key);
        [first, self.other_set(first, Tag::of(key))]
    }

    #[inline]
    fn first_set(&self, key: Fingerprint) -> usize {
        let high = (key.0 >> u64::BITS) as u64;
        self.spread(high)
    }

    /// The index of the other set of a key stored in the set at index `set_index`. Applied twice, it returns `set_index`.
    pub(super) fn other_set(&self, set_index: usize, tag: Tag) -> usize {
        let both = self.spread(tag.spread());
        if both >= set_index { both - set_index } else { both + self.sets - set_index }
    }

    /// Spreads the numbers of 64 bits evenly over the sets.
    #[inline]
    fn spread(&self, number: u64) -> usize {
        #[expect(clippy::cast_possible_truncation, reason = "below the number of sets")]
        let set_index = ((u128::from(number) * self.sets as u128) >> u64::BITS) as usize;
        set_index
    }

    /// The set at index `set_index`, which is below [`Self::sets`].
    #[inline]
    pub(super) fn set(&self, set_index: usize) -> Set<'_> {
        Set(&self.words.as_slice()[self.skipped..].as_chunks().0[set_index])
    }

    /// The number of sets.
    pub(super) fn sets(&self) -> usize {
        self.sets
    }

    /// Drops every state written under the parameters `params`, and returns the number of entries freed. Walks the
    /// whole table, one set at a time; not for the request path.
    pub(super) fn forget(&self, params: ParamsId) -> u64 {
        let mut freed = 0;
        for set in (0..self.sets).map(|set_index| self.set(set_index)).filter(|set| !set.is_untouched()) {
            let mut set = set.lock();
            let is_such = |slot: &CounterSlot| !slot.is_empty() && slot.params() == params;
            while let Some(index) = set.position(is_such) {
                freed += self.empty(&set.get(index));
                set.put(index, CounterSlot::EMPTY);
            }
        }
        self.room.give_back(freed);
        freed
    }

    /// Drops the log of `slot`, which is about to be overwritten, and returns the number of entries freed.
    pub(super) fn empty(&self, slot: &CounterSlot) -> u64 {
        if let Some(id) = slot.log() {
            self.logs.remove(id);
        }
        slot.weight()
    }

    /// Live states dropped for lack of capacity.
    pub(super) fn evictions(&self) -> u64 {
        self.evictions.load(Ordering::Relaxed)
    }

    /// Counts one such state.
    pub(super) fn count_eviction(&self) {
        self.evictions.fetch_add(1, Ordering::Relaxed);
    }

    /// The entries held, counted slot by slot.
    #[cfg(test)]
    pub(super) fn recounted(&self) -> u64 {
        self.recounted_where(|_| true)
    }

    /// The entries held under these parameters, counted slot by slot.
    #[cfg(test)]
    pub(super) fn recounted_of(&self, params: ParamsId) -> u64 {
        self.recounted_where(|slot| slot.params() == params)
    }

    #[cfg(test)]
    fn recounted_where(&self, is_such: impl Fn(&CounterSlot) -> bool) -> u64 {
        let slots = |set_index| self.set(set_index).lock().slots().collect::<Vec<_>>();
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

/// The capacity of the store, which bounds all its entries, and the entries used of it. Only changes of the number of
/// entries touch it, never a state changed in place.
#[derive(Debug)]
pub(super) struct Capacity {
    bound: u64,
    used: AtomicU64,
}

impl Capacity {
    /// A capacity with all entries free.
    pub(super) fn new(bound: usize) -> Self {
        Self { bound: u64::try_from(bound).unwrap_or(u64::MAX), used: AtomicU64::new(0) }
    }

    /// Takes up to `wanted` entries, and returns how many. The bound holds at every moment.
    pub(super) fn take(&self, wanted: u64) -> u64 {
        let grant = |used: u64| wanted.min(self.bound.saturating_sub(used));
        let mut used = self.used.load(Ordering::Relaxed);
        loop {
            let granted = grant(used);
            if granted == 0 {
                return 0;
            }
            let new = used + granted;
            match self.used.compare_exchange_weak(used, new, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return granted,
                Err(now) => used = now,
            }
        }
    }

    /// Returns entries that were taken before.
    pub(super) fn give_back(&self, amount: u64) {
        if amount > 0 {
            self.used.fetch_sub(amount, Ordering::Relaxed);
        }
    }

    /// The maximum number of entries.
    pub(super) fn bound(&self) -> u64 {
        self.bound
    }

    /// The number of entries used.
    pub(super) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }
}

/// Tables from this size on ask for huge pages: 64 MiB, some 2.4 million keys.
const HUGE: usize = 64 << 20;

/// The memory of the table: zeroed words, aligned to a page or to what the allocator gives. They use physical memory
/// when they are first touched.
///
/// A decision on a random key of a large table waits for memory, and half of that wait is for the address translation:
/// on pages of 4 KiB every set has a page of its own. So a large table asks for huge pages (`madvise(2)`): about a
/// quarter less a decision at 10 million keys. The price is memory in pieces of 2 MiB, so small tables do not ask for
/// them.
#[derive(Debug)]
enum BackingMemory {
    /// Freed with the table.
    Own(Vec<AtomicU64>),
    /// Never freed: a gateway's store lives as long as the process.
    Huge(&'static [AtomicU64]),
}

impl BackingMemory {
    /// `count` zeroed words; `None` if the system has no memory for them. A system that refuses huge pages provides
    /// ordinary ones.
    fn zeroed(count: usize) -> Option<Self> {
        huge(count).map(Self::Huge).or_else(|| AtomicU64::new_vec_zeroed(count).ok().map(Self::Own))
    }

    /// All words.
    #[inline]
    fn as_slice(&self) -> &[AtomicU64] {
        match self {
            Self::Own(words) => words,
            Self::Huge(words) => words,
        }
    }
}

#[cfg(target_os = "linux")]
fn huge(count: usize) -> Option<&'static [AtomicU64]> {
    use zerocopy::FromBytes as _;

    let bytes = count.checked_mul(size_of::<AtomicU64>()).filter(|&bytes| bytes >= HUGE)?;
    let map = memmap2::MmapMut::map_anon(bytes).ok()?;
    map.advise(memmap2::Advice::HugePage).ok()?;
    let map = Box::leak(Box::new(map));
    <[AtomicU64]>::mut_from_bytes(map).ok().map(|words| &*words)
}

#[cfg(not(target_os = "linux"))]
fn huge(_: usize) -> Option<&'static [AtomicU64]> {
    None
}
