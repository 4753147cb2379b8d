//! The decision on a replayed request, and its comparison with the one that tollgate wrote into the log.

use http::StatusCode;
use smallvec::SmallVec;

use crate::limit::units::{Cost, Fingerprint, Micros};
use crate::log_reader::request::{LinePlace, LoggedRequest};
use crate::plan::LimitIndex;
use crate::plan::admission::{BindingLimit, RequestCharges};
use crate::route::RouteIndex;
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
}

/// What one limit did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitResult {
    /// The limit.
    pub limit: LimitIndex,
    /// Its place on the route.
    pub place: usize,
    /// Its decision, as metrics count it; a wait for a place of a concurrency limit is a delay.
    pub label: DecisionLabel,
    /// The owner of the key; `None`: a part of the key is missing.
    pub owner: Option<Fingerprint>,
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

    /// A request is decided. `key` writes the key of the limit at a place of the route, masked as in the access log.
    fn decided(
        &mut self,
        request: &LoggedRequest,
        replayed: &ReplayedRequest<'_>,
        key: &dyn Fn(usize) -> String,
    );
}

impl<'p> LoggedLabel<'p> {
    pub(super) fn of(binding: &BindingLimit<'p>) -> Self {
        Self {
            limit: &binding.limit.name,
            decision: DecisionLabel::of_binding(binding),
            remaining: Some(binding.decision.remaining),
            cost: Some(binding.cost.units()),
        }
    }
}

impl ReplayedRequest<'_> {
    /// Answered before any limit was checked.
    pub(super) fn answered(number: u64, route: Option<RouteIndex>, status: StatusCode) -> Self {
        let verdict = ReplayVerdict::Answered(status);
        Self { number, route, verdict, logged: None, limits: SmallVec::new() }
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
        if (own.limit.as_str(), own.decision.as_str()) == (limit, decision) && is_same_number {
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
