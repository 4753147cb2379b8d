//! Lints: warnings about settings that are allowed, but probably unintended.

use std::collections::{BTreeSet, HashMap};
use std::ops::Bound;

use super::connection_limits::counts_connections;
use super::diagnostics::Diagnostics;
use super::file::FileDraft;
use super::report::{cut_for_help, listed, quoted};
use super::route_limits::RouteLimit;
use super::routes;
use super::{limits, server, store};
use crate::limit::units::Micros;
use crate::plan::action::RouteAction;
use crate::plan::cost::CostRule;
use crate::plan::sticky::StickyBy;
use crate::plan::{Limit, LimitIndex, Mode};
use crate::route::Conditions;
use crate::route::key::{Key, Missing, Part};
use crate::route::path::{EncodedDots, Path, PathMatching};
use crate::route::pattern::HostPattern;

/// A shared log of more events may block the server for some ten milliseconds after a lull, when all of them expire at
/// once.
const MAX_SHARED_EVENTS: u64 = 10_000;

/// Shorter windows lose little when the process ends.
const LONG_WINDOW: Micros = Micros(3_600_000_000);

/// Warns of settings without effect, and of limits that limit no client.
pub(super) fn advise(draft: &FileDraft, diagnostics: &Diagnostics<'_>) {
    // A route with errors, or a missing one, may use the names that seem unused.
    let has_rules = draft.descriptors.iter().all(|rule| rule.rule.is_some());
    let is_complete = !draft.routes.is_empty() && has_rules && !diagnostics.is_incomplete();
    if is_complete && draft.routes.iter().all(|route| route.route.is_some()) {
        unused_limits(draft, diagnostics);
        unused_upstreams(draft, diagnostics);
    }
    for (index, limit) in draft.limits.iter().enumerate() {
        if let Some(sound) = &limit.limit {
            invented_key(LimitIndex(index), sound, draft, diagnostics);
            crowded_log(limit.span, sound, draft, diagnostics);
            idle_share(limit.span, sound, draft, diagnostics);
            idle_on_error(LimitIndex(index), limit, draft, diagnostics);
            header_as_allow_list(limit, sound, diagnostics);
        }
    }
    forgotten_windows(draft, diagnostics);
    for route in draft.routes.iter().filter(|route| diagnostics.is_known(route.route.is_some())) {
        idle_limits(route, diagnostics);
        uncompared_parameters(route, draft, diagnostics);
        refused_path(route, draft, diagnostics);
        endless_redirect(route, draft, diagnostics);
    }
    // A route with faults may serve what seems to have no route, or set a cookie.
    if is_complete && draft.routes.iter().all(|route| route.route.is_some()) {
        let patterns = Patterns::new(draft);
        for route in &draft.routes {
            exact_path(route, &patterns, diagnostics);
            split_with_one_sticky_cookie(route, draft, diagnostics);
        }
    }
}

/// `/api/` is one path. Nothing serves what is below it, unless another route has a pattern for it.
fn exact_path(route: &routes::RouteDraft, patterns: &Patterns, diagnostics: &Diagnostics<'_>) {
    let Some(conditions) = &route.conditions else { return };
    let path = conditions.path.to_string();
    // A redirect or an answer of the gateway is often meant for one path.
    let is_meant_so = conditions.path.is_regex() || !path.ends_with('/') || route.upstreams.is_empty();
    if !is_meant_so && !patterns.serve_below(conditions, &path.to_lowercase()) {
        let message = format!("{} is one path: requests for what is below it have no route", quoted(&path));
        let alone = match path.trim_end_matches('/') {
            "" => ", or `~^/$` for this path alone".to_owned(),
            plain if plain.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/-_".contains(&byte)) => {
                format!(", or `~^{plain}/?$` for this path alone")
            }
            _ => String::new(),
        };
        let help = format!("write `{}*` for it and all below{alone}", cut_for_help(&path));
        diagnostics.warn(route.places.path.unwrap_or(route.span), message, help);
    }
}

/// The patterns of all routes with `/*`, parameters or a regular expression, as far as it is told quickly what they match.
#[derive(Default)]
struct Patterns {
    /// What stands before the first `*` or parameter, which is all of a regular expression: `/`.
    beginnings: BTreeSet<String>,
    /// The same by host as it is written; `*`: of all hosts.
    by_host: HashMap<String, BTreeSet<String>>,
}

impl Patterns {
    fn new(draft: &FileDraft) -> Self {
        let mut patterns = Self::default();
        for conditions in draft.routes.iter().filter_map(|route| route.conditions.as_ref()) {
            let path = conditions.path.to_string();
            let beginning = match path.find(['*', '{']) {
                _ if conditions.path.is_regex() => "/",
                Some(end) => path.get(..end).unwrap_or("/"),
                None => continue,
            };
            let beginning = beginning.to_lowercase();
            for host in hosts_of(conditions) {
                patterns.by_host.entry(host).or_default().insert(beginning.clone());
            }
            patterns.beginnings.insert(beginning);
        }
        patterns
    }

    /// Whether some pattern may match a path below `path`, which ends with a slash.
    fn serve_below(&self, conditions: &Conditions, path: &str) -> bool {
        let is_served = |beginnings: &BTreeSet<String>| {
            let mut ancestors = path.match_indices('/').filter_map(|(at, _)| path.get(..=at));
            let next = beginnings.range::<str, _>((Bound::Included(path), Bound::Unbounded)).next();
            ancestors.any(|ancestor| beginnings.contains(ancestor))
                || next.is_some_and(|beginning| beginning.starts_with(path))
        };
        let hosts = hosts_of(conditions);
        // A pattern of hosts may have any pattern of paths beside it.
        if hosts.iter().any(|host| host.starts_with(ALL_HOSTS)) {
            return is_served(&self.beginnings);
        }
        let is_of_host = |host: &str| self.by_host.get(host).is_some_and(is_served);
        let is_of_suffix = |host: &str| {
            let mut suffixes = host.match_indices('.').filter_map(|(dot, _)| host.get(dot..));
            suffixes.any(|suffix| is_of_host(&format!("{ALL_HOSTS}{suffix}")))
        };
        is_of_host(ALL_HOSTS) || hosts.iter().any(|host| is_of_host(host) || is_of_suffix(host))
    }
}

const ALL_HOSTS: &str = "*";

/// The hosts as they are written; `*` for all.
fn hosts_of(conditions: &Conditions) -> Vec<String> {
    match conditions.hosts.as_slice() {
        [] => vec![ALL_HOSTS.to_owned()],
        hosts => hosts.iter().map(HostPattern::to_string).collect(),
    }
}

/// A split whose upstreams share the name of a sticky cookie, where a client may get from one to another.
fn split_with_one_sticky_cookie(
    route: &routes::RouteDraft,
    draft: &FileDraft,
    diagnostics: &Diagnostics<'_>,
) {
    let Some(RouteAction::Split(split)) = route.route.as_ref().map(|route| &route.action) else { return };
    // The cookie of splits keeps a client that lacks the cookie of the key.
    let keeps_clients =
        |key: &Key| !key.may_be_missing() || key.parts.iter().any(|part| matches!(part, Part::Cookie(_)));
    if split.key.as_ref().is_some_and(keeps_clients) {
        return;
    }
    let used = split.shares.iter().filter(|(_, weight)| *weight > 0);
    let named = used.filter_map(|(index, _)| {
        let upstream = draft.upstreams.get(index.0).filter(|upstream| upstream.upstream.is_some())?;
        match &upstream.sticky.as_ref()?.by {
            StickyBy::Cookie { name, .. } => Some((upstream, &**name)),
            StickyBy::Header(_) => None,
        }
    });
    let named: Vec<_> = named.collect();
    let same = named.iter().enumerate().find_map(|(at, (upstream, cookie))| {
        let first = named.iter().take(at).find(|(_, other)| other == cookie)?;
        Some((first.0, *upstream, *cookie))
    });
    if let Some((first, second, cookie)) = same {
        let message = format!(
            "upstreams {} and {} of route {} have one `sticky` cookie, {}: each replaces the cookie of the other",
            quoted(&first.name),
            quoted(&second.name),
            quoted(&route.name),
            quoted(cookie),
        );
        let help = "give each its own cookie, and keep clients at their upstream: `upstream_key = \"ip\"`";
        diagnostics.warn(second.span, message, help);
    }
}

/// Long windows that are counted in memory alone. One warning names all limits, since one line of the file mends all.
fn forgotten_windows(draft: &FileDraft, diagnostics: &Diagnostics<'_>) {
    // A store with faults may be meant as one that keeps its counters.
    let is_kept = draft.store.settings.shared.is_some() || draft.store.settings.snapshot.is_some();
    if is_kept
        || diagnostics.errors() > 0
        || diagnostics.is_uncertain(store::TITLE, store::STORE.snapshot.name)
    {
        return;
    }
    let is_long = |limit: &Limit| limit.all_policies().any(|policy| policy.algorithm.window() >= LONG_WINDOW);
    let long: Vec<_> =
        draft.limits.iter().filter(|draft| draft.limit.as_ref().is_some_and(is_long)).collect();
    let Some(first) = long.first() else { return };
    let names = listed(long.iter().map(|limit| &*limit.name));
    let (limits, count) = if long.len() == 1 { ("limit", "counts") } else { ("limits", "count") };
    let keeps_usage =
        long.iter().any(|draft| draft.limit.as_ref().is_some_and(|limit| limit.usage.is_some()));
    let usage = if keeps_usage { ", and loses `usage`" } else { "" };
    let message =
        format!("{limits} {names} {count} over an hour or more in memory: a restart begins at 0{usage}");
    let help = "let a file keep the counters: `[store]` with `snapshot = \"/var/lib/tollgate/counters\"`; or a store: \
                `backend = \"redis\"` and `url`";
    diagnostics.warn(first.span, message, help);
}

/// Parameters of a segment are not compared in lenient matching: `/a;x` is `/a`.
fn uncompared_parameters(route: &routes::RouteDraft, draft: &FileDraft, diagnostics: &Diagnostics<'_>) {
    let Some(conditions) = &route.conditions else { return };
    let path = conditions.path.to_string();
    let is_unknown = diagnostics.is_uncertain(server::TITLE, "path_matching");
    let is_compared = draft.server.path_matching == PathMatching::Lenient && !conditions.path.is_regex();
    if !is_unknown && is_compared && path.contains(';') {
        let message =
            format!("`;` and what follows it in a segment are not compared: {} has them", quoted(&path));
        let help = "leave them out, or write `path_matching = \"strict\"` in [server]";
        diagnostics.warn(route.span, message, help);
    }
}

/// Requests for a path with encoded dot segments are refused before any route is looked for.
fn refused_path(route: &routes::RouteDraft, draft: &FileDraft, diagnostics: &Diagnostics<'_>) {
    let Some(conditions) = &route.conditions else { return };
    let is_unknown = diagnostics.is_uncertain(server::TITLE, "encoded_dots");
    let is_refused = draft.server.encoded_dots == EncodedDots::Reject && !conditions.path.is_regex();
    let path = conditions.path.to_string();
    let has_dots =
        Path::parse(&path, PathMatching::Strict).is_ok_and(|normalised| normalised.has_encoded_dots());
    if !is_unknown && is_refused && has_dots {
        let message =
            format!("requests for {} are answered with 400: it has an encoded dot segment", quoted(&path));
        let help = "write the path that the backend serves, or `encoded_dots = \"pass\"` in [server]";
        diagnostics.warn(route.span, message, help);
    }
}

/// Applications may name any limit where they can ask.
fn unused_limits(draft: &FileDraft, diagnostics: &Diagnostics<'_>) {
    // An auth of an unknown type, or with an unknown name, may have `failures`.
    let has_unknown_auths = diagnostics.unknown() > 0 && !draft.auths.is_empty();
    if draft.decisions.is_some()
        || has_unknown_auths
        || diagnostics.is_uncertain(server::TITLE, server::SERVER.connection_limits.name)
    {
        return;
    }
    let mut used = vec![false; draft.limits.len()];
    for one in draft.routes.iter().flat_map(|route| &route.uses) {
        used[one.limit_use.limit.0] = true;
    }
    for (limit, _) in draft.auths.iter().filter_map(|auth| auth.failures) {
        used[limit.0] = true;
    }
    for (limit, _) in draft.descriptors.iter().flat_map(|rule| &rule.uses) {
        used[limit.0] = true;
    }
    for one in &draft.connection_limits {
        used[one.limit.0] = true;
    }
    for (limit, _) in draft.limits.iter().zip(used).filter(|(_, used)| !used) {
        let message = format!("no route uses the limit {}", quoted(&limit.name));
        diagnostics.warn(limit.span, message, "name it in `limits` of a route, or leave it out");
    }
}

fn unused_upstreams(draft: &FileDraft, diagnostics: &Diagnostics<'_>) {
    let mut used = vec![false; draft.upstreams.len()];
    let mirrored = draft.routes.iter().filter_map(|route| Some(route.mirror.as_ref()?.mirror.upstream));
    for index in draft.routes.iter().flat_map(|route| &route.upstreams).copied().chain(mirrored) {
        used[index.0] = true;
    }
    for (upstream, _) in draft.upstreams.iter().zip(used).filter(|(_, used)| !used) {
        let message = format!("no route uses the upstream {}", quoted(&upstream.name));
        diagnostics.warn(upstream.span, message, "name it as `upstream` of a route, or leave it out");
    }
}

/// A client that invents a new key for every request is never limited, unless a limit by a key that it cannot invent
/// applies too.
fn invented_key(index: LimitIndex, limit: &Limit, draft: &FileDraft, diagnostics: &Diagnostics<'_>) {
    let parts = &limit.key.parts;
    if limit.mode == Mode::Shadow || counts_addresses(limit) || !parts.iter().any(Part::invented_by_client) {
        return;
    }
    let uses_it = |route: &&routes::RouteDraft| {
        diagnostics.is_known(route.route.is_some())
            && route.uses.iter().any(|used| used.limit_use.limit == index)
    };
    let mut exposed = draft.routes.iter().filter(uses_it).filter(|route| !has_address_limit(route, draft));
    let Some(first) = exposed.next() else { return };
    let others = match exposed.count() {
        0 => String::new(),
        count => format!(" (and on {count} more)"),
    };
    let key: Vec<String> =
        parts.iter().filter(|part| part.invented_by_client()).map(Part::to_string).collect();
    let message = format!(
        "a client can invent the key {} of limit {}, and no limit by `ip` stands beside it on route {}{others}",
        listed(key.iter().map(String::as_str)),
        quoted(&limit.name),
        quoted(&first.name),
    );
    let span =
        first.uses.iter().find(|used| used.limit_use.limit == index).map_or(first.span, |used| used.span);
    diagnostics.warn(
        span,
        message,
        "add a limit with `key = \"ip\"` to the route, wide enough for honest clients",
    );
}

/// `missing = "deny"` refuses requests without the header, but any client can send the header.
fn header_as_allow_list(limit: &limits::LimitDraft, sound: &Limit, diagnostics: &Diagnostics<'_>) {
    let is_header = |part: &Part| matches!(part, Part::Header(_));
    if sound.key.missing == Missing::Deny
        && let Some(header) = sound.key.parts.iter().find(|part| is_header(part))
    {
        let message = format!(
            "limit {} refuses requests without `{header}`, but admits any client that sends one: this is not an allow list",
            quoted(&limit.name)
        );
        let help = "to admit known keys only, write them into a file of consumers: `[auth.NAME]` and `auth` of the route";
        diagnostics.warn(limit.span, message, help);
    }
}

/// Whether one address has one counter: with a part that clients invent it has as many as it likes.
fn counts_addresses(limit: &Limit) -> bool {
    let parts = &limit.key.parts;
    parts.iter().any(Part::is_address) && !parts.iter().any(Part::invented_by_client)
}

/// Whether a limit bounds what a client can do that invents keys: by its address, or by the consumer alone where the route
/// has only known ones. It does so for all keys and at a cost. A limit with errors may be meant as one.
fn has_address_limit(route: &routes::RouteDraft, draft: &FileDraft) -> bool {
    let auth = route.route.as_ref().and_then(|route| route.auth.as_ref());
    let knows_consumers = auth.is_some_and(|auth| !auth.optional);
    let counts_consumers = |limit: &Limit| knows_consumers && limit.key.parts == [Part::Consumer];
    let guards = |limit: &Limit| {
        limit.mode == Mode::Enforce
            && limit.trial.is_none()
            && (counts_addresses(limit) || counts_consumers(limit))
    };
    let charged = route.uses.iter().filter(|used| used.limit_use.cost != CostRule::Free);
    let limit = |used: &RouteLimit| draft.limits[used.limit_use.limit.0].limit.as_ref();
    charged.map(limit).any(|limit| limit.is_none_or(guards))
}

/// The store counts each event of a sliding log; a log that is longer than the store loses its oldest events.
fn crowded_log(
    span: super::report::SourceSpan,
    limit: &Limit,
    draft: &FileDraft,
    diagnostics: &Diagnostics<'_>,
) {
    let logs = limit.all_policies().filter(|policy| policy.algorithm.keeps_events());
    let Some(longest) = logs.map(|policy| policy.algorithm.quota()).max() else { return };
    if draft.store.settings.shared.is_some() && longest > MAX_SHARED_EVENTS {
        let message = format!(
            "limit {} keeps up to {longest} events for one key in the shared store, which serves no other request while it scans them",
            quoted(&limit.name)
        );
        let help = format!("keep to {MAX_SHARED_EVENTS}, or use `sliding-window`, which keeps two counts");
        diagnostics.warn(span, message, help);
    }
    let of_store = draft.store.settings.max_keys as u64;
    let is_unknown = diagnostics.is_uncertain(store::TITLE, "max_keys");
    let (holder, title, max_keys) = match limit.max_keys {
        Some(own) if own.get() < of_store || is_unknown => ("its share", "the limit", own.get()),
        _ if is_unknown => return,
        _ => ("the store", "`[store]`", of_store),
    };
    if longest <= max_keys {
        return;
    }
    let message = format!(
        "limit {} keeps up to {longest} events for one key, but {holder} holds only {max_keys} in all",
        quoted(&limit.name)
    );
    let help = format!("raise `max_keys` of {title}, or use `sliding-window`, which keeps two counts");
    diagnostics.warn(span, message, help);
}

/// A share that bounds nothing: it is larger than the store, or its limit stores no counters.
fn idle_share(
    span: super::report::SourceSpan,
    limit: &Limit,
    draft: &FileDraft,
    diagnostics: &Diagnostics<'_>,
) {
    let Some(own) = limit.max_keys else { return };
    let of_store = draft.store.settings.max_keys as u64;
    let reason = if limit.is_concurrency() && limit.ban.is_none() {
        "it counts requests in flight, which the store does not hold".to_owned()
    } else if own.get() > of_store && !diagnostics.is_uncertain(store::TITLE, "max_keys") {
        format!("the store holds only {of_store} keys in all")
    } else {
        return;
    };
    let message = format!("`max_keys` of limit {} has no effect: {reason}", quoted(&limit.name));
    diagnostics.warn(span, message, "leave it out, or write a share of `max_keys` of `[store]`");
}

/// What happens without the shared store, where `[store]` names none.
fn idle_on_error(
    index: LimitIndex,
    limit: &limits::LimitDraft,
    draft: &FileDraft,
    diagnostics: &Diagnostics<'_>,
) {
    let Some(span) = limit.places.on_error else { return };
    // That of a limit of connections is a fault, and the unknown may be the store.
    if draft.store.names_backend || diagnostics.unknown() > 0 || counts_connections(draft, index) {
        return;
    }
    let message =
        format!("`on_error` of limit {} has no effect: counters are in memory", quoted(&limit.name));
    let help = "share them by `backend = \"redis\"` of `[store]`, or leave `on_error` out";
    diagnostics.warn(span, message, help);
}

/// Limits on a route that charges nothing to any of them.
fn idle_limits(route: &routes::RouteDraft, diagnostics: &Diagnostics<'_>) {
    let own = || route.uses.iter().filter(|used| !used.is_of_server);
    let Some(first) = own().next() else { return };
    if own().all(|used| used.limit_use.cost == CostRule::Free) {
        let message = format!("route {} costs 0, so its limits never refuse it", quoted(&route.name));
        diagnostics.warn(
            first.cost_span.unwrap_or(first.span),
            message,
            "raise `cost`, or leave `limits` out",
        );
    }
}

/// A redirect to https without a TLS listener: the client returns without TLS.
fn endless_redirect(route: &routes::RouteDraft, draft: &FileDraft, diagnostics: &Diagnostics<'_>) {
    let redirects = route.route.as_ref().is_some_and(|route| route.redirect.is_some());
    let server = &draft.server;
    let speaks_tls = server.client_listeners().any(|listener| listener.tls);
    if ["listen", "trusted_proxies"].iter().any(|key| diagnostics.is_uncertain(server::TITLE, key)) {
        return;
    }
    if redirects && !speaks_tls && server.client.trusted_proxies.is_empty() {
        let message =
            format!("route {} redirects all its requests: none can come by TLS", quoted(&route.name));
        let help = "add `[[server.tls]]`, or name the proxy that speaks TLS in `trusted_proxies`";
        diagnostics.warn(route.span, message, help);
    }
}
