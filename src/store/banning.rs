//! A request whose limits may have bans: its charges, and which bans count its refusal.

use super::bans::{Banned, Bans};
use super::memory::MemoryStore;
use super::{Charge, Group, Outcome};
use crate::limit::units::Timestamp;
use crate::limit::{Decision, Verdict, Wait};

/// The charges of a request, and the bans of its limits.
#[derive(Clone, Copy, Debug)]
pub struct BanningRequest<'a> {
    /// The charges.
    pub charges: &'a [Charge<'a>],
    /// The bans: charges of [`Group::Ban`].
    pub bans: &'a [Charge<'a>],
}

impl<'a> BanningRequest<'a> {
    /// The bans of the limits that refuse the request, each with its key.
    pub fn refusing(&self, outcome: &Outcome) -> impl Iterator<Item = (&'a Charge<'a>, Banned)> {
        let decisions = &*outcome.decisions;
        let mut decided = self.charges.iter().zip(decisions);
        let admitted =
            decided.all(|(charge, decision)| charge.group != Group::Enforced || !decision.denies());
        self.bans.iter().filter_map(move |ban| {
            let Group::Ban { first, count, shadow } = ban.group else { return None };
            let own = decisions.get(usize::from(first)..)?.iter().take(count.into());
            let refuses = (admitted || !shadow) && own.into_iter().any(Decision::denies);
            if refuses { Some((ban, self.banned(ban)?)) } else { None }
        })
    }

    /// Decides the request in this process, counts a refusal, and may begin a ban.
    pub fn decide_in(&self, memory: &MemoryStore, bans: &Bans, now: Timestamp) -> Outcome {
        let mut outcome = memory.decide(self.charges, now);
        outcome.banned = self.count_refusals(&outcome, memory, bans, now);
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
        for (ban, key) in self.refusing(outcome) {
            if let Verdict::Deny(Wait::After(rest)) = memory.decide_alone(ban, now).verdict {
                bans.begin(key, rest, now);
                banned |= !ban.group.is_shadow();
            }
        }
        banned
    }

    /// Whether one of the keys is banned, so that its limit refuses the request.
    pub fn is_banned(&self, bans: &Bans, now: Timestamp) -> bool {
        let key = |charge: &Charge<'_>| Banned { limit: charge.remote.identity, owner: charge.owner() };
        let refuses = |charge: &Charge<'_>| bans.refusing(key(charge), charge.group.is_shadow(), now);
        !bans.is_empty() && self.charges.iter().any(|charge| refuses(charge).is_some())
    }

    /// The key that a ban bans.
    pub fn banned(&self, ban: &Charge<'_>) -> Option<Banned> {
        let Group::Ban { first, .. } = ban.group else { return None };
        let limit = self.charges.get(usize::from(first))?;
        Some(Banned { limit: limit.remote.identity, owner: limit.owner() })
    }
}
