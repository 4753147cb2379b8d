//! Queues of requests that wait for a place of a concurrency limit, or in a leaky bucket with shares.

use super::WorkerMetrics;
use super::family::{Groups, families};
use crate::counter::{Counter, Histogram, RequestTime};
use crate::limit::units::Micros;
use crate::plan::{Limit, LimitIndex, Plan};
use crate::store::DropReason;

families! {
    from (plan: &Plan, queues: &Groups<'_, QueueCounters, 1>)

    Histogram tollgate_queue_wait_seconds{limit}
        "How long requests waited in the queue of a concurrency limit, or of a leaky bucket with share_by."
        only_if(has_queues(plan))
        = durations(queues, |queue, total| total.add(&queue.wait));
    Counter tollgate_queue_drops_total{limit, reason}
        "Requests that such a queue dropped or did not let in, and were refused."
        only_if(has_queues(plan))
        = by(queues, DropReason::ALL.map(DropReason::label), |queue| &queue.drops);
}

fn has_queues(plan: &Plan) -> bool {
    plan.limits.iter().any(Limit::has_fair_queue)
}

/// The counters of a limit's queues.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct QueueCounters {
    wait: Histogram<RequestTime>,
    drops: [Counter; DropReason::ALL.len()],
}

impl WorkerMetrics {
    /// Counts a request that has waited in the queue of a limit. `dropped`: in vain.
    pub fn waited(&self, limit: LimitIndex, waited: Micros, dropped: Option<DropReason>) {
        let queue = self.series.queues.at(limit.0);
        if waited > Micros(0) {
            queue.wait.record(waited);
        }
        if let Some(reason) = dropped {
            queue.drops[reason.index()].add(1);
        }
    }
}
