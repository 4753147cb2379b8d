//! Counters and histograms, one set per worker, summed when they are scraped. Labels are bounded by the configuration.

use std::sync::Arc;

use http::StatusCode;

use crate::gateway::{Gateway, UpstreamIndex};
use crate::limit::units::Micros;
use crate::route::RouteIndex;

/// All counters of the process. They outlive plans: a reload keeps the counters of names that stay.
#[derive(Debug)]
pub struct Metrics {}

/// A worker's own counters for one plan. Not shared between threads: recording touches only this worker's cache lines.
#[derive(Debug)]
pub struct WorkerMetrics {}

/// What happened to a charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DecisionLabel {
    /// Admitted.
    Allowed,
    /// Admitted after a wait.
    Delayed,
    /// This limit refused the request.
    Limited,
    /// A shadow limit would have refused it.
    ShadowLimited,
    /// An exemption held.
    Exempt,
    /// The store could not decide.
    StoreError,
}

impl Metrics {
    /// Counters for so many workers.
    pub fn new(_workers: usize) -> Arc<Self> {
        Arc::new(Self {})
    }

    /// A worker's counters for a plan. Called when a worker starts and when it notices a new plan.
    pub fn worker(self: &Arc<Self>, _worker: usize, _gateway: &Gateway) -> WorkerMetrics {
        WorkerMetrics {}
    }

    /// A reload succeeded or failed.
    pub fn reloaded(&self, _good: bool) {}
}

impl WorkerMetrics {
    /// A request was answered; `route` is `None` where none matched or none was looked for.
    pub fn request(&self, _route: Option<RouteIndex>, _status: StatusCode, _duration: Micros) {}

    /// A limit decided. `limit_use` is its place in the route's `limits`.
    pub fn decision(&self, _route: RouteIndex, _limit_use: usize, _decision: DecisionLabel) {}

    /// An upstream answered (its response head came) after this long.
    pub fn upstream(&self, _upstream: UpstreamIndex, _duration: Micros) {}

    /// A client connected to the listener at this place of `server.listen`.
    pub fn connection_opened(&self, _listener: usize) {}

    /// A client's connection ended.
    pub fn connection_closed(&self, _listener: usize) {}
}
