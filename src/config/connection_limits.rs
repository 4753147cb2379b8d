//! Checks the limits that `connection_limits` of `[server]` names.

use super::diagnostics::Diagnostics;
use super::file::FileDraft;
use super::limits::LimitDraft;
use super::report::quoted;
use crate::plan::{Limit, LimitIndex};
use crate::route::exemptions::Exemption;
use crate::route::key::Part;
use crate::store::MAX_CHARGES;

/// Checks the limits that are named: a connection has a client's address, and nothing else.
pub(super) fn check(draft: &FileDraft, diagnostics: &Diagnostics<'_>) {
    let mut charges = 0;
    for used in &draft.connection_limits {
        let named = &draft.limits[used.limit.0];
        if let Some(other) = other_use(draft, used.limit) {
            let message = format!("limit {} counts connections and {other}", quoted(&named.name));
            diagnostics.fault(used.span, message, "define a limit of its own for connections");
        }
        let Some(limit) = &named.limit else { continue };
        charges += limit.max_charges();
        if let Some((message, help)) = unfit(named, limit, draft) {
            diagnostics.fault(used.span, message, help);
        }
    }
    if charges > MAX_CHARGES
        && let Some(first) = draft.connection_limits.first()
    {
        let message = format!("a connection is charged to {charges} rates at once");
        let help = format!("name limits with at most {MAX_CHARGES} rates in all");
        diagnostics.fault(first.span, message, help);
    }
}

/// Whether the limit counts connections.
pub(super) fn counts_connections(draft: &FileDraft, limit: LimitIndex) -> bool {
    draft.connection_limits.iter().any(|used| used.limit == limit)
}

/// What else the limit counts.
fn other_use(draft: &FileDraft, limit: LimitIndex) -> Option<String> {
    let of_route =
        draft.routes.iter().find(|route| route.uses.iter().any(|used| used.limit_use.limit == limit));
    let of_rule = || draft.descriptors.iter().any(|rule| rule.uses.iter().any(|(used, _)| *used == limit));
    let of_auth = || draft.auths.iter().any(|auth| auth.failures.is_some_and(|(used, _)| used == limit));
    match of_route {
        Some(route) => Some(format!("requests of route {}", quoted(&route.name))),
        None if of_rule() => Some("descriptors".to_owned()),
        None if of_auth() => Some("failed credentials".to_owned()),
        None => None,
    }
}

/// Why the limit cannot decide on connections, or what of it would have no effect, and what to write instead.
fn unfit(named: &LimitDraft, limit: &Limit, draft: &FileDraft) -> Option<(String, &'static str)> {
    let name = quoted(&named.name);
    if !limit.can_be_asked() {
        let (why, help) = if limit.is_concurrency() {
            ("bounds what is open at a time", "write `max_connections_per_client` in `[server]`")
        } else {
            ("would have to delay the connection", "use another algorithm, such as `token-bucket`")
        };
        return Some((format!("limit {name} is for requests: it {why}"), help));
    }
    if limit.key.parts != [Part::Ip] {
        let message = format!("limit {name} counts by what a connection does not have");
        return Some((message, "write `key = \"ip\"`, the address of the client"));
    }
    let is_of_requests = |exemption: &Exemption| !matches!(exemption, Exemption::Ip(_));
    if let Some(exemption) = limit.exempt.iter().find(|exemption| is_of_requests(exemption)) {
        let message = format!("limit {name} exempts `{exemption}`, which no connection has");
        return Some((message, "exempt networks: `ip:10.0.0.0/8`"));
    }
    match &limit.mapped_tier {
        None if limit.tiers.is_empty() => {}
        Some(mapped) if mapped.part == Part::Ip => {}
        _ => {
            let message = format!("limit {name} has tiers, but a connection has no consumer");
            return Some((message, "leave the tiers out, or write `tier = \"map:NAME(ip)\"`"));
        }
    }
    if limit.reject.is_some() || limit.retry_jitter.is_some() {
        let message = format!("limit {name} says how refusals look, but a refused connection has no answer");
        return Some((message, "leave `reject` and `retry_jitter` out"));
    }
    if limit.before_auth {
        let message =
            format!("`before_auth` of limit {name} has no effect: connections come before all requests");
        return Some((message, "leave it out"));
    }
    if draft.store.settings.shared.is_some() && limit.ban.is_some() {
        let message =
            format!("limit {name} has a `ban`, which gateways share, but each counts its own connections");
        return Some((message, "leave `ban` out, or put it on a limit of requests"));
    }
    if named.places.sync.is_some() {
        let message =
            format!("`sync` of limit {name} has no effect: each gateway counts its own connections");
        return Some((message, "leave it out"));
    }
    if named.places.on_error.is_some() {
        let message =
            format!("`on_error` of limit {name} has no effect: no shared store is asked about connections");
        return Some((message, "leave it out"));
    }
    None
}
