//! The one way to make a plan: from its sections, and what follows from several of them.

use std::collections::HashSet;
use std::sync::Arc;

use super::action::{ErrorPages, RouteAction};
use super::admin::Admin;
use super::auth::Auth;
use super::cost::CostRule;
use super::decisions::{DecisionService, NAMED_LIMITS};
use super::descriptors::{DescriptorRule, DescriptorRules};
use super::log::Log;
use super::mirror::upstreams_of_mirrors;
use super::overridden::OverriddenPolicies;
use super::template::{BodyTemplate, HeaderTemplate};
use super::{
    BatchRule, Limit, LimitIndex, LimitUse, Mode, Plan, Reject, Route, Server, StoreSettings, Trace,
    Upstream, UpstreamIndex, connections,
};
use crate::acme::settings::AcmeSettings;
use crate::limit::units::Cost;
use crate::measure::JsonPointer;
use crate::route::guarded_headers::GuardedHeaders;
use crate::route::key::Part;
use crate::route::{RouteIndex, RouteTable};

/// The sections of a file. Indices inside them are valid.
#[derive(Debug)]
pub struct PlanSections {
    /// `[server]`.
    pub server: Server,
    /// `[admin]`, if any.
    pub admin: Option<Admin>,
    /// `[decisions]`, if any.
    pub decisions: Option<DecisionService>,
    /// `[acme]`, if any.
    pub acme: Option<Arc<AcmeSettings>>,
    /// `[store]`.
    pub store: StoreSettings,
    /// `[log]`.
    pub log: Log,
    /// `[trace]`, if any.
    pub trace: Option<Arc<Trace>>,
    /// `[limits.*]` in file order.
    pub limits: Vec<Limit>,
    /// `[auth.*]` in file order.
    pub auths: Vec<Auth>,
    /// `[upstreams.*]` in file order.
    pub upstreams: Vec<Arc<Upstream>>,
    /// `[[routes]]` in file order, and then those of `descriptors`.
    pub routes: Vec<Route>,
    /// `[[descriptors]]` in file order.
    pub descriptors: Vec<DescriptorRule>,
    /// The routes' conditions, compiled for lookup.
    pub table: RouteTable,
    /// `[errors]`.
    pub errors: ErrorPages,
    /// `connection_limits` of `[server]`.
    pub connection_limits: Vec<LimitIndex>,
}

/// What follows from several sections.
#[derive(Debug)]
pub(super) struct Derived {
    guarded: GuardedHeaders,
    has_templates: bool,
    /// The route that stands for new connections, if they have limits.
    pub(super) connections: Option<RouteIndex>,
    body_pointers: Vec<JsonPointer>,
    mirrors: Vec<(UpstreamIndex, Arc<Upstream>)>,
}

impl Plan {
    /// The plan of these sections.
    pub fn assemble(sections: PlanSections) -> Self {
        let PlanSections {
            server,
            admin,
            decisions,
            acme,
            store,
            mut log,
            trace,
            mut limits,
            auths,
            upstreams,
            mut routes,
            descriptors,
            table,
            errors,
            connection_limits,
        } = sections;
        let connections = (!connection_limits.is_empty()).then_some(RouteIndex(routes.len()));
        routes.extend(connections.map(|_| connections::route(&connection_limits)));
        routes.extend(decisions.as_ref().map(|_| named_limits(&limits, &connection_limits)));
        let routes_by_body = !table.body_pointers().is_empty();
        learn_of_limits(&mut routes, &limits, routes_by_body);
        let of_routes = routes.iter().flat_map(|route| &route.json_pointers);
        let body_pointers = match routes_by_body {
            true => table.body_pointers().iter().chain(of_routes).cloned().collect(),
            false => HashSet::new(),
        };
        let settled = mark_settled(&mut limits, &routes);
        for LimitIndex(limit) in connection_limits {
            keep_in_process(limits.get_mut(limit));
        }
        let is_in_shadow = |limit: &Limit| limit.mode == Mode::Shadow || limit.trial.is_some();
        log.access.add(
            settled,
            limits.iter().any(is_in_shadow) || auths.iter().any(|auth| auth.mode == Mode::Shadow),
        );
        let forwards = auths.iter().filter_map(Auth::forward);
        let derived = Derived {
            guarded: GuardedHeaders::new(forwards.flat_map(|settings| &settings.headers)),
            has_templates: errors.has_values()
                || limits.iter().any(|limit| rejects_with_values(limit.reject.as_ref()))
                || routes.iter().any(has_values),
            connections,
            body_pointers: body_pointers.into_iter().collect(),
            mirrors: upstreams_of_mirrors(&routes, &upstreams),
        };
        let descriptors = DescriptorRules::new(descriptors);
        Self {
            server,
            admin,
            decisions,
            acme,
            store,
            log,
            trace,
            limits,
            auths,
            upstreams,
            routes,
            descriptors,
            table,
            errors,
            derived,
            overridden: OverriddenPolicies::default(),
        }
    }

    /// The fields that services answer with: no client sends them.
    pub fn guarded(&self) -> &GuardedHeaders {
        &self.derived.guarded
    }

    /// The members of a JSON body that routes are found by, and that the limits of these routes count by. Empty: no route is
    /// found by the body.
    pub fn body_pointers(&self) -> &[JsonPointer] {
        &self.derived.body_pointers
    }

    /// The upstreams that copies of requests go to, as these use them.
    pub fn mirrors(&self) -> &[(UpstreamIndex, Arc<Upstream>)] {
        &self.derived.mirrors
    }

    /// Whether a text of the file has values of the request.
    pub fn has_templates(&self) -> bool {
        self.derived.has_templates
    }
}

/// The limits that applications may name when they ask. Those of connections are counted by each gateway for itself.
fn named_limits(limits: &[Limit], of_connections: &[LimitIndex]) -> Route {
    let indices = (0..).map(LimitIndex).zip(limits);
    let can_be_asked =
        indices.filter(|(index, limit)| limit.can_be_asked() && !of_connections.contains(index));
    let used = |(limit, _): (LimitIndex, &Limit)| LimitUse { limit, cost: CostRule::Fixed(Cost::ONE) };
    Route::of_calls(NAMED_LIMITS.into(), CostRule::Fixed(Cost::ONE), can_be_asked.map(used).collect())
}

/// The counters of the limit are in this process, beside a shared store, too.
fn keep_in_process(limit: Option<&mut Limit>) {
    let Some(limit) = limit else { return };
    let of_tiers = limit.tiers.iter_mut().flat_map(|tier| &mut tier.policies);
    limit.policies.iter_mut().chain(of_tiers).for_each(|policy| policy.shared_key.stays_in_process = true);
}

/// Notes what the limits of each route count by, and when.
fn learn_of_limits(routes: &mut [Route], limits: &[Limit], routes_by_body: bool) {
    for route in routes {
        let limits: Vec<_> = route.limits.iter().filter_map(|used| limits.get(used.limit.0)).collect();
        route.limits_before_auth = limits.iter().any(|limit| limit.before_auth);
        let of_costs: Vec<_> =
            route.limits.iter().flat_map(|used| used.cost.json_pointers()).cloned().collect();
        route.reads_body = route.batch == BatchRule::Each
            || !of_costs.is_empty()
            || limits.iter().any(|limit| limit.reads_body());
        // A pointer that occurs twice is read twice in the same pass.
        let keys = limits.iter().flat_map(|limit| std::iter::once(&limit.key).chain(&limit.share_by));
        route.counts_by_upstream = keys.clone().any(|key| key.parts.contains(&Part::Upstream));
        let readable_keys = keys.clone().filter(|key| !key.unreadable_is_missing);
        let of_calls = readable_keys.flat_map(|key| key.json_pointers());
        let reads_calls = of_calls.chain(&of_costs).any(|pointer| !pointer.begins_with_index());
        if route.batch == BatchRule::Document && reads_calls {
            route.batch = BatchRule::Reject;
        }
        let rejects = route.reject.iter().chain(limits.iter().filter_map(|limit| limit.reject.as_ref()));
        let of_rejects = rejects.filter(|_| route.reads_body || routes_by_body);
        let of_rejects = of_rejects.flat_map(|reject| reject.json_pointers()).cloned();
        let of_keys = keys.flat_map(|key| key.json_pointers()).cloned();
        route.json_pointers = of_keys.chain(of_rejects).chain(of_costs).collect();
    }
}

/// Marks the limits whose costs are corrected after the response. Returns whether there are any.
fn mark_settled(limits: &mut [Limit], routes: &[Route]) -> bool {
    let uses = routes.iter().flat_map(|route| &route.limits);
    let mut any = false;
    for used in uses.filter(|used| used.cost.settled().is_some()) {
        any = true;
        let Some(limit) = limits.get_mut(used.limit.0) else { continue };
        let of_tiers = limit.tiers.iter_mut().flat_map(|tier| &mut tier.policies);
        limit.policies.iter_mut().chain(of_tiers).for_each(|policy| policy.shared_key.settles = true);
    }
    any
}

fn any_value<N>(headers: &[(N, HeaderTemplate)]) -> bool {
    headers.iter().any(|(_, value)| value.has_values())
}

fn rejects_with_values(reject: Option<&Arc<Reject>>) -> bool {
    reject.is_some_and(|reject| {
        any_value(&reject.headers) || reject.body.as_ref().is_some_and(BodyTemplate::has_values)
    })
}

fn has_values(route: &Route) -> bool {
    let responds = match &route.action {
        RouteAction::Respond(response) => {
            any_value(&response.headers)
                || response.content.as_ref().is_some_and(|content| content.body.has_values())
        }
        RouteAction::Forward(_) | RouteAction::Split(_) | RouteAction::Redirect(_) | RouteAction::Decide => {
            false
        }
    };
    responds
        || any_value(&route.request_headers.set)
        || any_value(&route.response_headers.set)
        || rejects_with_values(route.reject.as_ref())
}
