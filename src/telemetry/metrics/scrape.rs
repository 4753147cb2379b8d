//! The page of `/metrics`: all workers' counters together.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::counters::RouteCounters;
use super::exposition::{Exposition, MetricKind};
use super::series::Series;
use super::{AuthResult, ConnectionRejectReason, DecisionLabel, Metrics, ProcessCounts, RequestOutcome};
use super::{limits, process, store, upstreams};
use crate::counter::{HistogramTotal, RequestTime};
use crate::limit::units::Timestamp;
use crate::plan::{Limit, Plan, Server};
use crate::store::Store;
use crate::telemetry::trace::SpanCounts;
use crate::upstream::server_registry::ServerRegistry;

/// A route's responses over all workers.
#[derive(Debug, Default)]
struct AnswersTotal {
    codes: BTreeMap<u16, u64>,
    duration: HistogramTotal<RequestTime>,
    received: u64,
    sent: u64,
}

impl Metrics {
    /// The page in Prometheus' text format 0.0.4. `spans` has the counts of spans, if requests are traced.
    ///
    /// Of routes, limits and upstreams, only those that were used have series.
    pub fn render(
        &self,
        plan: &Plan,
        registry: &ServerRegistry,
        store: &Store,
        counts: ProcessCounts,
        spans: Option<&SpanCounts>,
        now: Timestamp,
    ) -> String {
        let workers: Vec<Arc<Series>> = self.workers.iter().map(arc_swap::ArcSwapAny::load_full).collect();
        let mut page = Exposition::default();
        answers(&mut page, &workers);
        decisions(&mut page, &workers);
        if plan.limits.iter().any(|limit| !limit.tiers.is_empty()) {
            tier_decisions(&mut page, &workers);
        }
        if plan.limits.iter().any(Limit::settles) {
            limits::settlements(&mut page, &workers);
        }
        if !plan.auths.is_empty() {
            auths(&mut page, &workers);
        }
        upstreams::upstreams(&mut page, &workers);
        upstreams::servers(&mut page, plan, registry);
        upstreams::usage(&mut page, plan, registry);
        connections(&mut page, &workers, &plan.server);
        store::store(&mut page, store);
        limits::limits(&mut page, plan, store, now);
        self.configuration(&mut page, plan);
        let dropped = "Access records dropped because the queue was full or the output failed.";
        page.single(
            "tollgate_access_log_dropped_total",
            MetricKind::Counter,
            dropped,
            counts.access_log_dropped,
        );
        let held = "Bytes held by requests that are not decided yet.";
        page.single("tollgate_buffered_bytes", MetricKind::Gauge, held, counts.buffered_bytes);
        let evicted = "Undecided requests refused because all together held more than `max_buffered`.";
        page.single("tollgate_buffer_evictions_total", MetricKind::Counter, evicted, counts.buffer_evictions);
        let steps = "Steps of the wall clock by more than a second.";
        page.single(
            "tollgate_clock_steps_total",
            MetricKind::Counter,
            steps,
            self.clock_steps.load(Ordering::Relaxed),
        );
        if let Some(counts) = spans {
            traces(&mut page, counts);
        }
        process::process(&mut page);
        page.into_text()
    }

    /// The active configuration, and whether the file's is active.
    fn configuration(&self, page: &mut Exposition, plan: &Plan) {
        let reloads = "tollgate_config_reloads_total";
        page.family(reloads, MetricKind::Counter, "Reloads of the configuration.");
        page.sample(reloads, &[("result", "success")], self.reloads_succeeded.load(Ordering::Relaxed));
        page.sample(reloads, &[("result", "failure")], self.reloads_failed.load(Ordering::Relaxed));
        let last = "Whether the last reload succeeded.";
        let good = !self.last_reload_failed.load(Ordering::Relaxed);
        page.single("tollgate_config_last_reload_successful", MetricKind::Gauge, last, u64::from(good));
        if let Some(tls) = &plan.server.tls {
            let expiry =
                "When the first of the certificates that clients are shown expires, in seconds since 1970.";
            let seconds = tls.first_expiry.seconds();
            page.single("tollgate_certificate_expiry_timestamp_seconds", MetricKind::Gauge, expiry, seconds);
        }
        let build = "tollgate_build_info";
        page.family(build, MetricKind::Gauge, "Always 1; the label is the version.");
        page.sample(build, &[("version", env!("CARGO_PKG_VERSION"))], 1);
    }
}

fn answers(page: &mut Exposition, workers: &[Arc<Series>]) {
    let mut totals: BTreeMap<&str, AnswersTotal> = BTreeMap::new();
    for series in workers {
        let routes = series.routes.iter().map(|route| &route.answers);
        for named in routes.chain([&series.unrouted]) {
            if let Some(answers) = named.used() {
                let total = totals.entry(&named.name).or_default();
                answers.codes.add_to(&mut total.codes);
                answers.add_durations(&mut total.duration);
                total.received += answers.received.get();
                total.sent += answers.sent.get();
            }
        }
    }
    let requests = "tollgate_requests_total";
    page.family(requests, MetricKind::Counter, "Requests answered, by route and status code.");
    for (route, total) in &totals {
        for (code, count) in &total.codes {
            page.sample(requests, &[("route", route), ("code", &code.to_string())], count);
        }
    }
    let duration = "tollgate_request_duration_seconds";
    page.family(
        duration,
        MetricKind::Histogram,
        "Time from the head of the request to the end of the response.",
    );
    for (route, total) in &totals {
        page.histogram(duration, Some(("route", route)), &total.duration);
    }
    bodies(page, &totals);
    in_flight(page, workers);
}

fn in_flight(page: &mut Exposition, workers: &[Arc<Series>]) {
    let mut totals: BTreeMap<&str, u64> = BTreeMap::new();
    for route in workers.iter().flat_map(|series| &series.routes) {
        let in_flight = route.answers.used().map_or(0, RouteCounters::in_flight);
        *totals.entry(&route.answers.name).or_default() += in_flight;
    }
    let name = "tollgate_requests_in_flight";
    page.family(
        name,
        MetricKind::Gauge,
        "Requests that matched the route, and whose response has not ended.",
    );
    for (route, total) in &totals {
        page.sample(name, &[("route", route)], total);
    }
}

fn bodies(page: &mut Exposition, totals: &BTreeMap<&str, AnswersTotal>) {
    let (received, sent) = ("tollgate_request_body_bytes_total", "tollgate_response_body_bytes_total");
    page.family(received, MetricKind::Counter, "Request body bytes received.");
    for (route, total) in totals {
        page.sample(received, &[("route", route)], total.received);
    }
    page.family(sent, MetricKind::Counter, "Response body bytes sent.");
    for (route, total) in totals {
        page.sample(sent, &[("route", route)], total.sent);
    }
}

fn decisions(page: &mut Exposition, workers: &[Arc<Series>]) {
    let mut totals: BTreeMap<(&str, &str), [u64; DecisionLabel::ALL.len()]> = BTreeMap::new();
    for route in workers.iter().flat_map(|series| &series.routes) {
        for limit in route.limits.iter().chain(&route.failures) {
            if let Some(decisions) = limit.used() {
                let total = totals.entry((&route.answers.name, &limit.name)).or_default();
                for (total, label) in total.iter_mut().zip(DecisionLabel::ALL) {
                    *total += decisions.of(label).get();
                }
            }
        }
    }
    let name = "tollgate_decisions_total";
    let help =
        "Decisions of each limit on the requests of a route; refusals of no limit, with an empty `limit`.";
    page.family(name, MetricKind::Counter, help);
    for ((route, limit), total) in &totals {
        for (count, label) in total.iter().zip(DecisionLabel::ALL) {
            let labels = [("route", *route), ("limit", *limit), ("decision", label.as_str())];
            page.sample(name, &labels, count);
        }
    }
    for ((route, decision), count) in &rejections(workers) {
        page.sample(name, &[("route", *route), ("limit", ""), ("decision", *decision)], count);
    }
}

/// By route and decision, the refusals that are of no limit. All of a route, once there is one.
fn rejections(workers: &[Arc<Series>]) -> BTreeMap<(&str, &'static str), u64> {
    let mut totals = BTreeMap::new();
    for series in workers {
        let routes = series.routes.iter().map(|route| &route.answers);
        for named in routes.chain([&series.unrouted]) {
            let Some(answers) = named.used() else { continue };
            let counts =
                RequestOutcome::REJECTIONS.map(|kind| (kind.rejection(), answers.outcome(kind).get()));
            if counts.iter().any(|(_, count)| *count > 0) {
                for (decision, count) in counts {
                    *totals.entry((&*named.name, decision.unwrap_or_default())).or_default() += count;
                }
            }
        }
    }
    totals
}

fn tier_decisions(page: &mut Exposition, workers: &[Arc<Series>]) {
    let mut totals: BTreeMap<(&str, &str), [u64; DecisionLabel::ALL.len()]> = BTreeMap::new();
    for limit in workers.iter().flat_map(|series| &series.tiers) {
        for tier in &limit.tiers {
            if let Some(decisions) = tier.used() {
                let total = totals.entry((&limit.limit, &tier.name)).or_default();
                for (total, label) in total.iter_mut().zip(DecisionLabel::ALL) {
                    *total += decisions.of(label).get();
                }
            }
        }
    }
    let name = "tollgate_tier_decisions_total";
    let help = "Decisions of each limit with tiers, by the consumer's tier; empty: none that the limit has.";
    page.family(name, MetricKind::Counter, help);
    for ((limit, tier), total) in &totals {
        for (count, label) in total.iter().zip(DecisionLabel::ALL) {
            page.sample(name, &[("limit", *limit), ("tier", *tier), ("decision", label.as_str())], count);
        }
    }
}

fn auths(page: &mut Exposition, workers: &[Arc<Series>]) {
    let mut totals: BTreeMap<&str, [u64; AuthResult::ALL.len()]> = BTreeMap::new();
    for auth in workers.iter().flat_map(|series| &series.auths) {
        if let Some(results) = auth.used() {
            let total = totals.entry(&auth.name).or_default();
            for (total, result) in total.iter_mut().zip(AuthResult::ALL) {
                *total += results.result(result).get();
            }
        }
    }
    let name = "tollgate_auth_total";
    page.family(name, MetricKind::Counter, "Results of checking the credentials of requests.");
    for (auth, total) in &totals {
        for (count, result) in total.iter().zip(AuthResult::ALL) {
            page.sample(name, &[("auth", *auth), ("result", result.as_str())], count);
        }
    }
}

/// The counts of exported and dropped spans.
fn traces(page: &mut Exposition, counts: &SpanCounts) {
    let exports = "tollgate_trace_exports_total";
    page.family(exports, MetricKind::Counter, "Batches of spans exported to the collector, by result.");
    page.sample(exports, &[("result", "success")], counts.succeeded());
    page.sample(exports, &[("result", "failure")], counts.failed());
    let dropped = "Spans dropped because the queue was full or an export failed.";
    page.single("tollgate_trace_spans_dropped_total", MetricKind::Counter, dropped, counts.dropped());
}

/// Client connections by listener.
fn connections(page: &mut Exposition, workers: &[Arc<Series>], server: &Server) {
    let mut totals: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for listener in workers.iter().flat_map(|series| &series.listeners) {
        let (open, accepted) = totals.entry(&listener.name).or_default();
        if let Some(connections) = listener.used() {
            *open += connections.open();
            *accepted += connections.opened.get();
        }
    }
    let open = "tollgate_connections";
    page.family(open, MetricKind::Gauge, "Client connections open now.");
    for (listener, (count, _)) in &totals {
        page.sample(open, &[("listener", listener)], count);
    }
    let help =
        "The setting `max_connections`: the maximum of open client connections, all listeners together.";
    page.single("tollgate_max_connections", MetricKind::Gauge, help, server.max_connections as u64);
    let accepted = "tollgate_connections_accepted_total";
    page.family(accepted, MetricKind::Counter, "Client connections accepted.");
    for (listener, (_, count)) in &totals {
        page.sample(accepted, &[("listener", listener)], count);
    }
    rejected_connections(page, workers);
}

fn rejected_connections(page: &mut Exposition, workers: &[Arc<Series>]) {
    let listeners = workers.iter().flat_map(|series| &series.listeners);
    let used = listeners.filter_map(|listener| Some((&*listener.name, listener.used()?)));
    let counts = used.flat_map(|(listener, connections)| {
        ConnectionRejectReason::ALL
            .map(|why| ([listener, why.as_str()], connections.rejected_connections(why).get()))
    });
    let help = "Client connections rejected or closed early, by cause.";
    page.sums("tollgate_connections_refused_total", help, ["listener", "reason"], counts);
}
