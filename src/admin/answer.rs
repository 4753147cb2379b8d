//! What the admin listener answers.

use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, WWW_AUTHENTICATE};
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::Full;

use super::guard::Guard;
use crate::shared::{Life, Shared};
use crate::store::OnError;

type Answer = Response<Full<Bytes>>;

/// Answers one request; its body, if any, is not read.
pub(super) fn answer<B>(request: &Request<B>, guard: &Guard, shared: &Shared) -> Answer {
    if !guard.is_local(request.uri(), request.headers()) {
        return problem(
            StatusCode::FORBIDDEN,
            "this listener answers only to names and origins of its own machine",
        );
    }
    let path = request.uri().path();
    if !matches!(path, "/healthz" | "/readyz") && !guard.admits(request.headers()) {
        let answer = problem(StatusCode::UNAUTHORIZED, "send `authorization: Bearer TOKEN`");
        return with(answer, WWW_AUTHENTICATE, "Bearer");
    }
    let page: fn(&Shared) -> Answer = match path {
        "/healthz" => health,
        "/readyz" => readiness,
        "/metrics" => metrics,
        _ => return problem(StatusCode::NOT_FOUND, "there are `/healthz`, `/readyz` and `/metrics`"),
    };
    // To HEAD, hyper sends the head of this answer alone.
    if matches!(*request.method(), Method::GET | Method::HEAD) {
        page(shared)
    } else {
        let answer = problem(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are understood here");
        with(answer, ALLOW, "GET, HEAD")
    }
}

fn health(_: &Shared) -> Answer {
    text(StatusCode::OK, "text/plain; charset=utf-8", "alive\n")
}

fn readiness(shared: &Shared) -> Answer {
    if *shared.life.borrow() == Life::Draining {
        return unready("draining: requests in flight finish, new ones go elsewhere");
    }
    let store_is_up = shared.store.shared().is_none_or(|store| store.health().is_up());
    if !store_is_up && shared.gateway.load().limits.iter().any(|limit| limit.on_error == OnError::Deny) {
        return unready("the store can not be asked, and some limits refuse without it");
    }
    text(StatusCode::OK, "text/plain; charset=utf-8", "ready\n")
}

fn unready(detail: &str) -> Answer {
    problem(StatusCode::SERVICE_UNAVAILABLE, detail)
}

fn metrics(shared: &Shared) -> Answer {
    let (gateway, dropped) = (shared.gateway.load(), shared.access_log.dropped());
    let traces = gateway.trace.as_ref().map(|_| shared.spans.counts());
    let page = shared.metrics.render(&gateway, &shared.roster, &shared.store, dropped, traces);
    text(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", page)
}

/// Problem details (RFC 9457).
fn problem(status: StatusCode, detail: &str) -> Answer {
    let title = status.canonical_reason().unwrap_or_default();
    let body = serde_json::json!({
        "type": "about:blank", "title": title, "status": status.as_u16(), "detail": detail
    });
    text(status, "application/problem+json", body.to_string())
}

fn text(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = status;
    with(with(answer, CONTENT_TYPE, content_type), CACHE_CONTROL, "no-store")
}

fn with(mut answer: Answer, name: HeaderName, value: &'static str) -> Answer {
    answer.headers_mut().insert(name, HeaderValue::from_static(value));
    answer
}
