//! Places and turns that the requests of a route wait for: their `priority`, limits by upstream, and `max_duration`.

use std::time::Duration;

use super::diagnostics::Diagnostics;
use super::limits::LimitDraft;
use super::report::quoted;
use super::routes::RouteDraft;
use crate::limit::fair_queue::Priority;
use crate::limit::leaky_bucket::LeakyBucket;
use crate::plan::action::RouteAction;
use crate::plan::cost::{CostRule, Settle};
use crate::plan::{Limit, Mode};
use crate::route::key::Part;

/// Checks the `priority` of a route: without places that it could have before others it does nothing.
pub(super) fn check_priority(route: &RouteDraft, limits: &[LimitDraft], diagnostics: &Diagnostics<'_>) {
    let (Some((priority, span)), Some(_)) = (route.priority, &route.route) else { return };
    let mut used = route.uses.iter().map(|used| limits.get(used.limit_use.limit.0).map(|draft| &draft.limit));
    let acts =
        |limit: &Limit| limit.has_fair_queue() || limit.is_concurrency() && priority == Priority::Background;
    // A limit with faults may have had a queue.
    let acts = |limit: Option<&Option<Limit>>| match limit {
        Some(Some(limit)) => limit.mode == Mode::Enforce && acts(limit),
        _ => true,
    };
    if !used.any(acts) {
        let message = format!(
            "`priority` of route {} has no effect: none of its limits has a queue",
            quoted(&route.name)
        );
        diagnostics.warn(
            span,
            message,
            "use a limit of algorithm `concurrency` with `queue`, or `leaky-bucket` with `share_by`, or leave it out",
        );
    }
}

/// Recommends a written maximum where responses are measured to the end of their streams: how long these take says little of the
/// backend's load.
pub(super) fn check_streams(route: &RouteDraft, limits: &[LimitDraft], diagnostics: &Diagnostics<'_>) {
    if !route.uses.iter().any(|used| reads_streams(&used.limit_use.cost)) {
        return;
    }
    for used in &route.uses {
        let limit = limits.get(used.limit_use.limit.0).and_then(|draft| draft.limit.as_ref());
        if let Some(limit) = limit.filter(|limit| limit.is_adaptive()) {
            let (name, limit) = (quoted(&route.name), quoted(&limit.name));
            let message = format!(
                "`max = \"auto\"` of limit {limit} learns from how long responses take, but those of route {name} are streams"
            );
            let help = "write a number as `max`: as many as the backend computes at the same time";
            diagnostics.warn(used.span, message, help);
        }
    }
}

/// Warns where requests may wait for their turn in a leaky bucket for longer than their exchange may take: a turn that has
/// been given to a request passes unused.
pub(super) fn check_turns(route: &RouteDraft, limits: &[LimitDraft], diagnostics: &Diagnostics<'_>) {
    let Some(longest) = route.route.as_ref().and_then(|route| route.max_duration) else { return };
    for used in &route.uses {
        let limit = limits.get(used.limit_use.limit.0).and_then(|draft| draft.limit.as_ref());
        let limit = limit.filter(|limit| limit.mode == Mode::Enforce && limit.share_by.is_none());
        let buckets = limit.into_iter().flat_map(|limit| &limit.policies);
        let wait =
            buckets.filter_map(|policy| policy.algorithm.as_leaky_bucket()).map(LeakyBucket::longest_delay);
        let wait = wait.max().map(|wait| Duration::from_micros(wait.0));
        if let (Some(limit), Some(wait)) = (limit, wait.filter(|wait| *wait >= longest)) {
            let (name, limit) = (quoted(&route.name), quoted(&limit.name));
            let message = format!(
                "requests may wait {wait:?} for their turn in limit {limit}, but `max_duration` of route {name} ends them after \
                 {longest:?}: their turns pass unused"
            );
            diagnostics.warn(
                used.span,
                message,
                "write a `max_wait` or a `queue` of the limit that is over before that",
            );
        }
    }
}

/// Whether the cost is known at the end of a stream of events.
fn reads_streams(cost: &CostRule) -> bool {
    let Some(settled) = cost.settled() else { return false };
    matches!(&settled.settle, Settle::Values { in_events, .. } if !in_events.is_empty())
}

/// Checks that a route whose limits count by the upstream has one.
pub(super) fn check_upstream(route: &RouteDraft, limits: &[LimitDraft], diagnostics: &Diagnostics<'_>) {
    let Some(RouteAction::Redirect(_) | RouteAction::Respond(_)) =
        route.route.as_ref().map(|route| &route.action)
    else {
        return;
    };
    for used in &route.uses {
        let limit = limits.get(used.limit_use.limit.0).and_then(|draft| draft.limit.as_ref());
        if let Some(limit) = limit.filter(|limit| limit.key.parts.contains(&Part::Upstream)) {
            let (name, limit) = (quoted(&route.name), quoted(&limit.name));
            let message = format!("limit {limit} counts by the upstream, but route {name} answers itself");
            diagnostics.fault(used.span, message, "take the limit off this route");
        }
    }
}
