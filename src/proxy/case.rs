//! What a request comes down to before any limit is asked: its route, its charges, or what is wrong with it.

use std::borrow::Cow;

use http::StatusCode;

use super::cors;
use super::peer::Peer;
use super::turn::Turn;
use crate::gateway::admission::Assessment;
use crate::gateway::{Gateway, Limit, Redirect, Route};
use crate::http1::body::Body;
use crate::http1::name::Name;
use crate::http1::request::RequestHead;
use crate::route::path::Path;
use crate::route::pattern::bare_host;
use crate::route::{Request, RouteIndex};

/// How often a request may pass this process: a gateway before a cache and behind it is passed twice.
const MAX_PASSES: usize = 3;

/// A request with a route.
pub(crate) struct Case<'p, 'h> {
    pub(crate) index: RouteIndex,
    pub(crate) route: &'p Route,
    /// What it owes.
    pub(crate) assessment: Assessment<'p>,
    /// Path and query that the backend is to see.
    pub(crate) target: Cow<'h, str>,
    /// What a hash chooses the server by.
    pub(crate) affinity: u64,
}

/// Why a request goes no further than its route.
pub(crate) enum Stop {
    /// It is refused.
    Object(Objection),
    /// It is to come again, to this URL.
    Redirect(String),
    /// It is a preflight; the fields of its answer stand in the turn.
    Preflight,
    /// It asks what the server as a whole can do (RFC 9110 §9.3.7): routes are about paths.
    Options,
}

impl From<Objection> for Stop {
    fn from(objection: Objection) -> Self {
        Self::Object(objection)
    }
}

/// Why a request is refused before any limit is asked.
pub(crate) struct Objection {
    pub(crate) status: StatusCode,
    /// For the client.
    pub(crate) detail: Cow<'static, str>,
    /// For the access log.
    pub(crate) error: &'static str,
}

impl<'p, 'h> Case<'p, 'h> {
    /// Looks at the request as the client sent it: keys are computed before anything is stripped.
    pub(crate) fn examine(
        turn: &mut Turn,
        gateway: &'p Gateway,
        head: &RequestHead<'h>,
        peer: &Peer,
    ) -> Result<Self, Stop> {
        let host = host_of(head)?;
        if head.target.path == "*" {
            let client = peer.client(&gateway.server.client, head.fields);
            turn.identify(client.address, &host);
            return Err(Stop::Options);
        }
        let path = Path::parse(head.target.path, gateway.server.path_matching)
            .map_err(|fault| Objection::new(400, fault.to_string(), "malformed_path"))?;
        let client = peer.client(&gateway.server.client, head.fields);
        turn.identify(client.address, &host);
        if turn.worker.shared.loop_mark.passes(head.fields) >= MAX_PASSES {
            return Err(Objection::looped().into());
        }
        let request = Request {
            method: &head.method,
            host: &host,
            path: &path,
            query: head.target.query,
            headers: head.fields,
            client,
            tls_subject: peer.subject.as_deref(),
        };
        if answer_preflight(turn, gateway, head, &request) {
            return Err(Stop::Preflight);
        }
        let index = gateway.table.find(&request).ok_or_else(Objection::no_route)?;
        let route = gateway.route(index);
        turn.on_route(index, route);
        if let Some(cors) = &route.cors {
            cors::put_actual(cors, head.fields, &mut turn.cors);
        }
        if route.redirect == Some(Redirect::Https) && !came_by_tls(gateway, head, peer) {
            return Err(Stop::Redirect(https_location(head, &request, route)?));
        }
        check(head, route)?;
        Ok(Self {
            index,
            route,
            // Made in its place: it is large enough that moving it would show.
            assessment: Assessment::new(gateway, route, &request, &turn.plan.secret),
            target: forwarded(head, &path, route),
            affinity: gateway.upstream(route.upstream).affinity(&request, route),
        })
    }
}

/// Looks at the request once more, for texts that tell of it: what is rarely needed is found again and not kept. `None` where it cannot
/// be read.
pub(crate) fn look_again<T>(
    gateway: &Gateway,
    head: &RequestHead<'_>,
    peer: &Peer,
    look: impl FnOnce(&Request<'_>) -> T,
) -> Option<T> {
    let host = host_of(head).ok()?;
    let path = Path::parse(head.target.path, gateway.server.path_matching).ok()?;
    Some(look(&Request {
        method: &head.method,
        host: &host,
        path: &path,
        query: head.target.query,
        headers: head.fields,
        client: gateway.server.client.identify(peer.address, head.fields),
        tls_subject: peer.subject.as_deref(),
    }))
}

/// Prepares the answer to a preflight. Its route is that of the request which the browser wants to send; where that has no
/// `cors`, or where this is no preflight, false: it is a request like any other.
fn answer_preflight(
    turn: &mut Turn,
    gateway: &Gateway,
    head: &RequestHead<'_>,
    request: &Request<'_>,
) -> bool {
    let Some(method) = cors::asked_method(head) else { return false };
    let Some(index) = gateway.table.find(&Request { method: &method, ..*request }) else { return false };
    let route = gateway.route(index);
    let Some(cors) = &route.cors else { return false };
    turn.on_route(index, route);
    cors::put_preflight(cors, head.fields, &mut turn.cors);
    true
}

/// Whether the client speaks TLS, to us or to the trusted proxy before us.
fn came_by_tls(gateway: &Gateway, head: &RequestHead<'_>, peer: &Peer) -> bool {
    // Of several, the first tells of the client; a client that could invent it would only spare itself the redirect.
    let said =
        head.fields.known(Name::XForwardedProto).and_then(|value| value.split(|byte| *byte == b',').next());
    let says_https = said.is_some_and(|said| said.trim_ascii().eq_ignore_ascii_case(b"https"));
    peer.scheme == "https" || (says_https && gateway.server.client.trusts(peer.address))
}

/// The same with TLS, on its usual port. Host and path have been checked: nothing in them ends a line.
fn https_location(head: &RequestHead<'_>, request: &Request<'_>, route: &Route) -> Result<String, Objection> {
    if request.host.is_empty() {
        return Err(Objection::new(400, "there is no Host to redirect to", "malformed_host"));
    }
    let (host, path) = (request.host, request.path.form(route.conditions.merge_slashes));
    Ok(match head.target.query {
        Some(query) => format!("https://{host}{path}?{query}"),
        None => format!("https://{host}{path}"),
    })
}

/// The host that the request names: lower case, without port and final dot. Empty if it names none.
fn host_of<'h>(head: &RequestHead<'h>) -> Result<Cow<'h, str>, Objection> {
    let named = match (head.target.authority, head.fields.known(Name::Host)) {
        (Some(authority), _) => authority,
        (None, Some(host)) => std::str::from_utf8(host)
            .map_err(|_| Objection::new(400, "the Host is not text", "malformed_host"))?,
        (None, None) => "",
    };
    Ok(bare_host(named))
}

/// The target that the backend sees: the normalised path less the route's prefix, in origin-form.
fn forwarded<'h>(head: &RequestHead<'h>, path: &Path<'_>, route: &Route) -> Cow<'h, str> {
    let path = route.forwarded_path(path);
    match head.target.query {
        _ if head.target.authority.is_none() && head.target.path == path => head.target.text.into(),
        Some(query) => format!("{path}?{query}").into(),
        None => path.to_owned().into(),
    }
}

impl Objection {
    fn new(status: u16, detail: impl Into<Cow<'static, str>>, error: &'static str) -> Self {
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_REQUEST);
        Self { status, detail: detail.into(), error }
    }

    /// A limit that says `on_error = "deny"` could not be looked up.
    pub(crate) fn unavailable() -> Self {
        Self::new(503, "the limits of this route can not be looked up at the moment", "store")
    }

    #[cold]
    fn looped() -> Self {
        let detail = "the request has passed this gateway three times already: an upstream leads back to it";
        Self::new(508, detail, "loop")
    }

    /// A part of the limit's key has several values.
    pub(crate) fn repeated_key(limit: &Limit) -> Self {
        let detail =
            format!("the key of limit `{}` is given more than once, with different values", limit.name);
        Self::new(400, detail, "repeated_key")
    }

    fn no_route() -> Self {
        Self::new(404, "no route matches", "no_route")
    }
}

/// What a route demands of a request beyond its conditions.
fn check(head: &RequestHead<'_>, route: &Route) -> Result<(), Objection> {
    let expectation = head.fields.known(Name::Expect);
    if expectation.is_some_and(|value| !value.eq_ignore_ascii_case(b"100-continue")) {
        return Err(Objection::new(417, "this expectation cannot be met", "expectation"));
    }
    match (route.max_body_bytes, head.body) {
        (Some(most), Body::Length(length)) if length > most => {
            Err(Objection::new(413, "the request body is too large", "body_too_large"))
        }
        _ => Ok(()),
    }
}
