//! A set: five slots and the guard word that protects them, in two adjacent cache lines.
//!
//! The guard is a version: even while the set is free, odd during a write. A writer makes it odd and then the next even
//! number. A reader reads it before and after, and retries if it changed. So a decision that changes nothing, such as a
//! refusal, writes nothing: the guard of a hot key stays in every core's cache.
//!
//! All words are atomics, so a read during a change gives a wrong number but is never undefined behaviour, and the
//! number is not used. The ordering is that of a sequence lock: the fence after the guard turns odd keeps the writes
//! after it, and the fence before the second read of the guard keeps the reads before it. `tollgate_loom` builds run
//! this file under loom's scheduler.

use super::atomic::{AtomicU64, Ordering, fence, spin_loop, yield_now};
use super::slot::{CounterSlot, Tag};

/// Slots of a set.
pub(super) const SLOTS: usize = 5;
/// Words of a set: the guard, a label for each slot, then `moment` and `used` of each.
pub(super) const WORDS: usize = 1 + 3 * SLOTS;
/// How often a lock is tried before the thread yields.
const SPINS: u32 = 64;

/// A set that can be read without a lock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Set<'a>(pub(super) &'a [AtomicU64; WORDS]);

/// A set locked for writing, until this is dropped.
#[derive(Debug)]
pub(super) struct Locked<'a> {
    set: Set<'a>,
    version: u64,
}

/// A slot as it was at one moment.
#[derive(Debug)]
pub(super) struct SlotView<'a> {
    set: Set<'a>,
    version: u64,
    index: usize,
    /// Its content at that moment.
    pub(super) slot: CounterSlot,
}

/// Another thread was writing.
#[derive(Debug)]
pub(super) struct Busy;

impl<'a> Set<'a> {
    /// Looks for the slot that agrees with `wanted`, without a lock.
    #[inline(always)]
    pub(super) fn look(self, wanted: &CounterSlot) -> Result<Option<SlotView<'a>>, Busy> {
        let version = self.guard().load(Ordering::Acquire);
        // The index of the slot cannot be predicted: a branch on it would discard the processor's speculative work
        // during the wait for the set's memory. So all labels are compared, and the result is used only in arithmetic.
        let mut alike = 0_u32;
        for index in 0..SLOTS {
            alike |= u32::from(self.label(index).load(Ordering::Relaxed) == wanted.label) << index;
        }
        let mut found = None;
        while alike != 0 {
            let index = alike.trailing_zeros() as usize;
            let slot = self.read(index);
            if slot.agrees(wanted) && !slot.is_empty() {
                found = Some(SlotView { set: self, version, index, slot });
                break;
            }
            alike &= alike - 1;
        }
        fence(Ordering::Acquire);
        if version % 2 == 1 || self.guard().load(Ordering::Relaxed) != version {
            return Err(Busy);
        }
        Ok(found)
    }

    /// Prefetches the set from memory, in case it is needed.
    #[inline]
    pub(super) fn prefetch(self) {
        let _ = std::hint::black_box(self.guard().load(Ordering::Relaxed));
    }

    /// The index of the slot of `tag`. Without the lock only a hint.
    #[inline]
    pub(super) fn find(self, tag: Tag) -> Option<usize> {
        let is_of = |index: &usize| {
            // The second cache line is not touched for another key's slot.
            let label = self.label(*index).load(Ordering::Relaxed);
            tag.heads(label) && self.read(*index).is_of(tag)
        };
        (0..SLOTS).find(is_of)
    }

    /// A copy of the slot of `tag`. Without the lock only a hint: it may be torn.
    pub(super) fn peek(self, tag: Tag) -> Option<CounterSlot> {
        self.find(tag).map(|index| self.read(index))
    }

    /// Whether the set was never written.
    pub(super) fn is_untouched(self) -> bool {
        self.guard().load(Ordering::Relaxed) == 0
    }

    /// Locks the set, waiting for another holder: never long, since no lock is held across a wait.
    pub(super) fn lock(self) -> Locked<'a> {
        let mut spins = 0;
        loop {
            if let Some(locked) = self.try_lock() {
                return locked;
            }
            spins += 1;
            if spins < SPINS { spin_loop() } else { yield_now() }
        }
    }

    /// Locks the set, if it is free.
    pub(super) fn try_lock(self) -> Option<Locked<'a>> {
        let version = self.guard().load(Ordering::Relaxed);
        if version.is_multiple_of(2) { self.lock_at(version) } else { None }
    }

    /// Locks the set, if it was not written since it had this `version`.
    #[inline(always)]
    fn lock_at(self, version: u64) -> Option<Locked<'a>> {
        let (guard, odd) = (self.guard(), version + 1);
        guard.compare_exchange(version, odd, Ordering::Acquire, Ordering::Relaxed).ok()?;
        fence(Ordering::Release);
        Some(Locked { set: self, version })
    }

    #[inline]
    fn read(self, index: usize) -> CounterSlot {
        let [label, moment, used] = [self.label(index), self.moment(index), self.used(index)]
            .map(|word| word.load(Ordering::Relaxed));
        CounterSlot { label, moment, used }
    }

    #[inline]
    fn guard(self) -> &'a AtomicU64 {
        &self.0[0]
    }

    #[inline]
    fn label(self, index: usize) -> &'a AtomicU64 {
        &self.0[1 + index]
    }

    /// `moment` and `used` of a slot are adjacent, so that they share a cache line.
    #[inline]
    fn moment(self, index: usize) -> &'a AtomicU64 {
        &self.0[1 + SLOTS + 2 * index]
    }

    #[inline]
    fn used(self, index: usize) -> &'a AtomicU64 {
        &self.0[2 + SLOTS + 2 * index]
    }
}

impl<'a> SlotView<'a> {
    /// Changes the slot's state, if its set was not written since it was read.
    #[inline(always)]
    pub(super) fn replace(self, slot: &CounterSlot) -> Result<(), Busy> {
        let _locked = self.lock().ok_or(Busy)?;
        self.write(slot);
        Ok(())
    }

    /// Locks the slot's set, if it was not written since it was read.
    #[inline(always)]
    pub(super) fn lock(&self) -> Option<Locked<'a>> {
        self.set.lock_at(self.version)
    }

    /// Changes the slot's state. The caller has locked its set by [`Self::lock`].
    #[inline(always)]
    pub(super) fn write(&self, slot: &CounterSlot) {
        self.set.moment(self.index).store(slot.moment, Ordering::Relaxed);
        self.set.used(self.index).store(slot.used, Ordering::Relaxed);
    }

    /// Whether the slot's set was not written since it was read.
    #[inline(always)]
    pub(super) fn is_current(&self) -> bool {
        fence(Ordering::Acquire);
        self.set.guard().load(Ordering::Relaxed) == self.version
    }

    /// Whether both slots are in one set.
    #[inline(always)]
    pub(super) fn shares_set(&self, other: &Self) -> bool {
        std::ptr::eq(self.set.0, other.set.0)
    }

    /// Whether the sets of both slots had the same version when they were read.
    #[inline(always)]
    pub(super) fn shares_version(&self, other: &Self) -> bool {
        self.version == other.version
    }
}

impl Locked<'_> {
    /// Slot number `index`.
    pub(super) fn get(&self, index: usize) -> CounterSlot {
        self.set.read(index)
    }

    /// The index of the slot of `tag`.
    pub(super) fn find(&self, tag: Tag) -> Option<usize> {
        self.set.find(tag)
    }

    /// All slots.
    pub(super) fn slots(&self) -> impl Iterator<Item = CounterSlot> {
        (0..SLOTS).map(|index| self.get(index))
    }

    /// The index of the first slot for which `is_such` holds.
    pub(super) fn position(&self, is_such: impl Fn(&CounterSlot) -> bool) -> Option<usize> {
        (0..SLOTS).find(|index| is_such(&self.get(*index)))
    }

    /// Writes slot number `index`.
    pub(super) fn put(&mut self, index: usize, slot: CounterSlot) {
        self.set.label(index).store(slot.label, Ordering::Relaxed);
        self.set.moment(index).store(slot.moment, Ordering::Relaxed);
        self.set.used(index).store(slot.used, Ordering::Relaxed);
    }
}

impl Drop for Locked<'_> {
    #[inline]
    fn drop(&mut self) {
        self.set.guard().store(self.version + 2, Ordering::Release);
    }
}
