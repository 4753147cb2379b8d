//! The memory store: counters of this process, bounded, exact under concurrency.
//!
//! What is lost when it is full: `max_keys` states are kept, whatever comes. A new key takes the slot of the least used
//! (used ÷ quota, now) of some 32 neighbours, whose counter thereby starts afresh. So a flood of new keys, each used
//! a little, resets neither an exhausted counter nor one that used more than the flood's keys did, as long as one of the neighbours
//! used less. Up to 64 keys the choice is among all.
//!
//! A sliding log takes as much of the bound as it keeps events. It grows at the expense of the least used others; when there is
//! no other left to evict (a single log of more than `max_keys` events), the log itself is dropped and starts afresh,
//! so configuration should refuse a sliding log whose count exceeds `max_keys`.

mod ballot;
mod census;
mod registry;
mod room;
mod table;

use smallvec::smallvec;

use crate::limit::units::Timestamp;
use crate::limit::{Algorithm, Decision, State};
use crate::store::{Charge, NumbersId, Outcome};
use ballot::Ballot;
use census::Census;
use registry::{Registered, Registry};
use table::{Slot, Table};

/// Counters in this process, bounded by `max_keys`.
#[derive(Debug)]
pub struct MemoryStore {
    table: Table,
    registry: Registry,
}

impl MemoryStore {
    /// An empty store that never holds more than `max_keys` entries (at least one). It takes 4 bytes a key at once, the rest as
    /// keys come.
    pub fn new(max_keys: usize) -> Self {
        Self { table: Table::new(max_keys), registry: Registry::default() }
    }

    /// See [`crate::store::Store::register`]. Remembers at least the last 32,768 algorithms.
    pub fn register(&self, algorithm: &Algorithm) {
        let numbers = NumbersId::of(algorithm);
        if self.registry.register(numbers, algorithm) == Registered::Ambiguous {
            self.table.forget(numbers);
        }
    }

    /// See [`crate::store::Store::decide`].
    pub fn decide(&self, charges: &[Charge<'_>], now: Timestamp) -> Outcome {
        match charges {
            [charge] => Outcome { decisions: smallvec![self.decide_alone(charge, now)] },
            _ => self.decide_together(charges, now),
        }
    }

    /// See [`crate::store::Store::keys`]: cheap and exact, but an expired entry counts until a new key overwrites it.
    pub fn keys(&self) -> u64 {
        self.table.weight()
    }

    /// See [`crate::store::Store::evictions`].
    pub fn evictions(&self) -> u64 {
        self.table.evictions()
    }

    /// The usual case: one limit, so its algorithm's word is final, and the state need not be copied.
    fn decide_alone(&self, charge: &Charge<'_>, now: Timestamp) -> Decision {
        let charges = std::slice::from_ref(charge);
        let mut held = self.table.lock(charges);
        let before = held.slot(charge.key).map(Slot::take);
        let before =
            before.map_or_else(State::default, |(state, numbers)| self.renumber(state, numbers, charge, now));
        let (after, decision) = charge.algorithm.decide(before, now, charge.cost);
        held.store(charge, after, || Census { now, known: self.registry.known(), charges });
        decision
    }

    /// Several limits: all or none.
    fn decide_together(&self, charges: &[Charge<'_>], now: Timestamp) -> Outcome {
        let mut held = self.table.lock(charges);
        let ballot = Ballot::new(charges, now, |charge| {
            let found = held.slot(charge.key).map(|slot| (slot.state.clone(), slot.numbers));
            found.map_or_else(State::default, |(state, numbers)| self.renumber(state, numbers, charge, now))
        });
        let (decisions, accounts) = ballot.decide();
        for account in accounts.into_iter().filter(|account| account.changed) {
            held.store(account.charge, account.state, || Census {
                now,
                known: self.registry.known(),
                charges,
            });
        }
        Outcome { decisions }
    }

    /// The state as the charge's algorithm reads it: converted if it was written under other numbers, fresh if those are forgotten.
    fn renumber(&self, state: State, numbers: NumbersId, charge: &Charge<'_>, now: Timestamp) -> State {
        if numbers == charge.numbers {
            return state;
        }
        let known = self.registry.known();
        known.get(numbers).map_or_else(State::default, |from| charge.algorithm.convert(from, state, now))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::limit::units::{Cost, Fingerprint, Micros, Rate};
    use crate::store::Group;

    proptest! {
        /// What the store says it holds is what stands in its sets, whatever is overwritten, evicted or forgotten.
        #[test]
        fn what_is_counted_is_what_is_held(
            max_keys in prop_oneof![1..20_usize, 60..300_usize],
            requests in prop::collection::vec((any::<bool>(), 0..200_u128, 0..200_u128, 0..300_000_u64), 1..300),
        ) {
            let rate = Rate::new(20, Micros::SECOND).unwrap();
            let algorithms = [Algorithm::sliding_log(rate, None, false), Algorithm::gcra(rate, Cost::ONE)];
            let store = MemoryStore::new(max_keys);
            algorithms.iter().for_each(|algorithm| store.register(algorithm));
            let mut now = Timestamp(1);
            for (log, one, other, pause) in requests {
                now = now.plus(Micros(pause));
                let algorithm = &algorithms[usize::from(log)];
                let key = |client: u128| Fingerprint((client + 1).wrapping_mul(u128::MAX / 201));
                let (numbers, cost, group) = (NumbersId::of(algorithm), Cost::ONE, Group::Enforced);
                let charge = |client| Charge { algorithm, numbers, key: key(client), cost, group };
                store.decide(&[charge(one), charge(other)][..if one < 50 { 1 } else { 2 }], now);
                prop_assert_eq!(store.keys(), store.table.recounted());
                prop_assert!(store.keys() <= max_keys as u64);
            }
            store.table.forget(NumbersId::of(&algorithms[0]));
            store.table.forget(NumbersId::of(&algorithms[1]));
            prop_assert_eq!((store.keys(), store.table.recounted()), (0, 0));
        }
    }
}
