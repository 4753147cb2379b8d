//! The store: counters of this process, the shared store, and what both hold for limits.

use std::sync::Arc;

use super::family::{Groups, families};
use crate::limit::units::Timestamp;
use crate::plan::Plan;
use crate::store::Store;
use crate::store::fleet::FleetView;
use crate::store::memory::in_flight::PlaceUsage;
use crate::store::redis::RedisCounts;
use crate::store::redis::health::Health;

families! {
    // `workers`: their counts of the shared store; `servers`, its servers; and `fleet`, its gateways: none without one.
    from (
        store: &Store,
        workers: &Groups<'_, RedisCounts, 0>,
        servers: &[Arc<Health>],
        limits: &LimitStates<'_>,
        fleet: Option<&FleetView>,
    )

    Gauge tollgate_store_keys{} "Counters held in this process." = value(Some(store.keys()));
    Gauge tollgate_store_max_keys{} "The setting `max_keys`: the maximum of counters in this process."
        = value(Some(store.max_keys()));
    Counter tollgate_store_evictions_total{}
        "Live counters evicted because `max_keys` of the store or of their limit was reached."
        = value(Some(store.evictions()));
    Counter tollgate_store_errors_total{} "Requests decided without the shared store because it was unreachable."
        = value(Some(workers.values().flatten().map(|worker| worker.errors.get()).sum::<u64>()));
    Counter tollgate_store_calls_total{} "Calls to the shared store." = sum(workers, |worker| worker.calls.get());
    Counter tollgate_store_remembered_total{} "Refusals answered from memory, without a call to the shared store."
        = sum(workers, |worker| worker.remembered.get());
    Counter tollgate_store_leased_total{} "Requests decided by units in advance, without a call to the shared store."
        = sum(workers, |worker| worker.leased.get());
    Counter tollgate_store_unsettled_units_total{}
        "Units of settled costs that the shared store may not know of: it was away for too long."
        = sum(workers, |worker| worker.unsettled.get());
    Gauge tollgate_store_up{server} "Whether a server of the shared store is asked; 0 while the breaker is open."
        = values(servers.iter().map(|server| ([&**server.name()], u8::from(server.is_up()))));
    Histogram tollgate_store_duration_seconds{} "Duration of calls to the shared store."
        = durations(workers, |worker, total| total.add_fine(&worker.duration));
    Gauge tollgate_fleet_gateways{state} "Gateways that share the store: live, or gone without notice."
        = values(fleet.into_iter().flat_map(|fleet| {
            [(["live"], fleet.live().count()), (["gone"], fleet.gone().count())]
        }));
    Gauge tollgate_fleet_files{} "Different configuration files of the live gateways that share the store."
        = value(fleet.map(|fleet| fleet.files().len()));
    Gauge tollgate_fleet_clock_offset_seconds{} "How far this machine's clock is ahead of the shared store's."
        = value(fleet.and_then(|fleet| fleet.clock_ahead).map(|ahead| ahead as f64 / 1e6));
    Gauge tollgate_bans{limit} "Keys of a limit that are banned now."
        = values(limits.bans.iter().map(|(limit, bans)| (*limit, bans.active)));
    Gauge tollgate_shadow_bans{limit}
        "Keys that a limit in shadow would have banned now: they are not refused."
        = values(limits.bans.iter().map(|(limit, bans)| (*limit, bans.in_shadow)));
    Counter tollgate_bans_begun_total{limit} "Automatic bans that a limit began in this process."
        = values(limits.bans.iter().map(|(limit, bans)| (*limit, bans.begun)));
    Counter tollgate_bans_evicted_total{} "Automatic bans dropped before their end because there were too many."
        = value((!limits.bans.is_empty()).then(|| store.bans().evictions()));
    Gauge tollgate_limit_keys{limit} "Counters of a limit with `max_keys` held in this process."
        = values(limits.keys.iter().map(|(limit, [held, _])| (*limit, held)));
    Gauge tollgate_limit_max_keys{limit}
        "The setting `max_keys` of a limit: the maximum of its counters in this process."
        = values(limits.keys.iter().map(|(limit, [_, max])| (*limit, max)));
    Gauge tollgate_concurrency_held{limit}
        "Places of a concurrency limit held by requests in flight in this process."
        = values(limits.places.iter().map(|(limit, places)| (*limit, places.held)));
    Gauge tollgate_concurrency_max{limit}
        "The maximum of each key of a concurrency limit; with `max = \"auto\"` what was found, of all its keys together."
        = values(limits.places.iter().filter(|(_, places)| places.max > 0).map(|(limit, places)| (*limit, places.max)));
    Gauge tollgate_concurrency_waiting{limit}
        "Requests in this process that wait for a place of a concurrency limit."
        = values(limits.places.iter().map(|(limit, places)| (*limit, places.waiting)));
}

/// What the store holds for limits, each with its label.
#[derive(Default)]
pub(super) struct LimitStates<'p> {
    /// Of limits that have bans, or begin them.
    bans: Vec<([&'p str; 1], BanState)>,
    /// Counters, and their maximum, of limits with a share of the store.
    keys: Vec<([&'p str; 1], [u64; 2])>,
    /// Of concurrency limits.
    places: Vec<([&'p str; 1], PlaceUsage)>,
}

/// The bans of a limit.
struct BanState {
    active: usize,
    in_shadow: usize,
    begun: u64,
}

impl<'p> LimitStates<'p> {
    fn of(plan: &'p Plan, store: &Store, now: Timestamp) -> Self {
        let (bans, places, mut states) = (store.bans(), store.in_flight(), Self::default());
        let counts = bans.counts(now);
        for limit in &plan.limits {
            let (label, identity) = ([&*limit.name], limit.identity);
            let (active, in_shadow) = limit.ban_counts(&counts);
            if limit.ban.is_some() || active + in_shadow > 0 {
                let begun = bans.begun(identity) + bans.begun(limit.shadow_identity());
                states.bans.push((label, BanState { active, in_shadow, begun }));
            }
            if let Some(max) = limit.max_keys {
                let held = store.keys_of_limit(identity).unwrap_or_default();
                states.keys.push((label, [held, max.get()]));
            }
            if limit.is_concurrency() {
                let usage = places.get(&identity).copied().unwrap_or_default();
                let written = || limit.policies.first().map_or(0, |policy| policy.algorithm.quota());
                let max = if limit.is_adaptive() { usage.max } else { written() };
                states.places.push((label, PlaceUsage { max, ..usage }));
            }
        }
        states
    }
}

/// Writes the families of a store and of the limits of a plan.
pub(super) fn store(page: &mut String, store: &Store, plan: &Plan, now: Timestamp) {
    let shared = store.shared();
    let counts = shared.as_ref().map(|shared| shared.counts());
    let workers = counts.iter().map(|counts| ([], counts.iter().map(Arc::as_ref).collect())).collect();
    let servers = shared.as_ref().map(|shared| shared.health().servers()).unwrap_or_default();
    let fleet = shared.map(|shared| shared.fleet().view());
    write(page, store, &workers, &servers, &LimitStates::of(plan, store, now), fleet.as_ref());
}
