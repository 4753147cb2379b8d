//! The state of a key's counters, policy by policy.

use std::sync::Arc;

use super::values::span;
use crate::admin_api::keys::PolicyAllowance;
use crate::limit::display::ShortDisplay;
use crate::limit::units::{Cost, Fingerprint, Micros};
use crate::limit::{Algorithm, Decision, Verdict, Wait};
use crate::plan::{LimitIndex, Plan, Policy, TierIndex};
use crate::shared::Shared;
use crate::shared::worker_commands::KeyCommand;
use crate::store::{Decisions, KeyOperation, OperationFault};

/// The decision that a request would get now, and the use of the allowance. Nothing is charged.
pub(super) struct PolicyState {
    /// One a policy.
    pub(super) decisions: Decisions,
    /// The same for a request for the whole allowance.
    whole: Decisions,
    /// The units in use.
    used: Vec<u64>,
    /// No place is free, and the queue has room for a request.
    pub(super) waits_for_place: bool,
    /// The shared store is unavailable: these are the counters of this process.
    pub(super) in_process: bool,
}

/// The counters that are asked.
#[derive(Clone, Copy)]
struct AskedCounters<'a> {
    shared: &'a Shared,
    plan: &'a Arc<Plan>,
    limit: LimitIndex,
    tier: Option<TierIndex>,
    key_hash: Fingerprint,
}

impl PolicyState {
    /// The state for a request of this cost.
    pub(super) async fn look(
        shared: &Shared,
        plan: &Arc<Plan>,
        (limit, tier): (LimitIndex, Option<TierIndex>),
        key_hash: Fingerprint,
        cost: Cost,
    ) -> Result<Self, OperationFault> {
        AskedCounters { shared, plan, limit, tier, key_hash }.look(cost, false).await
    }

    /// The same; while the shared store is unavailable, of the counters of this process.
    pub(super) async fn look_anyhow(
        shared: &Shared,
        plan: &Arc<Plan>,
        (limit, tier): (LimitIndex, Option<TierIndex>),
        key_hash: Fingerprint,
        cost: Cost,
    ) -> Result<Self, OperationFault> {
        let asked = AskedCounters { shared, plan, limit, tier, key_hash };
        match asked.look(cost, false).await {
            Err(OperationFault::Unreachable(_)) => asked.look(cost, true).await,
            looked => looked,
        }
    }

    /// The decisions. One that lets the request wait for a place delays it; for how long is not known.
    pub(super) fn decisions(&self) -> impl Iterator<Item = Decision> {
        self.decisions.iter().map(|decision| match decision.verdict {
            Verdict::Deny(Wait::Unknown) if self.waits_for_place => {
                Decision { verdict: Verdict::Delay(Micros(0)), ..*decision }
            }
            _ => *decision,
        })
    }

    /// The longest wait among the policies, and whether that is a refusal.
    pub(super) fn verdict(&self) -> Verdict {
        let rank = |verdict: &Verdict| match *verdict {
            Verdict::Allow => (0, Wait::After(Micros(0))),
            Verdict::Delay(span) => (1, Wait::After(span)),
            Verdict::Deny(wait) => (2, wait),
        };
        self.decisions().map(|decision| decision.verdict).max_by_key(rank).unwrap_or(Verdict::Allow)
    }

    /// The allowance under each of the policies that decided.
    pub(super) fn allowances<'p>(
        &self,
        algorithms: impl Iterator<Item = &'p Algorithm>,
    ) -> Vec<PolicyAllowance> {
        let states = self.decisions.iter().zip(self.whole.iter()).zip(&self.used);
        let listed = algorithms.zip(states).map(|(algorithm, ((decision, whole), used))| PolicyAllowance {
            policy: ShortDisplay(algorithm).to_string(),
            quota: algorithm.quota(),
            used: algorithm.reported_use(decision, *used),
            remaining: decision.remaining,
            next_ms: wait(decision.verdict),
            full_ms: match algorithm.as_leaky_bucket() {
                Some(bucket) => wait(bucket.is_empty_after(decision.verdict)),
                // The wait may be a millisecond shorter, since it was read a moment later.
                None => wait(later(whole.verdict, decision.verdict)),
            },
        });
        listed.collect()
    }
}

impl AskedCounters<'_> {
    async fn look(&self, cost: Cost, in_process: bool) -> Result<PolicyState, OperationFault> {
        let execute = |cost, operation| {
            let (plan, Self { shared, limit, tier, key_hash, .. }) = (Arc::clone(self.plan), *self);
            let command = KeyCommand { plan, limit, tier, key_hash, cost, operation, in_process };
            shared.worker_commands.execute(command)
        };
        let decisions = execute(Some(cost), KeyOperation::Look).await?.decisions;
        let whole = execute(None, KeyOperation::Look).await?.decisions;
        let used = execute(Some(cost), KeyOperation::Used).await?.units;
        let waits_for_place = self.has_queue_with_room(&decisions);
        Ok(PolicyState { decisions, whole, used, waits_for_place, in_process })
    }

    /// Whether a request that finds no place waits for one.
    fn has_queue_with_room(&self, decisions: &Decisions) -> bool {
        let policies = self.plan.limit(self.limit).policies_of(self.tier);
        let has_room = |policy: &Policy| {
            let key = self.key_hash.of_policy(policy.shared_key.identity);
            let places = policy.algorithm.as_concurrency();
            places.is_some_and(|places| self.shared.store.waiting_for_place(key) < places.queue())
        };
        let refuses = |(decision, _): &(&Decision, &Policy)| matches!(decision.verdict, Verdict::Deny(_));
        let mut refusing = decisions.iter().zip(policies).filter(refuses).peekable();
        refusing.peek().is_some()
            && refusing.all(|(decision, policy)| {
                decision.verdict == Verdict::Deny(Wait::Unknown) && has_room(policy)
            })
    }
}

/// The verdict as a word.
pub(super) fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Allow => "admitted",
        Verdict::Delay(_) => "delayed",
        Verdict::Deny(_) => "refused",
    }
}

/// `full`, unless `next` is later than that.
fn later(full: Verdict, next: Verdict) -> Verdict {
    let waits = |verdict: Verdict| match verdict {
        Verdict::Delay(span) | Verdict::Deny(Wait::After(span)) => Some(span),
        Verdict::Allow | Verdict::Deny(Wait::Never | Wait::Unknown) => None,
    };
    match (waits(full), waits(next)) {
        (Some(full), Some(next)) if full < next => Verdict::Deny(Wait::After(next)),
        _ => full,
    }
}

/// The wait in milliseconds: 0 for none; `None`: never, or unknown.
pub(super) fn wait(verdict: Verdict) -> Option<u64> {
    match verdict {
        Verdict::Allow => Some(0),
        Verdict::Delay(wait) | Verdict::Deny(Wait::After(wait)) => Some(span(wait)),
        Verdict::Deny(Wait::Never | Wait::Unknown) => None,
    }
}
