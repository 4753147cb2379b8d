//! Refusals: what a client reads when tollgate answers by itself.

use std::fmt::Write as _;

use bytes::Bytes;
use http::header::{self, HeaderName, HeaderValue};
use http::{HeaderMap, Response, StatusCode};

use crate::gateway::admission::{Refusal, Tightest};
use crate::gateway::{RatelimitHeaders, Reject};

const PROBLEM_JSON: HeaderValue = HeaderValue::from_static("application/problem+json");
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");
const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
const X_RATELIMIT_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const X_RATELIMIT_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const X_RATELIMIT_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");
/// The problem type of draft-ietf-httpapi-ratelimit-headers §5.
const QUOTA_EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";

/// A short problem document (RFC 9457) that leaks no internals. `detail` is ours, never the client's or the backend's text.
pub(crate) fn problem(status: StatusCode, detail: &str) -> Response<Bytes> {
    let title = title_of(status);
    let body = format!(
        r#"{{"type":"about:blank","title":"{title}","status":{},"detail":"{detail}","error":"{title}"}}"#,
        status.as_u16()
    );
    let mut response = Response::new(Bytes::from(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, PROBLEM_JSON);
    headers.insert(header::CACHE_CONTROL, NO_STORE);
    if status == StatusCode::METHOD_NOT_ALLOWED {
        // RFC 9110 §15.5.6 wants them named: what a backend takes beyond these, it may say itself.
        headers
            .insert(header::ALLOW, HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"));
    }
    response
}

/// The answer to a request that a limit refuses, after `reject` if there is one.
pub(crate) fn over_limit(refusal: &Refusal<'_>, reject: Option<&Reject>) -> Response<Bytes> {
    let seconds = refusal.retry_after();
    let status = reject.map_or(StatusCode::TOO_MANY_REQUESTS, |reject| reject.status);
    let own_body = reject.and_then(|reject| reject.body.clone());
    let content_type = match (&own_body, reject.and_then(|reject| reject.content_type.clone())) {
        (_, Some(content_type)) => content_type,
        (Some(_), None) => HeaderValue::from_static("text/plain; charset=utf-8"),
        (None, None) => PROBLEM_JSON,
    };
    let body = own_body.unwrap_or_else(|| over_limit_body(status, refusal, seconds).into());
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, content_type);
    headers.insert(header::CACHE_CONTROL, NO_STORE);
    if let Some(seconds) = seconds {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    for (name, value) in reject.into_iter().flat_map(|reject| &reject.headers) {
        headers.insert(name, value.clone());
    }
    response
}

/// Limit and policy names are letters, digits and `_.-:/`, so nothing here needs escaping.
fn over_limit_body(status: StatusCode, refusal: &Refusal<'_>, seconds: Option<u64>) -> String {
    let mut body = String::with_capacity(384);
    let (title, limit) = (title_of(status), &refusal.limit.name);
    // Writing to a string cannot fail.
    let _ = write!(
        body,
        r#"{{"type":"{QUOTA_EXCEEDED}","title":"{title}","status":{},"detail":""#,
        status.as_u16()
    );
    let _ = match seconds {
        _ if refusal.missing => write!(body, "the request lacks what limit `{limit}` counts by"),
        Some(seconds) => write!(body, "limit `{limit}` is used up; retry after {seconds} s"),
        None => write!(body, "the request costs more than limit `{limit}` ever holds"),
    };
    let _ = write!(body, r#"","error":"{title}","violated-policies":["#);
    for (place, policy) in refusal.violated.iter().enumerate() {
        let comma = if place > 0 { "," } else { "" };
        let _ = write!(body, r#"{comma}"{policy}""#);
    }
    body.push(']');
    if let Some(seconds) = seconds {
        let _ = write!(body, r#","retry_after":{seconds}"#);
    }
    body.push('}');
    body
}

fn title_of(status: StatusCode) -> &'static str {
    status.canonical_reason().unwrap_or("Refused")
}

/// Sets the rate-limit fields for the tightest policy. `retry_after` bounds the reset of a refusal.
pub(crate) fn set_ratelimit(
    headers: &mut HeaderMap,
    which: RatelimitHeaders,
    tightest: &Tightest<'_>,
    retry_after: Option<u64>,
) {
    let remaining = tightest.decision.remaining;
    let reset = tightest.decision.reset_after.seconds_rounded_up();
    let reset = retry_after.map_or(reset, |seconds| reset.min(seconds));
    if matches!(which, RatelimitHeaders::Standard | RatelimitHeaders::Both) {
        headers.insert(RATELIMIT_POLICY, tightest.policy.field.clone());
        headers.insert(RATELIMIT, ratelimit_value(&tightest.policy.name, remaining, reset));
    }
    if matches!(which, RatelimitHeaders::Legacy | RatelimitHeaders::Both) {
        headers.insert(X_RATELIMIT_LIMIT, HeaderValue::from(tightest.policy.algorithm.quota()));
        headers.insert(X_RATELIMIT_REMAINING, HeaderValue::from(remaining));
        headers.insert(X_RATELIMIT_RESET, HeaderValue::from(reset));
    }
}

/// `"per-client";r=49;t=1`.
fn ratelimit_value(policy: &str, remaining: u64, reset: u64) -> HeaderValue {
    let mut text = Vec::with_capacity(policy.len() + 48);
    let mut number = itoa::Buffer::new();
    text.push(b'"');
    text.extend_from_slice(policy.as_bytes());
    text.extend_from_slice(b"\";r=");
    text.extend_from_slice(number.format(remaining).as_bytes());
    text.extend_from_slice(b";t=");
    text.extend_from_slice(number.format(reset).as_bytes());
    // Policy names are checked when the file is loaded, so this is always a good value, and no copy.
    HeaderValue::from_maybe_shared(Bytes::from(text)).unwrap_or_else(|_| HeaderValue::from_static("\"\""))
}
