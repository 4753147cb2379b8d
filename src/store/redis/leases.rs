//! The units that this process has in advance of shared counters: when they end, and what goes back. One for the process.
//!
//! The units themselves are in [`MemoryStore`], where requests spend them without a lock. Grants and returns are rare, and go
//! through one lock here, so that no unit is returned that is spent as well.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use super::leased_key::{LeasedKey, ReturnedUnits};
use crate::limit::lease::{Lease, LeasedUnits};
use crate::limit::units::{Cost, Fingerprint, Timestamp};
use crate::store::memory::MemoryStore;

/// The most keys of which a process has units in advance: other keys are decided by the servers.
const MAX_KEYS: usize = 100_000;

/// The units in advance of this process.
#[derive(Debug, Default)]
pub(super) struct Leases {
    book: Mutex<LeaseBook>,
    /// There are units, of which none were before.
    changed: Notify,
}

#[derive(Debug, Default)]
struct LeaseBook {
    /// By the key of the units in memory.
    held: HashMap<Fingerprint, HeldUnits>,
    /// When units end. An entry of units that have gone back meanwhile stays until then.
    ends: BinaryHeap<Reverse<(Timestamp, Fingerprint)>>,
    /// The renewals under way.
    renewals: HashMap<Fingerprint, watch::Receiver<()>>,
    /// Units that go back before their end.
    returns: Vec<ReturnedUnits>,
    /// No more units are taken.
    is_closed: bool,
}

#[derive(Debug)]
struct HeldUnits {
    key: LeasedKey,
    ends: Timestamp,
    granted_at: Timestamp,
}

/// A renewal under way. Dropped, it is over.
#[derive(Debug)]
pub(super) struct Renewal {
    leases: Arc<Leases>,
    key: Fingerprint,
    _ended: watch::Sender<()>,
}

impl Leases {
    /// Begins a renewal. `None`: one is under way, no more units are taken, or there are units of too many keys.
    pub(super) fn begin(self: &Arc<Self>, key: &LeasedKey) -> Option<Renewal> {
        let mut book = self.book.lock();
        let key = key.units_key();
        let is_full = book.held.len() + book.renewals.len() >= MAX_KEYS && !book.held.contains_key(&key);
        if book.is_closed || is_full || book.renewals.contains_key(&key) {
            return None;
        }
        let (ended, under_way) = watch::channel(());
        book.renewals.insert(key, under_way);
        Some(Renewal { leases: Arc::clone(self), key, _ended: ended })
    }

    /// A renewal of one of these units, if there is one: it changes when that is over. The keys are those of the units in
    /// memory.
    pub(super) fn renewal_of(
        &self,
        mut keys: impl Iterator<Item = Fingerprint>,
    ) -> Option<watch::Receiver<()>> {
        let book = self.book.lock();
        if book.renewals.is_empty() {
            return None;
        }
        keys.find_map(|key| book.renewals.get(&key).cloned())
    }

    /// Any renewal under way.
    pub(super) fn any_renewal(&self) -> Option<watch::Receiver<()>> {
        self.book.lock().renewals.values().next().cloned()
    }

    /// Adds units that were taken, at `granted_at` by the store's clock.
    pub(super) fn deposit(
        &self,
        memory: &MemoryStore,
        key: LeasedKey,
        taken: (u32, Timestamp),
        granted_at: Timestamp,
        now: Timestamp,
    ) {
        let (units, ends) = taken;
        let mut book = self.book.lock();
        let deposit = memory.change_leased_units(&key.units(), now, |before| {
            let deposit = key.lease.deposit(before, units, ends, now);
            (deposit.units, deposit)
        });
        let id = key.units_key();
        let before = book.held.remove(&id);
        let last_end = before.as_ref().map(|before| before.ends);
        let granted_at = match before {
            Some(before) if deposit.joined => before.granted_at.min(granted_at),
            Some(HeldUnits { key, granted_at: earlier, .. }) if deposit.returned > 0 => {
                book.returns.push(ReturnedUnits { key, units: deposit.returned, granted_at: earlier });
                granted_at
            }
            _ => granted_at,
        };
        let ends = deposit.units.ends();
        if last_end != Some(ends) {
            book.ends.push(Reverse((ends, id)));
        }
        book.held.insert(id, HeldUnits { key, ends, granted_at });
        drop(book);
        self.changed.notify_one();
    }

    /// Puts units back that were taken for a request, whose lease is another one than that of the units here. They were
    /// granted at `granted_at` or later, by the store's clock.
    pub(super) fn put_back(
        &self,
        memory: &MemoryStore,
        key: LeasedKey,
        (cost, ends): (Cost, Timestamp),
        granted_at: Timestamp,
        now: Timestamp,
    ) {
        let mut book = self.book.lock();
        let ends = memory.change_leased_units(&key.units(), now, |before| {
            let joined = Lease::put_back(before, cost, ends, now);
            joined.map_or((before, None), |units| (units, Some(units.ends())))
        });
        match ends {
            None => book.returns.push(ReturnedUnits { key, units: cost.units(), granted_at }),
            Some(ends) => {
                let id = key.units_key();
                let before = book.held.remove(&id).map_or(granted_at, |held| held.granted_at);
                book.held.insert(id, HeldUnits { key, ends, granted_at: before.min(granted_at) });
                book.ends.push(Reverse((ends, id)));
            }
        }
        drop(book);
        self.changed.notify_one();
    }

    /// The units that have ended at `now`, and others that go back.
    pub(super) fn due(&self, memory: &MemoryStore, now: Timestamp) -> Vec<ReturnedUnits> {
        let mut book = self.book.lock();
        let mut due = std::mem::take(&mut book.returns);
        while let Some(&Reverse((ends, id))) = book.ends.peek()
            && ends <= now
        {
            book.ends.pop();
            // An entry of units that were replaced meanwhile says nothing of those that are there now.
            let is_theirs = book.held.get(&id).is_some_and(|held| held.ends == ends);
            if let Some(held) = is_theirs.then(|| book.held.remove(&id)).flatten() {
                due.extend(withdraw(memory, held, Some(now), now));
            }
        }
        due
    }

    /// When the next units end, if there are any.
    pub(super) fn next_end(&self) -> Option<Timestamp> {
        let book = self.book.lock();
        let next = book.ends.peek().map(|Reverse((ends, _))| *ends);
        if book.returns.is_empty() { next } else { Some(Timestamp(0)) }
    }

    /// Waits until there are units.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// No more units are taken from now on.
    pub(super) fn close(&self) {
        self.book.lock().is_closed = true;
    }

    /// All units, as they go back.
    pub(super) fn all(&self, memory: &MemoryStore, now: Timestamp) -> Vec<ReturnedUnits> {
        let mut book = self.book.lock();
        let mut all = std::mem::take(&mut book.returns);
        let held = std::mem::take(&mut book.held);
        book.ends.clear();
        all.extend(held.into_values().filter_map(|held| withdraw(memory, held, None, now)));
        all
    }

    /// The units that are not spent.
    pub(super) fn units(&self, memory: &MemoryStore, now: Timestamp) -> u64 {
        let book = self.book.lock();
        book.held.values().map(|held| memory.peek(&held.key.units(), now).remaining).sum()
    }
}

fn withdraw(
    memory: &MemoryStore,
    held: HeldUnits,
    ended_at: Option<Timestamp>,
    now: Timestamp,
) -> Option<ReturnedUnits> {
    let HeldUnits { key, granted_at, .. } = held;
    let withdraw = |units: LeasedUnits| Lease::withdraw(units, ended_at);
    let units = memory.change_leased_units(&key.units(), now, withdraw);
    (units > 0).then_some(ReturnedUnits { key, units, granted_at })
}

impl Drop for Renewal {
    fn drop(&mut self) {
        self.leases.book.lock().renewals.remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::Algorithm;
    use crate::limit::units::{Micros, Rate};
    use crate::store::{Charge, Group, LeasePolicy, ParamsId, SharedKeyInfo};

    const LEASE: Micros = Micros::SECOND;

    /// Units in advance of one key, in a store of its own.
    fn key(memory: &MemoryStore) -> LeasedKey {
        let algorithm = Algorithm::token_bucket(Rate::new(100, LEASE).unwrap(), Cost::new(100).unwrap());
        let policy = LeasePolicy::new(Lease::new(LEASE).unwrap(), 7);
        let (of_lease, identity) = policy.registration();
        memory.register_policy(of_lease, identity);
        let shared_key = SharedKeyInfo { identity: 7, lease: Some(policy), ..SharedKeyInfo::NONE.clone() };
        let charge = Charge {
            algorithm: &algorithm,
            params: ParamsId::of(&algorithm),
            key: Fingerprint(1 << 90),
            cost: Cost::ONE,
            group: Group::Enforced,
            shared_key: &shared_key,
        };
        LeasedKey::of(&charge, <_>::default(), Arc::from(*b"a")).unwrap()
    }

    fn units(returned: &[ReturnedUnits]) -> Vec<(u32, u64)> {
        returned.iter().map(|one| (one.units, one.granted_at.0)).collect()
    }

    #[test]
    fn units_go_back_when_they_end_and_those_that_were_replaced_before() {
        let (memory, leases) = (MemoryStore::new(100).unwrap(), Leases::default());
        let key = key(&memory);
        let deposit = |taken, granted_at, now| {
            leases.deposit(&memory, key.clone(), taken, Timestamp(granted_at), Timestamp(now));
        };
        deposit((5, Timestamp(1_000_000)), 100, 20_000);
        // They join: those of the first grant end first.
        deposit((6, Timestamp(1_400_000)), 500, 420_000);
        assert_eq!(leases.next_end(), Some(Timestamp(1_000_000)));
        // They replace the others, which go back.
        deposit((7, Timestamp(1_900_000)), 900, 920_000);
        assert_eq!(leases.next_end(), Some(Timestamp(0)));
        assert_eq!(units(&leases.due(&memory, Timestamp(930_000))), [(11, 100)]);
        assert_eq!(units(&leases.due(&memory, Timestamp(1_000_000))), []);
        assert_eq!(leases.units(&memory, Timestamp(1_000_000)), 7);
        assert_eq!(units(&leases.due(&memory, Timestamp(1_900_000))), [(7, 900)]);
        assert_eq!((leases.next_end(), leases.units(&memory, Timestamp(1_900_000))), (None, 0));
    }

    #[test]
    fn all_units_go_back_at_the_end_and_no_more_are_taken() {
        let (memory, leases) = (MemoryStore::new(100).unwrap(), Arc::new(Leases::default()));
        let key = key(&memory);
        leases.deposit(&memory, key.clone(), (5, Timestamp(1_000_000)), Timestamp(100), Timestamp(20_000));
        let under_way = leases.begin(&key).unwrap();
        assert!(leases.begin(&key).is_none(), "one is under way");
        drop(under_way);
        assert!(leases.begin(&key).is_some());
        leases.close();
        assert!(leases.begin(&key).is_none());
        assert_eq!(units(&leases.all(&memory, Timestamp(30_000))), [(5, 100)]);
        assert_eq!(units(&leases.all(&memory, Timestamp(30_000))), []);
    }
}
