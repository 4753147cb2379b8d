//! A slot for a new key with two full sets: other keys are moved to their other sets.
//!
//! The search is breadth-first over sets: from the key's own sets to the other sets of their slots, and on, until a set
//! has an empty slot. Then each slot on the path is moved by one. With 15 slots for 14 keys the first or second set has
//! one, and the chance of 64 full sets in a row is below 10^-9. All sets on the path are locked, without ever waiting
//! for a lock.

use smallvec::SmallVec;

use super::eviction_policy::EvictionPolicy;
use super::locked_sets::{LockedSets, SlotRef};
use super::set::SLOTS;
use super::slot::CounterSlot;
use crate::store::Charge;

/// A set visited by the search.
struct Step {
    /// Its position among the locked sets.
    set: usize,
    /// The step before, and the slot there that may be moved here.
    from: Option<(usize, usize)>,
}

type Trail = SmallVec<[Step; 16]>;

impl LockedSets<'_> {
    /// The maximum number of sets visited.
    const MAX_STEPS: usize = 64;

    /// An empty slot in one of the key's sets, both of which are locked: an empty one, one emptied by moving others, or
    /// that of the least used key. `None` if all of them are charged by this same request.
    pub(super) fn vacancy(&mut self, charge: &Charge<'_>, policy: &EvictionPolicy<'_>) -> Option<SlotRef> {
        let mut trail: Trail = self.own(charge.key).map(|set| Step { set, from: None }).collect();
        let empty = trail.iter().find_map(|step| self.empty_in(step.set));
        empty.or_else(|| self.displace(&mut trail)).or_else(|| self.evict_from_own(charge, policy))
    }

    fn empty_in(&self, set: usize) -> Option<SlotRef> {
        self.sets[set].1.position(CounterSlot::is_empty).map(|slot| SlotRef { set, slot })
    }

    /// Follows every slot of the sets on the trail until an empty one is found.
    fn displace(&mut self, trail: &mut Trail) -> Option<SlotRef> {
        for step in 0..Self::MAX_STEPS {
            let set = trail.get(step)?.set;
            for slot in 0..SLOTS {
                let tag = self.get(SlotRef { set, slot }).tag();
                let other = self.table.other_set(self.sets[set].0, tag);
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

    /// The position among the locked sets of the one at index `set_index`, which is locked now if it is free.
    pub(super) fn visit(&mut self, set_index: usize) -> Option<usize> {
        self.index(set_index).or_else(|| {
            self.sets.push((set_index, self.table.set(set_index).try_lock()?));
            Some(self.sets.len() - 1)
        })
    }

    /// Moves every slot on the path to `empty` by one, which leaves an empty one at the beginning of the path.
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
