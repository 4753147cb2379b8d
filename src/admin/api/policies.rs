//! The state of a key's counters, policy by policy.

use std::sync::Arc;

use serde_json::{Value, json};

use super::time::span;
use crate::gateway::{Gateway, Limit, LimitIndex};
use crate::limit::units::{Cost, Fingerprint, Micros};
use crate::limit::words::Short;
use crate::limit::{Verdict, Wait};
use crate::shared::Shared;
use crate::shared::desk::{Deed, Errand, KeyErrand};
use crate::store::{Decisions, Unreachable};

/// What a request would meet now, and how full the allowance is. Nothing is charged.
pub(super) struct State {
    /// One a policy.
    pub(super) decisions: Decisions,
    /// The same for a request that takes the whole allowance.
    whole: Decisions,
}

/// Has something done with one key's counters, wherever they are.
pub(super) async fn run(
    shared: &Shared,
    gateway: &Arc<Gateway>,
    limit: LimitIndex,
    owner: Fingerprint,
    deed: Deed,
) -> Result<Decisions, Unreachable> {
    let errand = KeyErrand { gateway: Arc::clone(gateway), limit, owner, deed };
    shared.desks.ask_one(|tell| Errand::Key(errand, tell)).await.unwrap_or(Err(Unreachable))
}

impl State {
    /// Of a request of this cost.
    pub(super) async fn look(
        shared: &Shared,
        gateway: &Arc<Gateway>,
        limit: LimitIndex,
        owner: Fingerprint,
        cost: Cost,
    ) -> Result<Self, Unreachable> {
        let decisions = run(shared, gateway, limit, owner, Deed::Look(cost)).await?;
        let whole = run(shared, gateway, limit, owner, Deed::LookAtWhole).await?;
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
    pub(super) fn tell(&self, limit: &Limit) -> Value {
        let each = limit.policies.iter().zip(self.decisions.iter().zip(self.whole.iter()));
        let told = each.map(|(policy, (decision, whole))| {
            json!({
                "policy": Short(&policy.algorithm).to_string(),
                "quota": policy.algorithm.quota(),
                "remaining": decision.remaining,
                "next_ms": wait(decision.verdict),
                "full_ms": wait(whole.verdict),
            })
        });
        Value::Array(told.collect())
    }
}

/// The policies of a limit nothing of which is charged.
pub(super) fn untold(limit: &Limit) -> Value {
    let told = limit.policies.iter().map(|policy| {
        let (words, quota) = (Short(&policy.algorithm).to_string(), policy.algorithm.quota());
        json!({ "policy": words, "quota": quota, "remaining": null, "next_ms": null, "full_ms": null })
    });
    Value::Array(told.collect())
}

/// In milliseconds: none, or how long; `null`: never.
pub(super) fn wait(verdict: Verdict) -> Value {
    match verdict {
        Verdict::Allow => json!(0),
        Verdict::Delay(wait) | Verdict::Deny(Wait::After(wait)) => span(wait),
        Verdict::Deny(Wait::Never) => Value::Null,
    }
}
