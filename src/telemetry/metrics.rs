//! Counters and histograms, one set per worker, summed when they are scraped.
//!
//! Labels are bounded by the configuration: never a key, a path or an address of a client. A route that was never
//! asked for has no series and costs a few machine words a worker.
//!
//! The counters are our own and not those of a metrics crate, because those are shared by all threads: a locked
//! instruction and a travelling cache line per request. A worker's are written by its thread alone.

mod clients;
mod counters;
mod delta;
mod exposition;
mod process;
mod scrape;
mod series;
mod store;
mod traces;
mod upstreams;

use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use arc_swap::ArcSwap;
use http::StatusCode;

use crate::limit::units::Micros;
use crate::plan::{Plan, UpstreamIndex};
use crate::route::RouteIndex;
use crate::upstream::Failure;
use counters::{RouteCounters, ServerCounters};
pub use delta::{Answered, Attempts, Decided, Delta, DeltaReader, ServerCounts, ServerName};
use series::{Named, Series};

/// The `route` label of requests that no route was found for. (A route that is given this name shares its series.)
pub const NO_ROUTE: &str = "none";

/// All counters of the process. They outlive plans: a reload keeps the counters of names that stay.
#[derive(Debug)]
pub struct Metrics {
    /// What each worker counts under its present plan.
    workers: Vec<ArcSwap<Series>>,
    reloads_succeeded: AtomicU64,
    reloads_failed: AtomicU64,
    /// The file was not put in force when it was last read.
    last_reload_failed: AtomicBool,
}

/// A worker's own counters for one plan. Recording touches only this worker's cache lines.
///
/// It has one writer and stays on the thread that made it (it is not `Send`); so it needs no locked instructions.
#[derive(Debug)]
pub struct WorkerMetrics {
    series: Arc<Series>,
    stays_on_its_thread: PhantomData<*const ()>,
}

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

impl DecisionLabel {
    /// All of them, in the order of their declaration.
    pub const ALL: [Self; 6] =
        [Self::Allowed, Self::Delayed, Self::Limited, Self::ShadowLimited, Self::Exempt, Self::StoreError];

    /// The `decision` label of `tollgate_decisions_total` and of the access log.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Delayed => "delayed",
            Self::Limited => "limited",
            Self::ShadowLimited => "shadow_limited",
            Self::Exempt => "exempt",
            Self::StoreError => "store_error",
        }
    }
}

/// What a limit said, whoever decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitVerdict {
    /// Pass.
    Admitted,
    /// Pass after a wait.
    Delayed,
    /// Not now; of a shadow limit, not if it were enforced.
    Refused,
}

impl LimitVerdict {
    /// All of them, in the order of their declaration.
    pub const ALL: [Self; 3] = [Self::Admitted, Self::Delayed, Self::Refused];
}

/// What became of a request in the end: exactly one of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestOutcome {
    /// Forwarded at once and answered with less than 500, or sent elsewhere as the route says.
    Admitted,
    /// The same after a wait in a leaky bucket.
    Delayed,
    /// Refused by a limit.
    Refused,
    /// Answered with a 5xx by the backend, answered with an error of the gateway's own, or broken off.
    Failed,
}

impl RequestOutcome {
    /// All of them, in the order of their declaration.
    pub const ALL: [Self; 4] = [Self::Admitted, Self::Delayed, Self::Refused, Self::Failed];
}

/// The first digit of a final response's status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusClass {
    /// 101: the connection goes over to another protocol.
    Switching,
    /// 200 to 299.
    Success,
    /// 300 to 399.
    Redirection,
    /// 400 to 499.
    ClientError,
    /// 500 and above: what no class is known for counts as an error of the server (RFC 9110 §15).
    ServerError,
}

impl StatusClass {
    /// All of them, in the order of their declaration.
    pub const ALL: [Self; 5] =
        [Self::Switching, Self::Success, Self::Redirection, Self::ClientError, Self::ServerError];

    /// The class of a status.
    pub fn of(status: StatusCode) -> Self {
        match status.as_u16() {
            ..200 => Self::Switching,
            200..300 => Self::Success,
            300..400 => Self::Redirection,
            400..500 => Self::ClientError,
            500.. => Self::ServerError,
        }
    }

    /// The `class` label of `tollgate_upstream_responses_total`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Switching => "1xx",
            Self::Success => "2xx",
            Self::Redirection => "3xx",
            Self::ClientError => "4xx",
            Self::ServerError => "5xx",
        }
    }
}

/// Why a connection was not served, or served no further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionRejectReason {
    /// Where PROXY protocol is spoken, the peer is no trusted proxy.
    Untrusted,
    /// The preamble of PROXY protocol did not come, or is malformed.
    Preamble,
    /// Its client has `max_connections_per_client` already.
    PerClient,
    /// There are `max_connections` already, none of them idle.
    Crowd,
    /// TLS was not agreed on, or not in time.
    Handshake,
    /// The client took nothing of an answer for `write_timeout`.
    Stalled,
}

impl ConnectionRejectReason {
    /// All of them, in the order of their declaration.
    pub const ALL: [Self; 6] =
        [Self::Untrusted, Self::Preamble, Self::PerClient, Self::Crowd, Self::Handshake, Self::Stalled];

    /// The `reason` label of `tollgate_connections_refused_total`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Untrusted => "untrusted_proxy",
            Self::Preamble => "proxy_protocol",
            Self::PerClient => "per_client",
            Self::Crowd => "max_connections",
            Self::Handshake => "tls",
            Self::Stalled => "write_timeout",
        }
    }
}

impl Metrics {
    /// Counters for so many workers.
    pub fn new(workers: usize) -> Arc<Self> {
        Arc::new(Self {
            workers: (0..workers).map(|_| ArcSwap::default()).collect(),
            reloads_succeeded: AtomicU64::new(0),
            reloads_failed: AtomicU64::new(0),
            last_reload_failed: AtomicBool::new(false),
        })
    }

    /// A worker's counters for a plan. Called on the worker's thread when it starts and when it notices a new plan.
    ///
    /// Names that were in its last plan go on counting where they stood; the others are forgotten, so that reloads
    /// cannot pile up series. A worker beyond those of [`Self::new`] counts, but is never scraped.
    pub fn worker(self: &Arc<Self>, worker: usize, gateway: &Plan) -> WorkerMetrics {
        let series = match self.workers.get(worker) {
            Some(current) => {
                let next = Arc::new(current.load().under(gateway));
                current.store(Arc::clone(&next));
                next
            }
            None => Arc::new(Series::default().under(gateway)),
        };
        WorkerMetrics { series, stays_on_its_thread: PhantomData }
    }

    /// A reload succeeded or failed.
    pub fn reloaded(&self, good: bool) {
        let counter = if good { &self.reloads_succeeded } else { &self.reloads_failed };
        counter.fetch_add(1, Ordering::Relaxed);
        self.last_reload_failed.store(!good, Ordering::Relaxed);
    }
}

impl WorkerMetrics {
    /// A request was answered; `route` is `None` where none matched or none was looked for. `delay` is the part of `duration` that it
    /// waited in the queue of a leaky bucket.
    pub fn request(&self, route: Option<RouteIndex>, status: StatusCode, duration: Micros, delay: Micros) {
        let answers = self.answers(route);
        answers.codes.count(status);
        answers.record(duration, delay);
    }

    /// So many bytes of bodies came and went with a request; see [`Self::request`].
    pub fn bodies(&self, route: Option<RouteIndex>, received: u64, sent: u64) {
        let answers = self.answers(route);
        answers.received.add(received);
        answers.sent.add(sent);
    }

    /// What became of it in the end; see [`Self::request`].
    pub fn outcome(&self, route: Option<RouteIndex>, fate: RequestOutcome) {
        self.answers(route).fate(fate).add(1);
    }

    fn answers(&self, route: Option<RouteIndex>) -> &RouteCounters {
        match route.and_then(|route| self.series.routes.get(route.0)) {
            Some(route) => route.answers.cells(),
            None => self.series.unrouted.cells(),
        }
    }

    /// A limit decided. `limit_use` is its place in the route's `limits`.
    pub fn decision(&self, route: RouteIndex, limit_use: usize, decision: DecisionLabel) {
        let limits = self.series.routes.get(route.0).map(|route| &route.limits);
        if let Some(limit) = limits.and_then(|limits| limits.get(limit_use)) {
            limit.cells().of(decision).add(1);
        }
    }

    /// The store could not be asked, and a limit said this all the same. See [`Self::decision`].
    pub fn decided_locally(&self, route: RouteIndex, limit_use: usize, word: LimitVerdict) {
        let limits = self.series.routes.get(route.0).map(|route| &route.limits);
        if let Some(limit) = limits.and_then(|limits| limits.get(limit_use)) {
            limit.cells().unasked(word).add(1);
        }
    }

    /// An upstream answered (its response head came) after this long.
    pub fn upstream(&self, upstream: UpstreamIndex, duration: Micros) {
        if let Some(upstream) = self.series.upstreams.get(upstream.0) {
            upstream.exchanges.cells().duration.record(duration);
        }
    }

    /// The server at this place of an upstream sent the head of its final response.
    pub fn response(&self, upstream: UpstreamIndex, server: usize, status: StatusCode) {
        if let Some(responses) = self.responses(upstream, server) {
            responses.class(StatusClass::of(status)).add(1);
        }
    }

    /// The server at this place of an upstream failed an attempt, and another followed.
    pub fn retry(&self, upstream: UpstreamIndex, server: usize, why: Failure) {
        if let Some(responses) = self.responses(upstream, server) {
            responses.retried(why).add(1);
        }
    }

    fn responses(&self, upstream: UpstreamIndex, server: usize) -> Option<&ServerCounters> {
        self.series.upstreams.get(upstream.0)?.servers.get(server).map(Named::cells)
    }

    /// An upstream gave no answer. What was the client's fault is not counted.
    pub fn upstream_failed(&self, upstream: UpstreamIndex, why: Failure) {
        if let Some(upstream) = self.series.upstreams.get(upstream.0).filter(|_| why != Failure::Upload) {
            upstream.exchanges.cells().failed(why).add(1);
        }
    }

    /// So many attempts at an upstream were not answered, those that another followed included.
    pub fn failed_attempts(&self, upstream: UpstreamIndex, count: u32) {
        if let Some(upstream) = self.series.upstreams.get(upstream.0).filter(|_| count > 0) {
            upstream.exchanges.cells().failed_attempts.add(count.into());
        }
    }

    /// A client connected to the listener at this place of `server.listen`.
    pub fn connection_opened(&self, listener: usize) {
        if let Some(listener) = self.series.listeners.get(listener) {
            listener.cells().opened.add(1);
        }
    }

    /// A connection to that listener is not served, or no further.
    pub fn connection_rejected(&self, listener: usize, why: ConnectionRejectReason) {
        if let Some(listener) = self.series.listeners.get(listener) {
            listener.cells().turned_away(why).add(1);
        }
    }

    /// A client's connection ended.
    pub fn connection_closed(&self, listener: usize) {
        if let Some(listener) = self.series.listeners.get(listener) {
            listener.cells().closed.add(1);
        }
    }
}
