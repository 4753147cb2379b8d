//! Why a request falls under its route and its limits, without running anything: `tollgate explain`, and the admin API.

mod request;
mod text;
mod words;

pub use request::{ExplainFault, ExplainRequest};

use crate::gateway::{Gateway, Limit, LimitIndex, LimitUse, Mode, Redirect, Route};
use crate::limit::units::{Cost, Fingerprint};
use crate::route::client::Client;
use crate::route::key::{Claim, Missing, Secret};
use crate::route::mask::{Masking, ShortIds};
use crate::route::{self, Match, RouteIndex};

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
    /// Where the request is sent, uncharged, if it comes without TLS.
    pub redirect: Option<String>,
    /// The target that the upstream sees.
    pub forwarded: String,
    /// Its limits, in file order.
    pub limits: Vec<Applied>,
}

/// A limit on a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// Which limit.
    pub index: LimitIndex,
    /// Its name.
    pub name: String,
    /// Whose counters it charges; `None`: nobody's.
    pub owner: Option<Fingerprint>,
    /// The values of its key, as [`Key::label`](crate::route::key::Key::label) tells them.
    pub label: Vec<String>,
    /// Refuse, or only count.
    pub mode: Mode,
    /// What it does with the request.
    pub standing: Standing,
    /// The key's parts and values, masked unless the limit reveals them.
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
    /// Refuses with 400: a part of the key has several values.
    Repeated,
}

/// Explains what the gateway would do with the request. Pure: no counter is read or charged.
///
/// # Errors
/// The gateway would answer 400 to its path.
pub fn explain(gateway: &Gateway, request: &ExplainRequest) -> Result<Explanation, ExplainFault> {
    // Owners and short ids are of no use without a running gateway, so any secret will do.
    explain_to(gateway, request, &Secret::Process([0; 16]), None)
}

/// The same of a gateway that runs: with its `secret`, owners are those of its counters, and with its `ids`, masked values have
/// the short ids that its other views show.
///
/// # Errors
/// As [`explain`].
pub fn explain_to(
    gateway: &Gateway,
    request: &ExplainRequest,
    secret: &Secret,
    ids: Option<&ShortIds>,
) -> Result<Explanation, ExplainFault> {
    let rule = &gateway.server.client;
    let client = rule.identify(request.peer, request.headers.fields());
    let path = request.path(gateway.server.path_matching)?;
    let seen = route::Request {
        method: &request.method,
        host: &request.host,
        path: &path,
        query: request.query.as_deref(),
        headers: request.headers.fields(),
        client,
        tls_subject: None,
    };
    let chosen = gateway.table.find(&seen).map(|index| gateway.route(index));
    let (others, untold) = others(gateway, &seen);
    Ok(Explanation {
        request: format!("{} {}{}", request.method, request.host, request.target),
        client,
        identified: words::identified(rule, request, client),
        route: chosen.map(|route| Taken::new(gateway, route, &seen, (secret, ids))),
        others,
        untold,
    })
}

impl Taken {
    fn new(
        gateway: &Gateway,
        route: &Route,
        request: &route::Request<'_>,
        secrets: (&Secret, Option<&ShortIds>),
    ) -> Self {
        let path = request.path.form(route.conditions.merge_slashes);
        let with_query =
            |path: &str| request.query.map_or_else(|| path.into(), |query| format!("{path}?{query}"));
        let host = if request.host.is_empty() { "HOST" } else { request.host };
        let location = format!("https://{host}{}", with_query(path));
        let path = route.forwarded_path(request.path);
        Self {
            name: route.name.to_string(),
            conditions: words::why(&route.conditions, request),
            upstream: words::upstream(gateway.upstream(route.upstream)),
            redirect: route.redirect.map(|Redirect::Https| location),
            forwarded: with_query(path),
            limits: route
                .limits
                .iter()
                .map(|used| Applied::new(gateway, route, used, request, secrets))
                .collect(),
        }
    }
}

impl Applied {
    fn new(
        gateway: &Gateway,
        route: &Route,
        used: &LimitUse,
        request: &route::Request<'_>,
        (secret, ids): (&Secret, Option<&ShortIds>),
    ) -> Self {
        let limit = gateway.limit(used.limit);
        let merge_slashes = route.conditions.merge_slashes;
        let masking = match (limit.reveal, ids) {
            (true, _) => Masking::Off,
            (false, Some(ids)) => Masking::Ids(ids),
            (false, None) => Masking::NoIds,
        };
        let (standing, owner) = Standing::new(limit, route, used, request, secret);
        Self {
            index: used.limit,
            owner,
            label: limit.key.label(request, &route.name, merge_slashes, masking),
            name: limit.name.to_string(),
            mode: limit.mode,
            standing,
            key: limit.key.describe(request, &route.name, merge_slashes, masking),
            missing: limit.key.may_be_missing().then_some(limit.key.missing),
            policies: limit.policies.iter().map(|policy| words::policy(policy, used.cost)).collect(),
        }
    }
}

impl Standing {
    /// And whose counters are charged.
    fn new(
        limit: &Limit,
        route: &Route,
        used: &LimitUse,
        request: &route::Request<'_>,
        secret: &Secret,
    ) -> (Self, Option<Fingerprint>) {
        let merge_slashes = route.conditions.merge_slashes;
        let Some(cost) = used.cost else { return (Self::Free, None) };
        if let Some(exemption) = limit.exempt.first(request, merge_slashes) {
            return (Self::Exempt(exemption.to_string()), None);
        }
        match limit.key.claim(secret, request, &route.name, merge_slashes) {
            Claim::Key(owner) => (Self::Charged(cost), Some(owner)),
            Claim::Skip => (Self::Skipped, None),
            Claim::Deny => (Self::Missing, None),
            Claim::Repeated => (Self::Repeated, None),
        }
    }
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
            (route.name.to_string(), words::why_not(gateway, &route.conditions, verdict, request))
        })
        .collect();
    let untold = others.count() - told.len();
    (told, untold)
}
