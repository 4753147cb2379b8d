//! The metrics of client connections.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::ConnectionRejectReason;
use super::exposition::{Exposition, Kind};
use super::series::Series;
use crate::plan::Server;

pub(super) fn connections(page: &mut Exposition, workers: &[Arc<Series>], server: &Server) {
    let mut totals: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for listener in workers.iter().flat_map(|series| &series.listeners) {
        let (open, accepted) = totals.entry(&listener.name).or_default();
        if let Some(connections) = listener.used() {
            *open += connections.open();
            *accepted += connections.opened.get();
        }
    }
    let open = "tollgate_connections";
    page.family(open, Kind::Gauge, "Client connections open now.");
    for (listener, (count, _)) in &totals {
        page.sample(open, &[("listener", listener)], count);
    }
    let help =
        "The setting `max_connections`: the maximum of open client connections, all listeners together.";
    page.single("tollgate_max_connections", Kind::Gauge, help, server.max_connections as u64);
    let accepted = "tollgate_connections_accepted_total";
    page.family(accepted, Kind::Counter, "Client connections accepted.");
    for (listener, (_, count)) in &totals {
        page.sample(accepted, &[("listener", listener)], count);
    }
    turned_away(page, workers);
}

fn turned_away(page: &mut Exposition, workers: &[Arc<Series>]) {
    let listeners = workers.iter().flat_map(|series| &series.listeners);
    let used = listeners.filter_map(|listener| Some((&*listener.name, listener.used()?)));
    let counts = used.flat_map(|(listener, connections)| {
        ConnectionRejectReason::ALL.map(|why| ([listener, why.as_str()], connections.turned_away(why).get()))
    });
    let help = "Client connections rejected or closed early, by cause.";
    page.sums("tollgate_connections_refused_total", help, ["listener", "reason"], counts);
}
