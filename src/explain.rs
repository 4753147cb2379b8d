//! `tollgate explain`: why a request falls under its route and its limits, without running anything.

mod request;
mod text;

pub use request::{ExplainFault, ExplainRequest};

use http::HeaderMap;
use http::header::FORWARDED;

use crate::gateway::{Backend, Gateway, Limit, LimitUse, Mode, Policy, Route, Upstream};
use crate::limit::units::Cost;
use crate::route::client::{Client, ClientRule};
use crate::route::key::{Claim, Missing, Secret};
use crate::route::path::without_prefix;
use crate::route::pattern::HostPattern;
use crate::route::{self, Conditions, Match, RouteIndex};

/// Of more routes than this only those are told that have the request's path, and no more than this.
const MAX_TOLD: usize = 20;

/// Why a request falls under its route and its limits. As text through `Display`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// The request: `GET api.example.com/search?q=1`.
    pub request: String,
    /// Who asks.
    pub client: Client,
    /// How that was found out.
    pub identified: String,
    /// The route; `None`: answered 404.
    pub route: Option<Taken>,
    /// Other routes by name, and why each is not the one; of more than 20 only those that have the request's path.
    pub others: Vec<(String, String)>,
    /// How many more routes there are.
    pub untold: usize,
}

/// The route that a request takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    /// Its name.
    pub name: String,
    /// Its conditions by name (`path`, `host`, …), and why each holds.
    pub conditions: Vec<(&'static str, String)>,
    /// Who answers: `api (127.0.0.1:9001)`.
    pub upstream: String,
    /// The target that the upstream sees.
    pub forwarded: String,
    /// Its limits, in file order.
    pub limits: Vec<Applied>,
}

/// A limit on a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// Its name.
    pub name: String,
    /// Refuse, or only count.
    pub mode: Mode,
    /// What it does with the request.
    pub standing: Standing,
    /// The key's parts and values, shortened unless the limit reveals them.
    pub key: Vec<(String, Option<String>)>,
    /// What happens to requests that lack the key, if some can.
    pub missing: Option<Missing>,
    /// Each policy in words.
    pub policies: Vec<String>,
}

/// What a limit does with a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Charges so much.
    Charged(Cost),
    /// Nothing: the route costs nothing there.
    Free,
    /// Nothing: this exemption holds.
    Exempt(String),
    /// Nothing: a part of the key is missing.
    Skipped,
    /// Refuses: a part of the key is missing.
    Missing,
}

/// Explains what the gateway would do with the request. Pure: no counter is read or charged.
pub fn explain(gateway: &Gateway, request: &ExplainRequest) -> Explanation {
    let rule = &gateway.server.client;
    let client = rule.identify(request.peer, &request.headers);
    let seen = route::Request {
        method: &request.method,
        host: &request.host,
        path: &request.path,
        query: request.query.as_deref(),
        headers: &request.headers,
        client,
    };
    let chosen = gateway.table.find(&seen).map(|index| gateway.route(index));
    let (others, untold) = others(gateway, &seen);
    Explanation {
        request: format!("{} {}{}", request.method, request.host, request.target),
        client,
        identified: identified(rule, request, client),
        route: chosen.map(|route| Taken::new(gateway, route, &seen)),
        others,
        untold,
    }
}

impl Taken {
    fn new(gateway: &Gateway, route: &Route, request: &route::Request<'_>) -> Self {
        let path = request.path.form(route.conditions.merge_slashes);
        let path = route.strip_prefix.as_deref().map_or(path, |prefix| without_prefix(path, prefix));
        Self {
            name: route.name.to_string(),
            conditions: why(&route.conditions, request),
            upstream: upstream_words(gateway.upstream(route.upstream)),
            forwarded: request.query.map_or_else(|| path.into(), |query| format!("{path}?{query}")),
            limits: route.limits.iter().map(|used| Applied::new(gateway, route, used, request)).collect(),
        }
    }
}

impl Applied {
    fn new(gateway: &Gateway, route: &Route, used: &LimitUse, request: &route::Request<'_>) -> Self {
        let limit = gateway.limit(used.limit);
        let merge_slashes = route.conditions.merge_slashes;
        Self {
            name: limit.name.to_string(),
            mode: limit.mode,
            standing: Standing::new(limit, route, used, request),
            key: limit.key.describe(request, &route.name, merge_slashes, limit.reveal),
            missing: limit.key.may_be_missing().then_some(limit.key.missing),
            policies: limit.policies.iter().map(|policy| policy_words(policy, used.cost)).collect(),
        }
    }
}

impl Standing {
    fn new(limit: &Limit, route: &Route, used: &LimitUse, request: &route::Request<'_>) -> Self {
        let merge_slashes = route.conditions.merge_slashes;
        let Some(cost) = used.cost else { return Self::Free };
        if let Some(exemption) = limit.exempt.iter().find(|exempt| exempt.holds(request, merge_slashes)) {
            return Self::Exempt(exemption.to_string());
        }
        // Only whether there is a key matters here, so any secret and identity will do.
        match limit.key.claim(&Secret([0; 16]), 0, request, &route.name, merge_slashes) {
            Claim::Key(_) => Self::Charged(cost),
            Claim::Skip => Self::Skipped,
            Claim::Deny => Self::Missing,
        }
    }
}

fn identified(rule: &ClientRule, request: &ExplainRequest, client: Client) -> String {
    let peer = request.peer;
    let said = |headers: &HeaderMap| match (
        headers.contains_key(FORWARDED),
        headers.contains_key("x-forwarded-for"),
    ) {
        (true, true) => Some("Forwarded and X-Forwarded-For"),
        (true, false) => Some("Forwarded"),
        (false, true) => Some("X-Forwarded-For"),
        (false, false) => None,
    };
    match (rule.trusts(peer), said(&request.headers)) {
        (false, Some(fields)) => {
            format!("the peer itself; it is no trusted proxy, so {fields} is not believed")
        }
        (false, None) => "the peer itself".into(),
        (true, None) => "the peer itself, a trusted proxy that names nobody".into(),
        (true, Some(fields)) if client.address == peer => {
            format!("the peer itself, a trusted proxy, as {fields} names nobody that can be believed")
        }
        (true, Some(fields)) => format!("named in {fields} by the trusted proxy {peer}"),
    }
}

/// Each condition, and why it holds.
fn why(conditions: &Conditions, request: &route::Request<'_>) -> Vec<(&'static str, String)> {
    let path = request.path.form(conditions.merge_slashes);
    let host = conditions.hosts.iter().find(|host| host.matches(request.host));
    let mut reasons = vec![
        ("path", format!("`{path}` matches `{}`", conditions.path)),
        ("host", host.map_or_else(|| "any".into(), |host| format!("`{}` matches `{host}`", request.host))),
    ];
    reasons.push(match conditions.methods.as_slice() {
        [] => ("method", "any".into()),
        methods => ("method", format!("{} is {}", request.method, one_of(methods))),
    });
    // Without the value: it may be a secret of the file.
    let fields = conditions.headers.iter();
    reasons
        .extend(fields.map(|(name, _)| ("field", format!("`{name}` has the value that the route asks for"))));
    reasons
}

/// The other routes, and why each is not the one; and how many are left out.
fn others(gateway: &Gateway, request: &route::Request<'_>) -> (Vec<(String, String)>, usize) {
    let matches = gateway.table.explain(request);
    let all = matches.len() <= MAX_TOLD;
    let others = matches.iter().enumerate().filter(|(_, verdict)| **verdict != Match::Chosen);
    let told = others.clone().filter(|(_, verdict)| all || **verdict != Match::Path).take(MAX_TOLD);
    let told: Vec<_> = told
        .map(|(index, verdict)| {
            let route = gateway.route(RouteIndex(index));
            (route.name.to_string(), why_not(gateway, &route.conditions, verdict, request))
        })
        .collect();
    let untold = others.count() - told.len();
    (told, untold)
}

fn why_not(
    gateway: &Gateway,
    conditions: &Conditions,
    verdict: &Match,
    request: &route::Request<'_>,
) -> String {
    match verdict {
        Match::Chosen => verdict.to_string(),
        Match::LessSpecific(chosen) => {
            format!("matches too, but `{}` is more specific or stands earlier", gateway.route(*chosen).name)
        }
        Match::Path => format!("the path is not `{}`", conditions.path),
        Match::Host => {
            let hosts: Vec<_> = conditions.hosts.iter().map(HostPattern::to_string).collect();
            match request.host {
                "" => format!("no host is named, and it must be {}", one_of(&hosts)),
                host => format!("the host `{host}` is not {}", one_of(&hosts)),
            }
        }
        Match::Method => format!("the method is not {}", one_of(&conditions.methods)),
        Match::Header(name) if request.headers.contains_key(name) => {
            format!("the field `{name}` has another value")
        }
        Match::Header(name) => format!("the field `{name}` is absent"),
    }
}

/// `GET`, `GET or POST`, `GET, POST or PUT`.
fn one_of(choices: &[impl ToString]) -> String {
    let choices: Vec<_> = choices.iter().map(|choice| format!("`{}`", choice.to_string())).collect();
    match choices.split_last() {
        Some((last, first)) if !first.is_empty() => format!("{} or {last}", first.join(", ")),
        _ => choices.concat(),
    }
}

fn upstream_words(upstream: &Upstream) -> String {
    match &upstream.backend {
        Backend::Echo => format!("`{}` (the built-in echo)", upstream.name),
        Backend::Servers(servers) => {
            let servers: Vec<_> = servers.iter().map(|server| &*server.authority).collect();
            format!("`{}` ({})", upstream.name, servers.join(", "))
        }
    }
}

fn policy_words(policy: &Policy, cost: Option<Cost>) -> String {
    let words = format!("{}: {}", policy.algorithm.name(), policy.algorithm);
    let most = policy.algorithm.max_cost();
    match cost {
        Some(cost) if u64::from(cost.units()) > most => {
            format!("{words}; never passes, as it admits at most {most} at once")
        }
        _ => words,
    }
}
