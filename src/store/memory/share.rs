//! The share of a limit: `max_keys` of a limit bounds the entries of all its counters, of all its rates.
//!
//! A share lists where the counters of its limit are stored, since few of a key's neighbours belong to the limit. When
//! the share is used up, a new counter takes the entry of an expired counter of the limit, or of the least used one among
//! 32 that are spread over the list (among all, with up to 64). No counter of another limit is evicted for it.
//!
//! The list is changed under a lock that is acquired after the locks of the sets and of the registry. Its holder never
//! waits for a set. A counter that leaves the table stays in the list until it is met there.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::policy_usage::PolicyUsage;
use super::slot::{CounterSlot, Tag};
use super::table::CounterTable;
use crate::limit::units::Fingerprint;
use crate::store::ParamsId;

/// The share of one limit.
#[derive(Debug, Default)]
pub(super) struct LimitShare {
    bound: AtomicU64,
    /// The usage of each of the limit's policies.
    usages: Mutex<Vec<Arc<PolicyUsage>>>,
    pub(super) members: Mutex<Members>,
}

/// The counters of a share, and some that have left the table: never more than twice its bound.
#[derive(Debug, Default)]
pub(super) struct Members {
    pub(super) list: Vec<Member>,
    /// The position of the first of the next candidates for eviction.
    pub(super) next: usize,
}

/// A counter: it is stored in this set, or in the other one of its tag.
#[derive(Clone, Copy, Debug)]
pub(super) struct Member {
    set_index: usize,
    pub(super) tag: Tag,
}

impl LimitShare {
    /// Sets the maximum number of entries.
    pub(super) fn set_bound(&self, bound: u64) {
        self.bound.store(bound, Ordering::Relaxed);
    }

    /// The maximum number of entries.
    fn bound(&self) -> u64 {
        self.bound.load(Ordering::Relaxed)
    }

    /// Counts the entries of a policy with this usage, too.
    pub(super) fn add_usage(&self, usage: &Arc<PolicyUsage>) {
        if !self.counts(usage) {
            self.usages.lock().push(Arc::clone(usage));
        }
    }

    /// Whether it counts the entries of a policy with this usage.
    pub(super) fn counts(&self, usage: &Arc<PolicyUsage>) -> bool {
        self.usages.lock().iter().any(|known| Arc::ptr_eq(known, usage))
    }

    /// The number of entries held.
    pub(super) fn held(&self) -> u64 {
        self.usages.lock().iter().map(|usage| usage.held()).sum()
    }

    /// Whether `needed` more entries fit, of one new counter if `is_new`.
    ///
    /// With twice as many members as entries, half of the members have left the table: the next candidates show one.
    pub(super) fn has_capacity(&self, members: &Members, needed: u64, is_new: bool) -> bool {
        let (bound, listed) = (self.bound(), members.list.len() as u64 + u64::from(is_new));
        self.held().saturating_add(needed) <= bound && listed <= bound.saturating_mul(2)
    }

    /// Lists the counters that were stored before their limit had a share: those written under the parameters `params`.
    /// Walks the whole table, one set at a time; not for the request path.
    pub(super) fn list_stored(&self, table: &CounterTable, params: &HashSet<ParamsId>) {
        let mut stored = Vec::new();
        for set_index in (0..table.sets()).filter(|set_index| !table.set(*set_index).is_untouched()) {
            let set = table.set(set_index).lock();
            let its = set.slots().filter(|slot| !slot.is_empty() && params.contains(&slot.params()));
            stored.extend(its.map(|slot| Member { set_index, tag: slot.tag() }));
        }
        self.members.lock().list.append(&mut stored);
    }
}

impl Member {
    /// The counter of a key that is stored.
    pub(super) fn of(table: &CounterTable, key: Fingerprint) -> Self {
        Self { set_index: table.set_indices(key)[0], tag: Tag::of(key) }
    }

    /// The sets in one of which the counter is.
    pub(super) fn set_indices(self, table: &CounterTable) -> [usize; 2] {
        [self.set_index, table.other_set(self.set_index, self.tag)]
    }

    /// A copy of its slot, without a lock: only a hint.
    pub(super) fn peek(self, table: &CounterTable) -> Option<CounterSlot> {
        self.set_indices(table).into_iter().find_map(|set_index| table.set(set_index).peek(self.tag))
    }
}
