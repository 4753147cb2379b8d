//! What `/metrics` answers: all workers' counters together.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::exposition::{Exposition, Kind};
use super::series::Series;
use super::store;
use super::{DecisionLabel, Metrics, TurnedAway};
use crate::clock::deadline;
use crate::counter::{HistogramTotal, RequestTime};
use crate::gateway::{Backend, Gateway};
use crate::store::Store;
use crate::telemetry::trace::Counts;
use crate::upstream::bound::Usage;
use crate::upstream::roster::Roster;

/// A route's answers over all workers.
#[derive(Debug, Default)]
struct AnswersTotal {
    codes: BTreeMap<u16, u64>,
    duration: HistogramTotal<RequestTime>,
}

impl Metrics {
    /// The page in Prometheus' text format 0.0.4. `access_log_dropped` is how many records the access log lost; `traces`
    /// tells what became of spans, if requests are traced.
    ///
    /// Of routes, limits and upstreams, only those that were used have series.
    pub fn render(
        &self,
        gateway: &Gateway,
        roster: &Roster,
        store: &Store,
        access_log_dropped: u64,
        traces: Option<&Counts>,
    ) -> String {
        let workers: Vec<Arc<Series>> = self.workers.iter().map(arc_swap::ArcSwapAny::load_full).collect();
        let mut page = Exposition::default();
        answers(&mut page, &workers);
        decisions(&mut page, &workers);
        upstreams(&mut page, &workers);
        servers(&mut page, gateway, roster);
        usage(&mut page, gateway, roster);
        connections(&mut page, &workers);
        self.process(&mut page, store, access_log_dropped);
        if let Some(counts) = traces {
            exports(&mut page, counts);
        }
        page.into_text()
    }

    /// What has no worker's counter.
    fn process(&self, page: &mut Exposition, counters: &Store, access_log_dropped: u64) {
        let reloads = "tollgate_config_reloads_total";
        page.family(reloads, Kind::Counter, "Reloads of the configuration.");
        page.sample(reloads, &[("result", "success")], self.reloads_succeeded.load(Ordering::Relaxed));
        page.sample(reloads, &[("result", "failure")], self.reloads_failed.load(Ordering::Relaxed));
        store::store(page, counters);
        let dropped = "Access records dropped because the queue was full or the output failed.";
        page.single("tollgate_access_log_dropped_total", Kind::Counter, dropped, access_log_dropped);
        let build = "tollgate_build_info";
        page.family(build, Kind::Gauge, "Always 1; the label tells the version.");
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
                total.duration.add(&answers.duration);
            }
        }
    }
    let requests = "tollgate_requests_total";
    page.family(requests, Kind::Counter, "Requests answered, by route and status code.");
    for (route, total) in &totals {
        for (code, count) in &total.codes {
            page.sample(requests, &[("route", route), ("code", &code.to_string())], count);
        }
    }
    let duration = "tollgate_request_duration_seconds";
    page.family(duration, Kind::Histogram, "Head of the request to end of the response.");
    for (route, total) in &totals {
        page.histogram(duration, Some(("route", route)), &total.duration);
    }
}

fn decisions(page: &mut Exposition, workers: &[Arc<Series>]) {
    let mut totals: BTreeMap<(&str, &str), [u64; DecisionLabel::ALL.len()]> = BTreeMap::new();
    for route in workers.iter().flat_map(|series| &series.routes) {
        for limit in &route.limits {
            if let Some(decisions) = limit.used() {
                let total = totals.entry((&route.answers.name, &limit.name)).or_default();
                for (total, label) in total.iter_mut().zip(DecisionLabel::ALL) {
                    *total += decisions.of(label).get();
                }
            }
        }
    }
    let name = "tollgate_decisions_total";
    page.family(name, Kind::Counter, "What each limit said of the requests of a route.");
    for ((route, limit), total) in &totals {
        for (count, label) in total.iter().zip(DecisionLabel::ALL) {
            let labels = [("route", *route), ("limit", *limit), ("decision", label.as_str())];
            page.sample(name, &labels, count);
        }
    }
}

fn upstreams(page: &mut Exposition, workers: &[Arc<Series>]) {
    let mut totals: BTreeMap<&str, HistogramTotal<RequestTime>> = BTreeMap::new();
    for upstream in workers.iter().flat_map(|series| &series.upstreams) {
        if let Some(histogram) = upstream.used() {
            totals.entry(&upstream.name).or_default().add(histogram);
        }
    }
    let name = "tollgate_upstream_duration_seconds";
    page.family(name, Kind::Histogram, "Request sent to the upstream until its response head.");
    for (upstream, total) in &totals {
        page.histogram(name, Some(("upstream", upstream)), total);
    }
}

/// What is known of the servers. The built-in echo is always there.
fn servers(page: &mut Exposition, gateway: &Gateway, roster: &Roster) {
    let (up, ejections) = ("tollgate_upstream_up", "tollgate_upstream_ejections_total");
    let now = deadline::now();
    let peers: Vec<_> = gateway.upstreams.iter().map(|upstream| (upstream, roster.peers(upstream))).collect();
    let servers = || {
        peers.iter().flat_map(|(upstream, peers)| {
            let labels = |server| [("upstream", &*upstream.name), ("server", server)];
            upstream
                .endpoints()
                .iter()
                .zip(peers.iter())
                .map(move |(server, fitness)| (labels(&server.authority), fitness))
        })
    };
    page.family(up, Kind::Gauge, "Whether the server is chosen: healthy and not ejected.");
    for upstream in gateway.upstreams.iter().filter(|upstream| upstream.backend == Backend::Echo) {
        page.sample(up, &[("upstream", &upstream.name), ("server", "builtin:echo")], 1);
    }
    for (labels, fitness) in servers() {
        page.sample(up, &labels, u8::from(fitness.is_fit(now)));
    }
    page.family(ejections, Kind::Counter, "How often the server was ejected for its failures.");
    for (labels, fitness) in servers() {
        page.sample(ejections, &labels, fitness.ejections());
    }
}

/// Of the upstreams whose connections have a bound.
fn usage(page: &mut Exposition, gateway: &Gateway, roster: &Roster) {
    let usage = |upstream| roster.usage(upstream).map(|usage| (&*upstream.name, usage));
    let used: Vec<(&str, Usage)> = gateway.upstreams.iter().filter_map(|upstream| usage(upstream)).collect();
    if used.is_empty() {
        return;
    }
    let (connections, pending) = ("tollgate_upstream_connections", "tollgate_upstream_pending");
    page.family(
        connections,
        Kind::Gauge,
        "Connections to an upstream that has max_connections, used or not.",
    );
    for (upstream, usage) in &used {
        page.sample(connections, &[("upstream", upstream)], usage.connections);
    }
    page.family(pending, Kind::Gauge, "Requests that wait for a connection to it.");
    for (upstream, usage) in &used {
        page.sample(pending, &[("upstream", upstream)], usage.pending);
    }
}

fn connections(page: &mut Exposition, workers: &[Arc<Series>]) {
    let mut totals: BTreeMap<&str, u64> = BTreeMap::new();
    for listener in workers.iter().flat_map(|series| &series.listeners) {
        let open = listener.used().map_or(0, |connections| connections.open());
        *totals.entry(&listener.name).or_default() += open;
    }
    let name = "tollgate_connections";
    page.family(name, Kind::Gauge, "Clients' connections open now.");
    for (listener, open) in &totals {
        page.sample(name, &[("listener", listener)], open);
    }
    turned_away(page, workers);
}

fn turned_away(page: &mut Exposition, workers: &[Arc<Series>]) {
    let mut totals: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for listener in workers.iter().flat_map(|series| &series.listeners) {
        for why in TurnedAway::ALL {
            let count = listener.used().map_or(0, |connections| connections.turned_away(why).get());
            if count > 0 {
                *totals.entry((&listener.name, why.as_str())).or_default() += count;
            }
        }
    }
    if totals.is_empty() {
        return;
    }
    let name = "tollgate_connections_refused_total";
    page.family(name, Kind::Counter, "Clients' connections that were not served, or no further, by cause.");
    for ((listener, reason), count) in &totals {
        page.sample(name, &[("listener", listener), ("reason", reason)], count);
    }
}

fn exports(page: &mut Exposition, counts: &Counts) {
    let exports = "tollgate_trace_exports_total";
    page.family(exports, Kind::Counter, "Batches of spans that the collector took, or that were given up.");
    page.sample(exports, &[("result", "success")], counts.succeeded());
    page.sample(exports, &[("result", "failure")], counts.failed());
    let dropped = "Spans dropped because the queue was full or an export failed.";
    page.single("tollgate_trace_spans_dropped_total", Kind::Counter, dropped, counts.dropped());
}
