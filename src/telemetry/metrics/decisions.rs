//! Decisions: of limits, of auths, and how reserved costs were settled.

use super::WorkerMetrics;
use super::family::{Groups, families};
use super::routes::{RequestOutcome, RouteCounters};
use super::totals::totals;
use crate::counter::Counter;
use crate::labels::labels;
use crate::limit::Verdict;
use crate::plan::admission::{Applicability, BindingLimit, LimitCheck, RequestCharges};
use crate::plan::auth::AuthIndex;
use crate::plan::decision::Ruling;
use crate::plan::{Limit, LimitIndex, Mode, Plan, TierIndex};
use crate::route::RouteIndex;
use crate::store::{Known, Outcome};

families! {
    from (
        plan: &Plan,
        routes: &Groups<'_, RouteCounters, 1>,
        limits: &Groups<'_, DecisionCounters, 2>,
        tiers: &Groups<'_, DecisionCounters, 2>,
        settlements: &Groups<'_, SettlementCounters, 1>,
        auths: &Groups<'_, AuthCounters, 1>,
    )

    Counter tollgate_decisions_total{route, limit, decision}
        "Decisions of each limit on the requests of a route; refusals of no limit, with an empty `limit`." always
        = by(limits, DecisionLabel::ALL.map(DecisionLabel::as_str), |limit| &limit.labels)
        and values(rejections(routes));
    Counter tollgate_tier_decisions_total{limit, tier, decision}
        "Decisions of each limit with tiers, by the consumer's tier; empty: none that the limit has."
        only_if(plan.limits.iter().any(|limit| !limit.tiers.is_empty()))
        = by(tiers, DecisionLabel::ALL.map(DecisionLabel::as_str), |tier| &tier.labels);
    Counter tollgate_reserved_units_total{limit} "Units reserved by requests that were settled afterwards."
        only_if(settles(plan))
        = sum(settlements, |limit| limit.reserved.get());
    Counter tollgate_settled_units_total{limit, direction}
        "Units charged beyond the reservation, or given back, once the cost of a request was known."
        only_if(settles(plan))
        = by(settlements, ["charged", "refunded"], |limit| &limit.settled);
    Counter tollgate_settlements_total{limit, result} "Requests whose cost was settled, by how it was found."
        only_if(settles(plan))
        = by(settlements, SettlementResult::ALL.map(SettlementResult::as_str), |limit| &limit.results);
    Counter tollgate_auth_total{auth, result} "Results of checking the credentials of requests."
        only_if(!plan.auths.is_empty())
        = by(auths, AuthResult::ALL.map(AuthResult::as_str), |auth| &auth.results);
}

fn settles(plan: &Plan) -> bool {
    plan.limits.iter().any(Limit::settles)
}

/// The refusals that are of no limit: all of a route, once there is one.
fn rejections<'w>(routes: &Groups<'w, RouteCounters, 1>) -> impl Iterator<Item = ([&'w str; 3], u64)> {
    let counts = routes.iter().map(|([route], group)| {
        RequestOutcome::REJECTIONS.map(|rejection| {
            let count = group.iter().map(|route| route.outcomes[rejection as usize].get()).sum();
            ([*route, "", rejection.as_str()], count)
        })
    });
    counts.filter(|counts| counts.iter().any(|(_, count)| *count > 0)).flatten()
}

totals! {
    /// The verdicts of a limit, without requests that are exempt, or that another limit refused.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct VerdictCounts of DecisionCounters {
        /// In the order of [`LimitVerdict::ALL`].
        pub counts: [u64; LimitVerdict::ALL.len()] = DecisionCounters::verdicts,
    }
}

impl VerdictCounts {
    /// The number of these verdicts.
    pub fn of(&self, verdict: LimitVerdict) -> u64 {
        self.counts[verdict as usize]
    }

    /// The refusals, those in shadow too.
    pub fn refused(&self) -> u64 {
        self.of(LimitVerdict::Refused) + self.of(LimitVerdict::RefusedInShadow)
    }
}

totals! {
    /// The costs of a limit that were settled after responses.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct SettledCounts of SettlementCounters {
        /// The number of settled requests.
        pub requests: u64 = |limit| limit.results.iter().map(Counter::get).sum(),
        reserved: u64 = |limit| limit.reserved.get(),
        settled: [u64; 2] = |limit| limit.settled.each_ref().map(Counter::get),
    }
}

impl SettledCounts {
    /// The units that the requests cost in the end.
    pub fn units(&self) -> u64 {
        let [charged, refunded] = self.settled;
        (self.reserved + charged).saturating_sub(refunded)
    }
}

labels! {
    /// The decision on a charge: the `decision` of `tollgate_decisions_total` and of the access log.
    #[derive(Hash)]
    pub enum DecisionLabel {
        /// Admitted.
        Allowed = "allowed",
        /// Admitted after a wait.
        Delayed = "delayed",
        /// This limit refused the request.
        Limited = "limited",
        /// A ban of this limit refused the request.
        Banned = "banned",
        /// A shadow limit would have refused it.
        ShadowLimited = "shadow_limited",
        /// An exemption held.
        Exempt = "exempt",
        /// The store could not decide.
        StoreError = "store_error",
    }
}

labels! {
    /// A limit's verdict, by the store or by this process.
    pub enum LimitVerdict {
        /// Admit.
        Admitted = "admitted",
        /// Admit after a delay.
        Delayed = "delayed",
        /// Refuse.
        Refused = "refused",
        /// Refuse, if the limit were enforced for this key: it is in shadow.
        RefusedInShadow = "refused_in_shadow",
    }
}

labels! {
    /// The result of checking a request's credential: the `result` of `tollgate_auth_total`.
    pub enum AuthResult {
        /// It named a consumer.
        Accepted = "accepted",
        /// There was none, which the route allows.
        Anonymous = "anonymous",
        /// There was none, and the route requires one.
        Missing = "missing",
        /// It named no consumer.
        Invalid = "invalid",
        /// There were several that differ.
        Repeated = "repeated",
        /// It named no consumer, and the limit on such requests refused it.
        Limited = "limited",
        /// It named a consumer that is not what the route requires.
        Insufficient = "insufficient",
        /// An auth in shadow would have refused the request.
        ShadowRefused = "shadow_refused",
    }
}

labels! {
    /// How a reserved cost was settled: the `result` of `tollgate_settlements_total`.
    pub enum SettlementResult {
        /// By the values that were found.
        Measured = "measured",
        /// By `max`, which the values exceed.
        Capped = "capped",
        /// By `missing`: there is no value.
        Missing = "missing",
        /// By `missing`: a value is not a number from 0 on.
        Unreadable = "unreadable",
        /// The response is incomplete or never came, and lacks a value: by `missing`, or by the values found if they are more.
        Incomplete = "incomplete",
        /// The request has reached no backend: all was given back.
        NoAnswer = "no_answer",
    }
}

/// A cost that was reserved and settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SettledUnits {
    /// The units charged on admission.
    pub reserved: u32,
    /// The units that it costs in the end.
    pub units: u32,
    /// How these were found.
    pub result: SettlementResult,
}

/// The counters of a limit's decisions on a route, or on a tier.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct DecisionCounters {
    labels: [Counter; DecisionLabel::ALL.len()],
    /// The verdicts where the store could not be asked; the label then only says so.
    decided_locally: [Counter; LimitVerdict::ALL.len()],
}

/// The counters of a limit's costs that were reserved and settled.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct SettlementCounters {
    /// Units reserved.
    reserved: Counter,
    /// Units charged afterwards, beyond the reservation; and units of the reservation that were given back.
    settled: [Counter; 2],
    results: [Counter; SettlementResult::ALL.len()],
}

/// The counters of an auth.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct AuthCounters {
    results: [Counter; AuthResult::ALL.len()],
}

impl DecisionCounters {
    /// In the order of [`LimitVerdict::ALL`].
    fn verdicts(&self) -> [u64; LimitVerdict::ALL.len()] {
        let count = |label: DecisionLabel| self.labels[label as usize].get();
        LimitVerdict::ALL.map(|verdict| {
            let decided = match verdict {
                LimitVerdict::Admitted => count(DecisionLabel::Allowed),
                LimitVerdict::Delayed => count(DecisionLabel::Delayed),
                LimitVerdict::Refused => count(DecisionLabel::Limited) + count(DecisionLabel::Banned),
                LimitVerdict::RefusedInShadow => count(DecisionLabel::ShadowLimited),
            };
            decided + self.decided_locally[verdict as usize].get()
        })
    }
}

impl WorkerMetrics {
    /// Counts a limit's decision. `limit_use` is its index in the route's `limits`.
    pub fn decision(&self, route: RouteIndex, limit_use: usize, decision: DecisionLabel) {
        self.series.limits.at(route.0, limit_use).labels[decision as usize].add(1);
    }

    /// Counts a limit's verdict where the store could not be asked. See [`Self::decision`].
    pub fn decided_locally(&self, route: RouteIndex, limit_use: usize, verdict: LimitVerdict) {
        self.series.limits.at(route.0, limit_use).decided_locally[verdict as usize].add(1);
    }

    /// Counts the decision of a limit on wrong credentials.
    #[cold]
    pub fn failure_decision(&self, route: RouteIndex, limit: &Limit, decision: DecisionLabel) {
        self.series.failures.find(route.0, &limit.name).labels[decision as usize].add(1);
    }

    /// Counts the verdict of a limit on wrong credentials where the store could not be asked.
    #[cold]
    pub fn failure_decided_locally(&self, route: RouteIndex, limit: &Limit, verdict: LimitVerdict) {
        self.series.failures.find(route.0, &limit.name).decided_locally[verdict as usize].add(1);
    }

    /// Counts a limit's decision on a consumer of this tier, if the limit has tiers; `None`: of none that it has.
    pub fn tier_decision(&self, limit: LimitIndex, tier: Option<TierIndex>, decision: DecisionLabel) {
        let tier = self.series.tiers.at(limit.0, tier.map_or(0, |tier| tier.0 + 1));
        tier.labels[decision as usize].add(1);
    }

    /// Counts a cost of a limit that was reserved, and is settled now.
    pub fn settled(&self, limit: LimitIndex, settled: SettledUnits) {
        let SettledUnits { reserved, units, result } = settled;
        let limit = self.series.settlements.at(limit.0);
        limit.reserved.add(reserved.into());
        limit.settled[0].add(units.saturating_sub(reserved).into());
        limit.settled[1].add(reserved.saturating_sub(units).into());
        limit.results[result as usize].add(1);
    }

    /// Counts the result of checking a credential.
    pub fn auth(&self, auth: AuthIndex, result: AuthResult) {
        self.series.auths.at(auth.0).results[result as usize].add(1);
    }
}

impl DecisionLabel {
    /// The label that a limit's verdict is counted under; `None` if it neither charged nor refused. `admitted`: all
    /// enforced limits admit the request.
    pub fn of_check(check: &LimitCheck<'_>, outcome: &Outcome, admitted: bool) -> Option<Self> {
        let shadow = check.mode == Mode::Shadow;
        let refused = if shadow { Self::ShadowLimited } else { Self::Limited };
        let delayed =
            || check.decisions(outcome).iter().any(|decision| matches!(decision.verdict, Verdict::Delay(_)));
        let decided_locally = check.indices().any(|index| outcome.decided_locally.contains(index));
        match check.applicability {
            Applicability::Exempt => Some(Self::Exempt),
            Applicability::Missing | Applicability::Repeated | Applicability::Unreadable(_) => Some(refused),
            Applicability::Charged(..) if decided_locally => Some(Self::StoreError),
            Applicability::Charged(..) if check.denies(outcome) => Some(refused),
            Applicability::Charged(..) if !admitted || outcome.decisions.is_empty() => None,
            Applicability::Charged(..) if !shadow && delayed() => Some(Self::Delayed),
            Applicability::Charged(..) => Some(Self::Allowed),
            Applicability::Free | Applicability::Skipped => None,
        }
    }

    /// What the limits of a phase decided, each with its place; those that counted nothing are left out. An automatic ban
    /// of a shadow limit refuses nothing, and is counted.
    pub fn of_limits<'c, 'p>(
        charges: &'c RequestCharges<'p>,
        outcome: &'c Outcome,
        ruling: &Ruling<'p>,
        known: Known<'c>,
    ) -> impl Iterator<Item = (usize, &'c LimitCheck<'p>, Self)> {
        let banned = match ruling {
            Ruling::Banned { ban, begun } => Some((ban.index, *begun)),
            _ => None,
        };
        let admitted = ruling.admits();
        let label = move |place: usize, check: &LimitCheck<'p>| match (banned, check.applicability) {
            (Some((banned, _)), _) if place == banned => Some(Self::Banned),
            (Some((_, false)), Applicability::Exempt) => Some(Self::Exempt),
            (Some((_, false)), _) => None,
            _ if charges.is_banned_in_shadow(check, known) => Some(Self::ShadowLimited),
            _ => Self::of_check(check, outcome, admitted),
        };
        let checks = charges.checks.iter().enumerate();
        checks.filter_map(move |(place, check)| Some((place, check, label(place, check)?)))
    }

    /// The label of the binding limit.
    pub fn of_binding(binding: &BindingLimit<'_>) -> Self {
        match binding.decision.verdict {
            _ if !binding.asked => Self::StoreError,
            Verdict::Allow => Self::Allowed,
            Verdict::Delay(_) => Self::Delayed,
            Verdict::Deny(_) => Self::Limited,
        }
    }
}
