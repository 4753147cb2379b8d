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
use crate::limit::units::{Fingerprint, Timestamp};
use crate::store::memory::MemoryStore;

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
    /// Begins a renewal. `None`: one is under way, or no more units are taken.
    pub(super) fn begin(self: &Arc<Self>, key: &LeasedKey) -> Option<Renewal> {
        let mut book = self.book.lock();
        let key = key.units_key();
        if book.is_closed || book.renewals.contains_key(&key) {
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

    /// Gives units back.
    pub(super) fn give_back(&self, returned: ReturnedUnits) {
        self.book.lock().returns.push(returned);
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
