//! The end of a process that shares its store: its usage is written for the last time.

use std::time::Duration;

use tokio::time::timeout;

use crate::shared::Shared;

/// How long it may take.
const LAST_WRITE: Duration = Duration::from_secs(3);

/// Writes the usage of consumers to the shared store, if there is one and a limit keeps it. `is_complete`: all requests have
/// ended. Needs a local runtime around it.
pub(super) async fn write_usage(shared: &Shared, is_complete: bool) {
    let plan = shared.plan.load();
    let limits = plan.limits.iter().filter_map(|limit| limit.usage.as_ref());
    if plan.store.shared.is_none() || limits.clone().next().is_none() {
        return;
    }
    // The workers have ended, and their connections with them.
    let counters = shared.store.open(plan.server.workers);
    let write = counters.keep_usage(shared.store.usage(), shared.control.gateway_id, limits, is_complete);
    if !matches!(timeout(LAST_WRITE, write).await, Ok(Ok(()))) {
        tracing::warn!("the usage of consumers could not be written to the shared store");
    }
}
