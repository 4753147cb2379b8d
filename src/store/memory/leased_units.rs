//! Units in advance of shared counters, and what the shared store said last of these.

use super::MemoryStore;
use super::eviction_policy::EvictionPolicy;
use super::locked_sets::LockedSets;
use super::slot::{Content, CounterSlot, Tag};
use crate::limit::lease::LeasedUnits;
use crate::limit::units::{Cost, Timestamp};
use crate::limit::{Decision, Packed, State};
use crate::store::Charge;

impl MemoryStore {
    /// Changes the units that this process has in advance, in one step for all threads. `charge` is a
    /// [`Charge::of_lease`].
    pub fn change_leased_units<T>(
        &self,
        charge: &Charge<'_>,
        now: Timestamp,
        change: impl FnOnce(LeasedUnits) -> (LeasedUnits, T),
    ) -> T {
        let charges = std::slice::from_ref(charge);
        let mut held = LockedSets::new(&self.table, charges);
        let policy = EvictionPolicy::new(charges, &self.registry, now);
        let (units, result) = change(held.copy(charge, &policy).state.leased_units());
        held.store(charge, units.into(), &policy);
        result
    }

    /// What would be decided on a charge of one unit. Without a lock, as long as no other thread writes to its set.
    pub fn peek(&self, charge: &Charge<'_>, now: Timestamp) -> Decision {
        self.peek_cost(&Charge { cost: Cost::ONE, ..*charge }, now)
    }

    /// What would be decided on a charge.
    pub fn peek_cost(&self, charge: &Charge<'_>, now: Timestamp) -> Decision {
        let wanted = Content::State(Packed::default());
        let wanted = CounterSlot::new(Tag::of(charge.key), charge.params, wanted);
        let seen = self.table.look(charge.key, &wanted).map(|seen| seen.slot.content());
        let state = match seen {
            Some(Content::State(state)) => charge.algorithm.unpacked(state),
            _ => self.copied(charge, now),
        };
        charge.algorithm.peek(&state, now, charge.cost)
    }

    #[cold]
    fn copied(&self, charge: &Charge<'_>, now: Timestamp) -> State {
        let charges = std::slice::from_ref(charge);
        let held = LockedSets::new(&self.table, charges);
        held.copy(charge, &EvictionPolicy::new(charges, &self.registry, now)).state
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::limit::Algorithm;
    use crate::limit::lease::Lease;
    use crate::limit::units::{Fingerprint, Micros};
    use crate::store::{Group, ParamsId, SharedKeyInfo};

    /// Both keys are in one set, as the store has no other.
    #[test]
    fn units_are_found_while_another_thread_writes_beside_them() {
        let memory = MemoryStore::new(4).unwrap();
        let algorithm = Algorithm::lease(Micros::SECOND).unwrap();
        let lease = Lease::new(Micros::SECOND).unwrap();
        memory.register(&algorithm);
        let charge = |key| Charge {
            algorithm: &algorithm,
            params: ParamsId::of(&algorithm),
            key: Fingerprint(key),
            cost: Cost::ONE,
            group: Group::Enforced,
            shared_key: SharedKeyInfo::NONE,
        };
        let (here, beside) = (charge(1), charge(2));
        let deposit = |charge: &Charge<'_>| {
            let taken = |units| (lease.deposit(units, 5, Timestamp(900), Timestamp(1)).units, ());
            memory.change_leased_units(charge, Timestamp(1), taken);
        };
        deposit(&here);
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    deposit(&beside);
                }
            });
            let denied = (0..100_000).filter(|_| memory.peek_cost(&here, Timestamp(2)).denies()).count();
            is_over.store(true, Ordering::Relaxed);
            assert_eq!(denied, 0);
        });
    }
}
