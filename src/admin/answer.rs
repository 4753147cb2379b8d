//! The routing of the admin listener: the response at each path.

use std::net::SocketAddr;

use http::header::WWW_AUTHENTICATE;
use http::{Method, Request, StatusCode};
use hyper::body::Incoming;

use super::guard::Guard;
use super::response::{AdminResponse, not_allowed, problem, text, with};
use super::{api, page};
use crate::plan::admin::AdminRight;
use crate::plan::{Limit, Mode};
use crate::shared::{Life, Shared};
use crate::store::OnError;
use crate::telemetry::metrics::ProcessCounts;

/// Answers one request.
pub(super) async fn answer(
    request: Request<Incoming>,
    peer: SocketAddr,
    guard: &Guard,
    shared: &Shared,
) -> AdminResponse {
    if !guard.is_local(request.uri(), request.headers()) {
        return problem(
            StatusCode::FORBIDDEN,
            "this listener answers only to names and origins of its own machine",
        );
    }
    let path = request.uri().path();
    let file = page::file(path);
    let read = |answer: AdminResponse| only_read(request.method(), answer);
    match path {
        "/healthz" => return read(health()),
        "/readyz" => return read(readiness(shared)),
        _ if let Some(file) = file => return read(file.answer()),
        _ => {}
    }
    let caller = guard.caller(shared.plan.load().admin.as_ref(), request.headers(), peer);
    let Some(caller) = caller else {
        let answer = problem(StatusCode::UNAUTHORIZED, "send `authorization: Bearer TOKEN`");
        return with(answer, WWW_AUTHENTICATE, "Bearer");
    };
    match path {
        "/metrics" => caller.refusal(AdminRight::Read).unwrap_or_else(|| read(metrics(shared))),
        _ if path.starts_with(api::PREFIX) => api::answer(request, caller, shared).await,
        _ => problem(
            StatusCode::NOT_FOUND,
            "there are `/`, `/healthz`, `/readyz`, `/metrics` and what stands below `/api/v1/`",
        ),
    }
}

/// For HEAD, hyper sends only the head of this response.
fn only_read(method: &Method, answer: AdminResponse) -> AdminResponse {
    match *method {
        Method::GET | Method::HEAD => answer,
        _ => not_allowed("GET, HEAD"),
    }
}

fn health() -> AdminResponse {
    text(StatusCode::OK, "text/plain; charset=utf-8", "alive\n")
}

fn readiness(shared: &Shared) -> AdminResponse {
    if *shared.life.borrow() == Life::Draining {
        return unready("draining: requests in flight finish, new ones go elsewhere");
    }
    let store_is_up = shared.store.shared().is_none_or(|store| store.health().is_up());
    let denies = |limit: &Limit| limit.mode == Mode::Enforce && limit.on_error == OnError::Deny;
    if !store_is_up && shared.plan.load().limits.iter().any(denies) {
        return unready("the shared store is unreachable, and some limits deny requests without it");
    }
    text(StatusCode::OK, "text/plain; charset=utf-8", "ready\n")
}

fn unready(detail: &str) -> AdminResponse {
    problem(StatusCode::SERVICE_UNAVAILABLE, detail)
}

fn metrics(shared: &Shared) -> AdminResponse {
    let plan = shared.plan.load();
    let counts = ProcessCounts {
        access_log_dropped: shared.access_log.dropped(),
        buffered_bytes: shared.buffer_budget.bytes() as u64,
        buffer_evictions: shared.buffer_budget.evictions(),
    };
    let traces = plan.trace.as_ref().map(|_| shared.spans.counts());
    let page = shared.metrics.render(
        &plan,
        &shared.server_registry,
        &shared.store,
        counts,
        traces,
        shared.clock.now(),
    );
    text(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", page)
}
