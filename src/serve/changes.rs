//! What a reload changed, a line a change. Values that may be secrets (headers, tokens, passwords) are never shown.

mod limits;

use std::fmt::{Debug, Display};
use std::sync::Arc;
use std::time::Duration;

use crate::config::{consumers_words, counted};
use crate::plan::action::RouteAction;
use crate::plan::auth::{Auth, RouteAuth};
use crate::plan::descriptors::DescriptorRule;
use crate::plan::mirror::Mirror;
use crate::plan::{HeaderEdits, LimitUse, Plan, Route, Server, Upstream};
use crate::route::Conditions;
use crate::route::client::AddressRules;
use crate::route::networks::Networks;

/// At most this many changes are logged of one reload; the others are counted.
const MAX_LINES: usize = 50;

/// The changes between two plans, of one reload.
pub(super) fn changes(last: &Plan, next: &Plan) -> Vec<String> {
    let mut lines = Vec::new();
    let mut subject = Subject::new("server".to_owned(), &mut lines);
    server(&mut subject, &last.server, &next.server);
    subject.shown("connection_limits", connection_limits(last), connection_limits(next));
    others(last, next, &mut lines);
    by_name(
        "upstream",
        (&last.upstreams, &next.upstreams),
        |it| Arc::clone(&it.name),
        &mut lines,
        |subject, a, b| {
            upstream(subject, a, b);
        },
    );
    by_name(
        "auth",
        (&last.auths, &next.auths),
        |it| Arc::clone(&it.name),
        &mut lines,
        |subject, a, b| {
            auth(subject, (last, a), (next, b));
        },
    );
    by_name("limit", (&last.limits, &next.limits), |it| Arc::clone(&it.name), &mut lines, limits::limit);
    rules(last, next, &mut lines);
    by_name(
        "route",
        (&routes(last), &routes(next)),
        |it| Arc::clone(&it.name),
        &mut lines,
        |subject, a, b| {
            route(subject, (last, a), (next, b));
        },
    );
    bounded(lines)
}

/// The names of the limits of new connections.
fn connection_limits(plan: &Plan) -> String {
    let limits = plan.connections().map(|index| plan.route(index).limits.as_slice()).unwrap_or_default();
    limits.iter().map(|used| &*plan.limit(used.limit).name).collect::<Vec<_>>().join(", ")
}

/// All routes but the one that stands for new connections, and those of calls where no listener takes calls.
fn routes(plan: &Plan) -> Vec<&Route> {
    let connections = plan.connections().map(|index| index.0);
    let routes = plan.routes.iter().enumerate().filter(|(index, _)| Some(*index) != connections);
    let takes_calls = plan.decisions.is_some();
    let is_used = |route: &&Route| takes_calls || !matches!(route.action, RouteAction::Decide);
    routes.map(|(_, route)| route).filter(is_used).collect()
}

/// The first lines, and how many there are beyond them.
fn bounded(mut lines: Vec<String>) -> Vec<String> {
    let more = lines.len().saturating_sub(MAX_LINES);
    lines.truncate(MAX_LINES);
    if more > 0 {
        lines.push(format!("and {more} more"));
    }
    lines
}

/// The item whose changes are listed: each line begins with its name.
struct Subject<'a> {
    name: String,
    lines: &'a mut Vec<String>,
}

impl<'a> Subject<'a> {
    fn new(name: String, lines: &'a mut Vec<String>) -> Self {
        Self { name, lines }
    }

    fn line(&mut self, change: &str) {
        self.lines.push(format!("{}: {change}", self.name));
    }

    /// `rate 100/h → 200/h`.
    fn shown(&mut self, setting: &str, last: impl Display, next: impl Display) {
        let (last, next) = (last.to_string(), next.to_string());
        if last != next {
            self.line(&format!("{setting} {} → {}", plain(&last), plain(&next)));
        }
    }

    /// As [`Self::shown`], of a duration or a choice.
    fn written(&mut self, setting: &str, last: impl Debug, next: impl Debug) {
        self.shown(setting, format!("{last:?}").to_lowercase(), format!("{next:?}").to_lowercase());
    }

    /// `headers changed`: the values are not shown.
    fn hidden<T: PartialEq>(&mut self, setting: &str, last: &T, next: &T) {
        if last != next {
            self.line(&format!("{setting} changed"));
        }
    }
}

/// A text without control characters, and not longer than a line.
fn plain(text: &str) -> String {
    let shown = text.chars().take(200).map(|c| if c.is_control() { '␣' } else { c });
    if text.is_empty() { "none".to_owned() } else { shown.collect() }
}

/// Items that were added, removed, or changed.
fn by_name<T>(
    noun: &str,
    (last, next): (&[T], &[T]),
    name: impl Fn(&T) -> Arc<str>,
    lines: &mut Vec<String>,
    mut compare: impl FnMut(&mut Subject<'_>, &T, &T),
) {
    let index = |items: &[T]| -> std::collections::BTreeMap<_, _> {
        items.iter().enumerate().map(|(index, item)| (name(item), index)).collect()
    };
    let (old, new) = (index(last), index(next));
    for gone in last.iter().map(&name).filter(|name| !new.contains_key(name)) {
        lines.push(format!("{noun} {} removed", plain(&gone)));
    }
    for item in next {
        let name = name(item);
        match old.get(&name).and_then(|index| last.get(*index)) {
            None => lines.push(format!("{noun} {} added", plain(&name))),
            Some(before) => {
                compare(&mut Subject::new(format!("{noun} {}", plain(&name)), lines), before, item);
            }
        }
    }
}

fn server(subject: &mut Subject<'_>, last: &Server, next: &Server) {
    if last.tls != next.tls {
        subject.line("new certificates");
    }
    subject.written("trusted_proxies", &last.client.trusted_proxies, &next.client.trusted_proxies);
    subject.shown("client_ip", &last.client.source, &next.client.source);
    subject.shown("ipv4_prefix", last.client.ipv4_prefix, next.client.ipv4_prefix);
    subject.shown("ipv6_prefix", last.client.ipv6_prefix, next.client.ipv6_prefix);
    subject.hidden("geo", &last.client.locations, &next.client.locations);
    subject.written("path_matching", last.path_matching, next.path_matching);
    subject.written("encoded_dots", last.encoded_dots, next.encoded_dots);
    subject.shown("max_connections", last.max_connections, next.max_connections);
    let per_client = |server: &Server| optional(server.max_connections_per_client);
    subject.shown("max_connections_per_client", per_client(last), per_client(next));
    subject.shown("max_header_bytes", last.max_header_bytes, next.max_header_bytes);
    subject.shown("max_buffered", last.max_buffered, next.max_buffered);
    for (setting, of) in TIMEOUTS {
        subject.written(setting, of(last), of(next));
    }
    let requests = |server: &Server| optional(server.max_requests_per_connection);
    subject.shown("max_requests_per_connection", requests(last), requests(next));
    subject.written("ratelimit_headers", last.ratelimit_headers, next.ratelimit_headers);
    subject.written("ratelimit_policies", last.ratelimit_policies, next.ratelimit_policies);
    subject.written("request_id", last.request_id, next.request_id);
    subject.shown("via", last.via, next.via);
    subject.hidden("set_response_headers", &last.response_headers, &next.response_headers);
    addresses(subject, &last.addresses, &next.addresses);
}

/// A duration of `[server]`.
type Timeout = fn(&Server) -> Duration;

const TIMEOUTS: [(&str, Timeout); 6] = [
    ("header_timeout", |server| server.header_timeout),
    ("body_timeout", |server| server.body_timeout),
    ("idle_timeout", |server| server.idle_timeout),
    ("write_timeout", |server| server.write_timeout),
    ("max_connection_age", |server| server.max_connection_age),
    ("drain_timeout", |server| server.drain_timeout),
];

fn others(last: &Plan, next: &Plan, lines: &mut Vec<String>) {
    let tokens = |plan: &Plan| plan.admin.clone().map(|admin| (admin.token, admin.tokens));
    let certificate = |plan: &Plan| plan.admin.as_ref().and_then(|admin| admin.tls.clone());
    let mut admin = Subject::new("admin".to_owned(), lines);
    admin.hidden("tokens", &tokens(last), &tokens(next));
    admin.hidden("certificate", &certificate(last), &certificate(next));
    let access = |plan: &Plan| plan.decisions.clone().map(|own| (own.token, own.certificate_suffices));
    let certificates = |plan: &Plan| plan.decisions.as_ref().and_then(|own| own.tls.clone());
    let mut decisions = Subject::new("decisions".to_owned(), lines);
    decisions.hidden("token", &access(last), &access(next));
    decisions.hidden("certificate", &certificates(last), &certificates(next));
    Subject::new("acme".to_owned(), lines).hidden("settings", &last.acme, &next.acme);
    let mut log = Subject::new("log".to_owned(), lines);
    log.shown("level", &last.log.level, &next.log.level);
    log.shown("program", last.log.program.as_str(), next.log.program.as_str());
    log.hidden("access", &last.log.access.as_written(), &next.log.access.as_written());
    log.hidden("file", &last.log.file, &next.log.file);
    log.hidden("secret_headers", &last.log.secrets, &next.log.secrets);
    log.shown("sample", last.log.sample.share(), next.log.sample.share());
    let mut store = Subject::new("store".to_owned(), lines);
    store.hidden("settings", &last.store.shared, &next.store.shared);
    store.hidden("snapshot", &last.store.snapshot, &next.store.snapshot);
    Subject::new("trace".to_owned(), lines).hidden("settings", &last.trace, &next.trace);
    Subject::new("errors".to_owned(), lines).hidden("pages", &last.errors, &next.errors);
}

/// What `[[descriptors]]` have beside the limits and the cost of their routes.
fn rules(last: &Plan, next: &Plan, lines: &mut Vec<String>) {
    for rule in next.descriptors.iter() {
        let name = &next.route(rule.route).name;
        let same = |other: &&DescriptorRule| *last.route(other.route).name == **name;
        if let Some(other) = last.descriptors.iter().find(same) {
            let mut subject = Subject::new(format!("descriptors {}", plain(name)), lines);
            subject.shown("report", other.report, rule.report);
            subject.shown("override", other.overrides, rule.overrides);
        }
    }
}

/// The number of networks on each side; a change of equally many is named without them: lists may be long.
fn addresses(subject: &mut Subject<'_>, last: &AddressRules, next: &AddressRules) {
    for (setting, last, next) in [("allow", &last.allow, &next.allow), ("deny", &last.deny, &next.deny)] {
        let networks = |rule: &Option<Arc<Networks>>| {
            rule.as_ref().map_or(String::new(), |rule| counted(rule.len(), "network"))
        };
        let (before, after) = (networks(last), networks(next));
        if before == after {
            subject.hidden(setting, last, next);
        }
        subject.shown(setting, before, after);
    }
}

fn auth(subject: &mut Subject<'_>, (last_plan, last): (&Plan, &Auth), (next_plan, next): (&Plan, &Auth)) {
    subject.shown("from", &last.source, &next.source);
    let (before, after) = (consumers_words(last), consumers_words(next));
    if before == after {
        let version = |auth: &Auth| auth.api_keys().map(|keys| keys.version);
        subject.hidden("consumers", &version(last), &version(next));
        let users = |auth: &Auth| auth.passwords().cloned();
        subject.hidden("passwords", &users(last), &users(next));
    }
    subject.hidden("settings", &last.forward(), &next.forward());
    subject.hidden("settings", &last.tokens(), &next.tokens());
    subject.shown("consumers", before, after);
    subject.written("mode", last.mode, next.mode);
    subject.hidden("realm", &last.challenge, &next.challenge);
    let failures = |plan: &Plan, auth: &Auth| {
        auth.failures.map_or_else(String::new, |limit| plan.limit(limit).name.to_string())
    };
    subject.shown("failures", failures(last_plan, last), failures(next_plan, next));
}

fn upstream(subject: &mut Subject<'_>, last: &Upstream, next: &Upstream) {
    let servers = |upstream: &Upstream| {
        let one = |server: &crate::plan::Endpoint| match server.weight {
            1 => server.authority.to_string(),
            weight => format!("{} (weight {weight})", server.authority),
        };
        upstream.endpoints().iter().map(one).collect::<Vec<_>>().join(", ")
    };
    let (before, after) = (servers(last), servers(next));
    if before == after {
        subject.hidden("tls", &last.backend, &next.backend);
    }
    subject.shown("servers", before, after);
    subject.shown("base path", optional(last.base_path.as_ref()), optional(next.base_path.as_ref()));
    subject.written("protocol", last.protocol, next.protocol);
    subject.written("connect_timeout", last.connect_timeout, next.connect_timeout);
    subject.written("idle_timeout", last.idle_timeout, next.idle_timeout);
    subject.hidden("host", &last.host, &next.host);
    subject.hidden("retry", &last.retry, &next.retry);
    subject.hidden("balance", &last.balance, &next.balance);
    subject.hidden("eject", &last.eject, &next.eject);
    subject.hidden("breaker", &last.breaker, &next.breaker);
    subject.hidden("send_proxy_protocol", &last.send_proxy_protocol, &next.send_proxy_protocol);
    subject.hidden("sticky", &last.sticky, &next.sticky);
    subject.hidden("slow_start", &last.slow_start, &next.slow_start);
    subject.hidden("health", &last.health, &next.health);
    subject.hidden("max_connections", &last.max_connections, &next.max_connections);
}

fn route(subject: &mut Subject<'_>, (last_plan, last): (&Plan, &Route), (next_plan, next): (&Plan, &Route)) {
    conditions(subject, &last.conditions, &next.conditions);
    let name = |plan: &Plan, route: &Route| {
        let name = |upstream| plan.upstream(upstream).name.to_string();
        match &route.action {
            RouteAction::Forward(upstream) => name(*upstream),
            RouteAction::Split(split) => {
                let share = |&(upstream, weight)| format!("{} {weight}", name(upstream));
                let key = split.key.iter().map(ToString::to_string);
                split.shares.iter().map(share).chain(key).collect::<Vec<_>>().join(", ")
            }
            RouteAction::Redirect(_) | RouteAction::Respond(_) | RouteAction::Decide => String::new(),
        }
    };
    subject.shown("upstream", name(last_plan, last), name(next_plan, next));
    let mirror = |plan: &Plan, route: &Route| {
        let words = |mirror: &Mirror| {
            let (name, percent) = (&plan.upstream(mirror.upstream).name, mirror.percent());
            format!("{name}, {percent}, {}, bodies up to {} bytes", mirror.key, mirror.max_body)
        };
        route.mirror.as_deref().map_or_else(String::new, words)
    };
    subject.shown("mirror", mirror(last_plan, last), mirror(next_plan, next));
    if last.action.upstreams().is_empty() && next.action.upstreams().is_empty() {
        subject.hidden("answer", &last.action, &next.action);
    }
    subject.shown("cost", &last.cost, &next.cost);
    let one = |plan: &Plan, used: &LimitUse, route: &Route| match used.cost == route.cost {
        true => plan.limit(used.limit).name.to_string(),
        false => format!("{} (cost {})", plan.limit(used.limit).name, used.cost),
    };
    let limits = |plan: &Plan, route: &Route| {
        route.limits.iter().map(|used| one(plan, used, route)).collect::<Vec<_>>().join(", ")
    };
    subject.shown("limits", limits(last_plan, last), limits(next_plan, next));
    subject.written("priority", last.priority, next.priority);
    subject.written("timeout", last.timeout, next.timeout);
    subject.written("read_timeout", last.read_timeout, next.read_timeout);
    subject.written("tunnel_timeout", last.tunnel_timeout, next.tunnel_timeout);
    subject.hidden("max_duration", &last.max_duration, &next.max_duration);
    subject.shown("max_body_bytes", optional(last.max_body_bytes), optional(next.max_body_bytes));
    subject.shown("max_key_body", last.max_key_body, next.max_key_body);
    subject.shown("batch", last.batch, next.batch);
    subject.hidden("path for the backend", &last.path_edit, &next.path_edit);
    edits(subject, "request", &last.request_headers, &next.request_headers);
    edits(subject, "response", &last.response_headers, &next.response_headers);
    subject.hidden("redirect", &last.redirect, &next.redirect);
    subject.hidden("cors", &last.cors, &next.cors);
    subject.hidden("compress", &last.compression, &next.compression);
    subject.hidden("reject", &last.reject, &next.reject);
    addresses(subject, &last.addresses, &next.addresses);
    let auths = |plan: &Plan, route: &Route| {
        let auths = route.auth.iter().flat_map(|auth| &auth.auths);
        auths.map(|auth| plan.auth(*auth).name.to_string()).collect::<Vec<_>>().join(", ")
    };
    subject.shown("auth", auths(last_plan, last), auths(next_plan, next));
    let flag = |route: &Route, flag: fn(&RouteAuth) -> bool| route.auth.as_ref().is_some_and(flag);
    let optional: fn(&RouteAuth) -> bool = |auth| auth.optional;
    subject.shown("auth_optional", flag(last, optional), flag(next, optional));
    let forwards: fn(&RouteAuth) -> bool = |auth| auth.forwards_credentials;
    subject.shown("forward_credentials", flag(last, forwards), flag(next, forwards));
    let required = |route: &Route| {
        let requirements = route.auth.iter().flat_map(|auth| &auth.requirements);
        requirements.map(ToString::to_string).collect::<Vec<_>>().join(", ")
    };
    subject.shown("require", required(last), required(next));
    subject.shown("forward_client_cert", last.forward_client_cert, next.forward_client_cert);
}

fn conditions(subject: &mut Subject<'_>, last: &Conditions, next: &Conditions) {
    subject.shown("path", &last.path, &next.path);
    subject.shown("hosts", joined(&last.hosts), joined(&next.hosts));
    subject.shown("methods", joined(&last.methods), joined(&next.methods));
    subject.hidden("headers, query, cookies, clients and not", &last.values, &next.values);
    subject.shown("merge_slashes", last.merge_slashes, next.merge_slashes);
}

fn edits(subject: &mut Subject<'_>, of: &str, last: &HeaderEdits, next: &HeaderEdits) {
    subject.hidden(&format!("set_{of}_headers"), &last.set, &next.set);
    subject.hidden(&format!("remove_{of}_headers"), &last.remove, &next.remove);
}

fn joined<T: Display>(items: &[T]) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn optional<T: Display>(value: Option<T>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

#[cfg(test)]
mod tests;
