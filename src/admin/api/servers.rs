//! `POST` and `DELETE` of a server's `drain`: whether it gets new requests.

use http::StatusCode;

use super::{ApiError, ApiRequest, ApiResult, good, server_named};
use crate::admin_api::servers::DrainReport;
use crate::clock;

/// Drains the server, or undoes that. Requests in flight end at the server.
pub(super) fn drain(asked: &ApiRequest<'_>, upstream: &str, server: &str, drained: bool) -> ApiResult {
    let plan = asked.shared.plan.load();
    let (upstream, index) = server_named(&plan, upstream, server)?;
    let states = asked.shared.server_registry.states(upstream);
    let (Some(state), Some(endpoint)) = (states.get(index), upstream.endpoints().get(index)) else {
        return Err(ApiError::new(StatusCode::NOT_FOUND, "the server is gone"));
    };
    let changed = state.set_drained(drained, clock::now());
    if changed {
        let done = if drained { "drained" } else { "undrained" };
        tracing::info!("upstream `{}`: {} is {done} by {}", upstream.name, endpoint.authority, asked.caller);
    }
    good(DrainReport {
        upstream: upstream.name.to_string(),
        server: endpoint.authority.to_string(),
        drained,
        changed,
    })
}
