//! The series of one worker under one plan, by the names of the plan.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use super::counters::{
    AuthCounters, ConnectionCounters, DecisionCounters, RouteCounters, ServerCounters, SettlementCounters,
    UpstreamCounters,
};
use super::{DecisionLabel, LimitVerdict, NO_ROUTE, WorkerMetrics};
use crate::plan::{Limit, Plan, Route, Upstream};
use crate::route::RouteIndex;

/// A worker's series; each list is in the order of the plan's.
#[derive(Debug, Default)]
pub(super) struct Series {
    pub(super) unrouted: Named<RouteCounters>,
    pub(super) routes: Vec<RouteSeries>,
    /// In the order of the plan's limits.
    pub(super) tiers: Vec<TierSeries>,
    /// In the order of the plan's limits.
    pub(super) settlements: Vec<Named<SettlementCounters>>,
    pub(super) auths: Vec<Named<AuthCounters>>,
    pub(super) upstreams: Vec<UpstreamSeries>,
    pub(super) listeners: Vec<Named<ConnectionCounters>>,
}

/// A route's series.
#[derive(Debug)]
pub(super) struct RouteSeries {
    pub(super) answers: Named<RouteCounters>,
    /// In the order of the route's limits.
    pub(super) limits: Vec<Named<DecisionCounters>>,
    /// The limits on wrong credentials of the route's auths, each once.
    pub(super) failures: Vec<Named<DecisionCounters>>,
}

/// The series of a limit's tiers.
#[derive(Debug)]
pub(super) struct TierSeries {
    pub(super) limit: Arc<str>,
    /// That of no tier, with an empty name, then the tiers in the limit's order; empty for a limit without tiers.
    pub(super) tiers: Vec<Named<DecisionCounters>>,
}

/// An upstream's series.
#[derive(Debug)]
pub(super) struct UpstreamSeries {
    pub(super) exchanges: Named<UpstreamCounters>,
    /// In the order of the upstream's servers, by `host:port`.
    pub(super) servers: Vec<Named<ServerCounters>>,
}

/// Counters with the name that labels them, allocated when first used and kept from plan to plan.
#[derive(Debug)]
pub(super) struct Named<T> {
    pub(super) name: Arc<str>,
    cells: Arc<OnceLock<Box<T>>>,
}

impl Series {
    /// The series of the next plan: names that stay keep their counters.
    pub(super) fn under(&self, plan: &Plan) -> Self {
        let mut routes: HashMap<&str, &RouteSeries> =
            self.routes.iter().map(|route| (&*route.answers.name, route)).collect();
        let mut series_of = |route: &Route| {
            let limits = route.limits.iter().map(|used| Arc::clone(&plan.limit(used.limit).name));
            let failures = plan.failure_limits(route).map(|limit| Arc::clone(&plan.limit(limit).name));
            RouteSeries::new(Arc::clone(&route.name), limits, failures, routes.remove(&*route.name))
        };
        let mut upstreams: HashMap<&str, &UpstreamSeries> =
            self.upstreams.iter().map(|upstream| (&*upstream.exchanges.name, upstream)).collect();
        let mut of_upstream =
            |upstream: &Arc<Upstream>| UpstreamSeries::new(upstream, upstreams.remove(&*upstream.name));
        let listeners = plan.server.listen.iter().map(|listener| Arc::from(listener.address.to_string()));
        Self {
            unrouted: Named { name: Arc::from(NO_ROUTE), cells: Arc::clone(&self.unrouted.cells) },
            routes: plan.routes.iter().map(&mut series_of).collect(),
            tiers: self.tiers_under(plan),
            settlements: Named::after(
                &self.settlements,
                plan.limits.iter().map(|limit| Arc::clone(&limit.name)),
            ),
            auths: Named::after(&self.auths, plan.auths.iter().map(|auth| Arc::clone(&auth.name))),
            upstreams: plan.upstreams.iter().map(&mut of_upstream).collect(),
            listeners: Named::after(&self.listeners, listeners),
        }
    }
}

impl Series {
    fn tiers_under(&self, plan: &Plan) -> Vec<TierSeries> {
        let last: HashMap<&str, &TierSeries> =
            self.tiers.iter().map(|limit| (&*limit.limit, limit)).collect();
        let series_of = |limit: &Limit| {
            let last = last.get(&*limit.name).map_or(&[][..], |last| &last.tiers);
            let none = (!limit.tiers.is_empty()).then(|| Arc::from(""));
            let names = none.into_iter().chain(limit.tiers.iter().map(|tier| Arc::from(&*tier.name)));
            TierSeries { limit: Arc::clone(&limit.name), tiers: Named::after(last, names) }
        };
        plan.limits.iter().map(series_of).collect()
    }
}

impl RouteSeries {
    fn new(
        name: Arc<str>,
        limits: impl Iterator<Item = Arc<str>>,
        failures: impl Iterator<Item = Arc<str>>,
        last: Option<&Self>,
    ) -> Self {
        let cells = last.map(|last| Arc::clone(&last.answers.cells)).unwrap_or_default();
        let [last_limits, last_failures] = match last {
            Some(last) => [last.limits.as_slice(), last.failures.as_slice()],
            None => [&[][..]; 2],
        };
        Self {
            answers: Named { name, cells },
            limits: Named::after(last_limits, limits),
            failures: Named::after(last_failures, failures),
        }
    }
}

impl UpstreamSeries {
    fn new(upstream: &Upstream, last: Option<&Self>) -> Self {
        let cells = last.map(|last| Arc::clone(&last.exchanges.cells)).unwrap_or_default();
        let last = last.map(|last| last.servers.as_slice()).unwrap_or_default();
        let servers = upstream.endpoints().iter().map(|server| Arc::clone(&server.authority));
        Self {
            exchanges: Named { name: Arc::clone(&upstream.name), cells },
            servers: Named::after(last, servers),
        }
    }
}

impl WorkerMetrics {
    /// Counts the decision of a limit on wrong credentials.
    #[cold]
    pub fn failure_decision(&self, route: RouteIndex, limit: &Limit, decision: DecisionLabel) {
        if let Some(counters) = self.failures(route, limit) {
            counters.of(decision).add(1);
        }
    }

    /// Counts the verdict of a limit on wrong credentials where the store could not be asked.
    #[cold]
    pub fn failure_decided_locally(&self, route: RouteIndex, limit: &Limit, verdict: LimitVerdict) {
        if let Some(counters) = self.failures(route, limit) {
            counters.decided_locally(verdict).add(1);
        }
    }

    fn failures(&self, route: RouteIndex, limit: &Limit) -> Option<&DecisionCounters> {
        let route = self.series.routes.get(route.0)?;
        route.failures.iter().find(|named| *named.name == *limit.name).map(Named::cells)
    }
}

impl<T> Named<T> {
    /// One for each name: with the counters of that name in `last`, or new ones.
    fn after(last: &[Self], names: impl Iterator<Item = Arc<str>>) -> Vec<Self> {
        // Removed when found: a repeated name would be summed twice.
        let mut last: HashMap<&str, &Self> = last.iter().map(|named| (&*named.name, named)).collect();
        names
            .map(|name| {
                let cells = last.remove(&*name).map(|named| Arc::clone(&named.cells)).unwrap_or_default();
                Self { name, cells }
            })
            .collect()
    }

    /// Whether these are the same counters.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.cells, &other.cells)
    }

    /// The counters, if they were ever used.
    pub(super) fn used(&self) -> Option<&T> {
        self.cells.get().map(Box::as_ref)
    }
}

impl<T: Default> Named<T> {
    /// The counters, created on first use.
    pub(super) fn cells(&self) -> &T {
        self.cells.get_or_init(Box::default)
    }
}

impl<T> Default for Named<T> {
    fn default() -> Self {
        Self { name: Arc::from(""), cells: Arc::default() }
    }
}
