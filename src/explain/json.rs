//! The explanation as a value of the admin API: the form of `tollgate explain --json`, and of `POST /api/v1/explain`.

use http::StatusCode;

use super::{
    DescriptorExplanation, ExplainedAction, Explanation, LimitExplanation, LimitStatus, MatchedRoute,
};
use crate::admin_api::explain::{
    ExplainReport, ExplainedDescriptor, ExplainedLimit, ExplainedMirror, ExplainedPolicy, ExplainedResponse,
    ExplainedRoute,
};
use crate::limit::Algorithm;
use crate::limit::display::ShortDisplay;
use crate::plan::action::RouteAction;
use crate::plan::{Mode, Plan, Reject};
use crate::route::key::{LACKS, REPEATED};

/// The explanation without a running gateway.
pub(crate) fn offline(plan: &Plan, explanation: &Explanation) -> ExplainReport {
    let (verdict, status, limit) = known_outcome(plan, explanation);
    ExplainReport {
        verdict: verdict.map(str::to_owned),
        status,
        limit: limit.map(str::to_owned),
        limits: explanation.limits().map(|applied| self::limit(plan, applied)).collect(),
        ..report(explanation)
    }
}

/// What the explanation says without its limits, and without what counters decide.
pub(crate) fn report(explanation: &Explanation) -> ExplainReport {
    let consumer = explanation.consumer.as_ref();
    let reason = explanation.answer.as_ref().map(|answer| &*answer.reason).or(explanation.unverified);
    ExplainReport {
        request: explanation.request.clone(),
        client: explanation.client.address.to_string(),
        network: explanation.client.network.to_string(),
        identified: explanation.identified.clone(),
        consumer: consumer.map(|consumer| consumer.name.clone()),
        tier: consumer.and_then(|consumer| consumer.tier.clone()),
        auth: consumer.map(|consumer| consumer.auth.clone()),
        shadow: explanation.shadow.as_ref().map(ToString::to_string),
        reason: reason.map(str::to_owned),
        route: explanation.route.as_ref().map(route),
        descriptors: explanation.descriptors.as_ref().map(|all| all.iter().map(descriptor).collect()),
        others: explanation.others.clone(),
        untold: explanation.untold,
        ..ExplainReport::default()
    }
}

fn descriptor(descriptor: &DescriptorExplanation) -> ExplainedDescriptor {
    let (standing, hits) = descriptor.status();
    ExplainedDescriptor {
        entries: descriptor.text.clone(),
        standing: standing.to_owned(),
        hits,
        rule: descriptor.rule.clone(),
        others: descriptor.others.clone(),
        untold: descriptor.untold,
    }
}

fn route(route: &MatchedRoute) -> ExplainedRoute {
    let conditions = route.conditions.iter().map(|(name, why)| ((*name).to_owned(), why.clone())).collect();
    let (name, redirect) = (route.name.clone(), route.redirect.clone());
    let explained =
        ExplainedRoute { name, sets: route.sets.clone(), conditions, redirect, ..ExplainedRoute::default() };
    let answered = |status: &StatusCode, location: Option<&String>, content_type: Option<&String>| {
        let (location, content_type) = (location.cloned(), content_type.cloned());
        Some(ExplainedResponse { status: status.as_u16(), location, content_type })
    };
    match &route.action {
        ExplainedAction::Forward { upstream, edits, target, mirror } => ExplainedRoute {
            upstream: Some(upstream.clone()),
            rewritten_by: Some(edits.iter().map(|edit| (*edit).to_owned()).collect()),
            forwarded: Some(target.clone()),
            mirror: mirror.as_ref().map(|mirror| ExplainedMirror {
                upstream: mirror.upstream.clone(),
                share: mirror.share,
                copied: mirror.is_copied,
            }),
            ..explained
        },
        ExplainedAction::Redirect { status, location } => {
            ExplainedRoute { answer: answered(status, Some(location), None), ..explained }
        }
        ExplainedAction::Respond { status, content_type } => {
            ExplainedRoute { answer: answered(status, None, content_type.as_ref()), ..explained }
        }
    }
}

/// A limit on the request, without its counters.
pub(crate) fn limit(plan: &Plan, applied: &LimitExplanation) -> ExplainedLimit {
    let limit = plan.limit(applied.index);
    let (standing, detail) = status(applied);
    let cost = match applied.status {
        LimitStatus::Charged(cost) => cost.units(),
        _ => 0,
    };
    ExplainedLimit {
        name: applied.name.clone(),
        descriptor: applied.descriptor,
        mode: applied.mode.as_str().to_owned(),
        trial: applied.trial.map(|trial| trial.share()),
        standing: standing.to_owned(),
        detail,
        cost,
        measured: applied.measured.clone(),
        settled_by: applied.settled_by.clone(),
        tier: limit.tier_name(applied.tier).map(str::to_owned),
        key: applied.key_hash.map(|_| applied.label.clone()),
        parts: applied.key.clone(),
        missing: applied.missing.map(|missing| missing.to_string()),
        ban: applied.ban.clone(),
        policies: policies(applied),
        share: applied.share.clone(),
        overridden: applied.is_overridden.then_some(true),
        allows: applied.policies.clone(),
        ..ExplainedLimit::default()
    }
}

/// The policies of a limit without any charge.
fn policies(applied: &LimitExplanation) -> Vec<ExplainedPolicy> {
    let one = |algorithm: &Algorithm| ExplainedPolicy {
        policy: ShortDisplay(algorithm).to_string(),
        quota: algorithm.quota(),
        ..ExplainedPolicy::default()
    };
    applied.algorithms.iter().map(one).collect()
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
    if explanation.descriptors.is_some() {
        return answer.map(|status| ("answered", Some(status.as_u16())));
    }
    let Some(route) = &explanation.route else {
        let unrouted = answer.is_none_or(|status| status == StatusCode::NOT_FOUND);
        let verdict = if unrouted { "no_route" } else { "answered" };
        return Some((verdict, Some(answer.unwrap_or(StatusCode::NOT_FOUND).as_u16())));
    };
    // No other response before the limits has this status.
    let is_redirect = |status| route.redirect.is_some() && status == StatusCode::PERMANENT_REDIRECT;
    let verdict = |status| if is_redirect(status) { "redirected" } else { "answered" };
    answer.map(|status| (verdict(status), Some(status.as_u16())))
}

/// The decision as far as it needs no counters: its word, the status, and the limit that refuses.
fn known_outcome<'e>(
    plan: &Plan,
    explanation: &'e Explanation,
) -> (Option<&'static str>, Option<u16>, Option<&'e str>) {
    if let Some((verdict, status)) = early_outcome(explanation) {
        return (Some(verdict), status, None);
    }
    let lacks_key =
        |applied: &&LimitExplanation| matches!(applied.status, LimitStatus::Missing | LimitStatus::Repeated);
    let enforced = || explanation.limits().filter(|applied| applied.mode == Mode::Enforce);
    if let Some(applied) = enforced().find(lacks_key) {
        return (Some("refused"), Some(refusal_status(plan, applied)), Some(&applied.name));
    }
    let decides = |applied: &LimitExplanation| {
        matches!(applied.status, LimitStatus::Charged(_)) && !explanation.is_reported(applied)
    };
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

/// The response if this limit refuses.
pub(crate) fn refusal_status(plan: &Plan, refuses: &LimitExplanation) -> u16 {
    if refuses.status == LimitStatus::Repeated {
        return StatusCode::BAD_REQUEST.as_u16();
    }
    let limit = plan.limit(refuses.index);
    let own = if limit.protects_backend() {
        StatusCode::SERVICE_UNAVAILABLE
    } else {
        StatusCode::TOO_MANY_REQUESTS
    };
    let route = plan.route(refuses.route);
    let status = |reject: &Reject| match route.action {
        RouteAction::Decide => reject.failure_status(),
        _ => reject.status,
    };
    route.reject_of(limit).map_or(own, status).as_u16()
}
