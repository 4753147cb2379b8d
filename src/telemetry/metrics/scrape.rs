//! The page of `/metrics`: all workers' counters together.

use super::family::Family;
use super::series::{grouped, grouped_with_unused};
use super::{Metrics, ProcessCounts, calls, decisions, listeners, process, queues, routes, store, upstreams};
use crate::limit::units::Timestamp;
use crate::plan::Plan;
use crate::store::Store;
use crate::telemetry::trace::SpanCounts;
use crate::upstream::server_registry::ServerRegistry;

impl Metrics {
    /// All families, in the order of the page.
    pub fn families() -> impl Iterator<Item = &'static Family> {
        let subjects = [
            routes::FAMILIES,
            decisions::FAMILIES,
            queues::FAMILIES,
            upstreams::FAMILIES,
            listeners::FAMILIES,
            calls::FAMILIES,
            store::FAMILIES,
            process::FAMILIES,
        ];
        subjects.into_iter().flatten()
    }

    /// The page in Prometheus' text format 0.0.4. `spans` has the counts of spans, if requests are traced.
    ///
    /// Of routes, limits and upstreams, only those that were used have series.
    pub fn render(
        &self,
        plan: &Plan,
        registry: &ServerRegistry,
        store: &Store,
        counts: ProcessCounts,
        spans: Option<&SpanCounts>,
        now: Timestamp,
    ) -> String {
        let workers: Vec<_> = self.workers.iter().map(arc_swap::ArcSwapAny::load_full).collect();
        let mut page = String::new();
        let routes = grouped(&workers, |series| series.routes.all());
        routes::write(&mut page, &routes, &grouped_with_unused(&workers, |series| series.routes.iter()));
        decisions::write(
            &mut page,
            plan,
            &routes,
            &grouped(&workers, |series| series.limits.iter().chain(series.failures.iter())),
            &grouped(&workers, |series| series.tiers.iter()),
            &grouped(&workers, |series| series.settlements.iter()),
            &grouped(&workers, |series| series.auths.iter()),
        );
        queues::write(&mut page, plan, &grouped(&workers, |series| series.queues.iter()));
        upstreams::write(
            &mut page,
            &grouped(&workers, |series| series.upstreams.iter()),
            &grouped(&workers, |series| series.servers.iter()),
            &upstreams::States::of(plan, registry),
        );
        let listeners = grouped_with_unused(&workers, |series| series.listeners.iter());
        listeners::write(&mut page, &listeners, &plan.server);
        calls::write(&mut page, plan, &grouped(&workers, |series| series.calls.iter()));
        store::store(&mut page, store, plan, now);
        process::write(&mut page, self, plan, counts, spans, &process::stat());
        page
    }
}
