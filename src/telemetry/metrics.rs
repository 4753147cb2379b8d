//! Counters and histograms, one set per worker, summed when they are scraped.
//!
//! Labels are bounded by the configuration: never a key, a path or an address of a client. A route without requests has
//! no series and costs a few machine words a worker.
//!
//! The counters are the gateway's own and not those of a metrics crate, because those are shared by all threads: a
//! locked instruction and a cache line moved between cores for each request. A worker's counters are written only by
//! its thread.

mod counters;
mod delta;
mod exposition;
mod limits;
mod process;
mod scrape;
mod series;
mod store;
mod upstreams;

use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use arc_swap::ArcSwap;
use http::StatusCode;

use crate::labels::labels;
use crate::limit::Verdict;
use crate::limit::units::Micros;
use crate::plan::admission::{Applicability, BindingLimit, LimitCheck, RequestCharges};
use crate::plan::auth::AuthIndex;
use crate::plan::decision::Ruling;
use crate::plan::{LimitIndex, Mode, Plan, TierIndex, UpstreamIndex};
use crate::route::RouteIndex;
use crate::store::{Known, Outcome};
use crate::upstream::{Failure, RetryReason};
use counters::{RouteCounters, ServerCounters};
pub use delta::{
    Answered, Attempts, Delta, DeltaReader, ServerAttempts, ServerCounts, ServerName, SettledCounts,
    VerdictCounts,
};
use series::{Named, Series};

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
#[derive(Debug)]
pub struct Metrics {
    /// Each worker's counters under its present plan.
    workers: Vec<ArcSwap<Series>>,
    reloads_succeeded: AtomicU64,
    reloads_failed: AtomicU64,
    /// The last reload failed.
    last_reload_failed: AtomicBool,
    clock_steps: AtomicU64,
}

/// A worker's own counters for one plan. Recording touches only this worker's cache lines.
///
/// It has one writer and stays on the thread that made it (it is not `Send`); so it needs no locked instructions.
#[derive(Debug)]
pub struct WorkerMetrics {
    series: Arc<Series>,
    stays_on_its_thread: PhantomData<*const ()>,
}

labels! {
    /// The decision on a charge: the `decision` of `tollgate_decisions_total` and of the access log.
    #[derive(Hash)]
    pub enum DecisionLabel {
        /// Admitted.
        Allowed = "allowed",
        /// Admitted after a wait.
        Delayed = "delayed",
        /// This limit refused the request.
        Limited = "limited",
        /// A ban of this limit refused the request.
        Banned = "banned",
        /// A shadow limit would have refused it.
        ShadowLimited = "shadow_limited",
        /// An exemption held.
        Exempt = "exempt",
        /// The store could not decide.
        StoreError = "store_error",
    }
}

/// A limit's verdict, by the store or by this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitVerdict {
    /// Admit.
    Admitted,
    /// Admit after a delay.
    Delayed,
    /// Refuse.
    Refused,
    /// Refuse, if the limit were enforced for this key: it is in shadow.
    RefusedInShadow,
}

impl LimitVerdict {
    /// All of them, in the order of their declaration.
    pub const ALL: [Self; 4] = [Self::Admitted, Self::Delayed, Self::Refused, Self::RefusedInShadow];
}

/// The outcome of a request: exactly one of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestOutcome {
    /// Forwarded at once and answered with less than 500, or redirected by the route.
    Admitted,
    /// The same after a delay by a leaky bucket.
    Delayed,
    /// Refused by a limit.
    Refused,
    /// Answered with a 5xx by the backend, answered with another error of the gateway's own, or truncated.
    Failed,
    /// Refused by the gateway or a service, since it has no valid credential: 401.
    Unauthenticated,
    /// Refused by the gateway or a service as not allowed: 403.
    Forbidden,
    /// Refused by the gateway, since its body is too large: 413.
    TooLarge,
}

impl RequestOutcome {
    /// All of them, in the order of their declaration.
    pub const ALL: [Self; 7] = [
        Self::Admitted,
        Self::Delayed,
        Self::Refused,
        Self::Failed,
        Self::Unauthenticated,
        Self::Forbidden,
        Self::TooLarge,
    ];
    /// The refusals that are of no limit.
    pub const REJECTIONS: [Self; 3] = [Self::Unauthenticated, Self::Forbidden, Self::TooLarge];

    /// The `decision` of a refusal that is of no limit.
    pub fn rejection(self) -> Option<&'static str> {
        match self {
            Self::Admitted | Self::Delayed | Self::Refused | Self::Failed => None,
            Self::Unauthenticated => Some("unauthenticated"),
            Self::Forbidden => Some("forbidden"),
            Self::TooLarge => Some("too_large"),
        }
    }
}

labels! {
    /// The first digit of a final response's status: the `class` of `tollgate_upstream_responses_total`.
    pub enum StatusClass {
        /// 101: the connection switches to another protocol.
        Switching = "1xx",
        /// 200 to 299.
        Success = "2xx",
        /// 300 to 399.
        Redirection = "3xx",
        /// 400 to 499.
        ClientError = "4xx",
        /// 500 and above: an unknown class counts as an error of the server (RFC 9110 §15).
        ServerError = "5xx",
    }
}

impl StatusClass {
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
}

labels! {
    /// The result of checking a request's credential: the `result` of `tollgate_auth_total`.
    pub enum AuthResult {
        /// It named a consumer.
        Accepted = "accepted",
        /// There was none, which the route allows.
        Anonymous = "anonymous",
        /// There was none, and the route requires one.
        Missing = "missing",
        /// It named no consumer.
        Invalid = "invalid",
        /// There were several that differ.
        Repeated = "repeated",
        /// It named no consumer, and the limit on such requests refused it.
        Limited = "limited",
    }
}

labels! {
    /// How a reserved cost was settled: the `result` of `tollgate_settlements_total`.
    pub enum SettlementResult {
        /// By the values that were found.
        Measured = "measured",
        /// By `max`, which the values exceed.
        Capped = "capped",
        /// By `missing`: there is no value.
        Missing = "missing",
        /// By `missing`: a value is not a number from 0 on.
        Unreadable = "unreadable",
        /// The response is incomplete or never came, and lacks a value: by `missing`, or by the values found if they are more.
        Incomplete = "incomplete",
        /// The request has reached no backend: all was given back.
        NoAnswer = "no_answer",
    }
}

/// A cost that was reserved and settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SettledUnits {
    /// The units charged on admission.
    pub reserved: u32,
    /// The units that it costs in the end.
    pub units: u32,
    /// How these were found.
    pub result: SettlementResult,
}

labels! {
    /// Why a connection was rejected, or closed early: the `reason` of `tollgate_connections_refused_total`.
    pub enum ConnectionRejectReason {
        /// On a listener with PROXY protocol, the peer is not a trusted proxy.
        Untrusted = "untrusted_proxy",
        /// The PROXY protocol header is missing or malformed.
        Preamble = "proxy_protocol",
        /// The client has `max_connections_per_client` already.
        PerClient = "per_client",
        /// There are `max_connections` already, none of them idle.
        Crowd = "max_connections",
        /// The TLS handshake failed, or was not complete in time.
        Handshake = "tls",
        /// The client accepted nothing of a response for `write_timeout`.
        Stalled = "write_timeout",
    }
}

impl Metrics {
    /// Counters for this number of workers.
    pub fn new(workers: usize) -> Arc<Self> {
        Arc::new(Self {
            workers: (0..workers).map(|_| ArcSwap::default()).collect(),
            reloads_succeeded: AtomicU64::new(0),
            reloads_failed: AtomicU64::new(0),
            last_reload_failed: AtomicBool::new(false),
            clock_steps: AtomicU64::new(0),
        })
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

    /// Counts a step of the wall clock.
    pub fn count_clock_step(&self) {
        self.clock_steps.fetch_add(1, Ordering::Relaxed);
    }
}

impl WorkerMetrics {
    /// Counts a request that has matched this route. It is in flight until [`Self::outcome`].
    pub fn begun(&self, route: RouteIndex) {
        self.answers(Some(route)).begun.add(1);
    }

    /// Counts a response; `route` is `None` if no route matched or none was looked up. `delay` is the part of
    /// `duration` that a leaky bucket delayed the request. `admitted`: the gateway refused it in no way, so that its
    /// duration is one of those that percentiles are told of.
    pub fn request(
        &self,
        route: Option<RouteIndex>,
        status: StatusCode,
        duration: Micros,
        delay: Micros,
        admitted: bool,
    ) {
        let answers = self.answers(route);
        answers.codes.count(status);
        answers.record(duration, delay, admitted);
    }

    /// Counts the body bytes received and sent with a request; see [`Self::request`].
    pub fn bodies(&self, route: Option<RouteIndex>, received: u64, sent: u64) {
        let answers = self.answers(route);
        answers.received.add(received);
        answers.sent.add(sent);
    }

    /// Counts the outcome of a request; see [`Self::request`].
    pub fn outcome(&self, route: Option<RouteIndex>, outcome: RequestOutcome) {
        self.answers(route).outcome(outcome).add(1);
    }

    fn answers(&self, route: Option<RouteIndex>) -> &RouteCounters {
        match route.and_then(|route| self.series.routes.get(route.0)) {
            Some(route) => route.answers.cells(),
            None => self.series.unrouted.cells(),
        }
    }

    /// Counts a limit's decision. `limit_use` is its index in the route's `limits`.
    pub fn decision(&self, route: RouteIndex, limit_use: usize, decision: DecisionLabel) {
        let limits = self.series.routes.get(route.0).map(|route| &route.limits);
        if let Some(limit) = limits.and_then(|limits| limits.get(limit_use)) {
            limit.cells().of(decision).add(1);
        }
    }

    /// Counts the result of checking a credential.
    pub fn auth(&self, auth: AuthIndex, result: AuthResult) {
        if let Some(auth) = self.series.auths.get(auth.0) {
            auth.cells().result(result).add(1);
        }
    }

    /// Counts a limit's decision on a consumer of this tier, if the limit has tiers; `None`: of none that it has.
    pub fn tier_decision(&self, limit: LimitIndex, tier: Option<TierIndex>, decision: DecisionLabel) {
        let tiers = self.series.tiers.get(limit.0).map_or(&[][..], |limit| &limit.tiers);
        if let Some(tier) = tiers.get(tier.map_or(0, |tier| tier.0 + 1)) {
            tier.cells().of(decision).add(1);
        }
    }

    /// Counts a cost of a limit that was reserved, and is settled now.
    pub fn settled(&self, limit: LimitIndex, settled: SettledUnits) {
        let SettledUnits { reserved, units, result } = settled;
        let Some(limit) = self.series.settlements.get(limit.0) else { return };
        let counters = limit.cells();
        counters.reserved.add(reserved.into());
        counters.charged.add(units.saturating_sub(reserved).into());
        counters.refunded.add(reserved.saturating_sub(units).into());
        counters.result(result).add(1);
    }

    /// Counts a limit's verdict where the store could not be asked. See [`Self::decision`].
    pub fn decided_locally(&self, route: RouteIndex, limit_use: usize, word: LimitVerdict) {
        let limits = self.series.routes.get(route.0).map(|route| &route.limits);
        if let Some(limit) = limits.and_then(|limits| limits.get(limit_use)) {
            limit.cells().decided_locally(word).add(1);
        }
    }

    /// Counts a final response of the server at this index of an upstream, whose head came after this long.
    pub fn response(&self, upstream: UpstreamIndex, server: usize, status: StatusCode, duration: Micros) {
        if let Some(upstream) = self.series.upstreams.get(upstream.0) {
            upstream.exchanges.cells().duration.record(duration);
        }
        if let Some(responses) = self.responses(upstream, server) {
            responses.class(StatusClass::of(status)).add(1);
            responses.duration.record(duration);
        }
    }

    /// Counts an attempt at the server at this index of an upstream that was retried.
    pub fn retry(&self, upstream: UpstreamIndex, server: usize, why: RetryReason) {
        if let Some(responses) = self.responses(upstream, server) {
            responses.retried(why).add(1);
        }
    }

    fn responses(&self, upstream: UpstreamIndex, server: usize) -> Option<&ServerCounters> {
        self.series.upstreams.get(upstream.0)?.servers.get(server).map(Named::cells)
    }

    /// Counts a request without a response from an upstream. Failures caused by the client are not counted.
    pub fn upstream_failed(&self, upstream: UpstreamIndex, why: Failure) {
        if let Some(upstream) = self.series.upstreams.get(upstream.0).filter(|_| why != Failure::Upload) {
            upstream.exchanges.cells().failed(why).add(1);
        }
    }

    /// Counts failed attempts at an upstream, including those that were retried.
    pub fn failed_attempts(&self, upstream: UpstreamIndex, count: u32) {
        if let Some(upstream) = self.series.upstreams.get(upstream.0).filter(|_| count > 0) {
            upstream.exchanges.cells().failed_attempts.add(count.into());
        }
    }

    /// Counts attempts at an upstream that its retry budget did not let be retried.
    pub fn over_budget(&self, upstream: UpstreamIndex, count: u32) {
        if let Some(upstream) = self.series.upstreams.get(upstream.0).filter(|_| count > 0) {
            upstream.exchanges.cells().over_budget.add(count.into());
        }
    }

    /// Counts a connection to the listener at this index of `server.listen`.
    pub fn connection_opened(&self, listener: usize) {
        if let Some(listener) = self.series.listeners.get(listener) {
            listener.cells().opened.add(1);
        }
    }

    /// Counts a connection to that listener that is rejected, or closed early.
    pub fn connection_rejected(&self, listener: usize, why: ConnectionRejectReason) {
        if let Some(listener) = self.series.listeners.get(listener) {
            listener.cells().rejected_connections(why).add(1);
        }
    }

    /// Counts a closed client connection.
    pub fn connection_closed(&self, listener: usize) {
        if let Some(listener) = self.series.listeners.get(listener) {
            listener.cells().closed.add(1);
        }
    }
}

impl DecisionLabel {
    /// The label that a limit's verdict is counted under; `None` if it neither charged nor refused. `admitted`: all
    /// enforced limits admit the request.
    pub fn of_check(check: &LimitCheck<'_>, outcome: &Outcome, admitted: bool) -> Option<Self> {
        let shadow = check.mode == Mode::Shadow;
        let refused = if shadow { Self::ShadowLimited } else { Self::Limited };
        let delayed =
            || check.decisions(outcome).iter().any(|decision| matches!(decision.verdict, Verdict::Delay(_)));
        let decided_locally = check.indices().any(|index| outcome.decided_locally.contains(index));
        match check.applicability {
            Applicability::Exempt => Some(Self::Exempt),
            Applicability::Missing | Applicability::Repeated | Applicability::Unreadable(_) => Some(refused),
            Applicability::Charged(..) if decided_locally => Some(Self::StoreError),
            Applicability::Charged(..) if check.denies(outcome) => Some(refused),
            Applicability::Charged(..) if !admitted || outcome.decisions.is_empty() => None,
            Applicability::Charged(..) if !shadow && delayed() => Some(Self::Delayed),
            Applicability::Charged(..) => Some(Self::Allowed),
            Applicability::Free | Applicability::Skipped => None,
        }
    }

    /// What the limits of a phase decided, each with its place; those that counted nothing are left out. An automatic ban
    /// of a shadow limit refuses nothing, and is counted.
    pub fn of_limits<'c, 'p>(
        charges: &'c RequestCharges<'p>,
        outcome: &'c Outcome,
        ruling: &Ruling<'p>,
        known: Known<'c>,
    ) -> impl Iterator<Item = (usize, &'c LimitCheck<'p>, Self)> {
        let banned = match ruling {
            Ruling::Banned { ban, begun } => Some((ban.index, *begun)),
            _ => None,
        };
        let admitted = ruling.admits();
        let label = move |place: usize, check: &LimitCheck<'p>| match (banned, check.applicability) {
            (Some((banned, _)), _) if place == banned => Some(Self::Banned),
            (Some((_, false)), Applicability::Exempt) => Some(Self::Exempt),
            (Some((_, false)), _) => None,
            _ if charges.is_banned_in_shadow(check, known) => Some(Self::ShadowLimited),
            _ => Self::of_check(check, outcome, admitted),
        };
        let checks = charges.checks.iter().enumerate();
        checks.filter_map(move |(place, check)| Some((place, check, label(place, check)?)))
    }

    /// The label of the binding limit.
    pub fn of_binding(binding: &BindingLimit<'_>) -> Self {
        match binding.decision.verdict {
            _ if !binding.asked => Self::StoreError,
            Verdict::Allow => Self::Allowed,
            Verdict::Delay(_) => Self::Delayed,
            Verdict::Deny(_) => Self::Limited,
        }
    }
}
