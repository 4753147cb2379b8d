//! What a store decides at once: the charges of a request, and the bans of its limits.

use super::bans::{Banned, Bans};
use super::memory::MemoryStore;
use super::{Charge, Group, Outcome};
use crate::limit::units::Timestamp;
use crate::limit::{Decision, Verdict, Wait};

/// The charges of a request, and the bans of its limits.
#[derive(Clone, Copy, Debug)]
pub struct StoreRequest<'a> {
    /// The charges. At most [`MAX_CHARGES`](super::MAX_CHARGES).
    pub charges: &'a [Charge<'a>],
    /// The bans.
    pub bans: &'a [BanCharge<'a>],
}

/// The ban of a limit, which counts the refusals by the limit's charges.
#[derive(Clone, Copy, Debug)]
pub struct BanCharge<'a> {
    /// One refusal.
    pub charge: Charge<'a>,
    /// The key that is banned.
    pub banned: Banned,
    /// The limit's charges: the index of the first, and their number.
    pub of: (u8, u8),
}

impl BanCharge<'_> {
    /// Whether it is of a shadow limit, so that it refuses nothing.
    pub fn is_shadow(&self) -> bool {
        self.charge.group.is_shadow()
    }

    /// The indices of the limit's charges.
    pub fn indices(&self) -> std::ops::Range<usize> {
        let (first, count) = self.of;
        usize::from(first)..usize::from(first) + usize::from(count)
    }
}

impl<'a> StoreRequest<'a> {
    /// A request without bans.
    pub fn of(charges: &'a [Charge<'a>]) -> Self {
        Self { charges, bans: &[] }
    }

    /// The bans of the limits that refuse the request.
    pub fn refusing(&self, outcome: &Outcome) -> impl Iterator<Item = &'a BanCharge<'a>> {
        let decisions = &*outcome.decisions;
        let mut decided = self.charges.iter().zip(decisions);
        let admitted =
            decided.all(|(charge, decision)| charge.group != Group::Enforced || !decision.denies());
        self.bans.iter().filter(move |ban| {
            let own = decisions.get(ban.indices()).unwrap_or_default();
            (admitted || !ban.is_shadow()) && own.iter().any(Decision::denies)
        })
    }

    /// Decides the request in this process. A refusal is counted, and may begin a ban.
    pub fn decide_in(&self, memory: &MemoryStore, bans: &Bans, now: Timestamp) -> Outcome {
        let mut outcome = memory.decide(self.charges, now);
        if !self.bans.is_empty() {
            outcome.banned = self.count_refusals(&outcome, memory, bans, now);
        }
        outcome
    }

    /// Counts the refusals of limits with bans in this process. Returns whether the request is refused because of a ban
    /// now.
    pub fn count_refusals(
        &self,
        outcome: &Outcome,
        memory: &MemoryStore,
        bans: &Bans,
        now: Timestamp,
    ) -> bool {
        let mut banned = false;
        for ban in self.refusing(outcome) {
            if let Verdict::Deny(Wait::After(rest)) = memory.decide_alone(&ban.charge, now).verdict {
                bans.begin(ban.banned, rest, now);
                banned |= !ban.is_shadow();
            }
        }
        banned
    }

    /// Whether one of the keys is banned, so that its limit refuses the request.
    pub fn is_banned(&self, bans: &Bans, now: Timestamp) -> bool {
        let key =
            |charge: &Charge<'_>| Banned { limit: charge.shared_key.identity, key_hash: charge.key_hash() };
        let refuses = |charge: &Charge<'_>| bans.refusing(key(charge), charge.group.is_shadow(), now);
        !bans.is_empty() && self.charges.iter().any(|charge| refuses(charge).is_some())
    }
}
