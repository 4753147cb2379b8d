//! Upstreams and their servers.

use http::StatusCode;

use super::WorkerMetrics;
use super::family::{Groups, families};
use super::totals::{Total, totals};
use crate::clock;
use crate::counter::{Counter, FineHistogram, FineTotal, RequestTime};
use crate::labels::labels;
use crate::limit::units::Micros;
use crate::plan::{Backend, Plan, UpstreamIndex};
use crate::upstream::connection_limit::Usage;
use crate::upstream::server_registry::ServerRegistry;
use crate::upstream::{Failure, RetryReason};

families! {
    from (
        upstreams: &Groups<'_, UpstreamCounters, 1>,
        servers: &Groups<'_, ServerCounters, 2>,
        states: &States<'_>,
    )

    Histogram tollgate_upstream_duration_seconds{upstream}
        "Time from the request sent to the upstream to its response head." always
        = durations(upstreams, |upstream, total| total.add_fine(&upstream.duration));
    Counter tollgate_upstream_failures_total{upstream, error}
        "Requests without a response from the upstream, by cause."
        = used_by(upstreams, Failure::ALL.map(Failure::as_str), |upstream| &upstream.failed);
    Counter tollgate_upstream_responses_total{upstream, server, class}
        "Final responses of a server, by the first digit of their status." always
        = by(servers, StatusClass::ALL.map(StatusClass::as_str), |server| &server.classes);
    Counter tollgate_upstream_retries_total{upstream, server, reason}
        "Failed attempts that were retried, by cause."
        = used_by(servers, RetryReason::all().map(RetryReason::as_str).collect::<Vec<_>>(), |server| &server.retried);
    Gauge tollgate_upstream_up{upstream, server}
        "0 while the server is down: unhealthy, ejected, or failed too often in a row and not answered since." always
        = values(states.up.iter().copied());
    Counter tollgate_upstream_ejections_total{upstream, server}
        "Ejections of the server after consecutive failures." always
        = values(states.ejections.iter().copied());
    Gauge tollgate_upstream_breaker_open{upstream}
        "1 while the circuit breaker of the upstream is open, or tries one request."
        = values(states.breakers.iter().map(|(upstream, (is_open, _))| (*upstream, u8::from(*is_open))));
    Counter tollgate_upstream_breaker_openings_total{upstream}
        "How often the circuit breaker of the upstream has opened."
        = values(states.breakers.iter().map(|(upstream, (_, openings))| (*upstream, openings)));
    Gauge tollgate_upstream_connections{upstream}
        "Connections to an upstream that has max_connections, used or not."
        = values(states.usages.iter().map(|(upstream, usage)| (*upstream, usage.connections)));
    Gauge tollgate_upstream_pending{upstream} "Requests waiting for a connection to the upstream."
        = values(states.usages.iter().map(|(upstream, usage)| (*upstream, usage.pending)));
}

/// The present states, each with its labels.
#[derive(Default)]
pub(super) struct States<'p> {
    /// 1 for servers that are up.
    up: Vec<([&'p str; 2], u8)>,
    ejections: Vec<([&'p str; 2], u64)>,
    /// Whether the circuit breaker is open, and how often it has opened.
    breakers: Vec<([&'p str; 1], (bool, u64))>,
    /// Of connection limits.
    usages: Vec<([&'p str; 1], Usage)>,
}

impl<'p> States<'p> {
    /// The states of a plan's upstreams. The built-in echo is always up.
    pub(super) fn of(plan: &'p Plan, registry: &ServerRegistry) -> Self {
        let (mut states, now) = (Self::default(), clock::now());
        let echoes = plan.upstreams.iter().filter(|upstream| upstream.backend == Backend::Echo);
        states.up.extend(echoes.map(|echo| ([&*echo.name, "builtin:echo"], 1)));
        for upstream in &plan.upstreams {
            let servers = registry.states(upstream);
            for (index, server) in upstream.endpoints().iter().enumerate() {
                let labels = [&*upstream.name, &*server.authority];
                let is_up = servers.down(index, now, upstream.down_after()).is_none();
                states.up.push((labels, u8::from(is_up)));
                let ejections = servers.get(index).map_or(0, |server| server.ejections());
                states.ejections.push((labels, ejections));
            }
            states.breakers.extend(servers.breaker_state().map(|breaker| ([&*upstream.name], breaker)));
            states.usages.extend(registry.usage(upstream).map(|usage| ([&*upstream.name], usage)));
        }
        states
    }
}

totals! {
    /// Attempts at an upstream.
    #[derive(Clone, Debug, Default)]
    pub struct Attempts of UpstreamCounters {
        /// The answered ones: times until the response head.
        pub duration: FineTotal<RequestTime> = |upstream| FineTotal::of([&upstream.duration]),
        /// The number of failed ones.
        pub failed: u64 = |upstream| upstream.failed_attempts.get(),
        /// Those that were not retried since the retry budget was used up.
        pub over_budget: u64 = |upstream| upstream.over_budget.get(),
    }
}

totals! {
    /// Attempts at one server.
    #[derive(Clone, Debug, Default)]
    pub struct ServerAttempts of ServerCounters {
        /// Responses and retries.
        pub counts: ServerCounts = Total::of,
        /// Times until the response head.
        pub duration: FineTotal<RequestTime> = |server| FineTotal::of([&server.duration]),
    }
}

totals! {
    /// The responses of one server.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct ServerCounts of ServerCounters {
        /// Final responses, in the order of [`StatusClass::ALL`].
        pub classes: [u64; StatusClass::ALL.len()] = |server| server.classes.each_ref().map(Counter::get),
        /// Failed attempts that were retried.
        pub retries: u64 = |server| server.retried.iter().map(Counter::get).sum(),
    }
}

impl ServerCounts {
    /// Final responses of all classes.
    pub fn responses(&self) -> u64 {
        self.classes.iter().sum()
    }

    /// Final responses of this class.
    pub fn class(&self, class: StatusClass) -> u64 {
        self.classes[class as usize]
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

/// The counters of an upstream.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct UpstreamCounters {
    duration: FineHistogram<RequestTime>,
    failed: [Counter; Failure::ALL.len()],
    /// Failed attempts, including those that were retried.
    failed_attempts: Counter,
    /// Attempts that were not retried since the retry budget was used up.
    over_budget: Counter,
}

/// The counters of attempts at one server of an upstream.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct ServerCounters {
    /// Times until the response head.
    duration: FineHistogram<RequestTime>,
    classes: [Counter; StatusClass::ALL.len()],
    retried: [Counter; RetryReason::COUNT],
}

impl WorkerMetrics {
    /// Counts a final response of the server at this index of an upstream, whose head came after this long.
    pub fn response(&self, upstream: UpstreamIndex, server: usize, status: StatusCode, duration: Micros) {
        self.series.upstreams.at(upstream.0).duration.record(duration);
        let server = self.series.servers.at(upstream.0, server);
        server.classes[StatusClass::of(status) as usize].add(1);
        server.duration.record(duration);
    }

    /// Counts an attempt at the server at this index of an upstream that was retried.
    pub fn retry(&self, upstream: UpstreamIndex, server: usize, why: RetryReason) {
        self.series.servers.at(upstream.0, server).retried[why.index()].add(1);
    }

    /// Counts a request without a response from an upstream. Failures caused by the client are not counted.
    pub fn upstream_failed(&self, upstream: UpstreamIndex, why: Failure) {
        if why != Failure::Upload {
            self.series.upstreams.at(upstream.0).failed[why as usize].add(1);
        }
    }

    /// Counts failed attempts at an upstream, including those that were retried.
    pub fn failed_attempts(&self, upstream: UpstreamIndex, count: u32) {
        if count > 0 {
            self.series.upstreams.at(upstream.0).failed_attempts.add(count.into());
        }
    }

    /// Counts attempts at an upstream that its retry budget did not let be retried.
    pub fn over_budget(&self, upstream: UpstreamIndex, count: u32) {
        if count > 0 {
            self.series.upstreams.at(upstream.0).over_budget.add(count.into());
        }
    }
}
