//! From a request's head to its route, client and charges, or to the answer that it gets before any limit is asked. Pure, and the only
//! way: the proxy, `explain` and the admin API go it.

use std::borrow::Cow;
use std::net::IpAddr;

use http::{Method, StatusCode, header};

use super::admission::RequestCharges;
use super::loop_mark::LoopMark;
use super::{Limit, Plan, Redirect, Route};
use crate::http1::body::Body;
use crate::http1::name::Name;
use crate::http1::request::RequestHead;
use crate::route::client::ClientAddress;
use crate::route::key::KeySecret;
use crate::route::path::Path;
use crate::route::pattern::bare_host;
use crate::route::{RouteIndex, RouteRequest};

/// How often a request may pass this process: a gateway before a cache and behind it is passed twice.
const MAX_PASSES: usize = 3;

/// The other side of the connection on which a request came.
#[derive(Clone, Copy, Debug)]
pub struct Peer<'r> {
    /// Its address.
    pub address: IpAddr,
    /// It speaks TLS.
    pub secure: bool,
    /// The subject of its certificate.
    pub subject: Option<&'r str>,
}

/// What a request's head comes down to.
#[derive(Debug)]
pub struct Resolution<'p, 'r> {
    /// The client that it comes from.
    pub client: ClientAddress,
    /// The host that it names: lower case, without port and final dot. Empty if it names none, or none that can be read.
    pub host: Cow<'r, str>,
    /// Its route, if one was found: also where the answer comes before any limit is asked.
    pub route: Option<(RouteIndex, &'p Route)>,
    /// As routes see it, where it goes no further and its path can be read.
    pub seen: Option<SeenRequest<'r>>,
    /// What follows.
    pub outcome: Result<RoutedRequest<'p, 'r>, EarlyResponse>,
}

/// A request with a route: what is known of it stays with it.
#[derive(Debug)]
pub struct RoutedRequest<'p, 'r> {
    /// The place of its route.
    pub index: RouteIndex,
    /// Its route.
    pub route: &'p Route,
    /// What it owes.
    pub charges: RequestCharges<'p>,
    /// Path and query that the backend is to see.
    pub target: Cow<'r, str>,
    /// What a hash chooses the server by.
    pub affinity: u64,
    seen: SeenRequest<'r>,
}

/// A request as routes and keys see it.
#[derive(Debug)]
pub struct SeenRequest<'r> {
    head: &'r RequestHead<'r>,
    path: Path<'r>,
    host: Cow<'r, str>,
    client: ClientAddress,
    subject: Option<&'r str>,
}

/// The answer to a request that goes no further than its route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EarlyResponse {
    /// It is refused.
    Reject(RejectReason),
    /// It is to come again, to this URL.
    Redirect(String),
    /// It is a preflight of a browser, whose route has `cors`.
    Preflight,
    /// It asks what the server as a whole can do (RFC 9110 §9.3.7): routes are about paths.
    Options,
}

impl EarlyResponse {
    /// The status of the answer.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Reject(reason) => reason.status,
            Self::Redirect(_) => StatusCode::PERMANENT_REDIRECT,
            Self::Preflight => StatusCode::NO_CONTENT,
            Self::Options => StatusCode::OK,
        }
    }

    /// For the access log, if the request is refused.
    pub fn error(&self) -> Option<&'static str> {
        if let Self::Reject(reason) = self { Some(reason.error) } else { None }
    }
}

/// Why a request is refused before any limit is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RejectReason {
    /// The status of the answer.
    pub status: StatusCode,
    /// For the client.
    pub detail: Cow<'static, str>,
    /// For the access log.
    pub error: &'static str,
}

/// What all steps look at.
#[derive(Clone, Copy)]
struct Input<'p, 'r> {
    gateway: &'p Plan,
    head: &'r RequestHead<'r>,
    peer: Peer<'r>,
    client: ClientAddress,
}

/// Resolves a request, as the client sent it: keys are computed before anything is stripped. `loop_mark` is that of the process;
/// without one no request has passed it before.
pub fn resolve<'p, 'r>(
    gateway: &'p Plan,
    secret: &KeySecret,
    loop_mark: Option<&LoopMark>,
    head: &'r RequestHead<'r>,
    peer: Peer<'r>,
) -> Resolution<'p, 'r> {
    let client = gateway.server.client.identify(peer.address, head.fields);
    let input = Input { gateway, head, peer, client };
    let (mut route, mut seen) = (None, None);
    let (host, outcome) = match host_of(head) {
        Err(reason) => (Cow::Borrowed(""), Err(reason.into())),
        Ok(host) => match input.see(host.clone()) {
            Err(response) => (host, Err(response)),
            Ok(request) => {
                let outcome = match input.route(secret, loop_mark, &request, &mut route) {
                    Ok(Routed { index, route, assessment, target, affinity }) => Ok(RoutedRequest {
                        index,
                        route,
                        charges: assessment,
                        target,
                        affinity,
                        seen: request,
                    }),
                    Err(response) => {
                        seen = Some(request);
                        Err(response)
                    }
                };
                (host, outcome)
            }
        },
    };
    Resolution { client, host, route, seen, outcome }
}

/// What the route adds to a request.
struct Routed<'p, 'r> {
    index: RouteIndex,
    route: &'p Route,
    assessment: RequestCharges<'p>,
    target: Cow<'r, str>,
    affinity: u64,
}

impl<'p, 'r> Input<'p, 'r> {
    fn see(self, host: Cow<'r, str>) -> Result<SeenRequest<'r>, EarlyResponse> {
        let Self { gateway, head, peer, client } = self;
        if head.target.path == "*" {
            return Err(EarlyResponse::Options);
        }
        let path = Path::parse(head.target.path, gateway.server.path_matching)
            .map_err(|fault| RejectReason::new(400, fault.to_string(), "malformed_path"))?;
        Ok(SeenRequest { head, path, host, client, subject: peer.subject })
    }

    fn route(
        self,
        secret: &KeySecret,
        loop_mark: Option<&LoopMark>,
        seen: &SeenRequest<'r>,
        found: &mut Option<(RouteIndex, &'p Route)>,
    ) -> Result<Routed<'p, 'r>, EarlyResponse> {
        let Self { gateway, head, .. } = self;
        if loop_mark.is_some_and(|mark| mark.passes(head.fields) >= MAX_PASSES) {
            return Err(RejectReason::looped().into());
        }
        let request = seen.request();
        if let Some(preflight) = preflight_route(gateway, head, &request) {
            *found = Some((preflight, gateway.route(preflight)));
            return Err(EarlyResponse::Preflight);
        }
        let index = gateway.table.find(&request).ok_or_else(RejectReason::no_route)?;
        let route = gateway.route(index);
        *found = Some((index, route));
        if route.redirect == Some(Redirect::Https) && !self.came_by_tls() {
            return Err(EarlyResponse::Redirect(https_location(head, &request, route)?));
        }
        check(head, route)?;
        Ok(Routed {
            index,
            route,
            // Made in its place: it is large enough that moving it would show.
            assessment: RequestCharges::new(gateway, route, &request, secret),
            target: forwarded(head, &seen.path, route),
            affinity: gateway.upstream(route.upstream).affinity(&request, route),
        })
    }

    /// Whether the client speaks TLS, to us or to the trusted proxy before us.
    fn came_by_tls(self) -> bool {
        // Of several, the first tells of the client; a client that could invent it would only spare itself the redirect.
        let said = self.head.fields.known(Name::XForwardedProto);
        let said = said.and_then(|value| value.split(|byte| *byte == b',').next());
        let says_https = said.is_some_and(|said| said.trim_ascii().eq_ignore_ascii_case(b"https"));
        self.peer.secure || (says_https && self.gateway.server.client.trusts(self.peer.address))
    }
}

impl RoutedRequest<'_, '_> {
    /// As routes and keys look at it.
    pub fn request(&self) -> RouteRequest<'_> {
        self.seen.request()
    }

    /// Its head.
    pub fn head(&self) -> &RequestHead<'_> {
        self.seen.head
    }
}

impl SeenRequest<'_> {
    /// As routes and keys look at it.
    pub fn request(&self) -> RouteRequest<'_> {
        RouteRequest {
            method: &self.head.method,
            host: &self.host,
            path: &self.path,
            query: self.head.target.query,
            headers: self.head.fields,
            client: self.client,
            tls_subject: self.subject,
        }
    }
}

/// The route of a preflight: that of the request which the browser wants to send. `None` where that has no `cors`, or where this is no
/// preflight: it is a request like any other.
fn preflight_route(gateway: &Plan, head: &RequestHead<'_>, request: &RouteRequest<'_>) -> Option<RouteIndex> {
    let method = asked_method(head)?;
    let index = gateway.table.find(&RouteRequest { method: &method, ..*request })?;
    gateway.route(index).cors.is_some().then_some(index)
}

/// The method that a browser asks to use, if the request is a preflight (the Fetch standard, "CORS protocol").
fn asked_method(head: &RequestHead<'_>) -> Option<Method> {
    if head.method != Method::OPTIONS || head.fields.first(&header::ORIGIN).is_none() {
        return None;
    }
    let asked = head.fields.first(&header::ACCESS_CONTROL_REQUEST_METHOD)?;
    Method::from_bytes(asked).ok()
}

/// The same with TLS, on its usual port. Host and path have been checked: nothing in them ends a line.
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

/// The host that the request names: lower case, without port and final dot. Empty if it names none.
fn host_of<'r>(head: &RequestHead<'r>) -> Result<Cow<'r, str>, RejectReason> {
    let named = match (head.target.authority, head.fields.known(Name::Host)) {
        (Some(authority), _) => authority,
        (None, Some(host)) => std::str::from_utf8(host)
            .map_err(|_| RejectReason::new(400, "the Host is not text", "malformed_host"))?,
        (None, None) => "",
    };
    Ok(bare_host(named))
}

/// The target that the backend sees: the normalised path less the route's prefix, in origin-form.
fn forwarded<'r>(head: &RequestHead<'r>, path: &Path<'_>, route: &Route) -> Cow<'r, str> {
    let path = route.forwarded_path(path);
    match head.target.query {
        _ if head.target.authority.is_none() && head.target.path == path => head.target.text.into(),
        Some(query) => format!("{path}?{query}").into(),
        None => path.to_owned().into(),
    }
}

/// What a route demands of a request beyond its conditions.
fn check(head: &RequestHead<'_>, route: &Route) -> Result<(), RejectReason> {
    let expectation = head.fields.known(Name::Expect);
    if expectation.is_some_and(|value| !value.eq_ignore_ascii_case(b"100-continue")) {
        return Err(RejectReason::new(417, "this expectation cannot be met", "expectation"));
    }
    match (route.max_body_bytes, head.body) {
        (Some(most), Body::Length(length)) if length > most => {
            Err(RejectReason::new(413, "the request body is too large", "body_too_large"))
        }
        _ => Ok(()),
    }
}

impl From<RejectReason> for EarlyResponse {
    fn from(reason: RejectReason) -> Self {
        Self::Reject(reason)
    }
}

impl RejectReason {
    fn new(status: u16, detail: impl Into<Cow<'static, str>>, error: &'static str) -> Self {
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_REQUEST);
        Self { status, detail: detail.into(), error }
    }

    /// A limit that says `on_error = "deny"` could not be looked up.
    pub fn unavailable() -> Self {
        Self::new(503, "the limits of this route can not be looked up at the moment", "store")
    }

    #[cold]
    fn looped() -> Self {
        let detail = "the request has passed this gateway three times already: an upstream leads back to it";
        Self::new(508, detail, "loop")
    }

    /// A part of the limit's key has several values.
    pub fn repeated_key(limit: &Limit) -> Self {
        let detail =
            format!("the key of limit `{}` is given more than once, with different values", limit.name);
        Self::new(400, detail, "repeated_key")
    }

    fn no_route() -> Self {
        Self::new(404, "no route matches", "no_route")
    }
}
