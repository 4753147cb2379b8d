//! Finds the route of a request: of one whose routes depend on its body, and of a preflight; and where it is with TLS.

use http::{Method, header};

use crate::http1::name::Name;
use crate::http1::request::RequestHead;
use crate::plan::reject_reason::RejectReason;
use crate::plan::{Plan, Route};
use crate::route::condition::Condition;
use crate::route::content::RequestContent;
use crate::route::{RouteIndex, RouteRequest};

/// The route of a request. The calls of a batch have one route.
pub(super) fn find(plan: &Plan, request: &RouteRequest<'_>) -> Result<RouteIndex, RejectReason> {
    match request.content {
        RequestContent::Unknown => plan.table.find(request).ok_or_else(RejectReason::no_route),
        content => find_by_body(plan, content, request),
    }
}

#[cold]
fn find_by_body(
    plan: &Plan,
    content: &RequestContent,
    request: &RouteRequest<'_>,
) -> Result<RouteIndex, RejectReason> {
    let of_call = |content: &RequestContent| {
        let request = RouteRequest { content, ..*request };
        let index = plan.table.find(&request).ok_or_else(RejectReason::no_route)?;
        let undecided = |condition: &Condition| condition.undecided(&request);
        match plan.route(index).conditions.values.iter().find_map(undecided) {
            Some(undecided) => Err(RejectReason::undecided(&undecided)),
            None => Ok(index),
        }
    };
    let Some((first, others)) = content.calls().split_first() else { return of_call(content) };
    let index = of_call(first)?;
    for call in others {
        if of_call(call)? != index {
            return Err(RejectReason::mixed_batch());
        }
    }
    Ok(index)
}

/// The route of a preflight: that of the announced request. `None` if that route has no `cors`, or if the request is no
/// preflight: then it is routed like any other.
pub(super) fn preflight_route(
    plan: &Plan,
    head: &RequestHead<'_>,
    request: &RouteRequest<'_>,
) -> Option<RouteIndex> {
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

/// Whether the client waits for nothing but `100 Continue`.
pub(super) fn has_known_expectation(head: &RequestHead<'_>) -> bool {
    let expectation = head.fields.known(Name::Expect);
    expectation.is_none_or(|value| value.eq_ignore_ascii_case(b"100-continue"))
}

/// The same URL with TLS, on the default port. Host and path have been checked: they cannot end a line.
pub(super) fn https_location(
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
