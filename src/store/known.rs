//! What the process knows of counters and bans without asking a shared store.

use super::Charge;
use super::bans::Bans;
use super::memory::MemoryStore;
use super::overrides::Overrides;
use crate::limit::units::{Micros, Timestamp};
use crate::limit::{Verdict, Wait};

/// What the process knows without asking anyone.
#[derive(Clone, Copy, Debug)]
pub struct Known<'k> {
    /// The bans.
    pub bans: &'k Bans,
    /// The overrides of keys.
    pub overrides: &'k Overrides,
    /// The counters of this process, if there are any.
    pub memory: Option<&'k MemoryStore>,
    /// When the request is decided, after a wait for a place.
    pub now: Timestamp,
}

impl Known<'_> {
    /// The longest wait among the enforced charges, as far as this process knows their counters. Nothing is charged.
    pub fn wait(&self, charges: &[Charge<'_>]) -> Micros {
        let Some(memory) = self.memory else { return Micros(0) };
        let decisions = memory.look(charges, self.now);
        let enforced = charges.iter().zip(&*decisions).filter(|(charge, _)| !charge.group.is_shadow());
        let waits = enforced.map(|(_, decision)| match decision.verdict {
            Verdict::Deny(Wait::After(wait)) => wait,
            _ => Micros(0),
        });
        waits.max().unwrap_or_default()
    }
}
