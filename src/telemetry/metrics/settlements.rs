//! The metrics of costs that were reserved, and settled after the response.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::SettlementResult;
use super::exposition::{Exposition, Kind};
use super::series::Series;

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
    page.family(reserved, Kind::Counter, "Units reserved by requests that were settled afterwards.");
    for (limit, total) in &totals {
        page.sample(reserved, &[("limit", limit)], total.reserved);
    }
    let settled = "tollgate_settled_units_total";
    let help = "Units charged beyond the reservation, or given back, once the cost of a request was known.";
    page.family(settled, Kind::Counter, help);
    for (limit, total) in &totals {
        page.sample(settled, &[("limit", limit), ("direction", "charged")], total.charged);
        page.sample(settled, &[("limit", limit), ("direction", "refunded")], total.refunded);
    }
    let results = "tollgate_settlements_total";
    page.family(results, Kind::Counter, "Requests whose cost was settled, by how it was found.");
    for (limit, total) in &totals {
        for (count, result) in total.results.iter().zip(SettlementResult::ALL) {
            page.sample(results, &[("limit", limit), ("result", result.as_str())], *count);
        }
    }
}
