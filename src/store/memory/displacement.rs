//! A slot for a new key whose two sets are full: others move to their other sets.
//!
//! The search goes from set to set in breadth: from the key's own to those where their slots may stand, and on, until one has an
//! empty slot. Then each on the way to it moves by one. With 15 slots for 14 keys the first or second is such, and
//! the chance of 64 full sets in a row is below 10^-9. All sets on the way are locked, without ever waiting for a lock.

use smallvec::SmallVec;

use super::eviction_policy::EvictionPolicy;
use super::locked_sets::{LockedSets, SlotRef};
use super::set::SLOTS;
use super::slot::CounterSlot;
use crate::store::Charge;

/// A set that was come to.
struct Step {
    /// Which of those held.
    set: usize,
    /// The step before, and the slot there that may move here.
    from: Option<(usize, usize)>,
}

type Trail = SmallVec<[Step; 16]>;

impl LockedSets<'_> {
    /// At most so many sets are visited.
    const MAX_STEPS: usize = 64;

    /// An empty slot in one of the key's sets, both of which are held: one that is empty, one that is made so by moving others, or
    /// that of the least used. `None` if all there are charged by this same request.
    pub(super) fn vacancy(&mut self, charge: &Charge<'_>, policy: &EvictionPolicy<'_>) -> Option<SlotRef> {
        let mut trail: Trail = self.own(charge.key).map(|set| Step { set, from: None }).collect();
        let empty = trail.iter().find_map(|step| self.empty_in(step.set));
        empty.or_else(|| self.displace(&mut trail)).or_else(|| self.evict_from_own(charge, policy))
    }

    fn empty_in(&self, set: usize) -> Option<SlotRef> {
        self.sets[set].1.position(CounterSlot::is_empty).map(|slot| SlotRef { set, slot })
    }

    /// Follows every slot of the sets on the trail until it finds an empty one.
    fn displace(&mut self, trail: &mut Trail) -> Option<SlotRef> {
        for step in 0..Self::MAX_STEPS {
            let set = trail.get(step)?.set;
            for slot in 0..SLOTS {
                let tag = self.get(SlotRef { set, slot }).tag();
                let other = self.table.other_place(self.sets[set].0, tag);
                let Some(set) = self.visit(other).filter(|set| trail.iter().all(|step| step.set != *set))
                else {
                    continue;
                };
                trail.push(Step { set, from: Some((step, slot)) });
                if let Some(empty) = self.empty_in(set) {
                    return Some(self.shift(trail, empty));
                }
            }
        }
        None
    }

    /// Which of the held sets stands at `place`, which is locked if nobody has it.
    fn visit(&mut self, place: usize) -> Option<usize> {
        self.index(place).or_else(|| {
            self.sets.push((place, self.table.set(place).try_lock()?));
            Some(self.sets.len() - 1)
        })
    }

    /// Moves every slot on the way to `empty` by one, which leaves an empty one at the way's beginning.
    fn shift(&mut self, trail: &Trail, mut empty: SlotRef) -> SlotRef {
        let mut from = trail.last().and_then(|step| step.from);
        while let Some((step, slot)) = from {
            let mover = SlotRef { set: trail[step].set, slot };
            let moved = self.get(mover);
            self.put(empty, moved);
            self.put(mover, CounterSlot::EMPTY);
            empty = mover;
            from = trail[step].from;
        }
        empty
    }
}
