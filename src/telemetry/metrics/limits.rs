//! The metrics of concurrency limits and bans.

use super::exposition::{Exposition, Kind};
use crate::limit::units::Timestamp;
use crate::plan::{Limit, Plan};
use crate::store::Store;

/// The series of bans, if there are any or a limit begins them, and of concurrency limits, if the plan has any.
pub(super) fn limits(page: &mut Exposition, plan: &Plan, store: &Store, now: Timestamp) {
    bans(page, plan, store, now);
    let concurrency = || plan.limits.iter().filter(|limit| limit.is_concurrency());
    if concurrency().next().is_none() {
        return;
    }
    let usages = store.in_flight();
    let usage = |limit: &Limit| usages.get(&limit.identity()).copied().unwrap_or_default();
    let held = "tollgate_concurrency_held";
    page.family(
        held,
        Kind::Gauge,
        "Places of a concurrency limit held by requests in flight in this process.",
    );
    for limit in concurrency() {
        page.sample(held, &[("limit", &limit.name)], usage(limit).held);
    }
    let waiting = "tollgate_concurrency_waiting";
    page.family(
        waiting,
        Kind::Gauge,
        "Requests in this process that wait for a place of a concurrency limit.",
    );
    for limit in concurrency() {
        page.sample(waiting, &[("limit", &limit.name)], usage(limit).waiting);
    }
}

fn bans(page: &mut Exposition, plan: &Plan, store: &Store, now: Timestamp) {
    let bans = store.bans();
    let counts = bans.counts(now);
    let count = |limit: &Limit| counts.get(&limit.identity()).copied().unwrap_or_default();
    let listed = || plan.limits.iter().filter(|limit| limit.ban.is_some() || count(limit) > 0);
    if listed().next().is_none() {
        return;
    }
    let active = "tollgate_bans";
    page.family(active, Kind::Gauge, "Keys of a limit that are banned now.");
    for limit in listed() {
        page.sample(active, &[("limit", &limit.name)], count(limit));
    }
    let begun = "tollgate_bans_begun_total";
    page.family(begun, Kind::Counter, "Automatic bans that a limit began in this process.");
    for limit in listed() {
        page.sample(begun, &[("limit", &limit.name)], bans.begun(limit.identity()));
    }
    let evicted = "Automatic bans dropped before their end because there were too many.";
    page.single("tollgate_bans_evicted_total", Kind::Counter, evicted, bans.evictions());
}
