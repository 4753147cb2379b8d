//! Reasons as text.

use std::net::IpAddr;

use crate::http1::fields::Fields;
use crate::http1::name::Name;
use crate::limit::units::Cost;
use crate::measure::Reading;
use crate::plan::cost::{CostRule, MeasuredCost};
use crate::plan::{Backend, Plan, Policy, Upstream};
use crate::route::client::{ClientAddress, ClientRule, ClientSource};
use crate::route::condition::{Condition, ValuePattern};
use crate::route::content::RequestContent;
use crate::route::pattern::HostPattern;
use crate::route::{self, Conditions, Match};

/// How the client was identified.
pub(super) fn identified(
    rule: &ClientRule,
    peer: IpAddr,
    fields: Fields<'_>,
    client: ClientAddress,
) -> String {
    let source = match &rule.source {
        ClientSource::XForwardedFor => {
            fields.known(Name::XForwardedFor).map(|_| "X-Forwarded-For".to_owned())
        }
        ClientSource::Forwarded => fields.known(Name::Forwarded).map(|_| "Forwarded".to_owned()),
        ClientSource::Header(name) => fields.first(name).map(|_| format!("`{name}`")),
        ClientSource::Peer => None,
    };
    match (rule.trusts(peer), source) {
        (false, Some(source)) => {
            format!("the peer itself, no trusted proxy: what it says in {source} is not believed")
        }
        (false, None) => "the peer itself".into(),
        (true, _) if rule.source == ClientSource::Peer => {
            "the peer itself: `client_ip` is `peer`, so no header is believed".into()
        }
        (true, None) => match rule.overlooked(peer, fields) {
            None => "the peer itself, a trusted proxy that names no client".into(),
            Some(other) => format!(
                "the peer itself, a trusted proxy that names a client in `{other}`, but `client_ip` is `{}`",
                rule.source
            ),
        },
        (true, Some(source)) if !client.identified => format!(
            "the last trusted hop in {source} of the trusted proxy {peer}, unidentified: what stands before it is not an \
             address, so no exemption by `ip:` holds"
        ),
        (true, Some(source)) if client.address == peer => {
            format!("the peer itself, a trusted proxy: {source} names no other address")
        }
        (true, Some(source)) => format!("named in {source} by the trusted proxy {peer}"),
    }
}

/// Each condition, and why it holds.
pub(super) fn why(conditions: &Conditions, request: &route::RouteRequest<'_>) -> Vec<(&'static str, String)> {
    let path =
        match (request.path.form(conditions.merge_slashes), request.path.folded(conditions.merge_slashes)) {
            (spelled, folded) if spelled == folded || conditions.path.is_regex() => format!("`{spelled}`"),
            (spelled, folded) => format!("`{spelled}` is compared as `{folded}` and"),
        };
    let host = conditions.hosts.iter().find(|host| host.matches(request.host));
    let mut reasons = vec![
        ("path", format!("{path} matches `{}`", conditions.path)),
        ("host", host.map_or_else(|| "any".into(), |host| format!("`{}` matches `{host}`", request.host))),
    ];
    reasons.push(match conditions.methods.as_slice() {
        [] => ("method", "any".into()),
        methods if !methods.contains(request.method) => {
            ("method", format!("`GET` includes `{}`, which no route that fits names", request.method))
        }
        methods => ("method", format!("`{}` is {}", request.method, one_of(methods))),
    });
    reasons.extend(conditions.values.iter().map(|condition| condition.reason(request)));
    reasons
}

/// Why a route does not match.
pub(super) fn why_not(
    plan: &Plan,
    conditions: &Conditions,
    verdict: &Match,
    request: &route::RouteRequest<'_>,
) -> String {
    match verdict {
        Match::Chosen => verdict.to_string(),
        Match::LessSpecific(chosen, criterion) => {
            format!("matches too, but `{}` wins: {criterion}", plan.route(*chosen).name)
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
        Match::Header(_) | Match::Query(_) | Match::Cookie(_) | Match::Body(_) => {
            let is_it = |condition: &&Condition| match (condition, verdict) {
                (Condition::Header(name, _), Match::Header(other)) => name == other,
                (Condition::Query(name, _), Match::Query(other)) => name == other,
                (Condition::Cookie(name, _), Match::Cookie(other)) => name == other,
                (Condition::Body(pointer, _), Match::Body(other)) => pointer == other,
                _ => false,
            };
            conditions.values.iter().find(is_it).map_or_else(String::new, |it| why_not_value(it, request))
        }
        Match::Excluded(condition) => format!("`not` excludes {}", excluded(condition, request)),
        Match::Client => format!("the client {} is in none of its networks", request.client.address),
        Match::Country => match request.client.location.country {
            Some(country) => format!("the client is in {country}, which is none of its countries"),
            None => format!("the country of {} is unknown", request.client.address),
        },
        Match::Listener => match request.listener {
            Some(listener) => format!("the listener `{listener}` is none of its listeners"),
            None => "the request comes at a listener without a name".to_owned(),
        },
    }
}

/// Why a condition on a value does not hold.
fn why_not_value(condition: &Condition, request: &route::RouteRequest<'_>) -> String {
    let (Condition::Header(_, values)
    | Condition::Query(_, values)
    | Condition::Cookie(_, values)
    | Condition::Body(_, values)) = condition
    else {
        return String::new();
    };
    if let (Condition::Body(..), RequestContent::Unknown) = (condition, request.content) {
        return format!("{} is not known here, and counts as absent", condition.subject());
    }
    let why = match condition.is_sent(request) {
        true if values.iter().all(|pattern| *pattern == ValuePattern::Absent) => "is there",
        true => "has another value",
        false => "is absent",
    };
    format!("{} {why}", condition.subject())
}

/// The value that `not` excludes.
fn excluded(condition: &Condition, request: &route::RouteRequest<'_>) -> String {
    match condition {
        Condition::Clients(_) if !request.client.identified => "a client that is not identified".to_owned(),
        Condition::Clients(_) => format!("the client {}", request.client.address),
        Condition::Countries(_) => match request.client.location.country {
            Some(country) => format!("the country {country}"),
            None => "an unknown country".to_owned(),
        },
        Condition::Listeners(_) => match request.listener {
            Some(listener) => format!("the listener `{listener}`"),
            None => "a listener without a name".to_owned(),
        },
        Condition::Methods(_) => format!("the method `{}`", request.method),
        Condition::Hosts(_) => format!("the host `{}`", request.host),
        Condition::Path(path, _) => format!("the path, which matches `{path}`"),
        _ if condition.is_sent(request) => format!("the value of {}", condition.subject()),
        _ => format!("a request without {}", condition.subject()),
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

/// The upstream's name and servers.
pub(super) fn upstream(upstream: &Upstream) -> String {
    match &upstream.backend {
        Backend::Echo => format!("`{}` (the built-in echo)", upstream.name),
        Backend::Servers(servers) => {
            let servers: Vec<_> = servers.iter().map(|server| &*server.authority).collect();
            let health = upstream.health.as_ref().map(|health| format!("; health check: {health}"));
            format!("`{}` ({}{})", upstream.name, servers.join(", "), health.unwrap_or_default())
        }
    }
}

/// The number in the request that its cost is measured by, if it is measured in the request.
pub(super) fn measured(cost: &CostRule, request: &route::RouteRequest<'_>) -> Option<String> {
    let CostRule::Measured(measured) = cost else { return None };
    let MeasuredCost { from, scale, .. } = &**measured;
    Some(match measured.reading(request) {
        Reading::Value(value) => format!("{from} is {value}{scale}"),
        Reading::Absent => format!("{from} is missing"),
        Reading::Unreadable => format!("{from} is not one whole number from 0 on"),
    })
}

/// The rate of a policy, and whether this cost can ever be admitted.
pub(super) fn policy(policy: &Policy, cost: Option<Cost>) -> String {
    let words = format!("{}: {}", policy.algorithm.name(), policy.algorithm);
    let max = policy.algorithm.max_cost();
    match cost {
        Some(cost) if u64::from(cost.units()) > max => {
            format!("{words}; never passes, as it admits at most {max} at once")
        }
        _ => words,
    }
}
