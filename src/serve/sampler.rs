//! Adds a second to the history, once a second.

use std::sync::Arc;
use std::time::Duration;

use crate::limit::units::Micros;
use crate::shared::Shared;
use crate::telemetry::history::HistorySources;

/// Runs until the process ends. If a call is late, the history fills the gap.
pub(super) async fn run(shared: Arc<Shared>) {
    loop {
        let now = shared.clock.now();
        let rest = Micros::SECOND.0 - now.0 % Micros::SECOND.0;
        tokio::time::sleep(Duration::from_micros(rest)).await;
        let plan = shared.plan.load();
        let (metrics, registry, store) = (&*shared.metrics, &shared.server_registry, &shared.store);
        shared
            .samples
            .lock()
            .take(shared.clock.now(), HistorySources { metrics, plan: &plan, registry, store });
    }
}
