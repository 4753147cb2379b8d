//! Whether a client may open another connection, by `connection_limits`: decided on accept, before a task or a buffer is
//! spent on the connection. The limits are counted in this process, beside a shared store, too.

use std::net::IpAddr;

use crate::limit::units::Timestamp;
use crate::plan::ListenerRole;
use crate::plan::admission::RequestCharges;
use crate::plan::connections::NewConnection;
use crate::plan::decision::Ruling;
use crate::proxy::worker::{Worker, WorkerPlan};
use crate::route::mask::Masking;
use crate::route::{RouteIndex, RouteRequest};
use crate::store::{Outcome, StoreRequest};
use crate::telemetry::metrics::{ConnectionRejectReason, DecisionLabel};

/// Whether `client`, which has connected to this listener, may. `None`: the process that takes over has the counters;
/// see [`admits_elsewhere`].
pub(super) fn admits(listener: usize, client: IpAddr, worker: &Worker) -> Option<bool> {
    let plan = worker.plan();
    let Some(connection) = LimitedConnection::of(listener, client, worker, &plan) else { return Some(true) };
    let request = connection.of.request();
    let mut charges = connection.charges(&request);
    if let Some(ruling) = connection.rule_unasked(&mut charges) {
        return Some(connection.end(&request, &charges, &Outcome::default(), &ruling));
    }
    let bans = charges.bans();
    let asked = StoreRequest { charges: &charges.charges, bans: &bans };
    let outcome = plan.counters.decide_here(asked, connection.now)?;
    Some(connection.rule(&request, &charges, &outcome))
}

/// As [`admits`], where the process that takes over has to be asked.
pub(super) async fn admits_elsewhere(listener: usize, client: IpAddr, worker: &Worker) -> bool {
    let plan = worker.plan();
    let Some(connection) = LimitedConnection::of(listener, client, worker, &plan) else { return true };
    let request = connection.of.request();
    let mut charges = connection.charges(&request);
    if let Some(ruling) = connection.rule_unasked(&mut charges) {
        return connection.end(&request, &charges, &Outcome::default(), &ruling);
    }
    let bans = charges.bans();
    let asked = StoreRequest { charges: &charges.charges, bans: &bans };
    let outcome = plan.counters.decide(asked, connection.now).await;
    connection.rule(&request, &charges, &outcome)
}

/// A new connection that limits apply to.
struct LimitedConnection<'p> {
    listener: usize,
    worker: &'p Worker,
    plan: &'p WorkerPlan,
    route: RouteIndex,
    of: NewConnection,
    now: Timestamp,
}

impl<'p> LimitedConnection<'p> {
    /// `None`: no limit applies. A trusted proxy's connections carry the requests of many clients, and those who ask for
    /// decisions are few.
    #[inline]
    fn of(listener: usize, client: IpAddr, worker: &'p Worker, plan: &'p WorkerPlan) -> Option<Self> {
        let (route, server) = (plan.connections()?, &plan.server);
        if server.role_of(listener) != ListenerRole::Traffic || server.client.trusts(client) {
            return None;
        }
        let (of, now) = (NewConnection::of(server.client.client(client)), worker.shared.clock.now());
        Some(Self { listener, worker, plan, route, of, now })
    }

    fn charges(&self, request: &RouteRequest<'_>) -> RequestCharges<'p> {
        self.plan.connection_charges(self.route, request, &self.plan.secret)
    }

    /// What is ruled without the counters.
    fn rule_unasked(&self, charges: &mut RequestCharges<'p>) -> Option<Ruling<'p>> {
        let known = self.plan.counters.known(self.now);
        charges.override_numbers(self.plan, known);
        charges.rule_unasked(known)
    }

    /// Whether the limits admit the connection with this outcome.
    fn rule(&self, request: &RouteRequest<'_>, charges: &RequestCharges<'p>, outcome: &Outcome) -> bool {
        let ruling = charges.rule(outcome, self.plan.counters.known(self.now));
        self.end(request, charges, outcome, &ruling)
    }

    /// Counts what each limit has decided. Whether they admit the connection.
    fn end(
        &self,
        request: &RouteRequest<'_>,
        charges: &RequestCharges<'p>,
        outcome: &Outcome,
        ruling: &Ruling<'p>,
    ) -> bool {
        let (plan, admitted) = (self.plan, ruling.admits());
        let route = plan.route(self.route);
        let known = plan.counters.known(self.now);
        for (place, check, label) in DecisionLabel::of_limits(charges, outcome, ruling, known) {
            plan.metrics.decision(self.route, place, label);
            let Some(used) = route.limits.get(place) else { continue };
            if !check.limit.tiers.is_empty() {
                plan.metrics.tier_decision(used.limit, check.tier, label);
            }
            let refused = match label {
                DecisionLabel::Exempt | DecisionLabel::StoreError => continue,
                DecisionLabel::Allowed | DecisionLabel::Delayed => false,
                DecisionLabel::Limited | DecisionLabel::Banned | DecisionLabel::ShadowLimited => true,
            };
            let Some(key_hash) = charges.key_hash(check) else { continue };
            let write_label = |label: &mut String| {
                let masking = Masking::of(check.limit.reveal, &plan.short_ids);
                check.limit.key.write_label(route.matched(request), masking, label);
            };
            if let Some(key_stats) = plan.key_stats.get(used.limit.0) {
                key_stats.borrow_mut().note(key_hash, refused, self.now, write_label);
            }
            if let Ruling::Banned { ban, begun: true } = ruling
                && ban.index == place
            {
                let mut label = String::new();
                write_label(&mut label);
                self.worker.shared.store.bans().set_label(check.limit.banned(key_hash), label);
            }
        }
        if !admitted {
            plan.metrics.connection_rejected(self.listener, ConnectionRejectReason::Limit);
        }
        admitted
    }
}
