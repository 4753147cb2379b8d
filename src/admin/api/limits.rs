//! `GET limits`: each limit, and its recent verdicts.

use std::collections::HashMap;
use std::num::NonZeroU64;
use std::sync::Arc;

use super::values::moment;
use crate::admin_api::limits::{LimitList, LimitReport, PlacesInUse, TierReport, VerdictReport};
use crate::limit::display::ShortDisplay;
use crate::plan::{Limit, LimitIndex, Plan, Policy, Tier};
use crate::route::key::Part;
use crate::shared::Shared;
use crate::shared::worker_commands::WorkerCommand;
use crate::store::memory::in_flight::PlaceUsage;
use crate::telemetry::hyperloglog::{self, HyperLogLogUnion};
use crate::telemetry::metrics::{LimitVerdict, VerdictCounts};

/// The keys that each limit refused in the last minute and hour.
type RefusedKeys = HashMap<Arc<str>, [HyperLogLogUnion; 2]>;

pub(super) async fn get(shared: &Shared) -> LimitList {
    let refused = refused_keys(shared).await;
    let (plan, samples) = (shared.plan.load(), shared.samples.lock());
    let used = users(&plan);
    let bans = shared.store.bans().counts(shared.clock.now());
    let usages = shared.store.in_flight();
    let limits = plan.limits.iter().zip(used).enumerate().map(|(index, (limit, routes))| {
        let (in_force, in_shadow) = limit.ban_counts(&bans);
        let [minute, hour] =
            refused.get(&limit.name).map_or([0, 0], |both| both.each_ref().map(HyperLogLogUnion::count));
        LimitReport {
            name: limit.name.to_string(),
            mode: limit.mode.as_str().to_owned(),
            trial: limit.trial.map(|trial| trial.share()),
            algorithm: algorithm(limit).to_owned(),
            key: limit.key.parts.iter().map(Part::to_string).collect(),
            policies: policies(&limit.policies),
            tiers: tiers(limit),
            routes: routes.into_iter().map(str::to_owned).collect(),
            failures: plan.failures_of(LimitIndex(index)).map(str::to_owned),
            minute: verdicts(samples.minute(&limit.name), minute),
            hour: verdicts(samples.hour(&limit.name), hour),
            bans: in_force as u64,
            shadow_bans: in_shadow as u64,
            ban: limit.ban.as_ref().map(|ban| ban.algorithm.to_string()),
            keys: shared.store.keys_of_limit(limit.identity),
            max_keys: limit.max_keys.map(NonZeroU64::get),
            lease: limit.lease().map(|lease| lease.duration().0 as f64 / 1e6),
            settles: limit.settles(),
            usage: limit.usage.is_some(),
            in_flight: limit.is_concurrency().then(|| in_flight(limit, usages.get(&limit.identity))),
        }
    });
    LimitList { time: moment(shared.clock.now()), keys_error: hyperloglog::ERROR, limits: limits.collect() }
}

async fn refused_keys(shared: &Shared) -> RefusedKeys {
    let mut refused = RefusedKeys::new();
    for (limit, unions) in
        shared.worker_commands.ask_all(WorkerCommand::RefusedKeys).await.into_iter().flatten()
    {
        let sums = refused.entry(limit).or_default();
        sums.iter_mut().zip(&unions).for_each(|(sum, union)| sum.merge(union));
    }
    refused
}

/// The places and the queue of a concurrency limit in this process.
fn in_flight(limit: &Limit, usage: Option<&PlaceUsage>) -> PlacesInUse {
    let PlaceUsage { held, waiting, max } = usage.copied().unwrap_or_default();
    PlacesInUse { held, waiting, found_max: (max > 0 && limit.is_adaptive()).then_some(max) }
}

/// Of each limit, the routes that use it, also for wrong credentials.
fn users(plan: &Plan) -> Vec<Vec<&str>> {
    let mut users = vec![Vec::new(); plan.limits.len()];
    for route in &plan.routes {
        let own = route.limits.iter().map(|used| used.limit);
        let others = plan.failure_limits(route).filter(|limit| own.clone().all(|own| own != *limit));
        for LimitIndex(index) in own.clone().chain(others) {
            users[index].push(&*route.name);
        }
    }
    users
}

/// The algorithm's name in the config file. All policies of a limit have the same one.
pub(super) fn algorithm(limit: &Limit) -> &'static str {
    limit.policies.first().map_or("", |policy| policy.algorithm.name())
}

fn tiers(limit: &Limit) -> Vec<TierReport> {
    let words = |tier: &Tier| match tier.policies.as_slice() {
        [] => vec!["unlimited".to_owned()],
        own => policies(own),
    };
    let tier = |tier: &Tier| TierReport { name: tier.name.to_string(), policies: words(tier) };
    limit.tiers.iter().map(tier).collect()
}

fn policies(policies: &[Policy]) -> Vec<String> {
    policies.iter().map(|policy| ShortDisplay(&policy.algorithm).to_string()).collect()
}

fn verdicts(counts: VerdictCounts, refused_keys: u64) -> VerdictReport {
    VerdictReport {
        admitted: counts.of(LimitVerdict::Admitted),
        delayed: counts.of(LimitVerdict::Delayed),
        refused: counts.refused(),
        in_shadow: counts.of(LimitVerdict::RefusedInShadow),
        refused_keys,
    }
}
