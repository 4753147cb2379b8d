//! Temporary bans by the keys of limits. A banned key is refused whatever its counters are.
//!
//! A request first checks whether there are any bans. If so, it reads a list that is never changed in place, so no
//! request waits. With a shared store the list is a copy of the store's; see `redis/bans.rs`.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use super::Unreachable;
use crate::limit::units::{Fingerprint, Timestamp};

/// One key of one limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Banned {
    /// The [`SharedKeyInfo::identity`](super::SharedKeyInfo::identity) of the limit's first policy: a ban outlives a
    /// reload for as long as the limit's counters do.
    pub limit: u128,
    /// The owner of the key; see [`Charge::owner`](super::Charge::owner).
    pub owner: Fingerprint,
}

/// Why a ban failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BanFault {
    /// The shared store, which keeps the bans, is unavailable.
    #[error(transparent)]
    Unreachable(#[from] Unreachable),
    /// There are [`Bans::MAX`] bans already.
    #[error("there are {} bans, and there can be no more", Bans::MAX)]
    TooMany,
}

/// The bans that this process knows of.
#[derive(Debug, Default)]
pub struct Bans {
    /// Whether there are any.
    any: AtomicBool,
    /// The end of each ban, by this process's clock.
    list: ArcSwap<List>,
    /// The text of banned keys, as far as it was given to this process. For lists only: requests never read it.
    labels: Mutex<HashMap<Banned, Arc<str>>>,
}

type List = HashMap<Banned, Timestamp>;

impl Bans {
    /// The maximum number of bans at once, of all limits together.
    pub const MAX: usize = 10_000;

    /// Whether there are no bans: the only check of a request in that case.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        !self.any.load(Ordering::Relaxed)
    }

    /// The end of the ban of this key, if it is banned at `now`.
    pub fn until(&self, banned: Banned, now: Timestamp) -> Option<Timestamp> {
        if self.is_empty() {
            return None;
        }
        self.list.load().get(&banned).copied().filter(|until| *until > now)
    }

    /// The keys of this limit that are banned at `now`, with the end of each ban. Unordered.
    pub fn of_limit(&self, limit: u128, now: Timestamp) -> Vec<(Fingerprint, Timestamp)> {
        let list = self.list.load();
        let its = list.iter().filter(|(banned, until)| banned.limit == limit && **until > now);
        its.map(|(banned, until)| (banned.owner, *until)).collect()
    }

    /// The number of bans of each limit at `now`; limits without any are left out.
    pub fn counts(&self, now: Timestamp) -> HashMap<u128, usize> {
        let mut counts = HashMap::new();
        let list = self.list.load();
        for (banned, _) in list.iter().filter(|(_, until)| **until > now) {
            *counts.entry(banned.limit).or_default() += 1;
        }
        counts
    }

    /// Bans a key until then, in place of an earlier ban.
    ///
    /// # Errors
    ///
    /// [`BanFault::TooMany`].
    pub fn insert(&self, banned: Banned, until: Timestamp, now: Timestamp) -> Result<(), BanFault> {
        let mut full = false;
        self.change(|list| {
            list.retain(|_, until| *until > now);
            full = list.len() >= Self::MAX && !list.contains_key(&banned);
            if !full {
                list.insert(banned, until);
            }
        });
        if full { Err(BanFault::TooMany) } else { Ok(()) }
    }

    /// Ends a ban, if there is one.
    pub fn remove(&self, banned: Banned) {
        self.change(|list| {
            list.remove(&banned);
        });
    }

    /// Keeps the text of a banned key, for as long as it is banned.
    pub fn name(&self, banned: Banned, label: impl Into<Arc<str>>) {
        let mut labels = self.labels.lock();
        if self.list.load().contains_key(&banned) {
            labels.insert(banned, label.into());
        }
    }

    /// The text of a banned key, if it was given.
    pub fn label(&self, banned: Banned) -> Option<Arc<str>> {
        self.labels.lock().get(&banned).cloned()
    }

    /// Removes expired bans.
    pub fn sweep(&self, now: Timestamp) {
        if !self.is_empty() && self.list.load().values().any(|until| *until <= now) {
            self.change(|list| list.retain(|_, until| *until > now));
        }
    }

    /// Replaces all bans.
    pub fn replace(&self, list: impl IntoIterator<Item = (Banned, Timestamp)>) {
        let list: List = list.into_iter().collect();
        self.change(|known| known.clone_from(&list));
    }

    fn change(&self, mut change: impl FnMut(&mut List)) {
        self.list.rcu(|list| {
            let mut next = List::clone(list);
            change(&mut next);
            Arc::new(next)
        });
        let mut labels = self.labels.lock();
        let list = self.list.load();
        labels.retain(|banned, _| list.contains_key(banned));
        self.any.store(!list.is_empty(), Ordering::Relaxed);
    }
}
