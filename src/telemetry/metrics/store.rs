//! The metrics of the store.

use super::exposition::{Exposition, MetricKind};
use crate::counter::{CallTime, HistogramTotal};
use crate::store::Store;
use crate::store::redis::{RedisCounts, SharedStore};

/// The store's series; those of a shared store only if there is one, except for its errors.
pub(super) fn store(page: &mut Exposition, store: &Store) {
    let shared = store.shared();
    let counts = shared.as_deref().map(SharedStore::counts).unwrap_or_default();
    let total = |one: fn(&RedisCounts) -> u64| counts.iter().map(|counts| one(counts)).sum::<u64>();
    page.single("tollgate_store_keys", MetricKind::Gauge, "Counters held in this process.", store.keys());
    let help = "The setting `max_keys`: the maximum of counters in this process.";
    page.single("tollgate_store_max_keys", MetricKind::Gauge, help, store.max_keys());
    let evicted = "Live counters evicted because `max_keys` of the store or of their limit was reached.";
    page.single("tollgate_store_evictions_total", MetricKind::Counter, evicted, store.evictions());
    let errors = "Requests decided without the shared store because it was unreachable.";
    page.single(
        "tollgate_store_errors_total",
        MetricKind::Counter,
        errors,
        total(|counts| counts.errors.get()),
    );
    let Some(shared) = shared else { return };
    let calls = "Calls to the shared store.";
    page.single("tollgate_store_calls_total", MetricKind::Counter, calls, total(|counts| counts.calls.get()));
    let remembered = "Refusals answered from memory, without a call to the shared store.";
    let amount = total(|counts| counts.remembered.get());
    page.single("tollgate_store_remembered_total", MetricKind::Counter, remembered, amount);
    let unsettled = "Units of settled costs that the shared store may not know of: it was away for too long.";
    let amount = total(|counts| counts.unsettled.get());
    page.single("tollgate_store_unsettled_units_total", MetricKind::Counter, unsettled, amount);
    let up = "tollgate_store_up";
    page.family(
        up,
        MetricKind::Gauge,
        "Whether a server of the shared store is asked; 0 while the breaker is open.",
    );
    for server in shared.health().servers() {
        page.sample(up, &[("server", server.name())], u8::from(server.is_up()));
    }
    let mut duration = HistogramTotal::<CallTime>::default();
    counts.iter().for_each(|counts| duration.add_fine(&counts.duration));
    let name = "tollgate_store_duration_seconds";
    page.family(name, MetricKind::Histogram, "Duration of calls to the shared store.");
    page.histogram(name, None, &duration);
}
