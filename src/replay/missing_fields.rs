//! What a log lacks of that a plan asks for, and what follows from that.

use std::collections::BTreeSet;

use crate::log_reader::KnownFields;
use crate::plan::cost::{CostRule, MeasuredCost, RequestSource, Reserve, Settle, SettleSource};
use crate::plan::log::Sample;
use crate::plan::{LimitIndex, LimitUse, Plan, Route};
use crate::route::RouteIndex;
use crate::route::condition::{Condition, ValuePattern, ValuePatterns};
use crate::route::credential::CredentialSource;
use crate::route::exemptions::Exemption;
use crate::route::key::Part;

/// Takes the limits out of the routes that this log cannot replay, since it lacks a part of their keys. Returns a note
/// for each thing that the log lacks.
pub fn adapt(plan: &mut Plan, known: &KnownFields) -> Vec<String> {
    let mut notes = Vec::new();
    let left_out = limits_without_key(plan, known, &mut notes);
    // A call on limits that are named has the values of their keys.
    let named = plan.named_limits();
    let of_requests =
        plan.routes.iter_mut().enumerate().filter(|(index, _)| Some(RouteIndex(*index)) != named);
    for (_, route) in of_requests {
        route.limits.retain(|used| !left_out.contains(&used.limit.0));
    }
    for auth in &mut plan.auths {
        auth.failures = auth.failures.filter(|limit| !left_out.contains(&limit.0));
    }
    note_auth(plan, known, &mut notes);
    for route in &plan.routes {
        note_conditions(route, known, &mut notes);
        note_costs(plan, route, known, &mut notes);
    }
    if known.own {
        note_own(plan, &mut notes);
    }
    notes
}

/// The limits whose key the log lacks.
fn limits_without_key(plan: &Plan, known: &KnownFields, notes: &mut Vec<String>) -> BTreeSet<usize> {
    let mut left_out = BTreeSet::new();
    for (index, limit) in plan.limits.iter().enumerate() {
        let is_used = |used: &LimitUse| used.limit == LimitIndex(index);
        let named = plan.named_limits();
        let mut of_requests =
            plan.routes.iter().enumerate().filter(|(index, _)| Some(RouteIndex(*index)) != named);
        let on_routes = of_requests.any(|(_, route)| route.limits.iter().any(is_used));
        if !on_routes && !plan.auths.iter().any(|auth| auth.failures == Some(LimitIndex(index))) {
            continue;
        }
        let lacking = limit.key.parts.iter().find(|part| !has_part(plan, known, part));
        let remedy = match lacking {
            Some(Part::Header(name)) if known.own => format!("; add `header:{name}` to `fields` of [log]"),
            _ => String::new(),
        };
        let what = match lacking {
            Some(part) => format!("`{part}`"),
            None if limit.is_concurrency() && !known.duration => "the duration of requests".to_owned(),
            None => {
                note_exemptions(&limit.name, limit.exempt.iter(), known, notes);
                if let Some(mapped) =
                    limit.mapped_tier.as_ref().filter(|one| !has_part(plan, known, &one.part))
                {
                    let part = &mapped.part;
                    notes.push(format!(
                        "limit `{}`: no request has a tier: the log lacks `{part}`",
                        limit.name
                    ));
                }
                continue;
            }
        };
        notes.push(format!("limit `{}` is left out: the log lacks {what}{remedy}", limit.name));
        left_out.insert(index);
    }
    left_out
}

pub(super) fn has_part(plan: &Plan, known: &KnownFields, part: &Part) -> bool {
    match part {
        Part::Header(name) => known.has_header(name.as_str()),
        Part::Cookie(_) => known.has_header("cookie"),
        Part::Host => known.host,
        Part::Consumer | Part::ConsumerColumn(_) => known.consumer || has_api_keys(plan, known),
        Part::TlsSubject
        | Part::ClientCertificate(_)
        | Part::JwtClaim(_)
        | Part::JsonMember(_)
        | Part::FormField(_) => false,
        Part::Ip | Part::Network(_) | Part::Country | Part::AutonomousSystem => known.client,
        Part::Descriptor(_) => known.own,
        Part::Query(_) | Part::Path | Part::Method | Part::Route | Part::Upstream | Part::Global => true,
    }
}

/// Whether the log has API keys that are looked up. tollgate's own log hides them, and names consumers.
fn has_api_keys(plan: &Plan, known: &KnownFields) -> bool {
    let is_logged = |source: &CredentialSource| match source {
        CredentialSource::Header(name) => known.has_header(name.as_str()),
        CredentialSource::Bearer | CredentialSource::Basic => known.has_header("authorization"),
        CredentialSource::Cookie(_) => known.has_header("cookie"),
        CredentialSource::Query(_) => true,
        CredentialSource::Request => false,
    };
    !known.own && plan.auths.iter().any(|auth| auth.api_keys().is_some() && is_logged(&auth.source))
}

fn note_exemptions<'e>(
    limit: &str,
    exemptions: impl Iterator<Item = &'e Exemption>,
    known: &KnownFields,
    notes: &mut Vec<String>,
) {
    let names = exemptions.filter_map(|exemption| match exemption {
        Exemption::Header(name, _) if !known.has_header(name.as_str()) => Some(name.as_str()),
        _ => None,
    });
    for name in names.collect::<BTreeSet<_>>() {
        notes.push(format!(
            "limit `{limit}`: its exemptions by `header:{name}` hold for no request: the log lacks it"
        ));
    }
}

fn note_auth(plan: &Plan, known: &KnownFields, notes: &mut Vec<String>) {
    let names = known.consumer || has_api_keys(plan, known);
    if !names && plan.routes.iter().any(|route| route.auth.is_some()) {
        notes.push("all requests count as anonymous: the log names no consumer".to_owned());
    }
}

fn note_conditions(route: &Route, known: &KnownFields, notes: &mut Vec<String>) {
    for condition in &route.conditions.values {
        let (what, is_not) = match condition {
            Condition::Not(inner) => (lacking(inner, known), true),
            condition => (lacking(condition, known), false),
        };
        let Some((what, patterns)) = what else { continue };
        let holds = is_not != patterns.iter().any(|pattern| *pattern == ValuePattern::Absent);
        let name = &route.name;
        notes.push(match holds {
            true => {
                format!("route `{name}`: its condition on `{what}` holds for all requests: the log lacks it")
            }
            false => format!("route `{name}` gets no request: the log lacks `{what}`"),
        });
    }
    if !route.conditions.hosts.is_empty() && !known.host {
        notes.push(format!(
            "route `{}` gets no request: the log has no host; name it with `--host`",
            route.name
        ));
    }
}

/// The field that a condition is about, if the log lacks it, and its patterns.
fn lacking<'c>(condition: &'c Condition, known: &KnownFields) -> Option<(String, &'c ValuePatterns)> {
    match condition {
        Condition::Header(name, patterns) if !known.has_header(name.as_str()) => {
            Some((format!("header:{name}"), patterns))
        }
        Condition::Cookie(name, patterns) if !known.has_header("cookie") => {
            Some((format!("cookie:{name}"), patterns))
        }
        Condition::Body(pointer, patterns) => Some((format!("json:{pointer}"), patterns)),
        _ => None,
    }
}

fn note_costs(plan: &Plan, route: &Route, known: &KnownFields, notes: &mut Vec<String>) {
    let lacks = |cost: &MeasuredCost| {
        let lacks = match &cost.from {
            RequestSource::Header(name) => !known.has_header(name.as_str()),
            RequestSource::BodyBytes => !known.bytes_in,
            RequestSource::Json(_) => true,
            RequestSource::Query(_) => false,
        };
        lacks.then(|| cost.from.to_string())
    };
    for used in &route.limits {
        if let CostRule::Settled(cost) = &used.cost
            && let Reserve::Measured(measured) = &cost.reserve
            && let Some(what) = lacks(measured)
        {
            let (route, limit) = (&route.name, &plan.limit(used.limit).name);
            notes.push(format!(
                "route `{route}`: the reservation for `{limit}` is what `missing` says: the log lacks `{what}`"
            ));
        }
        let (lacks, otherwise) = match &used.cost {
            CostRule::Measured(cost) => (lacks(cost), "is what `missing` says"),
            CostRule::Settled(cost) => {
                let source = match &cost.settle {
                    Settle::Status(_) => (!known.status).then(|| "status".to_owned()),
                    Settle::Values { sources, .. } => {
                        sources.iter().find(|source| !has_source(known, source)).map(ToString::to_string)
                    }
                };
                (source, "stays as reserved")
            }
            CostRule::Free | CostRule::Fixed(_) => continue,
        };
        if let Some(what) = lacks {
            let (route, limit) = (&route.name, &plan.limit(used.limit).name);
            notes
                .push(format!("route `{route}`: the cost for `{limit}` {otherwise}: the log lacks `{what}`"));
        }
    }
}

fn has_source(known: &KnownFields, source: &SettleSource) -> bool {
    match source {
        SettleSource::Bytes => known.bytes_out,
        SettleSource::Duration => known.duration,
        // The line has the units that were settled.
        SettleSource::Header(_) | SettleSource::Trailer(_) | SettleSource::Body(_) => known.own,
    }
}

fn note_own(plan: &Plan, notes: &mut Vec<String>) {
    if plan.log.sample != Sample::ALL {
        notes.push(
            "`sample` of [log] is below 1: most admitted requests are not in the log, so fewer are refused here"
                .to_owned(),
        );
    }
    if plan.store.shared.is_some() {
        notes.push(
            "the clock of the shared store decided these requests: decisions at the edge of a limit may differ"
                .to_owned(),
        );
    }
}
