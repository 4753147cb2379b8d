//! Resolves a request head to its route, client and charges, or to the response sent before any limit is checked, for
//! the proxy, `explain`, the admin API and `replay`. It does no I/O and reads no clock, but it is not pure: a split
//! without a key draws the upstream at random, and a credential is looked up among those verified before.

use std::borrow::Cow;
use std::net::IpAddr;

use http::{Method, StatusCode, header};

use super::action::RouteAction;
use super::admission::RequestCharges;
use super::auth::{
    AuthFailure, AuthIndex, CredentialFault, LoggedCredential, NamedConsumer, RouteAuth, Unauthenticated,
    VerifiedCredential,
};
use super::loop_mark::LoopMark;
use super::reject_reason::RejectReason;
use super::seen_request::SeenRequest;
use super::target::AmbiguousTarget;
use super::{Affinity, Plan, Redirect, Route, UpstreamIndex};
use crate::http1::name::Name;
use crate::http1::request::{Body, RequestHead};
use crate::route::client::ClientAddress;
use crate::route::content::RequestContent;
use crate::route::identity::GrantedField;
use crate::route::key::KeySecret;
use crate::route::path::{EncodedDots, Path};
use crate::route::pattern::bare_host;
use crate::route::{Conditions, RouteIndex, RouteRequest};

/// How often a request may pass this process: a gateway both before and behind a cache is passed twice.
const MAX_PASSES: usize = 3;

/// The peer of the connection that a request came on.
#[derive(Clone, Copy, Debug)]
pub struct Peer<'r> {
    /// Its address.
    pub address: IpAddr,
    /// Whether it uses TLS.
    pub secure: bool,
    /// The subject of its certificate.
    pub subject: Option<&'r str>,
}

/// The sender of a request in an access log.
#[derive(Clone, Copy, Debug)]
pub struct LoggedSender<'p, 's> {
    /// The client.
    pub client: IpAddr,
    /// Whether the request came by TLS.
    pub secure: bool,
    /// What is known of the credential.
    pub credential: LoggedCredential<'p, 's>,
}

/// The result of resolving a request head.
#[derive(Debug)]
pub struct Resolution<'p, 'r> {
    /// The client of the request.
    pub client: ClientAddress,
    /// The host that the request names: lower case, without port and final dot. Empty if there is none, or it is
    /// malformed.
    pub host: Cow<'r, str>,
    /// The request's route, if one was found: also if the response is sent before any limit is checked.
    pub route: Option<(RouteIndex, &'p Route)>,
    /// The request as routes see it, if it is answered early and its path is valid.
    pub seen: Option<Box<SeenRequest<'r>>>,
    /// The next step.
    pub outcome: Result<RoutedRequest<'p, 'r>, EarlyResponse>,
}

/// A request with a route, and the data found for it.
#[derive(Debug)]
pub struct RoutedRequest<'p, 'r> {
    /// The index of its route.
    pub index: RouteIndex,
    /// Its route.
    pub route: &'p Route,
    /// The consumer that its credential names; `None`: it is anonymous.
    pub consumer: Option<NamedConsumer<'p>>,
    /// Its charges.
    pub charges: RequestCharges<'p>,
    /// The upstream that it is forwarded to; `None`: the gateway answers.
    pub upstream: Option<UpstreamIndex>,
    /// The path and query for the backend, or the location of a redirect. Empty if the gateway answers.
    pub target: Cow<'r, str>,
    /// What it says about its server.
    pub affinity: Affinity,
    /// Further fields for the backend, from the service that has let the request through.
    pub granted: &'p [GrantedField],
    seen: SeenRequest<'r>,
}

/// The response to a request that is not forwarded or charged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EarlyResponse {
    /// A refusal.
    Reject(RejectReason),
    /// A refusal because of the credential.
    Unauthenticated(AuthFailure),
    /// None yet: the body has to be read, and the request resolved again.
    Unread,
    /// None yet: the credential for this auth has to be verified, and the request resolved again.
    Unverified(AuthIndex),
    /// A redirect to this URL.
    Redirect(String),
    /// A response to a browser's preflight, on a route with `cors`.
    Preflight,
    /// A response to `OPTIONS *`, which concerns the server as a whole (RFC 9110 §9.3.7): routes are about paths.
    Options,
}

impl EarlyResponse {
    /// The status of the response.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Reject(reason) => reason.status,
            Self::Unauthenticated(AuthFailure { fault: CredentialFault::Repeated, .. }) => {
                StatusCode::BAD_REQUEST
            }
            Self::Unauthenticated(_) => StatusCode::UNAUTHORIZED,
            Self::Unread => StatusCode::BAD_REQUEST,
            Self::Unverified(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Redirect(_) => StatusCode::PERMANENT_REDIRECT,
            Self::Preflight => StatusCode::NO_CONTENT,
            Self::Options => StatusCode::OK,
        }
    }

    /// The error for the access log, if the request is refused.
    pub fn error(&self) -> Option<&'static str> {
        match self {
            Self::Reject(reason) => Some(reason.error),
            Self::Unauthenticated(failure) => Some(failure.fault.error()),
            Self::Unread => Some("unreadable_body"),
            Self::Unverified(_) => Some("credential_unverified"),
            Self::Redirect(_) | Self::Preflight | Self::Options => None,
        }
    }
}

/// The input of all steps.
#[derive(Clone, Copy)]
struct Input<'p, 'r, 's> {
    plan: &'p Plan,
    head: &'r RequestHead<'r>,
    peer: Peer<'r>,
    client: ClientAddress,
    /// `None`: the body was not read.
    content: Option<&'r RequestContent>,
    origin: Origin<'p, 's>,
}

/// Where a request comes from, and with it what is known of its credential.
#[derive(Clone, Copy)]
enum Origin<'p, 's> {
    /// A connection: the credential is checked.
    Connection(&'p VerifiedCredential),
    /// A log, which never has the credential itself.
    Log(LoggedSender<'p, 's>),
}

/// Resolves a request, as the client sent it: keys are computed before anything is stripped. `loop_mark` is that of the
/// process; without one, no request counts as having passed it before. Where the credential is one of those that are
/// verified, `verified` receives or has the result. `content` is the body, if it was read.
pub fn resolve<'p, 'r>(
    plan: &'p Plan,
    secret: &KeySecret,
    loop_mark: Option<&LoopMark>,
    head: &'r RequestHead<'r>,
    peer: Peer<'r>,
    verified: &'p VerifiedCredential,
    content: Option<&'r RequestContent>,
) -> Resolution<'p, 'r> {
    let client = plan.server.client.identify(peer.address, head.fields);
    Input { plan, head, peer, client, content, origin: Origin::Connection(verified) }
        .resolve(secret, loop_mark)
}

/// Resolves a request of an access log.
pub fn resolve_logged<'p, 'r>(
    plan: &'p Plan,
    secret: &KeySecret,
    head: &'r RequestHead<'r>,
    sender: LoggedSender<'p, '_>,
) -> Resolution<'p, 'r> {
    let peer = Peer { address: sender.client, secure: sender.secure, subject: None };
    let client = plan.server.client.client(sender.client);
    let content = Some(&RequestContent::Unknown);
    Input { plan, head, peer, client, content, origin: Origin::Log(sender) }.resolve(secret, None)
}

/// The data that the route adds to a request.
struct Routed<'p, 'r> {
    index: RouteIndex,
    route: &'p Route,
    consumer: Option<NamedConsumer<'p>>,
    assessment: RequestCharges<'p>,
    upstream: Option<UpstreamIndex>,
    target: Cow<'r, str>,
    affinity: Affinity,
}

impl<'p, 'r> Input<'p, 'r, '_> {
    #[inline]
    fn resolve(self, secret: &KeySecret, loop_mark: Option<&LoopMark>) -> Resolution<'p, 'r> {
        let (mut route, mut seen) = (None, None);
        let (host, outcome) = match authority_of(self.head) {
            Err(reason) => (Cow::Borrowed(""), Err(reason.into())),
            Ok(authority) => match self.see(authority) {
                Err(response) => (bare_host(authority), Err(response)),
                Ok(request) => {
                    let host = request.host.clone();
                    let outcome = match self.route(secret, loop_mark, &request, &mut route) {
                        Ok(Routed { index, route, consumer, assessment, upstream, target, affinity }) => {
                            Ok(RoutedRequest {
                                index,
                                route,
                                consumer,
                                charges: assessment,
                                upstream,
                                target,
                                affinity,
                                granted: self.granted(),
                                seen: request,
                            })
                        }
                        Err(response) => {
                            seen = Some(Box::new(request));
                            Err(response)
                        }
                    };
                    (host, outcome)
                }
            },
        };
        Resolution { client: self.client, host, route, seen, outcome }
    }

    /// The consumer of a request to a route that asks for a credential.
    fn authenticate(
        self,
        auth: &RouteAuth,
        request: &RouteRequest<'_>,
    ) -> Result<Option<NamedConsumer<'p>>, EarlyResponse> {
        match self.origin {
            Origin::Connection(verified) => {
                self.plan.authenticate(auth, request, verified).map_err(EarlyResponse::from)
            }
            Origin::Log(sender) => {
                sender.credential.authenticate(auth).map_err(EarlyResponse::Unauthenticated)
            }
        }
    }

    fn granted(self) -> &'p [GrantedField] {
        match self.origin {
            Origin::Connection(verified) => verified.fields(),
            Origin::Log(_) => &[],
        }
    }

    fn see(self, authority: &'r str) -> Result<SeenRequest<'r>, EarlyResponse> {
        let Self { plan, head, peer, client, .. } = self;
        if head.target.path == "*" {
            return Err(EarlyResponse::Options);
        }
        let path = Path::parse(head.target.path, plan.server.path_matching);
        let path = path.map_err(RejectReason::malformed_path)?;
        let content = self.content.unwrap_or(&RequestContent::Unknown);
        Ok(SeenRequest {
            head,
            path,
            named: authority,
            host: bare_host(authority),
            client,
            peer: peer.address,
            subject: peer.subject,
            content,
            secure: self.came_by_tls(),
        })
    }

    fn route(
        self,
        secret: &KeySecret,
        loop_mark: Option<&LoopMark>,
        seen: &SeenRequest<'r>,
        found: &mut Option<(RouteIndex, &'p Route)>,
    ) -> Result<Routed<'p, 'r>, EarlyResponse> {
        let Self { plan, head, .. } = self;
        if seen.path.has_encoded_dots() && plan.server.encoded_dots == EncodedDots::Reject {
            return Err(RejectReason::encoded_dots().into());
        }
        if loop_mark.is_some_and(|mark| mark.passes(head.fields) >= MAX_PASSES) {
            return Err(RejectReason::looped().into());
        }
        let mut request = seen.request();
        let preflight = preflight_route(plan, head, &request);
        let index = preflight.or_else(|| plan.table.find(&request)).ok_or_else(RejectReason::no_route)?;
        let route = plan.route(index);
        *found = Some((index, route));
        for rules in [&plan.server.addresses, &route.addresses] {
            rules.check(self.client).map_err(RejectReason::address)?;
        }
        if route.redirect == Some(Redirect::Https) && !self.came_by_tls() {
            return Err(EarlyResponse::Redirect(https_location(head, &request, route)?));
        }
        if preflight.is_some() {
            return Err(EarlyResponse::Preflight);
        }
        check(head, route)?;
        let consumer = match &route.auth {
            Some(auth) => self.authenticate(auth, &request)?,
            None => None,
        };
        if self.content.is_none() && route.reads_body {
            return Err(EarlyResponse::Unread);
        }
        request.consumer = consumer.map(|named| named.consumer);
        let upstream = match &route.action {
            RouteAction::Forward(upstream) => Some(*upstream),
            RouteAction::Split(split) => {
                let place = (&*route.name, route.conditions.merge_slashes);
                Some(split.choose(&request, place, || fastrand::u64(..)))
            }
            RouteAction::Redirect(_) | RouteAction::Respond(_) => None,
        };
        let (target, affinity) = match (&route.action, upstream) {
            (_, Some(upstream)) => {
                let target = plan.forwarded_target((route, upstream), head, &seen.path);
                let target = target.map_err(|AmbiguousTarget| RejectReason::ambiguous_target())?;
                (target, plan.upstream(upstream).affinity(&request, route))
            }
            (RouteAction::Redirect(redirect), None) => {
                let Conditions { path, merge_slashes, .. } = &route.conditions;
                // Another host gets no credential. A path on this host asks for it again.
                let query = match redirect.to.has_host() {
                    true => plan.forwarded_query(route, head.target.query),
                    false => head.target.query.map(Cow::Borrowed),
                };
                (
                    redirect.to.location(path, &seen.path, *merge_slashes, query.as_deref()).into(),
                    Affinity::default(),
                )
            }
            _ => ("".into(), Affinity::default()),
        };
        Ok(Routed {
            index,
            route,
            consumer,
            // Built in place: it is large enough that moving it costs measurably.
            assessment: RequestCharges::new(plan, route, &request, secret),
            upstream,
            target,
            affinity,
        })
    }

    /// Whether the client uses TLS, to the gateway or to the trusted proxy before it.
    fn came_by_tls(self) -> bool {
        // Of several, the first concerns the client; a client that forged it would only spare itself the redirect.
        let said = self.head.fields.known(Name::XForwardedProto);
        let said = said.and_then(|value| value.split(|byte| *byte == b',').next());
        let says_https = said.is_some_and(|said| said.trim_ascii().eq_ignore_ascii_case(b"https"));
        self.peer.secure || (says_https && self.plan.server.client.trusts(self.peer.address))
    }
}

impl RoutedRequest<'_, '_> {
    /// The request as routes and keys see it.
    pub fn request(&self) -> RouteRequest<'_> {
        RouteRequest { consumer: self.consumer.map(|named| named.consumer), ..self.seen.request() }
    }

    /// Whether the client uses TLS, to the gateway or to the trusted proxy before it.
    pub fn is_secure(&self) -> bool {
        self.seen.secure
    }

    /// Whether the client is identified.
    pub fn is_identified(&self) -> bool {
        self.seen.client.identified
    }

    /// Its head.
    pub fn head(&self) -> &RequestHead<'_> {
        self.seen.head
    }

    /// The Host for the backend, unless it is spelled so in the head: see [`SeenRequest::authority`].
    pub fn normal_authority(&self) -> Option<Box<str>> {
        match self.seen.authority() {
            Cow::Borrowed(_) => None,
            Cow::Owned(authority) => Some(authority.into()),
        }
    }
}

impl<'p, 'r> RoutedRequest<'p, 'r> {
    /// A request whose credential was not looked at, with some of its charges.
    pub fn before_auth(
        (index, route): (RouteIndex, &'p Route),
        charges: RequestCharges<'p>,
        seen: SeenRequest<'r>,
    ) -> Self {
        Self {
            index,
            route,
            consumer: None,
            charges,
            upstream: None,
            target: "".into(),
            affinity: Affinity::default(),
            granted: &[],
            seen,
        }
    }
}

/// The route of a preflight: that of the announced request. `None` if that route has no `cors`, or if the request is no
/// preflight: then it is routed like any other.
fn preflight_route(plan: &Plan, head: &RequestHead<'_>, request: &RouteRequest<'_>) -> Option<RouteIndex> {
    let method = asked_method(head)?;
    let index = plan.table.find(&RouteRequest { method: &method, ..*request })?;
    plan.route(index).cors.is_some().then_some(index)
}

/// The method announced by a preflight (the Fetch standard, "CORS protocol"); `None` if the request is none.
fn asked_method(head: &RequestHead<'_>) -> Option<Method> {
    if head.method != Method::OPTIONS || head.fields.first(&header::ORIGIN).is_none() {
        return None;
    }
    let asked = head.fields.first(&header::ACCESS_CONTROL_REQUEST_METHOD)?;
    Method::from_bytes(asked).ok()
}

/// The same URL with TLS, on the default port. Host and path have been checked: they cannot end a line.
fn https_location(
    head: &RequestHead<'_>,
    request: &RouteRequest<'_>,
    route: &Route,
) -> Result<String, RejectReason> {
    if request.host.is_empty() {
        return Err(RejectReason::new(400, "there is no Host to redirect to", "malformed_host"));
    }
    let (host, path) = (request.host, request.path.form(route.conditions.merge_slashes));
    Ok(match head.target.query {
        Some(query) => format!("https://{host}{path}?{query}"),
        None => format!("https://{host}{path}"),
    })
}

/// The authority that the request names. Empty if there is none.
fn authority_of<'r>(head: &RequestHead<'r>) -> Result<&'r str, RejectReason> {
    Ok(match (head.target.authority, head.fields.known(Name::Host)) {
        (Some(authority), _) => authority,
        (None, Some(host)) => std::str::from_utf8(host)
            .map_err(|_| RejectReason::new(400, "the Host is not text", "malformed_host"))?,
        (None, None) => "",
    })
}

/// The route's requirements for a request beyond its conditions.
fn check(head: &RequestHead<'_>, route: &Route) -> Result<(), RejectReason> {
    let expectation = head.fields.known(Name::Expect);
    if expectation.is_some_and(|value| !value.eq_ignore_ascii_case(b"100-continue")) {
        return Err(RejectReason::new(417, "this expectation cannot be met", "expectation"));
    }
    match (route.max_body_bytes, head.body) {
        (Some(max), Body::Length(length)) if length > max => {
            Err(RejectReason::new(413, "the request body is too large", "body_too_large"))
        }
        _ => Ok(()),
    }
}

impl From<Unauthenticated> for EarlyResponse {
    fn from(reason: Unauthenticated) -> Self {
        match reason {
            Unauthenticated::Failure(failure) => Self::Unauthenticated(failure),
            Unauthenticated::Unverified(auth) => Self::Unverified(auth),
        }
    }
}

impl From<RejectReason> for EarlyResponse {
    fn from(reason: RejectReason) -> Self {
        Self::Reject(reason)
    }
}
