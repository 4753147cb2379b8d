//! The memory store: counters of this process, bounded, exact under concurrency.
//!
//! Eviction: at most `max_keys` states are kept. A new key takes the slot of an expired counter, or of the least used
//! one (used ÷ quota, now) of its own policy among some 32 neighbours; that counter then starts afresh. So a flood of
//! new keys resets no counter of another policy. Of its own policy, a flood of keys that each use little resets neither
//! an exhausted counter nor one that used more than the flood's keys did, as long as one of the neighbours used less. A
//! policy with few counters takes the slot from the largest one instead (see `eviction.rs`). With up to 64 keys, the
//! choice is among all.
//!
//! Capacity and slots are separate: a key is stored in one of ten slots. While there is capacity, other keys are moved
//! so that one of the ten is free. The chance that none can be moved is below 10^-9 for a key; then the least used of
//! the ten is evicted and counted.
//!
//! A limit with `max_keys` never holds more than its share of the entries (see `share.rs`).
//!
//! A sliding log uses one entry of the capacity for each of its events. It grows at the expense of the least used
//! others. When there is no other left to evict (a single log of more than `max_keys` events), the log itself is
//! dropped and starts afresh, so configuration should refuse a sliding log with a count above `max_keys`.

mod atomic;
mod displacement;
mod eviction;
mod eviction_policy;
pub mod in_flight;
mod leased_units;
mod locked_sets;
mod log_in_place;
mod logs;
mod policy_usage;
mod registry;
pub mod release_queues;
mod resets;
mod set;
mod share;
mod share_eviction;
mod slot;
mod snapshot;
mod table;
mod together;
mod transaction;
mod turn_signal;
mod without_places;

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use smallvec::SmallVec;

use crate::limit::Packed;
use crate::limit::units::{Cost, Timestamp};
use crate::limit::{Algorithm, Decision, State};
use crate::store::{
    Charge, ChargeEffect, ChargeRecords, Correction, CountedAt, Decisions, KeyOperation, MaxKeys,
    OperationFault, OperationResult, Outcome, ParamsId, PolicyRegistration,
};
use eviction_policy::EvictionPolicy;
use in_flight::{RequestsInFlight, Ticket, Turn};
use locked_sets::LockedSets;
use registry::{Registered, Registry};
use release_queues::ReleaseQueues;
use resets::Resets;
use share::LimitShare;
use slot::{Content, CounterSlot, Tag};
use table::CounterTable;
use transaction::Transaction;

pub use snapshot::{RestoreFault, StoredCounter, StoredPolicy, StoredState};

/// The system has no memory for this many counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the system has no memory for that many")]
pub struct OutOfMemory;

/// Counters in this process, bounded by `max_keys`.
#[derive(Debug)]
pub struct MemoryStore {
    table: CounterTable,
    registry: Registry,
    in_flight: Arc<RequestsInFlight>,
    release_queues: Arc<ReleaseQueues>,
    /// By the limit's identity. Locked for registrations and for views, never for a request.
    shares: Mutex<BTreeMap<u128, Arc<LimitShare>>>,
    resets: Resets,
}

impl MemoryStore {
    /// An empty store that never holds more than `max_keys` entries (at least one). It uses memory page by page as keys
    /// are added, 28 bytes for each of `max_keys` when it is full.
    ///
    /// # Errors
    ///
    /// The system does not reserve that much memory.
    pub fn new(max_keys: usize) -> Result<Self, OutOfMemory> {
        let table = CounterTable::new(max_keys).ok_or(OutOfMemory)?;
        Ok(Self {
            table,
            registry: Registry::default(),
            in_flight: Arc::default(),
            release_queues: Arc::default(),
            shares: Mutex::default(),
            resets: Resets::default(),
        })
    }

    /// The same for requests whose latencies do not depend on decisions: adaptive limits have their ceilings.
    ///
    /// # Errors
    ///
    /// See [`Self::new`].
    pub fn in_virtual_time(max_keys: usize) -> Result<Self, OutOfMemory> {
        let in_flight = Arc::new(RequestsInFlight::in_virtual_time());
        Ok(Self { in_flight, ..Self::new(max_keys)? })
    }

    /// [`Self::register_policy`] of a policy without an identity: its id is [`ParamsId::of`].
    pub fn register(&self, algorithm: &Algorithm) {
        self.register_policy(algorithm, 0);
    }

    /// Registers a policy of a limit that has no share. Keeps at least the last 32,768 policies.
    pub fn register_policy(&self, algorithm: &Algorithm, identity: u128) {
        self.register_with(algorithm, identity, None);
    }

    /// See [`crate::store::Store::register`].
    pub fn register_all<'a>(
        &self,
        policies: impl IntoIterator<Item = PolicyRegistration<'a>>,
        now: Timestamp,
    ) {
        let mut known = self.shares.lock();
        let mut shares: BTreeMap<u128, Arc<LimitShare>> = BTreeMap::new();
        for PolicyRegistration { algorithm, identity, share } in policies {
            let share = share.map(|MaxKeys { limit, bound }| {
                let before = || known.get(&limit).cloned().unwrap_or_default();
                let share = shares.entry(limit).or_insert_with(before);
                share.set_bound(bound.get());
                Arc::clone(share)
            });
            self.register_with(algorithm, identity, share);
        }
        for (limit, share) in &shares {
            if !known.contains_key(limit) && share.held() > 0 {
                let params = self.registry.read().numbers_in(share);
                share.list_stored(&self.table, &params);
            }
            share.shrink(&self.table, &EvictionPolicy::new(&[], &self.registry, now));
        }
        *known = shares;
    }

    /// See [`crate::store::Counters::register`].
    pub fn register_one(&self, policy: &PolicyRegistration<'_>) {
        let PolicyRegistration { algorithm, identity, share } = *policy;
        let share = share.and_then(|share| self.shares.lock().get(&share.limit).cloned());
        self.register_with(algorithm, identity, share);
    }

    fn register_with(&self, algorithm: &Algorithm, identity: u128, share: Option<Arc<LimitShare>>) {
        let params = ParamsId::of_policy(algorithm, identity);
        if let Registered::Ambiguous(before) = self.registry.register(params, algorithm, identity, share) {
            let freed = self.table.forget(params);
            before.iter().for_each(|usage| usage.remove(freed));
        }
    }

    /// See [`crate::store::Counters::decide`].
    #[inline]
    pub fn decide(&self, charges: &[Charge<'_>], now: Timestamp) -> Outcome {
        match charges {
            [charge] if !charge.shared_key.settles => Decisions::Alone(self.decide_alone(charge, now)).into(),
            _ => self.decide_together(charges, now),
        }
    }

    /// Decides a request with concurrency limits; see [`crate::store::Counters::admit`].
    pub fn admit(&self, charges: &[Charge<'_>], now: Timestamp, ticket: &mut Ticket) -> Turn {
        self.in_flight.decide(self, charges, now, ticket)
    }

    /// The requests in flight under concurrency limits.
    pub fn in_flight(&self) -> &Arc<RequestsInFlight> {
        &self.in_flight
    }

    /// The requests that wait under leaky buckets with shares.
    pub fn release_queues(&self) -> &Arc<ReleaseQueues> {
        &self.release_queues
    }

    /// Copies a decision of the shared store, so that this store counts on from there: see [`Algorithm::resume`]. `now`
    /// is by this process's clock, as for [`Self::decide`]. The state under the key is replaced. A new key takes one
    /// entry, as with a decision.
    #[inline]
    pub fn adopt(&self, charge: &Charge<'_>, decision: &Decision, now: Timestamp) {
        let state = charge.algorithm.resume(decision.remaining, decision.reset_after, now);
        if !self.adopt_in_place(charge, &state) {
            self.adopt_anew(charge, state, now);
        }
    }

    /// Executes an operation on the counters of one owner.
    ///
    /// # Errors
    ///
    /// The idempotency key of a charge: see [`OperationFault`].
    pub fn execute(
        &self,
        operation: &KeyOperation,
        charges: &[Charge<'_>],
        records: &ChargeRecords,
        now: Timestamp,
    ) -> Result<OperationResult, OperationFault> {
        Ok(match operation {
            KeyOperation::Look => self.look(charges, now).into(),
            KeyOperation::Used => OperationResult::used(self.used(charges, now)),
            KeyOperation::Reset => OperationResult::changed(self.reset(charges, now)),
            KeyOperation::Grant(units) => OperationResult::granted(self.grant(charges, *units, now)),
            KeyOperation::Charge(units, once) => {
                let effect = records.once(once.as_ref(), now, || self.charge(charges, *units, now))?;
                OperationResult::changed(effect == ChargeEffect::Charged)
            }
        })
    }

    /// See [`KeyOperation::Look`].
    pub fn look(&self, charges: &[Charge<'_>], now: Timestamp) -> Decisions {
        let held = LockedSets::new(&self.table, charges);
        let policy = EvictionPolicy::new(charges, &self.registry, now);
        let look = |charge: &Charge<'_>| match charge.algorithm.as_concurrency() {
            Some(_) => self.in_flight.look(charge, now),
            None => charge.algorithm.peek(&held.copy(charge, &policy).state, now, charge.cost),
        };
        Decisions::Together(charges.iter().map(look).collect())
    }

    /// See [`KeyOperation::Reset`].
    pub fn reset(&self, charges: &[Charge<'_>], now: Timestamp) -> bool {
        let mut held = LockedSets::new(&self.table, charges);
        let policy = EvictionPolicy::new(charges, &self.registry, now);
        let mut changed = false;
        for charge in charges {
            let peek = |state: &State| charge.algorithm.peek(state, now, charge.cost);
            // A counter that has refilled by itself is still stored, but equals an unused one.
            changed |= peek(&held.copy(charge, &policy).state) != peek(&State::Fresh);
            held.store(charge, State::Fresh, &policy);
        }
        self.resets.note(charges.iter().map(|charge| charge.key), now);
        changed
    }

    /// See [`crate::store::Counters::settle`].
    pub fn settle(&self, correction: &Correction<'_>, now: Timestamp) {
        let &Correction { charge, counted_at, difference, .. } = correction;
        if difference < 0 && self.resets.was_reset_since(charge.key, counted_at) {
            return;
        }
        let charges = &[charge];
        let mut held = LockedSets::new(&self.table, charges);
        let policy = EvictionPolicy::new(charges, &self.registry, now);
        // A reload, or another tier, may have changed the parameters since: the state keeps those.
        let charge = held.as_stored(&charge, &policy);
        let state = held.copy(&charge, &policy).state;
        held.store(&charge, charge.algorithm.settle(state, counted_at, difference, now), &policy);
    }

    /// See [`KeyOperation::Grant`].
    pub fn grant(&self, charges: &[Charge<'_>], units: Cost, now: Timestamp) -> u64 {
        let mut held = LockedSets::new(&self.table, charges);
        let policy = EvictionPolicy::new(charges, &self.registry, now);
        let mut max = 0;
        for charge in charges {
            let (state, granted) = charge.algorithm.grant(held.copy(charge, &policy).state, units, now);
            held.store(charge, state, &policy);
            max = max.max(granted);
        }
        max
    }

    /// See [`KeyOperation::Charge`].
    pub fn charge(&self, charges: &[Charge<'_>], units: Cost, now: Timestamp) {
        let mut held = LockedSets::new(&self.table, charges);
        let policy = EvictionPolicy::new(charges, &self.registry, now);
        for charge in charges {
            let state = charge.algorithm.charge(held.copy(charge, &policy).state, units, now);
            held.store(charge, state, &policy);
        }
    }

    /// See [`KeyOperation::Used`].
    pub fn used(&self, charges: &[Charge<'_>], now: Timestamp) -> Vec<u64> {
        let held = LockedSets::new(&self.table, charges);
        let policy = EvictionPolicy::new(charges, &self.registry, now);
        let used = |charge: &Charge<'_>| match charge.algorithm.as_concurrency() {
            Some(_) => self.in_flight.held(charge).into(),
            None => charge.algorithm.in_use(&held.copy(charge, &policy).state, now),
        };
        charges.iter().map(used).collect()
    }

    /// See [`crate::store::Store::keys`]: cheap and exact, but an expired entry counts until a new key overwrites it.
    pub fn keys(&self) -> u64 {
        self.table.room.used()
    }

    /// See [`crate::store::Store::max_keys`].
    pub fn max_keys(&self) -> u64 {
        self.table.room.bound()
    }

    /// See [`crate::store::Store::keys_of_limit`].
    pub fn keys_of_limit(&self, limit: u128) -> Option<u64> {
        self.shares.lock().get(&limit).map(|share| share.held())
    }

    /// See [`crate::store::Store::evictions`].
    pub fn evictions(&self) -> u64 {
        self.table.evictions()
    }

    /// The usual case: one limit, so its algorithm's verdict is final.
    #[inline]
    pub fn decide_alone(&self, charge: &Charge<'_>, now: Timestamp) -> Decision {
        self.decide_in_place(charge, now).unwrap_or_else(|| self.decide_otherwise(charge, now))
    }

    /// The hot path: a stored key with a state that keeps its size. `None` for any other.
    #[inline(always)]
    fn decide_in_place(&self, charge: &Charge<'_>, now: Timestamp) -> Option<Decision> {
        if charge.algorithm.keeps_events() {
            return None;
        }
        let wanted = |state| CounterSlot::new(Tag::of(charge.key), charge.params, Content::State(state));
        loop {
            let seen = self.table.look(charge.key, &wanted(Packed::default()))?;
            let Content::State(before) = seen.slot.content() else { return None };
            let (after, decision) = charge.algorithm.decide_packed(before, now, charge.cost)?;
            // An unused state takes no slot.
            if after.used == 0 {
                return None;
            }
            if after == before || seen.replace(&wanted(after)).is_ok() {
                return Some(decision);
            }
        }
    }

    #[inline(never)]
    fn decide_otherwise(&self, charge: &Charge<'_>, now: Timestamp) -> Decision {
        self.decide_log_in_place(charge, now).unwrap_or_else(|| self.decide_anew(charge, now))
    }

    /// A key that is new or was written under other parameters, or a log that is larger than there is capacity.
    #[cold]
    fn decide_anew(&self, charge: &Charge<'_>, now: Timestamp) -> Decision {
        let charges = std::slice::from_ref(charge);
        let mut held = LockedSets::new(&self.table, charges);
        let policy = EvictionPolicy::new(charges, &self.registry, now);
        let (after, decision) = charge.algorithm.decide(held.take(charge, &policy), now, charge.cost);
        held.store(charge, after, &policy);
        decision
    }

    /// Adopts a state of a stored key that keeps its size. Returns whether it was one.
    #[inline]
    fn adopt_in_place(&self, charge: &Charge<'_>, state: &State) -> bool {
        let Some(packed) = state.packed().filter(|packed| packed.used > 0) else { return false };
        let wanted = CounterSlot::new(Tag::of(charge.key), charge.params, Content::State(packed));
        loop {
            let Some(seen) = self.table.look(charge.key, &wanted) else { return false };
            if seen.slot == wanted || seen.replace(&wanted).is_ok() {
                return true;
            }
        }
    }

    /// A key that is new, was written under other parameters, has a log, or is unused.
    #[cold]
    fn adopt_anew(&self, charge: &Charge<'_>, state: State, now: Timestamp) {
        let charges = std::slice::from_ref(charge);
        let mut held = LockedSets::new(&self.table, charges);
        let policy = EvictionPolicy::new(charges, &self.registry, now);
        held.store(charge, state, &policy);
    }

    /// Several limits: all or none.
    #[inline(never)]
    fn decide_together(&self, charges: &[Charge<'_>], now: Timestamp) -> Outcome {
        if let Some(decisions) = together::decide(&self.table, charges, now) {
            return Decisions::Together(decisions).into();
        }
        let Decided { decisions, counted_at } = self.decide_beside(charges, now, true);
        Outcome { counted_at, ..Outcome::from(Decisions::Together(decisions)) }
    }

    /// Several limits, or none, beside others that are decided elsewhere: all or none.
    fn decide_beside(&self, charges: &[Charge<'_>], now: Timestamp, admitted_elsewhere: bool) -> Decided {
        if charges.is_empty() {
            return Decided::default();
        }
        let mut held = LockedSets::new(&self.table, charges);
        let policy = EvictionPolicy::new(charges, &self.registry, now);
        let transaction = Transaction::new(charges, now, |charge| held.copy(charge, &policy));
        let (decisions, accounts) = transaction.decide(admitted_elsewhere);
        let counted_at = charges.iter().any(|charge| charge.shared_key.settles).then(|| {
            let account =
                |charge: &Charge<'_>| accounts.iter().find(|account| account.charge.key == charge.key);
            let time = |charge| account(charge).map(|one| one.charge.algorithm.counted_at(&one.state, now));
            charges.iter().map(|charge| time(charge).unwrap_or(now)).collect()
        });
        for account in accounts.into_iter().filter(|account| account.changed) {
            held.store(account.charge, account.state, &policy);
        }
        Decided { decisions, counted_at }
    }
}

/// The decisions on charges, in their order.
#[derive(Debug, Default)]
struct Decided {
    decisions: SmallVec<[Decision; 4]>,
    counted_at: CountedAt,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::limit::units::{Fingerprint, Micros, Rate};
    use crate::store::{Group, SharedKeyInfo};

    proptest! {
        #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

        /// The store's count equals the contents of its sets, whatever is overwritten, evicted or dropped.
        #[test]
        fn what_is_counted_is_what_is_held(
            max_keys in prop_oneof![1..20_usize, 60..300_usize],
            requests in prop::collection::vec(
                (any::<bool>(), 0..200_u128, 0..200_u128, 0..300_000_u64, 0..3_u32), 1..300,
            ),
        ) {
            let rate = Rate::new(20, Micros::SECOND).unwrap();
            let algorithms = [Algorithm::sliding_log(rate, None, false), Algorithm::gcra(rate, Cost::ONE)];
            let store = MemoryStore::new(max_keys).unwrap();
            let params: Vec<_> =
                (1..).zip(&algorithms).map(|(identity, it)| ParamsId::of_policy(it, identity)).collect();
            (1..).zip(&algorithms).for_each(|(identity, it)| store.register_policy(it, identity));
            let mut now = Timestamp(1);
            for (log, one, other, pause, cost) in requests {
                now = now.plus(Micros(pause));
                let (algorithm, numbers_id) = (&algorithms[usize::from(log)], params[usize::from(log)]);
                let key = |client: u128| Fingerprint((client + 1).wrapping_mul(u128::MAX / 201));
                let (cost, group, shared_key) = (Cost::new(cost).unwrap_or(Cost::ZERO), Group::Enforced, SharedKeyInfo::NONE);
                let charge =
                    |client| Charge { algorithm, params: numbers_id, key: key(client), cost, group, shared_key };
                let outcome = store.decide(&[charge(one), charge(other), charge(one / 2)][..if one < 50 { 1 } else { 2 + usize::from(other > 100) }], now);
                if other < 50 {
                    // A decision on another key, so that the key may be new, stored, fuller or emptier.
                    store.adopt(&charge(other), &outcome.decisions[0], now);
                }
                prop_assert_eq!(store.keys(), store.table.recounted());
                let held: Vec<u64> = params.iter().map(|params| store.table.recounted_of(*params)).collect();
                let known = store.registry.read();
                let usage = |params: &ParamsId| known.get(*params).unwrap().usage.held();
                prop_assert_eq!(params.iter().map(usage).collect::<Vec<_>>(), held);
                prop_assert!(store.keys() <= max_keys as u64);
            }
            for params in params {
                let held = store.table.recounted_of(params);
                prop_assert_eq!(store.table.forget(params), held);
            }
            prop_assert_eq!((store.keys(), store.table.recounted()), (0, 0));
        }
    }
}
