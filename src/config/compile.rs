//! Checks across sections: that names are defined and unique, that every route can be reached, and that every cost can
//! be admitted.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use super::diagnostics::Diagnostics;
use super::file::FileDraft;
use super::report::{SourceSpan, cut_for_help, quoted};
use super::route_limits::RouteLimit;
use super::routes;
use super::{
    acme_rules, before_auth, connection_limits, consumer_rules as consumers, descriptor_rules, descriptors,
    geo_rules, lease_rules, limits, map_rules, mirror_rules, other_methods, places, server, split, sticky,
    upstreams, witnesses,
};
use crate::limit::Algorithm;
use crate::plan::action::RouteAction;
use crate::plan::cost::CostRule;
use crate::plan::{Endpoint, Limit, Mode, Plan, PlanSections, Policy, Protocol, Server, Upstream};
use crate::route::key::Part;
use crate::route::path::PathMatching;
use crate::route::{Conditions, RouteIndex, RouteTable};
use crate::store::MAX_CHARGES;
use crate::store::redis::settings::RedisServers;

/// Checks across sections. `None` if the file has errors.
pub(super) fn compile(mut draft: FileDraft, diagnostics: &Diagnostics<'_>) -> Option<Plan> {
    descriptor_rules::check(&mut draft, diagnostics);
    let draft = draft;
    // What depends on an unknown value is not checked: see `Diagnostics::skip`.
    let known_routes = || draft.routes.iter().filter(|route| diagnostics.is_known(route.route.is_some()));
    duplicate_names(known_routes(), diagnostics);
    let table = reachable(&draft, diagnostics);
    let cluster = draft
        .store
        .settings
        .shared
        .as_ref()
        .is_some_and(|shared| matches!(shared.servers, RedisServers::Cluster(_)));
    let server = &draft.server;
    // If the certificates have errors, this is unknown.
    let known = server.tls.is_some() || !server.client_listeners().any(|listener| listener.tls);
    if known && !server.tls.as_ref().is_some_and(|tls| tls.asks_clients) {
        subject_is_never_present(&draft.limits, diagnostics);
    }
    acme_rules::check(&draft, diagnostics);
    consumers::check(&draft, diagnostics);
    map_rules::check(&draft.maps, &draft.limits, diagnostics);
    connection_limits::check(&draft, diagnostics);
    geo_rules::check(&draft, diagnostics);
    lease_rules::check(&draft, diagnostics);
    check_upstreams(&draft, diagnostics);
    for route in known_routes() {
        too_many_charges(route, &draft.limits, diagnostics);
        reads_no_body(route, &draft.limits, diagnostics);
        settles_no_batch(route, &draft.limits, diagnostics);
        tells_unknown_usage(route, &draft.limits, diagnostics);
        places::check_priority(route, &draft.limits, diagnostics);
        places::check_upstream(route, &draft.limits, diagnostics);
        places::check_streams(route, &draft.limits, diagnostics);
        places::check_turns(route, &draft.limits, diagnostics);
        if cluster {
            not_refundable(route, &draft.limits, diagnostics);
        }
        for used in &route.uses {
            never_admitted(route, used, &draft.limits, diagnostics);
            if let Some(limit) = &draft.limits[used.limit_use.limit.0].limit {
                before_auth::check_cost(limit, used, diagnostics);
            }
        }
    }
    if diagnostics.errors() > 0 {
        return None;
    }
    witnesses::check(&draft, &table, diagnostics);
    let sticky_key = sticky::shared_key(&draft.store.settings);
    let upstreams = draft.upstreams.into_iter().map(|draft| draft.finish(sticky_key).map(Arc::new));
    let upstreams = upstreams.collect::<Option<Vec<_>>>()?;
    let mut routes = draft.routes.into_iter().map(|draft| draft.route).collect::<Option<Vec<_>>>()?;
    split::add_cookies(&mut routes, &upstreams, sticky_key);
    let (descriptors, of_descriptors) = descriptors::finish(draft.descriptors, routes.len())?;
    Some(Plan::assemble(PlanSections {
        server: draft.server,
        admin: draft.admin,
        decisions: draft.decisions,
        acme: draft.acme.and_then(|acme| acme.settings),
        store: draft.store.settings,
        log: draft.log,
        trace: draft.trace.map(Arc::new),
        limits: draft.limits.into_iter().map(|draft| draft.limit).collect::<Option<_>>()?,
        auths: draft.auths.into_iter().map(|draft| draft.auth).collect::<Option<_>>()?,
        upstreams,
        routes: routes.into_iter().chain(of_descriptors).collect(),
        descriptors,
        table,
        errors: draft.errors,
        connection_limits: draft.connection_limits.iter().map(|used| used.limit).collect(),
    }))
}

/// What upstreams have to agree on with other sections.
fn check_upstreams(draft: &FileDraft, diagnostics: &Diagnostics<'_>) {
    let is_unknown = |key| diagnostics.is_uncertain(server::TITLE, key);
    for upstream in &draft.upstreams {
        if !is_unknown("workers") {
            too_few_connections(upstream, draft.server.workers, diagnostics);
        }
        if !is_unknown("listen") {
            own_listener(upstream, &draft.server, diagnostics);
        }
    }
    upstreams::check_sticky_secrets(&draft.upstreams, &draft.store.settings, diagnostics);
    mirror_rules::check(draft, diagnostics);
}

/// A key by a certificate's subject has no effect if no client is asked for a certificate.
fn subject_is_never_present(limits: &[limits::LimitDraft], diagnostics: &Diagnostics<'_>) {
    for draft in limits {
        let parts = draft.limit.iter().flat_map(|limit| &limit.key.parts);
        if let Some(part) = parts.into_iter().find(|part| part.is_of_certificate()) {
            diagnostics.fault(
                draft.span,
                format!(
                    "limit {} counts by `{part}`, but no client is asked for a certificate",
                    quoted(&draft.name)
                ),
                "say whose certificates clients show: `client_ca` in [[server.tls]]",
            );
        }
    }
}

/// Workers share no connection. Where requests share connections, each worker holds at least one to each server.
fn too_few_connections(draft: &upstreams::UpstreamDraft, workers: usize, diagnostics: &Diagnostics<'_>) {
    let Some((upstream, bound)) = draft.upstream.as_ref().and_then(|one| Some((one, one.max_connections?)))
    else {
        return;
    };
    let servers = upstream.endpoints().len();
    let min = workers * servers;
    if upstream.protocol == Protocol::Http2 && bound.connections < min {
        let message = format!(
            "upstream {} may have {} connections, but needs {min} for `protocol = \"http2\"`: one for each of {workers} \
             workers and {servers} servers",
            quoted(&draft.name),
            bound.connections,
        );
        let help = format!("write `max_connections = {min}` or more, or set `workers` in [server]");
        diagnostics.fault(draft.span, message, help);
    }
}

/// A server that is one of the gateway's own listeners: a request would return until no resources are left.
fn own_listener(draft: &upstreams::UpstreamDraft, server: &Server, diagnostics: &Diagnostics<'_>) {
    let endpoints = draft.upstream.as_ref().map(Upstream::endpoints).unwrap_or_default();
    for endpoint in endpoints {
        let Some(listener) = server.listen.iter().find(|listener| is_at(endpoint, listener.address)) else {
            continue;
        };
        let message = format!(
            "upstream {} sends requests to {}, which is tollgate's own listener `{}`: they would go round in a circle",
            quoted(&draft.name),
            quoted(&endpoint.authority),
            listener.address,
        );
        let help = "write the address of the backend, or change `listen` in [server]";
        diagnostics.fault(draft.span, message, help);
    }
}

/// Whether connections to this server reach a listener at this address, as far as the two are literally the same. A
/// listener at `[::]` accepts no IPv4.
fn is_at(server: &Endpoint, listener: SocketAddr) -> bool {
    let own = listener.ip();
    let is_local = |address: IpAddr| address.is_loopback() || address.is_unspecified();
    let same_host = match server.host.parse::<IpAddr>().map(|address| address.to_canonical()) {
        // A connection to the unspecified address reaches the loopback.
        Ok(host) if host.is_unspecified() || own.is_unspecified() => {
            is_local(host) && is_local(own) && host.is_ipv4() == own.is_ipv4()
        }
        Ok(host) => host == own.to_canonical(),
        Err(_) => matches!(&*server.host, "localhost" | "localhost.") && is_local(own),
    };
    server.unix_socket.is_none() && same_host && server.port == listener.port()
}

fn duplicate_names<'d>(routes: impl Iterator<Item = &'d routes::RouteDraft>, diagnostics: &Diagnostics<'_>) {
    let mut named: HashMap<&str, &routes::RouteDraft> = HashMap::new();
    for route in routes.filter(|route| !route.name.is_empty()) {
        if named.contains_key(&*route.name) {
            let help = match (route.is_named, name_by_methods(route)) {
                (true, _) => "give one of the two another name".to_owned(),
                (false, None) => {
                    "give this route a `name`: without one it is named after its path".to_owned()
                }
                (false, Some(name)) => {
                    format!("write `name = \"{name}\"`: without a `name` a route is named after its path")
                }
            };
            diagnostics.fault(route.span, format!("two routes have the name {}", quoted(&route.name)), help);
        }
        named.entry(&route.name).or_insert(route);
    }
}

/// A name for a route that differs from another one by its methods: `POST /x`.
fn name_by_methods(route: &routes::RouteDraft) -> Option<String> {
    let methods = &route.conditions.as_ref().filter(|conditions| !conditions.methods.is_empty())?.methods;
    let methods: Vec<_> = methods.iter().map(http::Method::as_str).collect();
    let name = cut_for_help(&format!("{} {}", methods.join(","), route.name));
    (!name.contains(['"', '\\'])).then_some(name)
}

/// The table of all routes with valid conditions; of them, those that no request can reach are errors.
fn reachable(draft: &FileDraft, diagnostics: &Diagnostics<'_>) -> RouteTable {
    let matching = draft.server.path_matching;
    let sound: Vec<_> =
        draft.routes.iter().filter_map(|route| Some((route, route.conditions.clone()?))).collect();
    let (sound, conditions): (Vec<_>, Vec<_>) = sound.into_iter().unzip();
    let is_unknown = diagnostics.is_uncertain(server::TITLE, "path_matching");
    if matching == PathMatching::Lenient && !is_unknown {
        taken_spellings(&sound, &conditions, diagnostics);
    }
    let table = RouteTable::new(conditions, matching);
    for (RouteIndex(hidden), RouteIndex(taker)) in table.unreachable() {
        if is_unknown {
            break;
        }
        let (hidden, taker): (&routes::RouteDraft, &routes::RouteDraft) = (sound[hidden], sound[taker]);
        let message = format!(
            "route {} can never match: route {} takes all its requests",
            quoted(&hidden.name),
            quoted(&taker.name)
        );
        diagnostics.fault(
            hidden.span,
            message,
            "give one of the two other conditions, or leave this route out",
        );
    }
    // A route that is left out may take the requests.
    if !is_unknown && sound.len() == draft.routes.len() {
        other_methods::check(&sound, &table, matching, &draft.limits, diagnostics);
    }
    table
}

/// Case does not count, so a route for `/users/me` also takes `/users/ME`, which may be meant as a user's name.
fn taken_spellings(sound: &[&routes::RouteDraft], conditions: &[Conditions], diagnostics: &Diagnostics<'_>) {
    for (RouteIndex(taker), RouteIndex(loser)) in RouteTable::taken_spellings(conditions.to_vec()) {
        let (taker, loser): (&routes::RouteDraft, &routes::RouteDraft) = (sound[taker], sound[loser]);
        let message = format!(
            "route {} takes all spellings of its path, such as upper case, also from route {}, which has a parameter there",
            quoted(&taker.name),
            quoted(&loser.name),
        );
        let help = "write `path_matching = \"strict\"` in [server] if the backends tell the spellings apart";
        diagnostics.warn(taker.span, message, help);
    }
}

/// `max_key_body` where nothing is read from bodies.
fn reads_no_body(route: &routes::RouteDraft, limits: &[limits::LimitDraft], diagnostics: &Diagnostics<'_>) {
    let is_found_by_body = route.conditions.as_ref().is_none_or(|conditions| {
        conditions.values.iter().any(|condition| condition.body_pointer().is_some())
    });
    if is_found_by_body || route.places.batch.is_some() {
        return;
    }
    let reads = |used: &RouteLimit| {
        let limit = limits[used.limit_use.limit.0].limit.as_ref();
        used.limit_use.cost.json_pointers().next().is_some() || limit.is_none_or(Limit::reads_body)
    };
    if let Some(span) = route.places.max_key_body.filter(|_| !route.uses.iter().any(reads)) {
        let message = "`max_key_body` has no effect: no limit of the route reads the body";
        let help = "leave it out; it is about keys `json:` and `form:`, costs from `json:`, and conditions of `body`";
        diagnostics.warn(span, message, help);
    }
}

/// `batch = "each"` beside a cost that is settled by one response for calls with different keys.
fn settles_no_batch(
    route: &routes::RouteDraft,
    limits: &[limits::LimitDraft],
    diagnostics: &Diagnostics<'_>,
) {
    let Some(span) = route.places.batch else { return };
    let by_call = |used: &&RouteLimit| {
        let limit = limits[used.limit_use.limit.0].limit.as_ref();
        used.limit_use.cost.settled().is_some() && limit.is_some_and(Limit::reads_body)
    };
    if let Some(used) = route.uses.iter().find(by_call) {
        let name = limits[used.limit_use.limit.0].limit.as_ref().map_or("", |limit| &*limit.name);
        let message = format!(
            "limit {} counts each call of a batch by its own key, but a response has one cost for all calls",
            quoted(name)
        );
        diagnostics.fault(span, message, "leave `batch` out, or settle a limit whose key is not in the body");
    }
}

/// Limits whose use a route tells by a value that is not known there.
fn tells_unknown_usage(
    route: &routes::RouteDraft,
    limits: &[limits::LimitDraft],
    diagnostics: &Diagnostics<'_>,
) {
    let Some(RouteAction::Respond(response)) = route.route.as_ref().map(|route| &route.action) else {
        return;
    };
    let told = response.usage.iter().filter_map(|index| limits[index.0].limit.as_ref());
    let is_unknown = |limit: &&Limit| limit.key.reads_body() || limit.key.parts.contains(&Part::Upstream);
    for limit in told.filter(is_unknown) {
        let message = format!(
            "route {} tells what is used of limit {}, whose key a request for that lacks",
            quoted(&route.name),
            quoted(&limit.name)
        );
        let help = "name limits by `consumer` or by what is in the head of a request in `usage`";
        diagnostics.fault(route.span, message, help);
    }
}

fn too_many_charges(
    route: &routes::RouteDraft,
    limits: &[limits::LimitDraft],
    diagnostics: &Diagnostics<'_>,
) {
    let rates =
        |used: &RouteLimit| limits[used.limit_use.limit.0].limit.as_ref().map_or(1, Limit::max_charges);
    let charges: usize = route.uses.iter().map(rates).sum();
    if charges > MAX_CHARGES {
        let message = format!("route {} is charged to {charges} rates at once", quoted(&route.name));
        diagnostics.fault(
            route.span,
            message,
            format!("name limits with at most {MAX_CHARGES} rates in all"),
        );
    }
}

/// In a cluster, limits with different keys are decided one after the other, and charges of one are refunded when
/// another refuses. A place in a queue and a counted attempt cannot be refunded.
fn not_refundable(route: &routes::RouteDraft, limits: &[limits::LimitDraft], diagnostics: &Diagnostics<'_>) {
    let enforced = || {
        let charged = route.uses.iter().filter(|used| used.limit_use.cost != CostRule::Free);
        let limits = charged.filter_map(|used| Some((used, limits[used.limit_use.limit.0].limit.as_ref()?)));
        limits.filter(|(_, limit)| limit.mode == Mode::Enforce)
    };
    for (used, limit) in enforced() {
        let Some(final_word) = limit.all_policies().find_map(|policy| final_word(&policy.algorithm)) else {
            continue;
        };
        if let Some((_, other)) = enforced().find(|(_, other)| other.key != limit.key) {
            let message = format!(
                "route {} joins {}, {final_word}, with {}, which has another key: in a cluster the two cannot be decided as one",
                quoted(&route.name),
                quoted(&limit.name),
                quoted(&other.name),
            );
            let help = "give both the same `key`, put one of them on another route, or share the counters in a single server";
            diagnostics.fault(used.span, message, help);
        }
    }
}

/// Why the algorithm's charges cannot be refunded.
fn final_word(algorithm: &Algorithm) -> Option<&'static str> {
    match algorithm {
        Algorithm::LeakyBucket(_) => Some("a leaky bucket"),
        _ if algorithm.counts_denied() => Some("which counts what it denies"),
        _ => None,
    }
}

/// A cost beyond the quota would always be refused.
fn never_admitted(
    route: &routes::RouteDraft,
    used: &RouteLimit,
    limits: &[limits::LimitDraft],
    diagnostics: &Diagnostics<'_>,
) {
    let Some(limit) = &limits[used.limit_use.limit.0].limit else { return };
    let cost = u64::from(used.limit_use.cost.least());
    let Some(smallest) = limit.all_policies().min_by_key(|policy| policy.algorithm.max_cost()) else {
        return;
    };
    let holds = smallest.algorithm.max_cost();
    if cost <= holds {
        return refused_without_number(route, used, (limit, smallest), diagnostics);
    }
    let tier =
        limit.tiers.iter().find(|tier| tier.policies.iter().any(|policy| std::ptr::eq(policy, smallest)));
    let (of_tier, requests) = match tier {
        Some(tier) => (format!(" for tier {}", quoted(&tier.name)), "every request of that tier"),
        None => (String::new(), "every request"),
    };
    let consequence = match limit.mode {
        Mode::Enforce => "would be refused",
        Mode::Shadow => "would count as limited",
    };
    let (costs, lower) = match used.limit_use.cost {
        CostRule::Settled(_) => ("reserves", "lower `reserve`"),
        _ => ("costs", "lower the cost"),
    };
    let message = format!(
        "route {} {costs} {cost}, but limit {} holds only {holds}{of_tier}, so {requests} {consequence}",
        quoted(&route.name),
        quoted(&limit.name),
    );
    let span: SourceSpan = used.cost_span.unwrap_or(used.span);
    diagnostics.fault(span, message, format!("{} to {cost} or more, or {lower}", raise(limit, smallest)));
}

/// A cost by a number in the request may be beyond the quota for all requests without that number.
fn refused_without_number(
    route: &routes::RouteDraft,
    used: &RouteLimit,
    (limit, smallest): (&Limit, &Policy),
    diagnostics: &Diagnostics<'_>,
) {
    let holds = smallest.algorithm.max_cost();
    let Some(missing) = used.limit_use.cost.without_number().filter(|units| u64::from(*units) > holds) else {
        return;
    };
    let consequence = match limit.mode {
        Mode::Enforce => "is refused",
        Mode::Shadow => "counts as limited",
    };
    let message = format!(
        "route {} charges {missing} where the number of its cost is missing, but limit {} holds only {holds}, so every such \
         request {consequence}",
        quoted(&route.name),
        quoted(&limit.name),
    );
    let help =
        format!("{} to {missing} or more, or write `missing` of {holds} or less", raise(limit, smallest));
    diagnostics.warn(used.cost_span.unwrap_or(used.span), message, help);
}

/// The parameter to raise for a larger quota.
fn raise(limit: &Limit, policy: &Policy) -> String {
    let of = quoted(&limit.name);
    match policy.algorithm.quota_parameter() {
        "rate" if limit.policies.len() > 1 => {
            format!("raise the count of the rate {} of {of}", quoted(rate_of(policy)))
        }
        "rate" => format!("raise the count of `rate` of {of}"),
        parameter => format!("raise `{parameter}` of {of}"),
    }
}

/// The rate in a policy's name, `NAME:RATE`.
fn rate_of(policy: &Policy) -> &str {
    policy.name.rsplit(':').next().unwrap_or("")
}
