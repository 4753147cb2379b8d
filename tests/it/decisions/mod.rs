//! What other proxies and applications ask on the listener of `[decisions]`.

mod access;
mod check;
mod decide;
mod explain;
mod hostile;
mod overrides;
mod rate_limits;
mod records;
mod totals;

use tollgate::rate_limit_service::{RateLimitCode, RateLimitResponse};

/// Whether a call of Envoy's rate limit service is admitted.
fn is_ok(response: &RateLimitResponse) -> bool {
    response.overall_code == i32::from(RateLimitCode::Ok)
}
