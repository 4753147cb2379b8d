//! Explains which route and limits a request gets, without running anything: `tollgate explain`, and the admin API.
//!
//! For example, `tollgate explain POST https://shop.test/login` names the route and the condition by which each route before
//! it does not match, and for each limit the key, the cost and whether the request is exempt. The route is found and the
//! request decided by the code that serves requests, so that the two cannot disagree. Calls of other proxies on descriptors
//! are explained as well.

mod description;
mod descriptors;
pub(crate) mod json;
mod limit;
mod live;
mod request;
mod resolution;
pub(crate) mod text;

pub use descriptors::DescriptorExplanation;
pub use limit::{LimitExplanation, LimitStatus};
pub use live::{
    LiveCredential, LiveVerdict, PendingCredential, Running, decide_live, explain_live, pending_credential,
};
pub use request::{ExplainFault, ExplainRequest};
pub use resolution::LookedDecision;

use http::StatusCode;

use crate::auth::method::AuthMethod;
use crate::http1::request::{RequestError, RequestHead};
use crate::limit::units::Timestamp;
use crate::plan::action::{ResponseContent, RouteAction};
use crate::plan::auth::{AuthFailure, CredentialFault, NamedConsumer};
use crate::plan::decision::RequestVerdict;
use crate::plan::early_response::EarlyResponse;
use crate::plan::resolve::{RoutedRequest, Unroutable};
use crate::plan::seen_request::SeenRequest;
use crate::plan::split::ChosenBy;
use crate::plan::split_cookie::SPLIT_COOKIE;
use crate::plan::{PathEdit, Plan, Redirect, Route, Upstream, UpstreamIndex};
use crate::route::client::{AddressRefusal, ClientAddress};
use crate::route::key::KeySecret;
use crate::route::mask::ShortIds;
use crate::route::{self, Conditions, Match, RouteIndex};
use crate::store::Known;
use crate::store::bans::Bans;
use crate::store::overrides::Overrides;

use descriptors::explain_call;
use resolution::{End, ExplainSources, Resolution, Resolved, resolved};

/// Why a credential is not verified without a running gateway.
const OFFLINE: &str = "only a running gateway verifies passwords and tokens (`--live`)";
/// Of more routes than this only those with the request's path are listed, and no more than this.
const MAX_TOLD: usize = 20;

/// Why a request gets its route and its limits. As text through `Display`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// The request: `GET api.example.com/search?q=1`.
    pub request: String,
    /// The client's address.
    pub client: ClientAddress,
    /// How the client was identified.
    pub identified: String,
    /// The consumer, if its credential names one.
    pub consumer: Option<ExplainedConsumer>,
    /// Why auths in shadow would have refused it.
    pub shadow: Option<ExplainedShadow>,
    /// The response before any limit is checked; `None`: the limits decide.
    pub answer: Option<ExplainedAnswer>,
    /// Why its credential is not verified, if it is not: then nothing is known of what comes after.
    pub unverified: Option<&'static str>,
    /// The route, if it has one.
    pub route: Option<MatchedRoute>,
    /// The descriptors of a call; `None`: it is a request.
    pub descriptors: Option<Vec<DescriptorExplanation>>,
    /// Other routes by name, with the reason why each does not match; of more than 20 routes only those with the
    /// request's path.
    pub others: Vec<(String, String)>,
    /// The number of further routes.
    pub untold: usize,
}

/// Why an auth in shadow would have refused a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExplainedShadow {
    /// The name of the auth.
    pub auth: String,
    /// The status of the refusal, and its reason.
    pub answer: ExplainedAnswer,
}

/// The consumer of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExplainedConsumer {
    /// Its name.
    pub name: String,
    /// Its tier, if it has one.
    pub tier: Option<String>,
    /// The auth that named it.
    pub auth: String,
}

/// The route that a request takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MatchedRoute {
    /// The index of the route.
    pub index: RouteIndex,
    /// Its name.
    pub name: String,
    /// The sets that it has keys of.
    pub sets: Vec<String>,
    /// Its conditions by name (`path`, `host`, …), and why each holds.
    pub conditions: Vec<(&'static str, String)>,
    /// The URL that a request without TLS is redirected to, uncharged.
    pub redirect: Option<String>,
    /// What the route does with the request, if the limits admit it.
    pub action: ExplainedAction,
    /// Its limits, in file order.
    pub limits: Vec<LimitExplanation>,
}

/// The mirror of a route, and whether it gets a copy of the request.
#[derive(Clone, Debug, PartialEq)]
pub struct MirrorExplanation {
    /// Its upstream.
    pub upstream: String,
    /// The servers of the upstream in words.
    pub words: String,
    /// The share of callers whose requests are copied, from 0 to 1.
    pub share: f64,
    /// The same as text.
    pub percent: String,
    /// Whether the caller is one of them.
    pub is_copied: bool,
}

impl Eq for MirrorExplanation {}

/// What a route does with an admitted request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExplainedAction {
    /// Forwards it.
    Forward {
        /// The upstream: `api (127.0.0.1:9001)`.
        upstream: String,
        /// The edit that makes the target another one than the request's: `strip_prefix`, `rewrite`, `base path`.
        edits: Vec<&'static str>,
        /// The target forwarded to the upstream.
        target: String,
        /// The mirror of the route, if it has one.
        mirror: Option<MirrorExplanation>,
    },
    /// Redirects the client.
    Redirect {
        /// The status.
        status: StatusCode,
        /// The location.
        location: String,
    },
    /// Answers it.
    Respond {
        /// The status.
        status: StatusCode,
        /// The media type of the body, if there is one.
        content_type: Option<String>,
    },
}

/// The response to a request before any limit is checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExplainedAnswer {
    /// Its status.
    pub status: StatusCode,
    /// The reason.
    pub reason: String,
}

/// Explains what the gateway would do with the request. Pure: no counter is read or charged, and no password or token is
/// verified.
pub fn explain(plan: &Plan, request: &ExplainRequest) -> Explanation {
    // Owners are not used without a running gateway, so any secret will do.
    let secret = KeySecret::Process([0; 16]);
    if let Some(call) = &request.call {
        return explain_call(plan, request, call, &secret, None);
    }
    let mut spans = Vec::new();
    match request.head(&mut spans) {
        Ok(head) => {
            let known =
                Known { bans: Bans::none(), overrides: Overrides::none(), memory: None, now: Timestamp(0) };
            let sources = ExplainSources { secret: &secret, loop_mark: None, known, decisions: None };
            let mut seen = None;
            let resolution = resolved(plan, request, &head, sources, None, &mut seen);
            Explanation::of(plan, request, &head, &resolution, None, OFFLINE)
        }
        Err(fault) => Explanation::refused(plan, request, fault),
    }
}

impl Explanation {
    /// The gateway cannot read the request.
    fn refused(plan: &Plan, request: &ExplainRequest, fault: RequestError) -> Self {
        let client = plan.server.client.client(request.peer);
        let answer = ExplainedAnswer { status: fault.status(), reason: fault.reason().to_owned() };
        Self {
            request: request.title.clone(),
            client,
            identified: "the peer itself: the request cannot be read".into(),
            consumer: None,
            shadow: None,
            answer: Some(answer),
            unverified: None,
            route: None,
            descriptors: None,
            others: Vec::new(),
            untold: 0,
        }
    }

    fn of(
        plan: &Plan,
        asked: &ExplainRequest,
        head: &RequestHead<'_>,
        resolution: &Resolution<'_, '_>,
        ids: Option<&ShortIds>,
        reason: &'static str,
    ) -> Self {
        let Resolution { client, host, route, outcome } = resolution;
        let answered = |response| (Some(ExplainedAnswer::of(plan, response)), None);
        let (answer, unverified) = match outcome {
            Err(Unroutable { response, .. }) => answered(response),
            Ok(Resolved { end: End::Decided(Some(RequestVerdict::Early(response))), request }) => {
                let (answer, unverified) = answered(response);
                (answer.map(|answer| answer.with_requirement(response, request)), unverified)
            }
            Ok(Resolved { end: End::Decided(_), .. }) => (None, None),
            Ok(Resolved { end: End::Unverified(auth), .. }) => (
                None,
                Some(match plan.auth(*auth).method {
                    AuthMethod::Forward(_) => "a service decides about the request, and is not asked here",
                    _ => reason,
                }),
            ),
        };
        let request = match outcome {
            Ok(resolved) => Some(resolved.request.request()),
            Err(Unroutable { seen, .. }) => seen.map(SeenRequest::request),
        };
        let decided = |_: &&Resolved<'_, '_>| answer.is_none() && unverified.is_none();
        let routed = outcome.as_ref().ok().filter(decided).map(|resolved| &resolved.request);
        let (others, untold) =
            request.as_ref().map_or_else(Default::default, |request| others(plan, request));
        let route_taken = request.zip(*route);
        let route_taken = route_taken
            .map(|(request, (index, route))| MatchedRoute::new(plan, (index, route), &request, routed, ids));
        let answer = answer.map(|answer| answer.with_host(asked, outcome, route_taken.as_ref()));
        Self {
            request: format!(
                "{} {host}{}",
                head.method,
                without_credentials(plan, head.target.path_and_query())
            ),
            client: *client,
            identified: description::identified(&plan.server.client, asked.peer, head.fields, *client),
            consumer: (outcome.as_ref().ok())
                .and_then(|resolved| resolved.request.caller.consumer)
                .map(|named| ExplainedConsumer::of(plan, named)),
            shadow: (outcome.as_ref().ok())
                .and_then(|resolved| resolved.request.shadow_failure)
                .map(|failure| ExplainedShadow::of(plan, failure)),
            answer,
            unverified,
            route: route_taken,
            descriptors: None,
            others,
            untold,
        }
    }
}

impl ExplainedConsumer {
    fn of(plan: &Plan, NamedConsumer { auth, consumer }: NamedConsumer<'_>) -> Self {
        Self {
            name: consumer.name().to_owned(),
            tier: consumer.tier().map(str::to_owned),
            auth: plan.auth(auth).name.to_string(),
        }
    }
}

impl ExplainedShadow {
    fn of(plan: &Plan, failure: AuthFailure) -> Self {
        let answer = ExplainedAnswer::of(plan, &EarlyResponse::Unauthenticated(failure));
        Self { auth: plan.auth(failure.auth).name.to_string(), answer }
    }
}

impl ExplainedAnswer {
    fn of(plan: &Plan, response: &EarlyResponse) -> Self {
        let reason = match response {
            EarlyResponse::Reject(reason) => {
                let refusals = [AddressRefusal::Denied, AddressRefusal::NotAllowed];
                let rule = refusals.into_iter().find(|refusal| refusal.error() == reason.error);
                rule.map_or_else(|| reason.detail.to_string(), |rule| rule.words().to_owned())
            }
            EarlyResponse::Unauthenticated(failure) => failure.fault.detail().into(),
            EarlyResponse::Redirect(location) => format!("to `{}`", without_credentials(plan, location)),
            EarlyResponse::Preflight => "a browser's preflight".into(),
            EarlyResponse::Options => "what the server as a whole can do".into(),
            EarlyResponse::KeyAuthorization(_) => "the answer to a challenge".into(),
        };
        Self { status: response.status(), reason }
    }

    /// The redirect of a path alone, which names no host to redirect to: the text `HOST` stands for it.
    fn with_host(
        self,
        asked: &ExplainRequest,
        outcome: &Result<Resolved<'_, '_>, Unroutable<'_>>,
        route: Option<&MatchedRoute>,
    ) -> Self {
        let Err(Unroutable { response: EarlyResponse::Reject(reason), .. }) = outcome else { return self };
        let lacks_host = asked.is_path_alone() && reason.error == "malformed_host";
        match route.and_then(|route| route.redirect.as_ref()).filter(|_| lacks_host) {
            Some(location) => {
                Self { status: StatusCode::PERMANENT_REDIRECT, reason: format!("to `{location}`") }
            }
            None => self,
        }
    }

    /// Names the requirement that the consumer does not meet, which clients are not told.
    fn with_requirement(self, response: &EarlyResponse, request: &RoutedRequest<'_, '_>) -> Self {
        let EarlyResponse::Unauthenticated(AuthFailure { fault: CredentialFault::Insufficient, .. }) =
            response
        else {
            return self;
        };
        let auth = request.route.auth.as_ref();
        match auth.and_then(|auth| auth.unmet(request.caller.consumer)) {
            Some(required) => Self { reason: format!("the route requires {required}"), ..self },
            None => self,
        }
    }
}

impl MatchedRoute {
    fn new(
        plan: &Plan,
        (index, route): (RouteIndex, &Route),
        request: &route::RouteRequest<'_>,
        routed: Option<&RoutedRequest<'_, '_>>,
        ids: Option<&ShortIds>,
    ) -> Self {
        let path = request.path.form(route.conditions.merge_slashes);
        let with_query = |path: &str| {
            request
                .query
                .map_or_else(|| path.into(), |query| without_credentials(plan, &format!("{path}?{query}")))
        };
        let expressions = || plan.regex_routes();
        let order = expressions().position(|(other, _)| other == index).map(|before| {
            let all = expressions().count();
            ("order", format!("expression {} of {all}: they are tried in file order", before + 1))
        });
        let host = if request.host.is_empty() { "HOST" } else { request.host };
        let location = format!("https://{host}{}", with_query(path));
        let limits = |routed: &RoutedRequest<'_, '_>| {
            let uses = route.limits.iter().zip(&routed.charges.checks);
            let explain = |(used, check)| {
                let key_hash = routed.charges.key_hash(check);
                LimitExplanation::new((index, route), used, (check, key_hash), &routed.request(), ids)
            };
            uses.map(explain).collect()
        };
        Self {
            index,
            sets: route.sets.iter().map(ToString::to_string).collect(),
            name: route.name.to_string(),
            conditions: description::why(&route.conditions, request).into_iter().chain(order).collect(),
            redirect: route.redirect.map(|Redirect::Https| location),
            action: ExplainedAction::of(plan, route, request, routed),
            limits: routed.map(limits).unwrap_or_default(),
        }
    }
}

/// The upstream; of several, the one that the key of the request selects, or all that it may be drawn from.
fn upstream_words(
    plan: &Plan,
    route: &Route,
    request: &route::RouteRequest<'_>,
    chosen: &Upstream,
) -> String {
    let RouteAction::Split(split) = &route.action else { return description::upstream(chosen) };
    let by = split.choose(route.matched(request), 0).1;
    match (&split.key, by) {
        (_, ChosenBy::SplitCookie) => {
            return format!("{} (chosen by the cookie `{SPLIT_COOKIE}`)", description::upstream(chosen));
        }
        (Some(key), ChosenBy::Key) => {
            return format!("{} (chosen {key})", description::upstream(chosen));
        }
        _ => {}
    }
    let share = |&(upstream, weight): &(UpstreamIndex, u32)| {
        format!("{} (weight {weight})", description::upstream(plan.upstream(upstream)))
    };
    format!("one of {}", split.shares.iter().map(share).collect::<Vec<_>>().join(", "))
}

impl ExplainedAction {
    fn of(
        plan: &Plan,
        route: &Route,
        request: &route::RouteRequest<'_>,
        routed: Option<&RoutedRequest<'_, '_>>,
    ) -> Self {
        let target = |otherwise: String| {
            without_credentials(plan, routed.map_or(&otherwise, |routed| &*routed.target))
        };
        match &route.action {
            RouteAction::Forward(_) | RouteAction::Split(_) => {
                let first = || route.action.upstreams().first().copied().unwrap_or(UpstreamIndex(0));
                let index = routed.and_then(|routed| routed.upstream).unwrap_or_else(first);
                let upstream = plan.upstream(index);
                let edits = route.path_edit.as_ref().map(|edit| match edit {
                    PathEdit::StripPrefix(_) => "strip_prefix",
                    PathEdit::Rewrite(_) => "rewrite",
                });
                let base = upstream.base_path.as_ref().map(|_| "base path");
                let seen = routed.map_or(*request, RoutedRequest::request);
                let forwarded = plan.target(route, index, request.path, request.query);
                Self::Forward {
                    upstream: upstream_words(plan, route, &seen, upstream),
                    edits: edits.into_iter().chain(base).collect(),
                    target: target(forwarded.unwrap_or_default()),
                    mirror: MirrorExplanation::of(plan, route, routed),
                }
            }
            RouteAction::Redirect(redirect) => {
                let Conditions { path, merge_slashes, .. } = &route.conditions;
                let location = redirect.to.location(path, request.path, *merge_slashes, request.query);
                Self::Redirect { status: redirect.status, location: target(location) }
            }
            RouteAction::Decide => Self::Respond { status: StatusCode::OK, content_type: None },
            RouteAction::Respond(response) => {
                let media_type = |content: &ResponseContent| {
                    String::from_utf8_lossy(content.content_type.as_bytes()).into_owned()
                };
                let of_usage = || Some("application/json".to_owned()).filter(|_| !response.usage.is_empty());
                Self::Respond {
                    status: response.status,
                    content_type: response.content.as_ref().map(media_type).or_else(of_usage),
                }
            }
        }
    }
}

impl MirrorExplanation {
    fn of(plan: &Plan, route: &Route, routed: Option<&RoutedRequest<'_, '_>>) -> Option<Self> {
        let mirror = route.mirror.as_ref()?;
        let upstream = plan.upstream(mirror.upstream);
        Some(Self {
            upstream: upstream.name.to_string(),
            words: description::upstream(upstream),
            share: mirror.share(),
            percent: mirror.percent(),
            is_copied: routed.is_some_and(|routed| routed.is_mirrored_by(mirror)),
        })
    }
}

/// A path and query without the credentials in it.
fn without_credentials(plan: &Plan, path: &str) -> String {
    let mut path = path.to_owned();
    plan.cut_credentials(&mut path);
    path
}

/// The other routes, with the reason why each does not match; and the number left out.
fn others(plan: &Plan, request: &route::RouteRequest<'_>) -> (Vec<(String, String)>, usize) {
    let matches = plan.table.explain(request);
    let all = matches.len() <= MAX_TOLD;
    let others = matches.iter().enumerate().filter(|(_, verdict)| **verdict != Match::Chosen);
    let listed = others.clone().filter(|(_, verdict)| all || **verdict != Match::Path).take(MAX_TOLD);
    let listed: Vec<_> = listed
        .map(|(index, verdict)| {
            let route = plan.route(RouteIndex(index));
            (route.name.to_string(), description::why_not(plan, &route.conditions, verdict, request))
        })
        .collect();
    let untold = others.count() - listed.len();
    (listed, untold)
}
