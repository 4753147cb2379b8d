//! Counters and histograms, one set per worker, summed when they are scraped.
//!
//! A file for each subject has all of its metrics: the table of its families (`families!`), the counters that workers
//! add to, and what deltas need of them (`totals!`). For example, `routes.rs` declares `tollgate_requests_total`, and
//! [`WorkerMetrics::request`] counts for it.
//!
//! Labels are bounded by the configuration: never a key, a path or an address of a client. A route without requests has
//! no series and costs a few machine words a worker.
//!
//! The counters are the gateway's own and not those of a metrics crate, because those are shared by all threads: a
//! locked instruction and a cache line moved between cores for each request. A worker's counters are written only by
//! its thread.

mod calls;
mod decisions;
mod delta;
mod family;
mod listeners;
mod process;
mod queues;
mod routes;
mod scrape;
mod series;
mod store;
mod totals;
mod upstreams;

use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use arc_swap::ArcSwap;

use crate::plan::Plan;
pub use calls::{DecisionProtocol, DecisionResult};
pub use decisions::{
    AuthResult, DecisionLabel, LimitVerdict, SettledCounts, SettledUnits, SettlementResult, VerdictCounts,
};
pub use delta::{Delta, DeltaReader, ServerName};
pub use family::{Family, MetricKind};
pub use listeners::ConnectionRejectReason;
pub use routes::{Answered, MirrorResult, RequestOutcome};
use series::Series;
pub use upstreams::{Attempts, ServerAttempts, ServerCounts, StatusClass};

/// Counts of the process that no worker keeps.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProcessCounts {
    /// Records that the access log lost.
    pub access_log_dropped: u64,
    /// Bytes held by requests that are not decided.
    pub buffered_bytes: u64,
    /// Requests refused because of `max_buffered`.
    pub buffer_evictions: u64,
}

/// The `route` label of requests without a route. (A route of this name shares its series.)
pub const NO_ROUTE: &str = "none";

/// All counters of the process. They outlive plans: a reload keeps the counters of names that stay.
#[derive(Debug, Default)]
pub struct Metrics {
    /// Each worker's counters under its present plan.
    workers: Vec<ArcSwap<Series>>,
    reloads_succeeded: AtomicU64,
    reloads_failed: AtomicU64,
    /// The last reload failed.
    last_reload_failed: AtomicBool,
    clock_steps: AtomicU64,
    orders_issued: AtomicU64,
    orders_failed: AtomicU64,
    snapshots_written: AtomicU64,
    snapshots_failed: AtomicU64,
}

/// A worker's own counters for one plan. Recording touches only this worker's cache lines.
///
/// It has one writer and stays on the thread that made it (it is not `Send`); so it needs no locked instructions.
#[derive(Debug)]
pub struct WorkerMetrics {
    series: Arc<Series>,
    stays_on_its_thread: PhantomData<*const ()>,
}

impl Metrics {
    /// Counters for this number of workers.
    pub fn new(workers: usize) -> Arc<Self> {
        let workers = (0..workers).map(|_| ArcSwap::default()).collect();
        Arc::new(Self { workers, ..Self::default() })
    }

    /// A worker's counters for a plan. Called on the worker's thread when it starts and when it detects a new plan.
    ///
    /// Names that were in its last plan keep their counts; the others are dropped, so that reloads cannot accumulate
    /// series. A worker beyond those of [`Self::new`] counts, but is never scraped.
    pub fn worker(self: &Arc<Self>, worker: usize, plan: &Plan) -> WorkerMetrics {
        let series = match self.workers.get(worker) {
            Some(current) => {
                let next = Arc::new(current.load().under(plan));
                current.store(Arc::clone(&next));
                next
            }
            None => Arc::new(Series::default().under(plan)),
        };
        WorkerMetrics { series, stays_on_its_thread: PhantomData }
    }

    /// Records that a reload succeeded or failed.
    pub fn reloaded(&self, good: bool) {
        let counter = if good { &self.reloads_succeeded } else { &self.reloads_failed };
        counter.fetch_add(1, Ordering::Relaxed);
        self.last_reload_failed.store(!good, Ordering::Relaxed);
    }

    /// Counts a write of the counters to their file.
    pub fn wrote_snapshot(&self, good: bool) {
        let counter = if good { &self.snapshots_written } else { &self.snapshots_failed };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts an order for a certificate.
    pub fn count_order(&self, is_issued: bool) {
        let counter = if is_issued { &self.orders_issued } else { &self.orders_failed };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a step of the wall clock.
    pub fn count_clock_step(&self) {
        self.clock_steps.fetch_add(1, Ordering::Relaxed);
    }
}
