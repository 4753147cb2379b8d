//! Who may stay when there is no room: how much each stored state has used.

use super::registry::Known;
use super::table::Slot;
use crate::limit::units::Timestamp;
use crate::store::Charge;

/// The view that one request takes of its neighbours when it needs room.
pub(super) struct Census<'a> {
    /// When.
    pub(super) now: Timestamp,
    /// What their numbers mean.
    pub(super) known: Known<'a>,
    /// The request's own charges, whose keys are not evicted.
    pub(super) charges: &'a [Charge<'a>],
}

/// Less is evicted sooner: the least used, and of equals the one that is forgotten soonest anyway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Standing {
    used: u32,
    forget_at: Timestamp,
}

impl Census<'_> {
    /// How much the slot has used. One whose numbers nobody remembers has no claim, but is not taken for expired.
    pub(super) fn standing(&self, slot: &Slot) -> Standing {
        let Some(algorithm) = self.known.get(slot.numbers) else {
            return Standing { used: 0, forget_at: Timestamp(u64::MAX) };
        };
        let forget_at = algorithm.forget_at(&slot.state);
        let used = if forget_at <= self.now { 0 } else { algorithm.used(&slot.state, self.now) };
        Standing { used, forget_at }
    }

    /// Whether the slot equals an absent one.
    pub(super) fn is_expired(&self, slot: &Slot) -> bool {
        self.known.get(slot.numbers).is_some_and(|algorithm| algorithm.forget_at(&slot.state) <= self.now)
    }

    /// The same of a slot with this standing.
    pub(super) fn has_expired(&self, standing: Standing) -> bool {
        standing.forget_at <= self.now
    }

    /// Whether the slot may make room for this request: any but its own keys.
    pub(super) fn is_evictable(&self, slot: &Slot) -> bool {
        !self.charges.iter().any(|charge| slot.is_of(charge.key))
    }
}
