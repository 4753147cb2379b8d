//! `GET routes`: the routes of the active plan.

use std::collections::BTreeMap;

use crate::admin_api::routes::{RouteLimitReport, RouteList, RouteMirrorReport, RouteReport};
use crate::plan::action::RouteAction;
use crate::plan::cost::CostRule;
use crate::plan::mirror::Mirror;
use crate::plan::{LimitUse, Plan, Route, UpstreamIndex};
use crate::route::condition::Condition;

pub(super) fn get(plan: &Plan) -> RouteList {
    RouteList { routes: plan.routes.iter().map(|route| one(plan, route)).collect() }
}

fn one(plan: &Plan, route: &Route) -> RouteReport {
    let conditions = &route.conditions;
    let auths = route.auth.iter().flat_map(|auth| &auth.auths);
    RouteReport {
        name: route.name.to_string(),
        hosts: conditions.hosts.iter().map(ToString::to_string).collect(),
        // What others ask about has no path.
        path: match route.action {
            RouteAction::Decide => String::new(),
            _ => conditions.path.to_string(),
        },
        methods: conditions.methods.iter().map(ToString::to_string).collect(),
        // Without values: they may be secrets.
        headers: conditions.values.iter().filter_map(header).collect(),
        query: conditions.values.iter().filter_map(parameter).collect(),
        cookies: conditions.values.iter().filter_map(cookie).collect(),
        body: conditions.values.iter().filter_map(pointer).collect(),
        clients: conditions.values.iter().flat_map(networks).collect(),
        countries: conditions.values.iter().flat_map(countries).collect(),
        listeners: conditions.values.iter().flat_map(listeners).collect(),
        not: conditions.values.iter().filter_map(excluded).collect(),
        upstream: upstream(plan, &route.action),
        split: split(plan, &route.action),
        mirror: route.mirror.as_deref().map(|mirror| self::mirror(plan, mirror)),
        answer: answer(&route.action),
        cost: route.cost.least(),
        cost_rule: rule(&route.cost),
        auth: auths.map(|auth| plan.auth(*auth).name.to_string()).collect(),
        limits: route.limits.iter().map(|used| limit(plan, used)).collect(),
    }
}

/// The upstream, if there is only one.
fn upstream(plan: &Plan, action: &RouteAction) -> Option<String> {
    match action {
        RouteAction::Forward(upstream) => Some(plan.upstream(*upstream).name.to_string()),
        _ => None,
    }
}

/// The weights of several upstreams, by name.
fn split(plan: &Plan, action: &RouteAction) -> Option<BTreeMap<String, u32>> {
    let RouteAction::Split(split) = action else { return None };
    let share =
        |&(upstream, weight): &(UpstreamIndex, u32)| (plan.upstream(upstream).name.to_string(), weight);
    Some(split.shares.iter().map(share).collect())
}

fn mirror(plan: &Plan, mirror: &Mirror) -> RouteMirrorReport {
    RouteMirrorReport {
        upstream: plan.upstream(mirror.upstream).name.to_string(),
        share: mirror.share(),
        key: mirror.key.parts.iter().map(ToString::to_string).collect(),
        max_body: mirror.max_body as u64,
    }
}

/// The status that the gateway itself answers with.
fn answer(action: &RouteAction) -> Option<u16> {
    match action {
        RouteAction::Forward(_) | RouteAction::Split(_) | RouteAction::Decide => None,
        RouteAction::Redirect(redirect) => Some(redirect.status.as_u16()),
        RouteAction::Respond(response) => Some(response.status.as_u16()),
    }
}

fn header(condition: &Condition) -> Option<String> {
    if let Condition::Header(name, _) = condition { Some(name.to_string()) } else { None }
}

fn parameter(condition: &Condition) -> Option<String> {
    if let Condition::Query(name, _) = condition { Some(name.to_string()) } else { None }
}

fn cookie(condition: &Condition) -> Option<String> {
    if let Condition::Cookie(name, _) = condition { Some(name.to_string()) } else { None }
}

fn pointer(condition: &Condition) -> Option<String> {
    if let Condition::Body(pointer, _) = condition { Some(pointer.to_string()) } else { None }
}

fn networks(condition: &Condition) -> Vec<String> {
    match condition {
        Condition::Clients(networks) => networks.iter().map(ToString::to_string).collect(),
        _ => Vec::new(),
    }
}

fn countries(condition: &Condition) -> Vec<String> {
    match condition {
        Condition::Countries(countries) => countries.iter().map(ToString::to_string).collect(),
        _ => Vec::new(),
    }
}

fn listeners(condition: &Condition) -> Vec<String> {
    match condition {
        Condition::Listeners(names) => names.iter().map(ToString::to_string).collect(),
        _ => Vec::new(),
    }
}

/// The key of an excluded condition in the file: `headers.x-internal`, `path`.
fn excluded(condition: &Condition) -> Option<String> {
    if let Condition::Not(inner) = condition { Some(inner.key()) } else { None }
}

fn limit(plan: &Plan, used: &LimitUse) -> RouteLimitReport {
    let limit = plan.limit(used.limit);
    RouteLimitReport {
        name: limit.name.to_string(),
        mode: limit.mode.as_str().to_owned(),
        cost: used.cost.least(),
        cost_rule: rule(&used.cost),
    }
}

/// How a cost is found that is not the same for each request.
fn rule(cost: &CostRule) -> Option<String> {
    match cost {
        CostRule::Free | CostRule::Fixed(_) => None,
        CostRule::Measured(_) | CostRule::Settled(_) => Some(cost.to_string()),
    }
}
