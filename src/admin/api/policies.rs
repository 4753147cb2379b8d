//! The state of a key's counters, policy by policy.

use std::sync::Arc;

use serde_json::{Value, json};

use super::time::span;
use crate::limit::display::ShortDisplay;
use crate::limit::units::{Cost, Fingerprint, Micros};
use crate::limit::{Verdict, Wait};
use crate::plan::{Limit, LimitIndex, Plan};
use crate::shared::Shared;
use crate::shared::worker_commands::{KeyCommand, KeyOperation, WorkerCommand};
use crate::store::{Decisions, Unreachable};

/// What a request would meet now, and how full the allowance is. Nothing is charged.
pub(super) struct PolicyState {
    /// One a policy.
    pub(super) decisions: Decisions,
    /// The same for a request that takes the whole allowance.
    whole: Decisions,
}

/// Has something done with one key's counters, wherever they are.
pub(super) async fn run(
    shared: &Shared,
    gateway: &Arc<Plan>,
    limit: LimitIndex,
    owner: Fingerprint,
    deed: KeyOperation,
) -> Result<Decisions, Unreachable> {
    let command = KeyCommand { gateway: Arc::clone(gateway), limit, owner, deed };
    shared.worker_commands.ask_one(|tell| WorkerCommand::Key(command, tell)).await.unwrap_or(Err(Unreachable))
}

impl PolicyState {
    /// Of a request of this cost.
    pub(super) async fn look(
        shared: &Shared,
        gateway: &Arc<Plan>,
        limit: LimitIndex,
        owner: Fingerprint,
        cost: Cost,
    ) -> Result<Self, Unreachable> {
        let decisions = run(shared, gateway, limit, owner, KeyOperation::Look(cost)).await?;
        let whole = run(shared, gateway, limit, owner, KeyOperation::LookAtWhole).await?;
        Ok(Self { decisions, whole })
    }

    /// The longest wait among the policies, and whether that is a refusal.
    pub(super) fn verdict(&self) -> Verdict {
        let rank = |verdict: &Verdict| match *verdict {
            Verdict::Allow => (0, Wait::After(Micros(0))),
            Verdict::Delay(span) => (1, Wait::After(span)),
            Verdict::Deny(wait) => (2, wait),
        };
        self.decisions.iter().map(|decision| decision.verdict).max_by_key(rank).unwrap_or(Verdict::Allow)
    }

    /// As the API tells it.
    pub(super) fn to_json(&self, limit: &Limit) -> Value {
        let each = limit.policies.iter().zip(self.decisions.iter().zip(self.whole.iter()));
        let told = each.map(|(policy, (decision, whole))| {
            json!({
                "policy": ShortDisplay(&policy.algorithm).to_string(),
                "quota": policy.algorithm.quota(),
                "remaining": decision.remaining,
                "next_ms": wait(decision.verdict),
                // Asked a moment later, it may be told a millisecond shorter.
                "full_ms": wait(later(whole.verdict, decision.verdict)),
            })
        });
        Value::Array(told.collect())
    }
}

/// The policies of a limit nothing of which is charged.
pub(super) fn without_state(limit: &Limit) -> Value {
    let told = limit.policies.iter().map(|policy| {
        let (words, quota) = (ShortDisplay(&policy.algorithm).to_string(), policy.algorithm.quota());
        json!({ "policy": words, "quota": quota, "remaining": null, "next_ms": null, "full_ms": null })
    });
    Value::Array(told.collect())
}

/// In a word.
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
        Verdict::Allow | Verdict::Deny(Wait::Never) => None,
    };
    match (waits(full), waits(next)) {
        (Some(full), Some(next)) if full < next => Verdict::Deny(Wait::After(next)),
        _ => full,
    }
}

/// In milliseconds: none, or how long; `null`: never.
pub(super) fn wait(verdict: Verdict) -> Value {
    match verdict {
        Verdict::Allow => json!(0),
        Verdict::Delay(wait) | Verdict::Deny(Wait::After(wait)) => span(wait),
        Verdict::Deny(Wait::Never) => Value::Null,
    }
}
