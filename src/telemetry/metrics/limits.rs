//! The metrics of limits: concurrency, bans, and costs that were reserved and settled after the response.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::SettlementResult;
use super::exposition::{Exposition, MetricKind};
use super::series::Series;
use crate::limit::units::Timestamp;
use crate::plan::{Limit, Plan};
use crate::store::Store;

/// The series of bans, if there are any or a limit begins them, and of concurrency limits, if the plan has any.
pub(super) fn limits(page: &mut Exposition, plan: &Plan, store: &Store, now: Timestamp) {
    bans(page, plan, store, now);
    shares(page, plan, store);
    let concurrency = || plan.limits.iter().filter(|limit| limit.is_concurrency());
    if concurrency().next().is_none() {
        return;
    }
    let usages = store.in_flight();
    let usage = |limit: &Limit| usages.get(&limit.identity()).copied().unwrap_or_default();
    let held = "tollgate_concurrency_held";
    page.family(
        held,
        MetricKind::Gauge,
        "Places of a concurrency limit held by requests in flight in this process.",
    );
    for limit in concurrency() {
        page.sample(held, &[("limit", &limit.name)], usage(limit).held);
    }
    let waiting = "tollgate_concurrency_waiting";
    page.family(
        waiting,
        MetricKind::Gauge,
        "Requests in this process that wait for a place of a concurrency limit.",
    );
    for limit in concurrency() {
        page.sample(waiting, &[("limit", &limit.name)], usage(limit).waiting);
    }
}

/// The series of limits with a share of the store.
fn shares(page: &mut Exposition, plan: &Plan, store: &Store) {
    let listed: Vec<_> =
        plan.limits.iter().filter_map(|limit| Some((limit, limit.max_keys?.get()))).collect();
    if listed.is_empty() {
        return;
    }
    let keys = "tollgate_limit_keys";
    page.family(keys, MetricKind::Gauge, "Counters of a limit with `max_keys` held in this process.");
    for (limit, _) in &listed {
        let held = store.keys_of_limit(limit.identity()).unwrap_or_default();
        page.sample(keys, &[("limit", &limit.name)], held);
    }
    let bound = "tollgate_limit_max_keys";
    page.family(
        bound,
        MetricKind::Gauge,
        "The setting `max_keys` of a limit: the maximum of its counters in this process.",
    );
    for (limit, max_keys) in &listed {
        page.sample(bound, &[("limit", &limit.name)], *max_keys);
    }
}

fn bans(page: &mut Exposition, plan: &Plan, store: &Store, now: Timestamp) {
    let bans = store.bans();
    let counts = bans.counts(now);
    let count = |limit: &Limit| limit.ban_counts(&counts);
    let listed = || plan.limits.iter().filter(|limit| limit.ban.is_some() || count(limit) != (0, 0));
    if listed().next().is_none() {
        return;
    }
    let active = "tollgate_bans";
    page.family(active, MetricKind::Gauge, "Keys of a limit that are banned now.");
    for limit in listed() {
        page.sample(active, &[("limit", &limit.name)], count(limit).0);
    }
    let idle = "tollgate_shadow_bans";
    page.family(
        idle,
        MetricKind::Gauge,
        "Keys that a limit in shadow would have banned now: they are not refused.",
    );
    for limit in listed() {
        page.sample(idle, &[("limit", &limit.name)], count(limit).1);
    }
    let begun = "tollgate_bans_begun_total";
    page.family(begun, MetricKind::Counter, "Automatic bans that a limit began in this process.");
    for limit in listed() {
        let of_both = bans.begun(limit.identity()) + bans.begun(limit.shadow_identity());
        page.sample(begun, &[("limit", &limit.name)], of_both);
    }
    let evicted = "Automatic bans dropped before their end because there were too many.";
    page.single("tollgate_bans_evicted_total", MetricKind::Counter, evicted, bans.evictions());
}

/// A limit's counts over all workers.
#[derive(Debug, Default)]
struct SettlementTotal {
    reserved: u64,
    charged: u64,
    refunded: u64,
    results: [u64; SettlementResult::ALL.len()],
}

/// The series of the limits that settle costs.
pub(super) fn settlements(page: &mut Exposition, workers: &[Arc<Series>]) {
    let mut totals: BTreeMap<&str, SettlementTotal> = BTreeMap::new();
    for limit in workers.iter().flat_map(|series| &series.settlements) {
        let Some(counters) = limit.used() else { continue };
        let total = totals.entry(&limit.name).or_default();
        total.reserved += counters.reserved.get();
        total.charged += counters.charged.get();
        total.refunded += counters.refunded.get();
        for (count, result) in total.results.iter_mut().zip(SettlementResult::ALL) {
            *count += counters.result(result).get();
        }
    }
    let reserved = "tollgate_reserved_units_total";
    page.family(reserved, MetricKind::Counter, "Units reserved by requests that were settled afterwards.");
    for (limit, total) in &totals {
        page.sample(reserved, &[("limit", limit)], total.reserved);
    }
    let settled = "tollgate_settled_units_total";
    let help = "Units charged beyond the reservation, or given back, once the cost of a request was known.";
    page.family(settled, MetricKind::Counter, help);
    for (limit, total) in &totals {
        page.sample(settled, &[("limit", limit), ("direction", "charged")], total.charged);
        page.sample(settled, &[("limit", limit), ("direction", "refunded")], total.refunded);
    }
    let results = "tollgate_settlements_total";
    page.family(results, MetricKind::Counter, "Requests whose cost was settled, by how it was found.");
    for (limit, total) in &totals {
        for (count, result) in total.results.iter().zip(SettlementResult::ALL) {
            page.sample(results, &[("limit", limit), ("result", result.as_str())], *count);
        }
    }
}
