//! A lint: other methods of a protected path go to a route with less protection.
//!
//! A route with `auth = "keys"` and `methods = ["GET"]` for `/admin/*` leaves `POST /admin/users` to an open `/*`.

use http::Method;

use super::diagnostics::Diagnostics;
use super::limits::LimitDraft;
use super::report::quoted;
use super::routes::RouteDraft;
use crate::http1::fields::Fields;
use crate::http1::request::Body;
use crate::plan::action::RouteAction;
use crate::plan::{Limit, Mode, Route};
use crate::route::client::ClientRule;
use crate::route::content::RequestContent;
use crate::route::path::{Path, PathMatching};
use crate::route::pattern::HostPattern;
use crate::route::{Conditions, RouteIndex, RouteRequest, RouteTable};

/// The methods that backends know.
const METHODS: [Method; 7] =
    [Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::OPTIONS];

/// Warns of protected routes whose other methods a less protected one takes. `sound`: the routes of `table`.
pub(super) fn check(
    sound: &[&RouteDraft],
    table: &RouteTable,
    matching: PathMatching,
    limits: &[LimitDraft],
    diagnostics: &Diagnostics<'_>,
) {
    // A route with faults, or with unknown values, may be meant to be protected.
    let routes: Option<Vec<&Route>> = sound.iter().map(|draft| draft.route.as_ref()).collect();
    let Some(routes) = routes.filter(|_| !diagnostics.is_incomplete()) else { return };
    for (draft, route) in sound.iter().zip(&routes) {
        let Some((method, other, lack)) = uncovered(route, &routes, table, matching, limits) else {
            continue;
        };
        let message = format!(
            "route {} has `methods`, and others of its path, such as `{method}`, go to route {}, which {lack}",
            quoted(&draft.name),
            quoted(&other.name),
        );
        let help =
            "leave `methods` out, or add a route for the other methods, such as `respond = { status = 405 }`";
        diagnostics.warn(draft.span, message, help);
    }
}

/// A method that the route does not take, the less protected route that does, and what that one lacks.
fn uncovered<'r>(
    route: &Route,
    routes: &[&'r Route],
    table: &RouteTable,
    matching: PathMatching,
    limits: &[LimitDraft],
) -> Option<(Method, &'r Route, &'static str)> {
    let conditions = &route.conditions;
    // With conditions on values other requests of the path have other routes anyway.
    if conditions.methods.is_empty() || !conditions.values.is_empty() || conditions.path.is_regex() {
        return None;
    }
    METHODS.iter().filter(|method| !takes(conditions, method)).find_map(|method| {
        let RouteIndex(other) = taker(conditions, method, table, matching)?;
        let other = *routes.get(other)?;
        let lack = lack(route, other, method, limits)?;
        Some((method.clone(), other, lack))
    })
}

fn takes(conditions: &Conditions, method: &Method) -> bool {
    let named = if *method == Method::HEAD { &Method::GET } else { method };
    conditions.methods.contains(method) || conditions.methods.contains(named)
}

/// The route of a request with this method to the route's path.
fn taker(
    conditions: &Conditions,
    method: &Method,
    table: &RouteTable,
    matching: PathMatching,
) -> Option<RouteIndex> {
    let host = match conditions.hosts.first() {
        Some(HostPattern::Exact(name)) => name.to_string(),
        Some(HostPattern::Below(suffix)) => format!("x{suffix}"),
        None => String::new(),
    };
    let path = conditions.path.to_string().replace(['{', '}', '*'], "x");
    let path = Path::parse(&path, matching).ok()?;
    table.find(&RouteRequest {
        method,
        host: &host,
        path: &path,
        query: None,
        headers: Fields::NONE,
        body: Body::EMPTY,
        client: ClientRule::default().client([192, 0, 2, 1].into()),
        certificate: None,
        listener: None,
        content: &RequestContent::Unknown,
        consumer: None,
        upstream: None,
    })
}

/// What the other route lacks of the protection. Nothing if it says for itself which methods of the path it is for, or
/// if no backend gets its requests.
fn lack(route: &Route, other: &Route, method: &Method, limits: &[LimitDraft]) -> Option<&'static str> {
    let is_forwarded = matches!(other.action, RouteAction::Forward(_) | RouteAction::Split(_));
    let is_meant = takes(&other.conditions, method)
        && other.conditions.path.to_string() == route.conditions.path.to_string();
    if !is_forwarded || is_meant {
        return None;
    }
    let asks = |route: &Route| route.auth.as_ref().is_some_and(|auth| !auth.optional);
    let enforced = |route: &Route| {
        let is_enforced = |limit: &Limit| limit.mode == Mode::Enforce;
        let used = route.limits.iter().filter_map(|used| limits.get(used.limit.0)?.limit.as_ref());
        used.filter(|limit| is_enforced(limit)).count()
    };
    // Limits on writing alone, as on attempts to log in, are not those of the path.
    let limits_path = takes(&route.conditions, &Method::GET);
    if asks(route) && !asks(other) {
        Some("asks for no credential")
    } else if route.addresses.allow.is_some() && other.addresses.allow.is_none() {
        Some("has no `allow`")
    } else if route.addresses.deny.is_some() && other.addresses.deny.is_none() {
        Some("has no `deny`")
    } else if limits_path && enforced(other) < enforced(route) {
        Some("has fewer limits")
    } else {
        None
    }
}
