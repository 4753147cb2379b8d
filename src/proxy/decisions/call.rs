//! A call on limits without a request: of descriptors, or of limits that an application names. Driven, counted and
//! logged.

use http::Method;

use crate::limit::units::Timestamp;
use crate::plan::Limit;
use crate::plan::admission::{BindingLimit, LimitCheck, Refusal};
use crate::plan::decision::{CallCharges, CheckOwner, RequestVerdict, Ruling};
use crate::proxy::record::accounting::CountedLimit;
use crate::proxy::record::request_context::RequestContext;
use crate::proxy::record::usage::record_admission;
use crate::proxy::worker::WorkerPlan;
use crate::route::RouteIndex;
use crate::store::{Outcome, StoreRequest};
use crate::telemetry::metrics::{DecisionLabel, RequestOutcome};

/// What the limits of a call have ruled.
pub(super) struct RuledCall<'p> {
    pub(super) charges: CallCharges<'p>,
    pub(super) ruling: Ruling<'p>,
    pub(super) outcome: Outcome,
}

/// What is shown of a call in place of a request, and how its keys are written.
pub(super) struct CallText<'t> {
    /// In place of the method: no client can send it, since it is in lower case.
    pub(super) method: &'static str,
    /// In place of the host.
    pub(super) host: &'t str,
    /// In place of the path.
    pub(super) path: &'t str,
    /// The consumer that it is of, if it names one.
    pub(super) consumer: Option<&'t str>,
    /// Writes the key of a check.
    pub(super) write_label: &'t dyn Fn(CheckOwner, &Limit, &mut String),
}

/// The limit that a check of a call is of.
pub(super) fn counted(owner: CheckOwner) -> CountedLimit {
    CountedLimit { route: owner.route, place: owner.place, limit: owner.limit }
}

impl<'p> RuledCall<'p> {
    /// Of charges that nobody decides.
    pub(super) fn undecided(charges: CallCharges<'p>) -> Self {
        Self { charges, ruling: Ruling::Unavailable, outcome: Outcome::default() }
    }

    /// Asks the store, unless what is known decides. `peeks`: nothing is charged.
    pub(super) async fn rule(
        plan: &'p WorkerPlan,
        mut charges: CallCharges<'p>,
        now: Timestamp,
        peeks: bool,
    ) -> Self {
        charges.charges.override_numbers(plan, plan.counters.known(now));
        let asked = &charges.charges;
        if let Some(ruling) = asked.rule_unasked(plan.counters.known(now)) {
            return Self { ruling, outcome: Outcome::default(), charges };
        }
        let outcome = match peeks {
            _ if asked.charges.is_empty() => Outcome::default(),
            true => plan.counters.look(&asked.charges, now).await,
            false => {
                let bans = asked.bans();
                plan.counters.decide(StoreRequest { charges: &asked.charges, bans: &bans }, now).await
            }
        };
        let ruling = asked.rule(&outcome, plan.counters.known(now));
        Self { ruling, outcome, charges }
    }

    /// Counts what each limit has decided.
    pub(super) fn count(&self, ctx: &mut RequestContext, plan: &WorkerPlan, text: &CallText<'_>) {
        let known = plan.counters.known(ctx.started);
        let (charges, admitted) = (&self.charges.charges, self.ruling.admits());
        for (index, check, label) in DecisionLabel::of_limits(charges, &self.outcome, &self.ruling, known) {
            let Some(owner) = self.charges.owners.get(index) else { continue };
            if let Some(usage) = check.limit.usage.as_ref().filter(|_| admitted) {
                let ledger = ctx.worker.shared.store.usage();
                let at = (&self.outcome, ctx.started);
                record_admission((ledger, usage), (check, label), at, text.consumer);
            }
            let Some(refused) = ctx.count_check(counted(*owner), check, label, (&self.outcome, admitted))
            else {
                continue;
            };
            let write_label = |label: &mut String| (text.write_label)(*owner, check.limit, label);
            ctx.note_asker(owner.limit, charges.key_hash(check), refused, write_label);
        }
        if let Ruling::Banned { ban, begun: true } = &self.ruling
            && let Some((owner, check)) = self.check(ban.index)
            && let Some(key_hash) = charges.key_hash(check)
        {
            let mut label = String::new();
            (text.write_label)(owner, check.limit, &mut label);
            ctx.worker.shared.store.bans().set_label(check.limit.banned(key_hash), label);
        }
    }

    /// The check at this index, with its owner.
    pub(super) fn check(&self, index: usize) -> Option<(CheckOwner, &LimitCheck<'p>)> {
        Some((*self.charges.owners.get(index)?, self.charges.charges.checks.get(index)?))
    }

    /// The check of the limit that refuses.
    fn refusing(&self, refusal: &Refusal<'_>) -> Option<(CheckOwner, &LimitCheck<'p>)> {
        let is_it = |check: &LimitCheck<'_>| std::ptr::eq(check.limit, refusal.limit);
        let checks = &self.charges.charges.checks;
        let denies = checks.iter().position(|check| is_it(check) && check.denies(&self.outcome));
        self.check(denies.or_else(|| checks.iter().position(is_it))?)
    }
}

/// The end of a call.
pub(super) enum CallVerdict<'p> {
    Admitted(Option<BindingLimit<'p>>),
    Refused(Refusal<'p>, Option<BindingLimit<'p>>),
    /// A limit with `on_error = "deny"` could not be checked.
    Unavailable,
}

impl<'p> RuledCall<'p> {
    /// The verdict, noted for the log, with the route that the call counts for.
    pub(super) fn end(
        self,
        ctx: &mut RequestContext,
        plan: &WorkerPlan,
        text: &CallText<'_>,
    ) -> (CallVerdict<'p>, Option<RouteIndex>) {
        let first = self.charges.owners.first().map(|owner| owner.route);
        let Self { charges, ruling, outcome } = self;
        // Refusals are looked at with the charges that they are of.
        let (verdict, charges) =
            (ruling.verdict(), RuledCall { charges, ruling: Ruling::Unavailable, outcome });
        match verdict {
            RequestVerdict::Admitted(_, tightest) => {
                ctx.note(tightest.as_ref());
                ctx.limits.admitted = true;
                (CallVerdict::Admitted(tightest), first)
            }
            RequestVerdict::Refused(refusal, tightest) => {
                let refusal = refusal.spread(|most| fastrand::u64(0..=most));
                let refusing = charges.refusing(&refusal);
                let route = refusing.map(|(owner, _)| owner.route).or(first);
                ctx.note_refusal(&refusal, tightest.as_ref());
                if let Some((owner, check)) = refusing {
                    let key = || {
                        let mut label = String::new();
                        (text.write_label)(owner, check.limit, &mut label);
                        Some((charges.charges.charges.key_hash(check)?, label))
                    };
                    ctx.note_call_key(plan, |label| (text.write_label)(owner, check.limit, label));
                    ctx.route = route;
                    let shown = [text.method, text.host, text.path];
                    ctx.sample_call(shown, (owner.limit, key), &refusal, tightest.as_ref());
                    ctx.route = None;
                }
                (CallVerdict::Refused(refusal, tightest), route)
            }
            RequestVerdict::Early(_) | RequestVerdict::Answered => (CallVerdict::Unavailable, first),
        }
    }
}

impl RequestContext {
    /// Begins the record of a call.
    pub(super) fn open_call(&mut self, text: &CallText<'_>) {
        if let Some(record) = &mut self.log.record {
            record.request.method = Method::from_bytes(text.method.as_bytes()).unwrap_or_default();
            text.host.clone_into(&mut record.request.host);
            text.path.clone_into(&mut record.request.path);
        }
    }

    /// Notes the key of the limit that the record names.
    fn note_call_key(&mut self, plan: &WorkerPlan, write_label: impl FnOnce(&mut String)) {
        if plan.log.access.needs_key()
            && let Some(record) = &mut self.log.record
        {
            record.decision.key.clear();
            write_label(&mut record.decision.key);
        }
    }

    /// Counts a further part of the call as a request to this route.
    pub(super) fn count_part(&self, plan: &WorkerPlan, route: RouteIndex, is_admitted: bool) {
        let duration = self.worker.shared.clock.now().since(self.started);
        let outcome = if is_admitted { RequestOutcome::Admitted } else { RequestOutcome::Refused };
        plan.metrics.begun(route);
        plan.metrics.request(Some(route), self.response.status, duration, self.limits.delay, is_admitted);
        plan.metrics.outcome(Some(route), outcome);
    }
}
