//! The store: a counter, and its replica where a failover may happen.

use std::hash::{Hash, Hasher};

use tollgate::limit::lease::ledger::LeasedCounter;
use tollgate::limit::units::{Cost, Timestamp};

use super::gateway::{Grant, Returned, WANTED};
use super::scenario::{Mutant, Scenario};

/// The default is unused.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct LeaseStore {
    counter: SharedCounter,
    /// The counter as it was before the writes that the replica lacks.
    replica: SharedCounter,
    /// The time of the first of these writes.
    behind_since: Option<Timestamp>,
    /// The units charged by these writes.
    unreplicated: u64,
    has_failed_over: bool,
}

/// A [`LeasedCounter`] with a hash.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct SharedCounter(LeasedCounter);

impl Hash for SharedCounter {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        let packed = self.0.state.packed().expect("no state that is leased is a log");
        (packed.at, packed.used, self.0.floor).hash(hasher);
    }
}

impl LeaseStore {
    /// Grants units. `None`: none are left.
    pub(super) fn grant(&mut self, scenario: &Scenario, now: Timestamp) -> Option<Grant> {
        let (algorithm, counter) = (&scenario.algorithm, &mut self.counter.0);
        let (units, decision) = counter.take(algorithm, &scenario.lease, WANTED, now);
        self.note_write(scenario, units.into(), now);
        let rest_of_window = algorithm.rest_of_window(&decision, now);
        (units > 0).then_some(Grant { units, at: now, rest_of_window })
    }

    /// Decides a request of one unit: whether it is admitted.
    pub(super) fn decide(&mut self, scenario: &Scenario, now: Timestamp) -> bool {
        let state = std::mem::take(&mut self.counter.0.state);
        let (state, decision) = scenario.algorithm.decide(state, now, Cost::ONE);
        self.counter.0.state = state;
        self.note_write(scenario, u64::from(!decision.denies()), now);
        !decision.denies()
    }

    /// Units come back.
    pub(super) fn take_back(&mut self, scenario: &Scenario, returned: Returned, now: Timestamp) {
        let Returned { units, granted_at } = returned;
        let (algorithm, counter) = (&scenario.algorithm, &mut self.counter.0);
        if scenario.has(Mutant::NoFloor) {
            let state = std::mem::take(&mut counter.state);
            counter.state = algorithm.settle(state, granted_at, -i64::from(units), now);
        } else {
            counter.give_back(algorithm, &scenario.lease, units, granted_at, now);
        }
        self.note_write(scenario, 0, now);
    }

    /// Whether it would refuse a request.
    pub(super) fn is_used_up(&self, scenario: &Scenario, now: Timestamp) -> bool {
        scenario.algorithm.peek(&self.counter.0.state, now, Cost::ONE).denies()
    }

    /// Forgets a counter that equals an unused one.
    pub(super) fn expire(&mut self, scenario: &Scenario, now: Timestamp) {
        for counter in [&mut self.counter.0, &mut self.replica.0] {
            if scenario.algorithm.forget_at(&counter.state) <= now {
                counter.state = Default::default();
            }
        }
    }

    fn note_write(&mut self, scenario: &Scenario, charged: u64, now: Timestamp) {
        let is_replicated = scenario.lag.is_some() && !self.has_failed_over;
        if is_replicated && self.counter != self.replica {
            self.behind_since.get_or_insert(now);
            self.unreplicated += charged;
        }
    }

    /// Whether the replica lacks charges of no more units than the quota.
    pub(super) fn is_within_boundary(&self, scenario: &Scenario) -> bool {
        self.unreplicated <= scenario.algorithm.quota()
    }

    pub(super) fn is_behind(&self) -> bool {
        self.behind_since.is_some()
    }

    /// Whether the replica may still lack at `then` what it lacks now.
    pub(super) fn may_lag_until(&self, scenario: &Scenario, then: Timestamp) -> bool {
        let (Some(since), Some(lag)) = (self.behind_since, scenario.lag) else { return true };
        then.since(since) <= lag
    }

    /// The replica gets all writes.
    pub(super) fn replicate(&mut self) {
        let counter = self.counter.clone();
        *self = Self { replica: counter.clone(), counter, ..Self::default() };
    }

    /// The replica takes over. Returns the units whose charge is lost. One failover is enough to see the loss.
    pub(super) fn fail_over(&mut self) -> u64 {
        let lost = self.unreplicated;
        *self = Self { counter: self.replica.clone(), has_failed_over: true, ..Self::default() };
        lost
    }
}
