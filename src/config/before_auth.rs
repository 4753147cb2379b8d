//! `before_auth` of a limit: what it cannot have beside it, since nothing is known of the request but its head.

use super::diagnostics::Diagnostics;
use super::report::{SourceSpan, quoted};
use super::route_limits::RouteLimit;
use crate::plan::Limit;
use crate::route::exemptions::Exemption;
use crate::route::key::Part;

/// Checks a limit that has `before_auth` at `span`.
pub(super) fn check(limit: &Limit, span: SourceSpan, diagnostics: &Diagnostics<'_>) {
    if !limit.before_auth {
        return;
    }
    let is_later = |part: &&Part| part.is_of_consumer() || part.is_of_body() || **part == Part::Upstream;
    let later = limit.key.parts.iter().find(is_later);
    if let Some(part) = later {
        let known = if part.is_of_body() { "the body is read" } else { "the credential is looked at" };
        let message = format!("the key has `{part}`, which is unknown before {known}");
        diagnostics.fault(span, message, "leave `before_auth` out, or count by `ip`");
    }
    if let Some(exemption) = limit.exempt.iter().find(|one| matches!(one, Exemption::Consumer(_))) {
        let message = format!("`{exemption}` is unknown before the credential is looked at");
        diagnostics.fault(span, message, "leave `before_auth` out, or the exemption");
    }
    let is_known = limit.mapped_tier.as_ref().is_some_and(|mapped| !mapped.part.is_of_consumer());
    let name = limit.policies.first().map_or("", |policy| policy.algorithm.name());
    let reason = match name {
        _ if !limit.tiers.is_empty() && !is_known => {
            Some("the tier of a consumer is unknown then".to_owned())
        }
        _ if limit.trial.is_some() => Some("a `trial` decides together with the other limits".to_owned()),
        "concurrency" => Some("a request would hold its place while its credential is checked".to_owned()),
        "leaky-bucket" => Some("a leaky bucket delays requests, and would hold them undecided".to_owned()),
        _ => None,
    };
    if let Some(reason) = reason {
        let message = format!("limit {} cannot have `before_auth`: {reason}", quoted(&limit.name));
        diagnostics.fault(span, message, "leave it out, or use a limit of its own for it");
    }
}

/// Checks the cost of such a limit on a route.
pub(super) fn check_cost(limit: &Limit, used: &RouteLimit, diagnostics: &Diagnostics<'_>) {
    if limit.before_auth && used.limit_use.cost.json_pointers().next().is_some() {
        let message = format!(
            "limit {} has `before_auth`, so that its cost cannot come from the body, which is read later",
            quoted(&limit.name)
        );
        let help = "write its cost as a number, or from `header:NAME`, `query:NAME` or `body-bytes`";
        diagnostics.fault(used.cost_span.unwrap_or(used.span), message, help);
    }
    if limit.before_auth && used.limit_use.cost.settled().is_some() {
        let message = format!(
            "limit {} has `before_auth`, so that its cost cannot be settled: a request that is refused later has no response",
            quoted(&limit.name)
        );
        let help = "write its cost as a number: `{ name = \"NAME\", cost = 1 }`";
        diagnostics.fault(used.cost_span.unwrap_or(used.span), message, help);
    }
}
