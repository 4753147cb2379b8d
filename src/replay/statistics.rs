//! What a replay adds up to: by limit, by route, by key, by client and over time. Its memory is bounded by keys and
//! clients, and not by requests.

pub mod clients;
pub mod keys;
pub mod timeline;

use crate::limit::units::{Micros, Timestamp};
use crate::log_reader::request::LoggedRequest;
use crate::plan::admission::RequestCharges;
use crate::plan::{LimitIndex, Mode, Plan};
use crate::route::RouteIndex;
use crate::telemetry::metrics::DecisionLabel;
use clients::Clients;
use keys::KeyCounts;
use timeline::{Calendar, Timeline};

use super::decided::{LimitResult, OwnDecisions, ReplaySink, ReplayVerdict, ReplayedRequest};

/// The sums of a replay.
#[derive(Debug)]
pub struct ReplayStatistics<'p> {
    /// The plan that was replayed.
    pub plan: &'p Plan,
    /// All requests.
    pub requests: u64,
    /// Those that a limit refuses.
    pub refused: u64,
    /// Those that are admitted after a delay.
    pub delayed: u64,
    /// Those that no enforced limit refuses, and that a limit in shadow would refuse.
    pub shadow_refused: u64,
    /// Those that are answered before any limit is checked: no route, an address, a credential.
    pub answered: u64,
    /// The time of the first and of the last one.
    pub span: Option<(Timestamp, Timestamp)>,
    /// By limit, in file order.
    pub limits: Vec<LimitStatistics>,
    /// By route, in file order.
    pub routes: Vec<RouteStatistics>,
    /// All clients.
    pub clients: Clients,
    /// Over time.
    pub timeline: Timeline,
    /// By day and hour.
    pub calendar: Calendar,
    /// The comparison with the decisions in the log.
    pub own: OwnDecisions,
}

/// The sums of one limit.
#[derive(Debug, Default)]
pub struct LimitStatistics {
    /// Requests that it decided.
    pub requests: u64,
    /// Those that it refuses; in shadow: would refuse.
    pub refused: u64,
    /// Those that it delays.
    pub delayed: u64,
    /// The sum of these delays.
    pub delay_sum: Micros,
    /// The longest delay.
    pub delay_max: Micros,
    /// Requests that are exempt.
    pub exempt: u64,
    /// Its keys.
    pub keys: KeyCounts,
    /// Over time.
    pub timeline: Timeline,
}

/// The sums of one route.
#[derive(Clone, Debug, Default)]
pub struct RouteStatistics {
    /// Its requests.
    pub requests: u64,
    /// Those that a limit refuses.
    pub refused: u64,
    /// Those that no enforced limit refuses, and that a limit in shadow would refuse.
    pub shadow_refused: u64,
    /// Those that are delayed.
    pub delayed: u64,
}

impl<'p> ReplayStatistics<'p> {
    /// No request yet.
    pub fn new(plan: &'p Plan) -> Self {
        Self {
            plan,
            requests: 0,
            refused: 0,
            delayed: 0,
            shadow_refused: 0,
            answered: 0,
            span: None,
            limits: plan.limits.iter().map(|_| LimitStatistics::default()).collect(),
            routes: vec![RouteStatistics::default(); plan.routes.len()],
            clients: Clients::default(),
            timeline: Timeline::default(),
            calendar: Calendar::default(),
            own: OwnDecisions::default(),
        }
    }

    fn count_limit(&mut self, result: &LimitResult, time: Timestamp, key: &dyn Fn(LimitIndex) -> String) {
        let Some(limit) = self.limits.get_mut(result.limit.0) else { return };
        let refuses = match result.label {
            DecisionLabel::Exempt => {
                limit.exempt += 1;
                return;
            }
            DecisionLabel::Allowed | DecisionLabel::StoreError => false,
            DecisionLabel::Delayed => {
                limit.delayed += 1;
                limit.delay_sum.0 = limit.delay_sum.0.saturating_add(result.delay.0);
                limit.delay_max = limit.delay_max.max(result.delay);
                false
            }
            DecisionLabel::Limited | DecisionLabel::Banned | DecisionLabel::ShadowLimited => true,
        };
        limit.requests += 1;
        limit.refused += u64::from(refuses);
        limit.timeline.count(time, refuses);
        if let Some(key_hash) = result.key_hash {
            limit.keys.count(key_hash, refuses, || key(result.limit));
        }
    }

    /// Whether a limit of this index is in shadow.
    pub fn is_shadow(&self, limit: LimitIndex) -> bool {
        self.plan.limit(limit).mode == Mode::Shadow
    }
}

impl ReplaySink for ReplayStatistics<'_> {
    fn expect(&self, request: &LoggedRequest, route: RouteIndex, charges: &RequestCharges<'_>) {
        let mut known = self.clients.has(request.client);
        for (used, check) in self.plan.route(route).limits.iter().zip(&charges.checks) {
            if let (Some(limit), Some(key_hash)) = (self.limits.get(used.limit.0), charges.key_hash(check)) {
                known ^= limit.keys.has(key_hash);
            }
        }
        std::hint::black_box(known);
    }

    fn decided(
        &mut self,
        request: &LoggedRequest,
        replayed: &ReplayedRequest<'_>,
        key: &dyn Fn(LimitIndex) -> String,
    ) {
        let time = request.time;
        let shadow = replayed.limits.iter().any(|result| result.label == DecisionLabel::ShadowLimited);
        let refused = replayed.verdict == ReplayVerdict::Refused;
        let shadow_refused = !refused && shadow;
        let delayed = matches!(replayed.verdict, ReplayVerdict::Admitted(delay) if delay > Micros(0));
        self.requests += 1;
        self.refused += u64::from(refused);
        self.shadow_refused += u64::from(shadow_refused);
        self.delayed += u64::from(delayed);
        self.answered += u64::from(matches!(replayed.verdict, ReplayVerdict::Answered(_)));
        self.span = Some(match self.span {
            None => (time, time),
            Some((first, last)) => (first.min(time), last.max(time)),
        });
        if let Some(route) = replayed.route.and_then(|index| self.routes.get_mut(index.0)) {
            route.requests += 1;
            route.refused += u64::from(refused);
            route.shadow_refused += u64::from(shadow_refused);
            route.delayed += u64::from(delayed);
        }
        for result in &replayed.limits {
            self.count_limit(result, time, key);
        }
        // A limit in shadow is replayed to see what it would refuse.
        let is_hit = refused || shadow_refused;
        self.clients.count(request, is_hit);
        self.timeline.count(time, is_hit);
        self.calendar.count(time, is_hit);
        self.own.compare(request, replayed);
    }
}
