//! The decision on a replayed request, and its comparison with the one that tollgate wrote into the log.

use http::StatusCode;
use smallvec::SmallVec;

use crate::limit::Verdict;
use crate::limit::units::{Cost, Fingerprint, Micros};
use crate::log_reader::request::{LinePlace, LoggedRequest};
use crate::plan::admission::{BindingLimit, LimitCheck, Refusal, RefusalCause, RequestCharges};
use crate::plan::decision::{CallCharges, DecisionObserver, LimitPhase, RequestVerdict, Ruled, Ruling};
use crate::plan::reject_reason::RejectReason;
use crate::plan::{LimitIndex, Plan, Route};
use crate::route::RouteIndex;
use crate::store::{Known, Outcome};
use crate::telemetry::metrics::DecisionLabel;

/// A request of the log, as the plan decides it.
#[derive(Clone, Debug)]
pub struct ReplayedRequest<'p> {
    /// From 0, in the order of arrival.
    pub number: u64,
    /// The route, if one matched.
    pub route: Option<RouteIndex>,
    /// What happens to the request.
    pub verdict: ReplayVerdict,
    /// What the access log of tollgate would have as `limit`, `decision`, `remaining` and `cost`.
    pub logged: Option<LoggedLabel<'p>>,
    /// The limits that decided or counted it, those in shadow too.
    pub limits: SmallVec<[LimitResult; 2]>,
    /// The response of a refusal, if a limit refuses it.
    pub refusal: Option<ReplayRefusal<'p>>,
}

/// The response to a request that a limit refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayRefusal<'p> {
    /// The name of the limit.
    pub limit: &'p str,
    /// The status.
    pub status: StatusCode,
    /// The seconds in `retry-after`, without jitter; `None`: the response has no such header.
    pub retry_after: Option<u64>,
}

/// What happens to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplayVerdict {
    /// It is admitted, after this delay (zero: at once).
    Admitted(Micros),
    /// A limit refuses it.
    Refused,
    /// It is answered with this status before any limit is checked.
    Answered(StatusCode),
    /// Its credential would have to be verified, which only a running gateway does.
    Unverified,
}

/// What one limit did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitResult {
    /// The limit.
    pub limit: LimitIndex,
    /// Its decision, as metrics count it; a wait for a place of a concurrency limit is a delay.
    pub label: DecisionLabel,
    /// The owner of the key; `None`: a part of the key is missing.
    pub key_hash: Option<Fingerprint>,
    /// The units of the request.
    pub cost: Cost,
    /// How long it delays the request.
    pub delay: Micros,
}

/// The decision of the binding limit, as tollgate logs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoggedLabel<'p> {
    /// The limit's name.
    pub limit: &'p str,
    /// Its decision.
    pub decision: DecisionLabel,
    /// The units that remain.
    pub remaining: Option<u64>,
    /// The cost.
    pub cost: Option<u32>,
}

/// Takes the decisions, in the order in which they are made: a request that waits for a place is decided later.
pub trait ReplaySink {
    /// A request is about to be decided. What will be counted can be looked for: the misses of the processor's cache then
    /// overlap with those of the decision, which saves a twentieth of the time with 100,000 keys.
    fn expect(&self, request: &LoggedRequest, route: RouteIndex, charges: &RequestCharges<'_>);

    /// A request is decided. `key` writes the key of a limit, masked as in the access log.
    fn decided(
        &mut self,
        request: &LoggedRequest,
        replayed: &ReplayedRequest<'_>,
        key: &dyn Fn(LimitIndex) -> String,
    );
}

impl<'p> ReplayRefusal<'p> {
    fn of(refusal: &Refusal<'p>, route: &Route) -> Self {
        let limit = refusal.limit;
        let status = match refusal.why {
            RefusalCause::Unreadable(fault) => RejectReason::unreadable_body(fault).status,
            RefusalCause::Repeated => StatusCode::BAD_REQUEST,
            _ => route.reject_of(limit).map_or_else(|| refusal.status(), |reject| reject.status),
        };
        Self { limit: &limit.name, status, retry_after: refusal.retry_after() }
    }
}

impl<'p> LoggedLabel<'p> {
    fn of(binding: &BindingLimit<'p>) -> Self {
        Self {
            limit: &binding.limit.name,
            decision: DecisionLabel::of_binding(binding),
            remaining: Some(binding.decision.remaining),
            cost: Some(binding.cost.units()),
        }
    }

    /// The label of what the limits of a phase rule.
    fn of_ruling(ruling: &Ruling<'p>) -> Option<Self> {
        match ruling {
            Ruling::Banned { ban, .. } => {
                Some(Self { decision: DecisionLabel::Banned, ..Self::of(&ban.tightest) })
            }
            Ruling::Unkeyed(refusal) => {
                let decision = DecisionLabel::Limited;
                Some(Self { limit: &refusal.limit.name, decision, remaining: None, cost: None })
            }
            Ruling::Unavailable => None,
            Ruling::Decided(admission) => admission.tightest.as_ref().map(Self::of),
        }
    }
}

/// What the limits of a request have decided so far.
#[derive(Debug)]
pub(super) struct DecidedLimits<'p> {
    plan: &'p Plan,
    limits: SmallVec<[LimitResult; 2]>,
    logged: Option<LoggedLabel<'p>>,
}

impl<'p> DecidedLimits<'p> {
    pub(super) fn new(plan: &'p Plan) -> Self {
        Self { plan, limits: SmallVec::new(), logged: None }
    }

    /// The limits of a phase have ruled.
    pub(super) fn add(
        &mut self,
        phase: LimitPhase,
        route: &Route,
        charges: &RequestCharges<'p>,
        (outcome, known): (&Outcome, Known<'_>),
        ruling: &Ruling<'p>,
    ) {
        self.logged = LoggedLabel::of_ruling(ruling);
        let of_failures = match phase {
            LimitPhase::Failures(failure, _) => self.plan.auth(failure.auth).failures,
            LimitPhase::BeforeAuth | LimitPhase::Route => None,
        };
        for (place, check, label) in DecisionLabel::of_limits(charges, outcome, ruling, known) {
            let limit = of_failures.or_else(|| route.limits.get(place).map(|limit_use| limit_use.limit));
            self.push(limit, label, check, (charges, outcome));
        }
    }

    /// The limits of a call have ruled.
    pub(super) fn add_call(
        &mut self,
        call: &CallCharges<'p>,
        (outcome, known): (&Outcome, Known<'_>),
        ruling: &Ruling<'p>,
    ) {
        self.logged = LoggedLabel::of_ruling(ruling);
        for (index, check, label) in DecisionLabel::of_limits(&call.charges, outcome, ruling, known) {
            let limit = call.owners.get(index).map(|owner| owner.limit);
            self.push(limit, label, check, (&call.charges, outcome));
        }
    }

    /// A call has reported what had been spent.
    pub(super) fn add_reported(&mut self, call: &CallCharges<'p>) {
        let charged =
            call.owners.iter().zip(&call.charges.checks).filter(|(_, check)| check.cost().is_some());
        for (owner, check) in charged {
            let outcome = (&call.charges, &Outcome::default());
            self.push(Some(owner.limit), DecisionLabel::Allowed, check, outcome);
        }
    }

    fn push(
        &mut self,
        limit: Option<LimitIndex>,
        label: DecisionLabel,
        check: &LimitCheck<'p>,
        (charges, outcome): (&RequestCharges<'p>, &Outcome),
    ) {
        let delays = check.decisions(outcome).iter().map(|decision| match decision.verdict {
            Verdict::Delay(delay) => delay,
            _ => Micros(0),
        });
        self.limits.push(LimitResult {
            limit: limit.unwrap_or(LimitIndex(0)),
            label,
            key_hash: charges.key_hash(check),
            cost: check.cost().unwrap_or(Cost::ZERO),
            delay: delays.max().unwrap_or_default(),
        });
    }

    /// The request is decided, after it has waited this long for a place.
    pub(super) fn replayed(
        self,
        number: u64,
        route: RouteIndex,
        verdict: &RequestVerdict<'p>,
        waited: Micros,
    ) -> ReplayedRequest<'p> {
        let Self { plan, mut limits, logged } = self;
        // Metrics count a wait for a place by request only; the report names the limit.
        let has_waited = |result: &&mut LimitResult| {
            result.label == DecisionLabel::Allowed && plan.limit(result.limit).is_concurrency()
        };
        let refusal = match verdict {
            RequestVerdict::Refused(refusal, _) => Some(ReplayRefusal::of(refusal, plan.route(route))),
            _ => None,
        };
        let (verdict, logged) = match verdict {
            RequestVerdict::Admitted(delay, _) => {
                if waited > Micros(0) {
                    limits.iter_mut().filter(has_waited).for_each(|result| {
                        (result.label, result.delay) = (DecisionLabel::Delayed, waited);
                    });
                }
                (ReplayVerdict::Admitted(Micros(waited.0 + delay.0)), logged)
            }
            RequestVerdict::Refused(..) => (ReplayVerdict::Refused, logged),
            RequestVerdict::Early(response) => (ReplayVerdict::Answered(response.status()), None),
            RequestVerdict::Answered => (ReplayVerdict::Answered(StatusCode::FORBIDDEN), None),
        };
        ReplayedRequest { number, route: Some(route), verdict, logged, limits, refusal }
    }
}

impl<'p> DecisionObserver<'p> for DecidedLimits<'p> {
    fn ruled(&mut self, ruled: &Ruled<'_, 'p, '_>) {
        let &Ruled { phase, request, outcome, ruling, known } = ruled;
        self.add(phase, request.route, &request.charges, (outcome, known), ruling);
    }
}

impl ReplayedRequest<'_> {
    /// Answered before any limit was checked.
    pub(super) fn answered(number: u64, route: Option<RouteIndex>, status: StatusCode) -> Self {
        Self::undecided(number, route, ReplayVerdict::Answered(status))
    }

    /// No limit was checked.
    pub(super) fn undecided(number: u64, route: Option<RouteIndex>, verdict: ReplayVerdict) -> Self {
        Self { number, route, verdict, logged: None, limits: SmallVec::new(), refusal: None }
    }
}

/// The maximum number of differences that are kept.
const MAX_KEPT: usize = 10;

/// How the replay and the log's own decisions agree.
#[derive(Clone, Debug, Default)]
pub struct OwnDecisions {
    /// Requests with the same decision, limit and remaining units.
    pub same: u64,
    /// Requests with another one.
    pub different: u64,
    /// Requests that a shared store decided, or that ended before they were decided: they are not compared.
    pub not_comparable: u64,
    /// The first differences.
    pub first: Vec<Difference>,
}

/// A request that the replay decides otherwise than the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The line.
    pub place: LinePlace,
    /// The decision in the log: `limited by per-client`.
    pub logged: String,
    /// The decision of the replay.
    pub replayed: String,
}

impl OwnDecisions {
    /// Compares a request of tollgate's own log.
    pub(super) fn compare(&mut self, request: &LoggedRequest, replayed: &ReplayedRequest<'_>) {
        let Some(own) = &request.own else { return };
        // A client that left during a delay has no decision in the log.
        if own.decision == DecisionLabel::StoreError.as_str()
            || request.status == Some(499) && own.decision.is_empty()
        {
            self.not_comparable += 1;
            return;
        }
        let (limit, decision, remaining) = match &replayed.logged {
            Some(logged) => (logged.limit, logged.decision.as_str(), logged.remaining),
            None => ("", "", None),
        };
        let is_same_number = own.remaining.is_none() || own.remaining == remaining;
        // Earlier versions logged a refusal by a ban as one by the limit.
        let is_same_decision = own.decision == decision
            || (own.decision.as_str(), decision)
                == (DecisionLabel::Limited.as_str(), DecisionLabel::Banned.as_str());
        if own.limit == limit && is_same_decision && is_same_number {
            self.same += 1;
            return;
        }
        self.different += 1;
        if self.first.len() < MAX_KEPT {
            let replayed = match replayed.verdict {
                ReplayVerdict::Answered(status) => format!("answered with {}", status.as_u16()),
                _ => text(decision, limit, remaining),
            };
            let logged = text(&own.decision, &own.limit, own.remaining);
            self.first.push(Difference { place: request.place, logged, replayed });
        }
    }

    /// Whether the log has such decisions.
    pub fn is_empty(&self) -> bool {
        self.same + self.different + self.not_comparable == 0
    }
}

fn text(decision: &str, limit: &str, remaining: Option<u64>) -> String {
    match (decision, remaining) {
        ("", _) => "no limit decided".to_owned(),
        (decision, None) => format!("{decision} by {limit}"),
        (decision, Some(remaining)) => format!("{decision} by {limit}, {remaining} left"),
    }
}
