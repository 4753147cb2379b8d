//! What a request comes down to before any limit is asked: its route, its charges, or what is wrong with it.

use std::borrow::Cow;

use http::request::Parts;
use http::{StatusCode, Uri, header};
use hyper::body::{Body as _, Incoming};

use super::forward;
use super::turn::Turn;
use crate::gateway::admission::Assessment;
use crate::gateway::{Gateway, Route};
use crate::route::path::Path;
use crate::route::pattern::bare_host;
use crate::route::{Request, RouteIndex};

/// A request with a route.
pub(crate) struct Case<'a> {
    pub(crate) index: RouteIndex,
    pub(crate) route: &'a Route,
    /// What it owes.
    pub(crate) assessment: Assessment<'a>,
    /// The target that the backend is to see; `None`: as the client sent it.
    pub(crate) uri: Option<Uri>,
}

/// Why a request is refused before any limit is asked.
pub(crate) struct Objection {
    pub(crate) status: StatusCode,
    /// For the client.
    pub(crate) detail: Cow<'static, str>,
    /// For the access log.
    pub(crate) error: &'static str,
}

impl<'a> Case<'a> {
    /// Looks at the request as the client sent it: keys are computed before anything is stripped.
    pub(crate) fn examine(
        turn: &mut Turn,
        gateway: &'a Gateway,
        parts: &Parts,
        body: &Incoming,
    ) -> Result<Self, Objection> {
        let target = Target::of(parts)?;
        let path = Path::parse(target.path)
            .map_err(|fault| Objection::new(400, fault.to_string(), "malformed_path"))?;
        let client = gateway.server.client.identify(turn.connection.peer, &parts.headers);
        turn.identify(client.address, &target.host);
        let request = Request {
            method: &parts.method,
            host: &target.host,
            path: &path,
            query: target.query,
            headers: &parts.headers,
            client,
        };
        let index = gateway.table.find(&request).ok_or_else(Objection::no_route)?;
        let route = gateway.route(index);
        turn.on_route(index, route);
        check(parts, body, route)?;
        let path = path.form(route.conditions.merge_slashes);
        Ok(Self {
            index,
            route,
            uri: forward::forwarded_uri(&parts.uri, path, target.query, route),
            assessment: Assessment::new(gateway, route, &request, &turn.connection.worker.shared.secret),
        })
    }
}

impl Objection {
    fn new(status: u16, detail: impl Into<Cow<'static, str>>, error: &'static str) -> Self {
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_REQUEST);
        Self { status, detail: detail.into(), error }
    }

    fn no_route() -> Self {
        Self::new(404, "no route matches", "no_route")
    }
}

/// What a route demands of a request beyond its conditions.
fn check(parts: &Parts, body: &Incoming, route: &Route) -> Result<(), Objection> {
    let expectation = parts.headers.get(header::EXPECT);
    if expectation.is_some_and(|value| !value.as_bytes().eq_ignore_ascii_case(b"100-continue")) {
        return Err(Objection::new(417, "this expectation cannot be met", "expectation"));
    }
    match route.max_body_bytes {
        Some(most) if body.size_hint().lower() > most => {
            Err(Objection::new(413, "the request body is too large", "body_too_large"))
        }
        _ => Ok(()),
    }
}

/// Where a request is addressed to.
struct Target<'a> {
    /// Lower case, without port and final dot.
    host: Cow<'a, str>,
    path: &'a str,
    query: Option<&'a str>,
}

impl<'a> Target<'a> {
    fn of(parts: &'a Parts) -> Result<Self, Objection> {
        let named = match parts.uri.authority() {
            Some(authority) => authority.as_str(),
            None => match parts.headers.get(header::HOST).map(|host| host.to_str()) {
                Some(Ok(host)) => host,
                Some(Err(_)) => return Err(Objection::new(400, "the Host is not text", "malformed_host")),
                None => "",
            },
        };
        let path = match parts.uri.path() {
            // An absolute-form target may have no path (RFC 9112 §3.2.2).
            "" => "/",
            // OPTIONS about the server as a whole (RFC 9110 §9.3.7): routes are about paths.
            "*" => return Err(Objection::no_route()),
            path => path,
        };
        Ok(Self { host: bare_host(named), path, query: parts.uri.query() })
    }
}
