//! Who may stay when there is no room: how much each stored state has used.

use std::cell::OnceCell;

use super::logs::Logs;
use super::registry::{Known, Registry};
use super::slot::{Content, Slot, Tag};
use crate::limit::units::Timestamp;
use crate::limit::{Algorithm, State};
use crate::store::{Charge, NumbersId};

/// The view that one request takes of its neighbours when it needs room.
pub(super) struct Census<'a> {
    /// When.
    pub(super) now: Timestamp,
    /// The request's own charges, whose keys are not evicted.
    charges: &'a [Charge<'a>],
    registry: &'a Registry,
    /// What numbers mean that are not the request's own. Opened when the first such are met.
    known: OnceCell<Known<'a>>,
}

/// Less is evicted sooner: the least used, and of equals the one that is forgotten soonest anyway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Standing {
    used: u32,
    forget_at: Timestamp,
}

impl<'a> Census<'a> {
    /// The view of a request with these charges.
    pub(super) fn new(charges: &'a [Charge<'a>], registry: &'a Registry, now: Timestamp) -> Self {
        Self { now, charges, registry, known: OnceCell::new() }
    }

    /// The algorithm behind `numbers`, unless they are forgotten.
    pub(super) fn algorithm(&self, numbers: NumbersId) -> Option<&Algorithm> {
        match self.charges.iter().find(|charge| charge.numbers == numbers) {
            Some(charge) => Some(charge.algorithm),
            None => self.known.get_or_init(|| self.registry.known()).get(numbers),
        }
    }

    /// How much the slot has used. One whose numbers nobody remembers has no claim, but is not taken for expired.
    pub(super) fn standing(&self, slot: &Slot, logs: &Logs) -> Standing {
        let Some(algorithm) = self.algorithm(slot.numbers()) else {
            return Standing { used: 0, forget_at: Timestamp(u64::MAX) };
        };
        with_state(slot, algorithm, logs, |state| {
            let forget_at = algorithm.forget_at(state);
            let used = if forget_at <= self.now { 0 } else { algorithm.used(state, self.now) };
            Standing { used, forget_at }
        })
    }

    /// Whether the slot equals an absent one.
    pub(super) fn is_expired(&self, slot: &Slot, logs: &Logs) -> bool {
        self.algorithm(slot.numbers()).is_some_and(|algorithm| {
            with_state(slot, algorithm, logs, |state| algorithm.forget_at(state) <= self.now)
        })
    }

    /// The same of a slot with this standing.
    pub(super) fn has_expired(&self, standing: Standing) -> bool {
        standing.forget_at <= self.now
    }

    /// Whether the slot may make room for this request: any but its own keys and empty ones.
    pub(super) fn is_evictable(&self, slot: &Slot) -> bool {
        !slot.is_empty() && !self.charges.iter().any(|charge| slot.is_of(Tag::of(charge.key)))
    }
}

fn with_state<T>(slot: &Slot, algorithm: &Algorithm, logs: &Logs, ask: impl FnOnce(&State) -> T) -> T {
    match slot.content() {
        Content::State(state) => ask(&algorithm.unpacked(state)),
        Content::Log { id, .. } => logs.ask(id, ask),
    }
}
