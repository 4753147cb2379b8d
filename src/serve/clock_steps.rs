//! Follows the wall clock: windows of a clock or a calendar, tokens and all times that are shown depend on it.

use std::sync::Arc;
use std::time::Duration;

use crate::limit::wall_clock;
use crate::shared::Shared;

/// How long a step may be unknown.
const EVERY: Duration = Duration::from_millis(250);
/// The longest step that is not logged, in µs: time servers make such.
const LONGEST_UNSAID: u64 = 1_000_000;

/// Runs until the process ends.
pub(super) async fn run(shared: Arc<Shared>) {
    loop {
        if let Some(step) = shared.clock.follow(wall_clock::system())
            && step.unsigned_abs() > LONGEST_UNSAID
        {
            shared.metrics.count_clock_step();
            tracing::warn!("{}", words(step));
        }
        tokio::time::sleep(EVERY).await;
    }
}

#[expect(clippy::cast_precision_loss, reason = "shown with three decimals")]
fn words(step: i64) -> String {
    format!(
        "clock stepped by {:+.3} s: windows of the clock and the calendar, tokens and times follow it",
        step as f64 / 1e6
    )
}
