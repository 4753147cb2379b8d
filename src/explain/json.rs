//! The explanation as JSON: the form of `tollgate explain --json`, and of `POST /api/v1/explain`.
//!
//! Both have the same names. Without a running gateway, those that need its counters are `null`.

use http::StatusCode;
use serde_json::{Value, json};

use super::{ExplainedAction, Explanation, LimitExplanation, LimitStatus, MatchedRoute};
use crate::limit::display::ShortDisplay;
use crate::plan::{Limit, Mode, Plan, TierIndex};
use crate::route::key::{LACKS, REPEATED};

/// The explanation without a running gateway.
pub(crate) fn offline(plan: &Plan, explanation: &Explanation) -> Value {
    let mut object = self::object(plan, explanation);
    let (verdict, status, limit) = known_outcome(plan, explanation);
    object["verdict"] = json!(verdict);
    object["status"] = json!(status);
    object["limit"] = json!(limit);
    object
}

/// All names; those that need counters are `null`.
pub(crate) fn object(plan: &Plan, explanation: &Explanation) -> Value {
    let others: Vec<Value> = explanation.others.iter().map(|(name, why)| json!([name, why])).collect();
    let limits = explanation.route.iter().flat_map(|route| &route.limits);
    let consumer = explanation.consumer.as_ref();
    json!({
        "request": explanation.request,
        "client": explanation.client.address.to_string(),
        "network": explanation.client.network.to_string(),
        "identified": explanation.identified,
        "consumer": consumer.map(|consumer| &consumer.name),
        "tier": consumer.and_then(|consumer| consumer.tier.as_ref()),
        "auth": consumer.map(|consumer| &consumer.auth),
        "verdict": null, "status": null,
        "reason": explanation.answer.as_ref().map(|answer| &*answer.reason).or(explanation.unverified),
        "limit": null, "wait_ms": null, "until": null,
        "route": explanation.route.as_ref().map(route),
        "limits": limits.map(|applied| limit(plan, applied)).collect::<Vec<_>>(),
        "others": others, "untold": explanation.untold,
    })
}

fn route(route: &MatchedRoute) -> Value {
    let conditions: Vec<Value> = route.conditions.iter().map(|(name, why)| json!([name, why])).collect();
    let (mut upstream, mut edits, mut forwarded, mut answer) = (None, None, None, None);
    match &route.action {
        ExplainedAction::Forward { upstream: name, edits: by, target } => {
            (upstream, edits, forwarded) = (Some(name), Some(by), Some(target));
        }
        ExplainedAction::Redirect { status, location } => {
            answer = Some(json!({ "status": status.as_u16(), "location": location, "content_type": null }));
        }
        ExplainedAction::Respond { status, content_type } => {
            answer =
                Some(json!({ "status": status.as_u16(), "location": null, "content_type": content_type }));
        }
    }
    json!({
        "name": route.name, "conditions": conditions, "upstream": upstream, "rewritten_by": edits,
        "forwarded": forwarded, "answer": answer, "redirect": route.redirect,
    })
}

/// A limit on the request, without its counters.
pub(crate) fn limit(plan: &Plan, applied: &LimitExplanation) -> Value {
    let limit = plan.limit(applied.index);
    let (status, detail) = status(applied);
    let cost = match applied.status {
        LimitStatus::Charged(cost) => cost.units(),
        _ => 0,
    };
    let parts: Vec<Value> = applied.key.iter().map(|(part, value)| json!([part, value])).collect();
    json!({
        "name": applied.name, "mode": applied.mode.as_str(), "trial": applied.trial.map(|trial| trial.share()), "standing": status, "detail": detail, "cost": cost,
        "measured": applied.measured, "settled_by": applied.settled_by,
        "tier": limit.tier_name(applied.tier),
        "id": null, "key": applied.key_hash.map(|_| &applied.label), "parts": parts,
        "missing": applied.missing.map(|missing| missing.to_string()),
        "verdict": null, "banned_until": null, "ban": applied.ban,
        "policies": policies(limit, applied.tier), "allows": applied.policies,
    })
}

/// The policies of a limit without any charge.
pub(crate) fn policies(limit: &Limit, tier: Option<TierIndex>) -> Value {
    let listed = limit.policies_of(tier).iter().map(|policy| {
        let (words, quota) = (ShortDisplay(&policy.algorithm).to_string(), policy.algorithm.quota());
        json!({ "policy": words, "quota": quota, "used": null, "remaining": null, "next_ms": null, "full_ms": null })
    });
    Value::Array(listed.collect())
}

fn status(applied: &LimitExplanation) -> (&'static str, Option<String>) {
    match &applied.status {
        LimitStatus::Charged(_) => ("charged", None),
        LimitStatus::Free => ("free", None),
        LimitStatus::Exempt(exemption) => ("exempt", Some(exemption.clone())),
        LimitStatus::Skipped => ("skipped", Some(lacking(applied, LACKS))),
        LimitStatus::Missing => ("missing", Some(lacking(applied, LACKS))),
        LimitStatus::Repeated => ("repeated", Some(lacking(applied, REPEATED))),
    }
}

/// The part of the key that is named; another part may be missing as well.
fn lacking(applied: &LimitExplanation, how: &str) -> String {
    let parts = || applied.key.iter().map(|(part, _)| part.as_str());
    let is = |how: &str| parts().find(|part| part.ends_with(how)).map(str::to_owned);
    is(how).or_else(|| is(REPEATED)).unwrap_or_else(|| format!("a part of the key {how}"))
}

/// The decision before any limit is checked, as a word, and the status of the gateway's own response, if it is known;
/// `None`: the limits decide.
pub(crate) fn early_outcome(explanation: &Explanation) -> Option<(&'static str, Option<u16>)> {
    if explanation.unverified.is_some() {
        return Some(("not_verified", None));
    }
    let answer = explanation.answer.as_ref().map(|answer| answer.status);
    let Some(route) = &explanation.route else {
        let unrouted = answer.is_none_or(|status| status == StatusCode::NOT_FOUND);
        let verdict = if unrouted { "no_route" } else { "answered" };
        return Some((verdict, Some(answer.unwrap_or(StatusCode::NOT_FOUND).as_u16())));
    };
    if let Some(status) = answer {
        return Some(("answered", Some(status.as_u16())));
    }
    route.redirect.is_some().then_some(("redirected", Some(StatusCode::PERMANENT_REDIRECT.as_u16())))
}

/// The decision as far as it needs no counters: its word, the status, and the limit that refuses.
fn known_outcome<'e>(
    plan: &Plan,
    explanation: &'e Explanation,
) -> (Option<&'static str>, Option<u16>, Option<&'e str>) {
    if let Some((verdict, status)) = early_outcome(explanation) {
        return (Some(verdict), status, None);
    }
    let Some(route) = &explanation.route else { return (None, None, None) };
    let lacks_key =
        |applied: &&LimitExplanation| matches!(applied.status, LimitStatus::Missing | LimitStatus::Repeated);
    let enforced = || route.limits.iter().filter(|applied| applied.mode == Mode::Enforce);
    if let Some(applied) = enforced().find(lacks_key) {
        return (Some("refused"), Some(refusal_status(plan, route, applied)), Some(&applied.name));
    }
    let decides = |applied: &LimitExplanation| matches!(applied.status, LimitStatus::Charged(_));
    if enforced().any(decides) {
        return (None, None, None);
    }
    let (verdict, status) = admitted_outcome(explanation);
    (Some(verdict), status, None)
}

/// The decision on a request that the limits admit, and the status of the gateway's own response.
pub(crate) fn admitted_outcome(explanation: &Explanation) -> (&'static str, Option<u16>) {
    match explanation.route.as_ref().map(|route| &route.action) {
        Some(ExplainedAction::Redirect { status, .. }) => ("redirected", Some(status.as_u16())),
        Some(ExplainedAction::Respond { status, .. }) => ("answered", Some(status.as_u16())),
        Some(ExplainedAction::Forward { .. }) | None => ("admitted", None),
    }
}

/// The route's response if this limit refuses.
pub(crate) fn refusal_status(plan: &Plan, route: &MatchedRoute, refuses: &LimitExplanation) -> u16 {
    if refuses.status == LimitStatus::Repeated {
        return StatusCode::BAD_REQUEST.as_u16();
    }
    let reject = plan.route(route.index).reject_of(plan.limit(refuses.index));
    reject.map_or(StatusCode::TOO_MANY_REQUESTS, |reject| reject.status).as_u16()
}
