//! The forms of a response of the admin listener: a text, a problem, a refused method.

use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderName, HeaderValue, Response, StatusCode};
use http_body_util::Full;
use serde::Serialize;

use crate::admin_api::changes::ProblemDetails;

pub(super) type AdminResponse = Response<Full<Bytes>>;

/// `allowed` lists the allowed methods.
pub(super) fn not_allowed(allowed: &str) -> AdminResponse {
    let detail =
        format!("only {} {} understood here", allowed, if allowed.contains(',') { "are" } else { "is" });
    let mut answer = problem(StatusCode::METHOD_NOT_ALLOWED, &detail);
    answer.headers_mut().extend(HeaderValue::from_str(allowed).ok().map(|allowed| (ALLOW, allowed)));
    answer
}

/// Problem details (RFC 9457).
pub(super) fn problem(status: StatusCode, detail: &str) -> AdminResponse {
    let body = ProblemDetails {
        kind: "about:blank".to_owned(),
        title: status.canonical_reason().unwrap_or_default().to_owned(),
        status: status.as_u16(),
        detail: detail.to_owned(),
    };
    text(status, "application/problem+json", json(&body))
}

/// The JSON text of a value of the API, with the names of each object in alphabetical order.
pub(super) fn json(value: &impl Serialize) -> String {
    // The types of the API have no key that JSON lacks, so that this cannot fail.
    serde_json::to_value(value).unwrap_or_default().to_string()
}

pub(super) fn text(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> AdminResponse {
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = status;
    with(with(answer, CONTENT_TYPE, content_type), CACHE_CONTROL, "no-store")
}

pub(super) fn with(mut answer: AdminResponse, name: HeaderName, value: &'static str) -> AdminResponse {
    answer.headers_mut().insert(name, HeaderValue::from_static(value));
    answer
}
