//! The metrics of the upstreams and their servers.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::StatusClass;
use super::counters::ServerCounters;
use super::exposition::{Exposition, MetricKind};
use super::series::{Named, Series};
use crate::clock;
use crate::counter::{HistogramTotal, RequestTime};
use crate::plan::{Backend, Plan};
use crate::upstream::connection_limit::Usage;
use crate::upstream::server_registry::ServerRegistry;
use crate::upstream::{Failure, RetryReason};

pub(super) fn upstreams(page: &mut Exposition, workers: &[Arc<Series>]) {
    let mut totals: BTreeMap<&str, HistogramTotal<RequestTime>> = BTreeMap::new();
    for upstream in workers.iter().flat_map(|series| &series.upstreams) {
        if let Some(exchanges) = upstream.exchanges.used() {
            totals.entry(&upstream.exchanges.name).or_default().add_fine(&exchanges.duration);
        }
    }
    let name = "tollgate_upstream_duration_seconds";
    page.family(
        name,
        MetricKind::Histogram,
        "Time from the request sent to the upstream to its response head.",
    );
    for (upstream, total) in &totals {
        page.histogram(name, Some(("upstream", upstream)), total);
    }
    failures(page, workers);
    responses(page, workers);
    retries(page, workers);
}

fn responses(page: &mut Exposition, workers: &[Arc<Series>]) {
    let mut totals: BTreeMap<(&str, &str), [u64; StatusClass::ALL.len()]> = BTreeMap::new();
    for (upstream, server, responses) in used_servers(workers) {
        let total = totals.entry((upstream, server)).or_default();
        for (sum, class) in total.iter_mut().zip(StatusClass::ALL) {
            *sum += responses.class(class).get();
        }
    }
    let name = "tollgate_upstream_responses_total";
    page.family(
        name,
        MetricKind::Counter,
        "Final responses of a server, by the first digit of their status.",
    );
    for ((upstream, server), total) in &totals {
        for (count, class) in total.iter().zip(StatusClass::ALL) {
            let labels = [("upstream", *upstream), ("server", *server), ("class", class.as_str())];
            page.sample(name, &labels, count);
        }
    }
}

fn retries(page: &mut Exposition, workers: &[Arc<Series>]) {
    let counts = used_servers(workers).flat_map(|(upstream, server, responses)| {
        RetryReason::all().map(move |why| ([upstream, server, why.as_str()], responses.retried(why).get()))
    });
    let help = "Failed attempts that were retried, by cause.";
    page.sums("tollgate_upstream_retries_total", help, ["upstream", "server", "reason"], counts);
}

/// Each worker's counts for each server, with the names of the upstream and of the server.
fn used_servers<'w>(
    workers: &'w [Arc<Series>],
) -> impl Iterator<Item = (&'w str, &'w str, &'w ServerCounters)> {
    workers.iter().flat_map(|series| &series.upstreams).flat_map(|upstream| {
        let used = move |server: &'w Named<ServerCounters>| {
            Some((&*upstream.exchanges.name, &*server.name, server.used()?))
        };
        upstream.servers.iter().filter_map(used)
    })
}

fn failures(page: &mut Exposition, workers: &[Arc<Series>]) {
    let upstreams = workers.iter().flat_map(|series| &series.upstreams);
    let used = upstreams.filter_map(|upstream| Some((&*upstream.exchanges.name, upstream.exchanges.used()?)));
    let counts = used.flat_map(|(upstream, exchanges)| {
        Failure::ALL.map(|why| ([upstream, why.as_str()], exchanges.failed(why).get()))
    });
    let help = "Requests without a response from the upstream, by cause.";
    page.sums("tollgate_upstream_failures_total", help, ["upstream", "error"], counts);
}

/// The states of the servers. The built-in echo is always up.
pub(super) fn servers(page: &mut Exposition, plan: &Plan, registry: &ServerRegistry) {
    let (up, ejections) = ("tollgate_upstream_up", "tollgate_upstream_ejections_total");
    let now = clock::now();
    let server_states: Vec<_> =
        plan.upstreams.iter().map(|upstream| (upstream, registry.states(upstream))).collect();
    let servers = || {
        server_states.iter().flat_map(|(upstream, server_states)| {
            let labels = |server| [("upstream", &*upstream.name), ("server", server)];
            upstream.endpoints().iter().enumerate().map(move |(index, server)| {
                (labels(&server.authority), server_states, index, upstream.down_after())
            })
        })
    };
    page.family(up, MetricKind::Gauge, "0 while the server is down: unhealthy, ejected, or failed too often in a row and not answered since.");
    for upstream in plan.upstreams.iter().filter(|upstream| upstream.backend == Backend::Echo) {
        page.sample(up, &[("upstream", &upstream.name), ("server", "builtin:echo")], 1);
    }
    for (labels, server_states, index, down_after) in servers() {
        page.sample(up, &labels, u8::from(server_states.down(index, now, down_after).is_none()));
    }
    page.family(ejections, MetricKind::Counter, "Ejections of the server after consecutive failures.");
    for (labels, server_states, index, _) in servers() {
        let ejected = server_states.get(index).map_or(0, |server| server.ejections());
        page.sample(ejections, &labels, ejected);
    }
    let breakers = || {
        server_states.iter().filter_map(|(upstream, server_states)| {
            Some(([("upstream", &*upstream.name)], server_states.breaker_state()?))
        })
    };
    if breakers().next().is_none() {
        return;
    }
    let (open, openings) = ("tollgate_upstream_breaker_open", "tollgate_upstream_breaker_openings_total");
    page.family(
        open,
        MetricKind::Gauge,
        "1 while the circuit breaker of the upstream is open, or tries one request.",
    );
    for (labels, (is_open, _)) in breakers() {
        page.sample(open, &labels, u8::from(is_open));
    }
    page.family(openings, MetricKind::Counter, "How often the circuit breaker of the upstream has opened.");
    for (labels, (_, count)) in breakers() {
        page.sample(openings, &labels, count);
    }
}

/// The connection usage of upstreams with a connection limit.
pub(super) fn usage(page: &mut Exposition, plan: &Plan, registry: &ServerRegistry) {
    let usage = |upstream| registry.usage(upstream).map(|usage| (&*upstream.name, usage));
    let used: Vec<(&str, Usage)> = plan.upstreams.iter().filter_map(|upstream| usage(upstream)).collect();
    if used.is_empty() {
        return;
    }
    let (connections, pending) = ("tollgate_upstream_connections", "tollgate_upstream_pending");
    page.family(
        connections,
        MetricKind::Gauge,
        "Connections to an upstream that has max_connections, used or not.",
    );
    for (upstream, usage) in &used {
        page.sample(connections, &[("upstream", upstream)], usage.connections);
    }
    page.family(pending, MetricKind::Gauge, "Requests waiting for a connection to the upstream.");
    for (upstream, usage) in &used {
        page.sample(pending, &[("upstream", upstream)], usage.pending);
    }
}
