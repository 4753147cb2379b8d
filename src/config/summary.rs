//! The meaning of a valid file as text: for `tollgate check`.

use std::fmt::Write as _;
use std::time::Duration;

use crate::auth::method::{ApiKeys, AuthMethod};
use crate::limit::Algorithm;
use crate::limit::units::Cost;
use crate::plan::action::RouteAction;
use crate::plan::auth::{Auth, RouteAuth};
use crate::plan::cost::{CostRule, Reserve};
use crate::plan::split::UpstreamSplit;
use crate::plan::{Backend, Limit, LimitUse, Mode, Plan, Policy, Redirect, Route, Upstream, UpstreamIndex};
use crate::route::Conditions;
use crate::route::client::AddressRules;
use crate::route::condition::Condition;
use crate::route::networks::Networks;
use crate::store::OnError;
use crate::store::usage::UsageSettings;

/// A line with the counts, then each route with its limits. Ends with a line break.
pub fn summary(plan: &Plan, file: &str) -> String {
    let mut text = format!(
        "{file} is good: {}, {}, {}.\n",
        counted(plan.taking_routes().count(), "route"),
        counted(plan.limits.len(), "limit"),
        counted(plan.upstreams.len(), "upstream"),
    );
    text.push_str(&listeners_words(plan));
    if let Some(shared) = &plan.store.shared {
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "Counters are shared in Redis at {}, with the prefix `{}`; a decision takes at most {:?}.",
            shared.servers, shared.prefix, shared.timeout
        );
    }
    if let Some(trace) = &plan.trace {
        let _ = writeln!(
            text,
            "Traces go to {} as `{}`; a share of {} of the requests begins one.",
            trace.url(),
            trace.service_name,
            trace.sample.share()
        );
    }
    text.push_str(&address_words("All routes: ", &plan.server.addresses));
    text.push_str(&connections_words(plan));
    for auth in &plan.auths {
        let name = &auth.name;
        let failures = auth
            .failures
            .map(|limit| format!("; wrong keys are charged to limit `{}`", plan.limit(limit).name));
        let (words, failures) = (credentials_words(auth), failures.unwrap_or_default());
        let shadow = if auth.mode == Mode::Shadow { "; in shadow: it refuses no request" } else { "" };
        let _ = writeln!(text, "Auth `{name}`: {words}{failures}{shadow}.");
    }
    for route in plan.taking_routes() {
        let _ = write!(text, "\n{}", route_words(plan, route));
    }
    text.push_str(&order_words(plan));
    if !plan.taking_routes().any(takes_all) {
        text.push_str("\nall other requests: 404\n");
    }
    text.push_str(&descriptors_words(plan));
    text
}

/// The limits of new connections.
fn connections_words(plan: &Plan) -> String {
    let Some(connections) = plan.connections() else { return String::new() };
    let route = plan.route(connections);
    let mut text = String::from("New connections of a client, before all routes:\n");
    for used in &route.limits {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  {}", limit_words(plan.limit(used.limit), used, route));
    }
    text
}

/// A line for each listener, with what clients speak there.
fn listeners_words(plan: &Plan) -> String {
    let mut text = String::new();
    for listener in plan.server.client_listeners() {
        let tls = if listener.tls { "over TLS" } else { "without TLS" };
        let proxied = if listener.proxy_protocol { ", after a PROXY protocol header" } else { "" };
        // Writing to a string cannot fail.
        let versions = if listener.http3 { "HTTP/1.1, HTTP/2 and HTTP/3" } else { "HTTP/1.1 and HTTP/2" };
        let _ = writeln!(text, "Listener {}: {versions} {tls}{proxied}.", listener.address);
    }
    if let Some(admin) = &plan.admin {
        let token = if admin.needs_token() { "with" } else { "without" };
        let tls = if admin.tls.is_some() { "over TLS" } else { "without TLS" };
        let _ = writeln!(text, "Admin listener {}: HTTP/1.1 {tls}, {token} a token.", admin.listen);
    }
    if let Some(decisions) = &plan.decisions {
        let tls = if decisions.tls.is_some() { "over TLS" } else { "without TLS" };
        let token = if decisions.token.is_some() { "with" } else { "without" };
        let _ = writeln!(
            text,
            "Decisions listener {}: HTTP/1.1, HTTP/2 and gRPC {tls}, {token} a token.",
            decisions.listen
        );
        for (route, limit) in plan.limits_left_out() {
            let _ =
                writeln!(text, "Limit `{limit}` of route `{route}` is left out there: it cannot be asked.");
        }
    }
    text
}

/// What other proxies may ask about.
fn descriptors_words(plan: &Plan) -> String {
    let mut text = String::new();
    for rule in plan.descriptors.iter() {
        let route = plan.route(rule.route);
        let report = if rule.report { ", reports: always charged" } else { "" };
        let overrides = if rule.overrides { ", or by the numbers of the descriptor" } else { "" };
        // Writing to a string cannot fail.
        let _ =
            writeln!(text, "\ndescriptors `{}`: cost {}{report}{overrides}", route.name, rule.cost.units());
        for used in &route.limits {
            let limit = plan.limit(used.limit);
            let on_error = plan.store.shared.as_ref().map_or("", |_| on_error_words(limit));
            let _ = writeln!(text, "  {}{on_error}", limit_words(limit, used, route));
        }
        if route.limits.is_empty() {
            text.push_str("  no limit\n");
        }
    }
    text
}

/// Whether a route takes each request that no other route takes.
fn takes_all(route: &Route) -> bool {
    let Conditions { hosts, path, methods, values, .. } = &route.conditions;
    let path = path.to_string();
    let has_all_paths = ["/*", "~^/", "~^/.*", "~^/.*$", "~/", "~.*", "~^.*$"].contains(&path.as_str());
    has_all_paths && hosts.is_empty() && methods.is_empty() && values.is_empty()
}

/// The order in which regular expressions are tried, if there are several.
fn order_words(plan: &Plan) -> String {
    let names: Vec<_> = plan.regex_routes().map(|(_, route)| format!("`{}`", route.name)).collect();
    match names.as_slice() {
        [] | [_] => String::new(),
        names => format!(
            "\nregular expressions are tried after exact paths and parameters, and before prefixes, in this order:\n  {}\n",
            names.join("\n  ")
        ),
    }
}

/// `1 route`, `2 routes`.
pub(crate) fn counted(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

fn route_words(plan: &Plan, route: &Route) -> String {
    let upstream = action_words(plan, route);
    let cost = match &route.cost {
        CostRule::Free => "never charged".to_owned(),
        cost => format!("cost {cost}"),
    };
    let mut text = format!("route `{}`: {} → {upstream}, {cost}\n", route.name, conditions_words(route));
    if route.redirect == Some(Redirect::Https) {
        text.push_str("  without TLS: sent to https by 308, and charged nothing\n");
    }
    if let Some(mirror) = &route.mirror {
        let (upstream, percent) = (upstream_words(plan.upstream(mirror.upstream)), mirror.percent());
        let _ = writeln!(text, "  copies to {upstream} for {percent} of the callers, {}", mirror.key);
    }
    text.push_str(&address_words("  ", &route.addresses));
    if let Some(auth) = &route.auth {
        let _ = writeln!(text, "  {}", auth_words(plan, auth));
    }
    for used in &route.limits {
        let limit = plan.limit(used.limit);
        let on_error = plan.store.shared.as_ref().map_or("", |_| on_error_words(limit));
        let _ = writeln!(text, "  {}{on_error}", limit_words(limit, used, route));
    }
    if route.limits.is_empty() {
        text.push_str("  no limit\n");
    }
    text
}

/// ``API keys in `header:x-api-key`, 3 keys of 2 consumers``.
fn credentials_words(auth: &Auth) -> String {
    let (source, words) = (&auth.source, consumers_words(auth));
    match &auth.method {
        AuthMethod::ApiKeys(_) => format!("API keys in `{source}`, {words}"),
        AuthMethod::Tokens(_) => format!("tokens in `{source}`, verified by {words}"),
        AuthMethod::Passwords(_) => format!("passwords of {words}"),
        AuthMethod::Forward(_) => format!("the answer of {words}"),
    }
}

/// `3 keys of 2 consumers`; of tokens, the keys that verify them.
pub(crate) fn consumers_words(auth: &Auth) -> String {
    match &auth.method {
        AuthMethod::ApiKeys(ApiKeys { consumers, .. }) => {
            format!("{} of {}", counted(consumers.keys(), "key"), counted(consumers.names(), "consumer"))
        }
        AuthMethod::Tokens(tokens) => tokens.keys_words(),
        AuthMethod::Forward(forward) => format!("`{}`", forward.target),
        AuthMethod::Passwords(users) => counted(users.len(), "user"),
    }
}

/// The clients that are admitted, on a line of its own; empty: all are.
fn address_words(begin: &str, rules: &AddressRules) -> String {
    let networks = |networks: &Networks| counted(networks.len(), "network");
    match (&rules.allow, &rules.deny) {
        (None, None) => String::new(),
        (Some(allow), None) => {
            format!("{begin}clients in {} are admitted, others get 403\n", networks(allow))
        }
        (None, Some(deny)) => format!("{begin}clients in {} get 403\n", networks(deny)),
        (Some(allow), Some(deny)) => format!(
            "{begin}clients in {} are admitted, but not those in {}; others get 403\n",
            networks(allow),
            networks(deny)
        ),
    }
}

/// ``requires a credential of `keys` or `sso`, which the backend does not get``.
fn auth_words(plan: &Plan, auth: &RouteAuth) -> String {
    let names: Vec<_> = auth.auths.iter().map(|auth| format!("`{}`", plan.auth(*auth).name)).collect();
    let verb = match (auth.optional, auth.mode) {
        (true, _) => "takes",
        (false, Mode::Enforce) => "requires",
        (false, Mode::Shadow) => "would require, and looks for",
    };
    let gets = if auth.forwards_credentials { "gets too" } else { "does not get" };
    let anonymous = if auth.optional { "; without one the client is anonymous" } else { "" };
    let required: Vec<_> = auth.requirements.iter().map(ToString::to_string).collect();
    let required = match required.as_slice() {
        [] => String::new(),
        required => format!("; the consumer must have {}", required.join(" and ")),
    };
    format!("{verb} a credential of {}, which the backend {gets}{anonymous}{required}", names.join(" or "))
}

/// `; shared by consumer; units in advance for 1s`: who shares the limit, and how.
fn sharing_words(limit: &Limit) -> String {
    let mut text = String::new();
    if let Some(share_by) = &limit.share_by {
        let _ = write!(text, "; shared {share_by}");
    }
    if let Some(lease) = limit.lease() {
        let _ = write!(text, "; units in advance for {:?}", Duration::from_micros(lease.duration().0));
    }
    text
}

/// `; without the store 503`, of a limit on shared counters.
fn on_error_words(limit: &Limit) -> &'static str {
    match limit.on_error {
        // A maximum that is found is this gateway's own.
        _ if limit.mode == Mode::Shadow || limit.is_adaptive() => "",
        OnError::Local if limit.lease().is_some() => {
            "; without the store it spends its units in advance, then refuses with 503"
        }
        OnError::Local => "; without the store it counts in memory",
        OnError::Allow => "; without the store it lets all through",
        OnError::Deny => "; without the store it refuses with 503",
    }
}

/// `GET or POST api.example.com/search/* with x-plan`: values of headers may be secrets.
fn conditions_words(route: &Route) -> String {
    let conditions = &route.conditions;
    let joined = |parts: Vec<String>| parts.join(" or ");
    let methods = joined(conditions.methods.iter().map(ToString::to_string).collect());
    let matched = match conditions.hosts.as_slice() {
        [] => conditions.path.to_string(),
        hosts => joined(hosts.iter().map(|host| format!("{host}{}", conditions.path)).collect()),
    };
    let (excluded, required): (Vec<_>, Vec<_>) =
        conditions.values.iter().partition(|condition| matches!(condition, Condition::Not(_)));
    let words =
        |conditions: Vec<&Condition>| conditions.into_iter().map(Condition::words).collect::<Vec<_>>();
    let (excluded, fields) = (words(excluded), words(required));
    let space = if methods.is_empty() { "" } else { " " };
    let with = if fields.is_empty() { String::new() } else { format!(" with {}", fields.join(" and ")) };
    let without =
        if excluded.is_empty() { String::new() } else { format!(" unless {}", excluded.join(" or ")) };
    format!("{methods}{space}{matched}{with}{without}")
}

fn action_words(plan: &Plan, route: &Route) -> String {
    match &route.action {
        RouteAction::Forward(upstream) => upstream_words(plan.upstream(*upstream)),
        RouteAction::Split(split) => split_words(plan, split),
        RouteAction::Redirect(redirect) => format!("redirect with {}", redirect.status.as_str()),
        RouteAction::Respond(response) if !response.usage.is_empty() => {
            "answered with what is used".to_owned()
        }
        RouteAction::Respond(response) => format!("answered with {}", response.status.as_str()),
        RouteAction::Decide => "decided for others".to_owned(),
    }
}

/// ```95 % to `blue` (2 servers), 5 % to `green` (1 server), by `cookie:session` ```.
fn split_words(plan: &Plan, split: &UpstreamSplit) -> String {
    let total: u64 = split.shares.iter().map(|(_, weight)| u64::from(*weight)).sum();
    let share = |(upstream, weight): &(UpstreamIndex, u32)| {
        let percent = (f64::from(*weight) * 1e4 / (total.max(1) as f64)).round() / 1e2;
        format!("{percent} % to {}", upstream_words(plan.upstream(*upstream)))
    };
    let shares = split.shares.iter().map(share).collect::<Vec<_>>().join(", ");
    split.key.as_ref().map_or_else(|| shares.clone(), |key| format!("{shares}, {key}"))
}

fn upstream_words(upstream: &Upstream) -> String {
    match &upstream.backend {
        Backend::Echo => format!("`{}` (the built-in echo)", upstream.name),
        Backend::Servers(servers) => format!("`{}` ({})", upstream.name, counted(servers.len(), "server")),
    }
}

/// ``limit `per-client` (token-bucket): 50 at once, then one every 100 ms, per client address; 5 of these requests at
/// once``.
fn limit_words(limit: &Limit, used: &LimitUse, route: &Route) -> String {
    let first = limit.policies.first();
    let algorithm = first.map_or("", |policy| policy.algorithm.name());
    let shadow = match (limit.mode, &limit.trial) {
        (Mode::Shadow, _) => ", shadow: counts, never refuses".to_owned(),
        (Mode::Enforce, Some(trial)) => format!(", trial: refuses for {} of the keys", trial.percent()),
        (Mode::Enforce, None) => String::new(),
    };
    let words = |policies: &[Policy]| {
        let policies: Vec<_> = policies.iter().map(|policy| policy.algorithm.to_string()).collect();
        policies.join("; and ")
    };
    let policies = words(&limit.policies);
    let mut text = format!("limit `{}` ({algorithm}{shadow}): {policies}, {}", limit.name, limit.key);
    for tier in &limit.tiers {
        let words = if tier.policies.is_empty() { "no limit".to_owned() } else { words(&tier.policies) };
        let _ = write!(text, "; tier `{}`: {words}", tier.name);
        if limit.share_by.is_some() {
            let _ = write!(text, ", weight {}", tier.weight);
        }
    }
    if let Some(mapped) = &limit.mapped_tier {
        let _ = write!(text, "; the tier is that of `{}` in map `{}`", mapped.part, mapped.name);
    }
    text.push_str(&sharing_words(limit));
    if let Some(ban) = &limit.ban {
        let _ = write!(text, "; ban: {}", ban.algorithm);
    }
    if limit.key.may_be_missing() {
        let _ = write!(text, " (without it {})", limit.key.missing);
    }
    let _ = match &used.cost {
        CostRule::Free => write!(text, "; free here"),
        CostRule::Fixed(cost) if cost.units() == 1 => Ok(()),
        CostRule::Fixed(cost) => {
            write!(text, "{}", cost_words(limit, *cost, ("spends", used.cost == route.cost)))
        }
        CostRule::Measured(_) if used.cost == route.cost => Ok(()),
        CostRule::Measured(_) => write!(text, "; cost here: {}", used.cost),
        CostRule::Settled(settled) => {
            let is_of_route = used.cost == route.cost;
            let words = match &settled.reserve {
                Reserve::Measured(measured) => format!("; a request reserves {measured}"),
                Reserve::Fixed(units) => match Cost::new(*units) {
                    Some(units) => cost_words(limit, units, ("reserves", is_of_route)),
                    None => "; a request reserves nothing, and is refused only while its key is in debt"
                        .to_owned(),
                },
            };
            let by =
                if is_of_route { String::new() } else { format!("; settled by {}", settled.settled_by()) };
            write!(text, "{words}{by}")
        }
    };
    if limit.before_auth {
        text.push_str("; charged before the credential is looked at");
    }
    if let Some(max_keys) = limit.max_keys {
        let _ = write!(text, "; at most {max_keys} keys in memory");
    }
    text.push_str(&limit.usage.as_ref().map(UsageSettings::words).unwrap_or_default());
    if let Some(jitter) = limit.retry_jitter {
        let _ = write!(text, "; `retry-after` up to {:?} longer, at random", Duration::from_micros(jitter.0));
    }
    if limit.exempt.iter().len() > 0 {
        let exempt: Vec<_> = limit.exempt.iter().map(|exemption| format!("`{exemption}`")).collect();
        let _ = write!(text, "; exempt: {}", exempt.join(", "));
    }
    text
}

/// The cost of a request here, and how many are admitted from a full allowance. (Any cost may join a leaky bucket's
/// queue.)
fn cost_words(limit: &Limit, cost: Cost, (spends, is_of_route): (&str, bool)) -> String {
    let cost = u64::from(cost.units());
    let own = if is_of_route { "" } else { " here" };
    let counts = limit.policies.iter().map(|policy| &policy.algorithm);
    let min =
        counts.filter(|algorithm| algorithm.max_cost() == algorithm.quota()).map(Algorithm::quota).min();
    match min.map(|min| min / cost.max(1)) {
        None => format!("; a request{own} {spends} {cost}"),
        Some(1) => format!("; a request{own} {spends} {cost}, so one passes at once"),
        Some(max) => format!("; a request{own} {spends} {cost}, so {max} pass at once"),
    }
}
