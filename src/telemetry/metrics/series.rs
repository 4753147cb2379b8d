//! The series of one worker under one plan: its counters by the names of the plan.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use super::NO_ROUTE;
use super::calls::{CallCounters, DecisionProtocol};
use super::decisions::{AuthCounters, DecisionCounters, SettlementCounters};
use super::family::Groups;
use super::listeners::ConnectionCounters;
use super::queues::QueueCounters;
use super::routes::RouteCounters;
use super::upstreams::{ServerCounters, UpstreamCounters};
use crate::plan::{Limit, Plan, Route, Upstream};

/// A worker's series.
#[derive(Debug, Default)]
pub(super) struct Series {
    pub(super) routes: Flat<RouteCounters>,
    /// For each route its limits.
    pub(super) limits: Nested<DecisionCounters>,
    /// For each route the limits on wrong credentials of its auths, each once.
    pub(super) failures: Nested<DecisionCounters>,
    /// For each limit that has tiers: no tier, with an empty name, and then its tiers.
    pub(super) tiers: Nested<DecisionCounters>,
    /// For each limit.
    pub(super) settlements: Flat<SettlementCounters>,
    /// For each limit.
    pub(super) queues: Flat<QueueCounters>,
    pub(super) auths: Flat<AuthCounters>,
    /// For each protocol by which others ask.
    pub(super) calls: Flat<CallCounters>,
    pub(super) upstreams: Flat<UpstreamCounters>,
    /// For each upstream its servers.
    pub(super) servers: Nested<ServerCounters>,
    pub(super) listeners: Flat<ConnectionCounters>,
}

/// Counters of names, in their order in the plan.
#[derive(Debug, Default)]
pub(super) struct Flat<T> {
    named: Vec<Named<T, 1>>,
    /// What belongs to no name of the plan, such as a request without a route.
    none: Named<T, 1>,
}

/// Counters of names within names, in their order in the plan.
#[derive(Debug, Default)]
pub(super) struct Nested<T> {
    named: Vec<Vec<Named<T, 2>>>,
    none: Named<T, 2>,
}

/// Counters with the names that are the values of their labels. They take memory from their first use on.
#[derive(Debug)]
pub(super) struct Named<T, const N: usize> {
    pub(super) labels: [Arc<str>; N],
    cells: Arc<OnceLock<Box<T>>>,
}

impl Series {
    /// The series of the next plan: names that stay keep their counters.
    pub(super) fn under(&self, plan: &Plan) -> Self {
        let (routes, limits, upstreams) = (&plan.routes, &plan.limits, &plan.upstreams);
        let limit = |limit| Arc::clone(&plan.limit(limit).name);
        let limits_of = |route: &Route| route.limits.iter().map(|used| limit(used.limit)).collect();
        let failures_of = |route: &Route| plan.failure_limits(route).map(limit).collect();
        let tiers_of = |limit: &Limit| {
            let none = (!limit.tiers.is_empty()).then(|| Arc::from(""));
            none.into_iter().chain(limit.tiers.iter().map(|tier| Arc::from(&*tier.name))).collect()
        };
        let servers_of = |upstream: &Upstream| {
            upstream.endpoints().iter().map(|server| Arc::clone(&server.authority)).collect()
        };
        let protocols = DecisionProtocol::ALL.into_iter().map(|protocol| Arc::from(protocol.as_str()));
        let listeners = plan.server.listen.iter().map(|listener| Arc::from(listener.address.to_string()));
        Self {
            routes: self.routes.under(routes.iter().map(|route| Arc::clone(&route.name))),
            limits: self.limits.under(routes.iter().map(|route| (&route.name, limits_of(route)))),
            failures: self.failures.under(routes.iter().map(|route| (&route.name, failures_of(route)))),
            tiers: self.tiers.under(limits.iter().map(|limit| (&limit.name, tiers_of(limit)))),
            settlements: self.settlements.under(limits.iter().map(|limit| Arc::clone(&limit.name))),
            queues: self.queues.under(limits.iter().map(|limit| Arc::clone(&limit.name))),
            calls: self.calls.under(protocols),
            auths: self.auths.under(plan.auths.iter().map(|auth| Arc::clone(&auth.name))),
            upstreams: self.upstreams.under(upstreams.iter().map(|upstream| Arc::clone(&upstream.name))),
            servers: self
                .servers
                .under(upstreams.iter().map(|upstream| (&upstream.name, servers_of(upstream)))),
            listeners: self.listeners.under(listeners),
        }
    }
}

impl<T: Default> Flat<T> {
    fn under(&self, names: impl Iterator<Item = Arc<str>>) -> Self {
        let none = Named { labels: [Arc::from(NO_ROUTE)], cells: Arc::clone(&self.none.cells) };
        Self { named: names.map(|name| [name]).map(kept(self.iter())).collect(), none }
    }

    /// The counters of the name at this index in the plan.
    pub(super) fn at(&self, index: usize) -> &T {
        self.named.get(index).unwrap_or(&self.none).cells()
    }

    pub(super) fn of_none(&self) -> &T {
        self.none.cells()
    }

    pub(super) fn iter(&self) -> std::slice::Iter<'_, Named<T, 1>> {
        self.named.iter()
    }

    /// With what belongs to no name.
    pub(super) fn all(&self) -> impl Iterator<Item = &Named<T, 1>> {
        self.named.iter().chain([&self.none])
    }
}

impl<T: Default> Nested<T> {
    fn under<'p>(&self, names: impl Iterator<Item = (&'p Arc<str>, Vec<Arc<str>>)>) -> Self {
        let mut kept = kept(self.iter());
        let list = |(outer, names): (&Arc<str>, Vec<Arc<str>>)| {
            names.into_iter().map(|name| kept([Arc::clone(outer), name])).collect()
        };
        Self { named: names.map(list).collect(), none: Named::default() }
    }

    /// The counters of the name at these indices in the plan.
    pub(super) fn at(&self, outer: usize, index: usize) -> &T {
        let list = self.named.get(outer);
        list.and_then(|list| list.get(index)).unwrap_or(&self.none).cells()
    }

    /// The counters of this name within the one at this index in the plan.
    pub(super) fn find(&self, outer: usize, name: &str) -> &T {
        let mut list = self.named.get(outer).into_iter().flatten();
        list.find(|named| *named.labels[1] == *name).unwrap_or(&self.none).cells()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Named<T, 2>> {
        self.named.iter().flatten()
    }
}

/// Finds the last plan's counters under names, or makes new ones.
fn kept<'s, T: 's, const N: usize>(
    last: impl Iterator<Item = &'s Named<T, N>>,
) -> impl FnMut([Arc<str>; N]) -> Named<T, N> {
    let mut last: HashMap<_, _> = last.map(|named| (&named.labels, &named.cells)).collect();
    move |labels| {
        // Removed when found: a repeated name would be summed twice.
        let cells = last.remove(&labels).cloned().unwrap_or_default();
        Named { labels, cells }
    }
}

impl<T, const N: usize> Named<T, N> {
    /// The counters, if they were ever used.
    pub(super) fn used(&self) -> Option<&T> {
        self.cells.get().map(Box::as_ref)
    }
}

impl<T: Default, const N: usize> Named<T, N> {
    /// The counters, created on first use.
    fn cells(&self) -> &T {
        self.cells.get_or_init(Box::default)
    }
}

impl<T, const N: usize> Default for Named<T, N> {
    fn default() -> Self {
        Self { labels: std::array::from_fn(|_| Arc::from("")), cells: Arc::default() }
    }
}

/// The counters of all workers by their labels, where any worker has counted.
pub(super) fn grouped<'w, T: 'w, I: Iterator<Item = &'w Named<T, N>>, const N: usize>(
    workers: &'w [Arc<Series>],
    list: impl Fn(&'w Series) -> I,
) -> Groups<'w, T, N> {
    let mut groups = grouped_with_unused(workers, list);
    groups.retain(|_, group| !group.is_empty());
    groups
}

/// The same, with an empty group where none has.
pub(super) fn grouped_with_unused<'w, T: 'w, I: Iterator<Item = &'w Named<T, N>>, const N: usize>(
    workers: &'w [Arc<Series>],
    list: impl Fn(&'w Series) -> I,
) -> Groups<'w, T, N> {
    let mut groups = Groups::new();
    for named in workers.iter().flat_map(|series| list(series)) {
        let labels = named.labels.each_ref().map(|label| &**label);
        groups.entry(labels).or_default().extend(named.used());
    }
    groups
}
