//! What `/metrics` says of the upstreams and their servers.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::exposition::{Exposition, Kind};
use super::series::Series;
use crate::clock::deadline;
use crate::counter::{HistogramTotal, RequestTime};
use crate::gateway::{Backend, Gateway};
use crate::upstream::Failure;
use crate::upstream::bound::Usage;
use crate::upstream::roster::Roster;

pub(super) fn upstreams(page: &mut Exposition, workers: &[Arc<Series>]) {
    let mut totals: BTreeMap<&str, HistogramTotal<RequestTime>> = BTreeMap::new();
    for upstream in workers.iter().flat_map(|series| &series.upstreams) {
        if let Some(exchanges) = upstream.used() {
            totals.entry(&upstream.name).or_default().add(&exchanges.duration);
        }
    }
    let name = "tollgate_upstream_duration_seconds";
    page.family(name, Kind::Histogram, "Request sent to the upstream until its response head.");
    for (upstream, total) in &totals {
        page.histogram(name, Some(("upstream", upstream)), total);
    }
    failures(page, workers);
}

fn failures(page: &mut Exposition, workers: &[Arc<Series>]) {
    let mut totals: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for upstream in workers.iter().flat_map(|series| &series.upstreams) {
        for why in Failure::ALL {
            let count = upstream.used().map_or(0, |exchanges| exchanges.failed(why).get());
            if count > 0 {
                *totals.entry((&upstream.name, why.as_str())).or_default() += count;
            }
        }
    }
    if totals.is_empty() {
        return;
    }
    let name = "tollgate_upstream_failures_total";
    page.family(name, Kind::Counter, "Requests that an upstream gave no answer to, by cause.");
    for ((upstream, error), count) in &totals {
        page.sample(name, &[("upstream", upstream), ("error", error)], count);
    }
}

/// What is known of the servers. The built-in echo is always there.
pub(super) fn servers(page: &mut Exposition, gateway: &Gateway, roster: &Roster) {
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
pub(super) fn usage(page: &mut Exposition, gateway: &Gateway, roster: &Roster) {
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
