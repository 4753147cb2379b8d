//! The gateway in virtual time: one worker, the memory store, and no connection.

use http::StatusCode;
use smallvec::SmallVec;

use super::caller::{ConsumerNames, answered_unlogged, draw};
use super::decided::{LimitResult, LoggedLabel, ReplaySink, ReplayVerdict, ReplayedRequest};
use super::in_flight::{Agenda, Due, RequestEnd, WaitingRequest, place_keys};
use super::keys_of_log::label;
use super::logged_response::{Service, ServiceTimes, settled_units};
use crate::http1::fields::FieldSpan;
use crate::http1::request::RequestHead;
use crate::limit::Verdict;
use crate::limit::units::{Cost, Fingerprint, Micros, Timestamp};
use crate::log_reader::request::LoggedRequest;
use crate::plan::admission::{
    Admission, AdmissionDecision, Applicability, BanRefusal, LimitCheck, RequestCharges,
};
use crate::plan::auth::AuthFailure;
use crate::plan::resolve::{LocatedRequest, RouteLookup, RoutedRequest, Unroutable, locate_logged};
use crate::plan::{Limit, LimitIndex, Mode, Plan};
use crate::route::RouteIndex;
use crate::route::key::KeySecret;
use crate::route::mask::ShortIds;
use crate::store::bans::Bans;
use crate::store::memory::in_flight::{LocalPlaces, Turn};
use crate::store::memory::{MemoryStore, OutOfMemory};
use crate::store::{BanningRequest, Charge, Correction, Outcome};
use crate::telemetry::metrics::DecisionLabel;

/// A gateway that decides the requests of a log at the times of the log.
#[derive(Debug)]
pub struct VirtualGateway<'p> {
    plan: &'p Plan,
    memory: MemoryStore,
    bans: Bans,
    secret: KeySecret,
    ids: ShortIds,
    consumers: ConsumerNames<'p>,
    agenda: Agenda<'p>,
    durations: ServiceTimes,
    spans: Vec<FieldSpan>,
    /// The number of requests so far.
    requests: u64,
}

/// A request with its decision, and what is needed to conclude it.
struct Concluded<'p, 'c> {
    number: u64,
    route: RouteIndex,
    charges: &'c RequestCharges<'p>,
    outcome: &'c Outcome,
    /// When it is decided, after a wait for a place.
    now: Timestamp,
    places: Option<LocalPlaces>,
}

/// An admitted request.
struct Forwarded<'p, 'c> {
    number: u64,
    route: RouteIndex,
    charges: &'c RequestCharges<'p>,
    outcome: &'c Outcome,
    /// When it is forwarded, after all delays.
    at: Timestamp,
    places: Option<LocalPlaces>,
}

impl<'p> VirtualGateway<'p> {
    /// A gateway without any counter. `secret` keys the hashes of keys: any random bytes.
    ///
    /// # Errors
    ///
    /// The system has no memory for the store.
    pub fn new(plan: &'p Plan, secret: [u8; 16]) -> Result<Self, OutOfMemory> {
        let memory = MemoryStore::new(plan.store.max_keys)?;
        memory.register_all(plan.limits.iter().flat_map(Limit::registrations), Timestamp(0));
        let secret = KeySecret::Process(secret);
        Ok(Self {
            plan,
            memory,
            bans: Bans::default(),
            secret,
            ids: ShortIds::new(&secret),
            consumers: ConsumerNames::new(plan),
            agenda: Agenda::default(),
            durations: ServiceTimes::new(plan.routes.len()),
            spans: Vec::new(),
            requests: 0,
        })
    }

    /// Keys that were evicted because the store was full.
    pub fn evictions(&self) -> u64 {
        self.memory.evictions()
    }

    /// Requests so far whose consumer no auth has: they count as anonymous.
    pub fn unknown_consumers(&self) -> u64 {
        self.consumers.unknown()
    }

    /// Decides a request that is not earlier than those before it.
    pub fn request(&mut self, logged: &LoggedRequest, sink: &mut impl ReplaySink) {
        self.advance(logged.time, sink);
        let number = self.requests;
        self.requests += 1;
        let mut spans = std::mem::take(&mut self.spans);
        match RequestHead::parse(&logged.head, &mut spans) {
            Ok(head) => self.serve(number, logged, &head, sink),
            Err(fault) => answered(sink, logged, number, None, fault.status()),
        }
        self.spans = spans;
    }

    /// The log has ended: the requests that still wait are decided.
    pub fn finish(&mut self, sink: &mut impl ReplaySink) {
        self.advance(Timestamp(u64::MAX), sink);
    }

    fn serve(
        &mut self,
        number: u64,
        logged: &LoggedRequest,
        head: &RequestHead<'_>,
        sink: &mut impl ReplaySink,
    ) {
        let sender = self.consumers.sender(logged);
        let RouteLookup { route, outcome, .. } = locate_logged(self.plan, head, sender);
        let index = route.map(|(index, _)| index);
        let early = |sink: &mut _, fault: Unroutable<'_>| {
            answered(sink, logged, number, index, fault.response.status());
        };
        let located = match outcome {
            Ok(located) => located,
            Err(fault) => return early(sink, fault),
        };
        let caller = match sender.credential.caller(located.route) {
            Ok(caller) => caller,
            Err(failure) => {
                if !self.refuse_early(number, logged, &located, sink) {
                    self.refuse_credential(number, logged, failure, &located, sink);
                }
                return;
            }
        };
        let routed = match located.assign(self.plan, &self.secret, caller, draw(number)) {
            Ok(routed) => routed,
            Err(fault) => return early(sink, fault),
        };
        if let Some(status) = answered_unlogged(logged, routed.route, &head.method) {
            return answered(sink, logged, number, index, status);
        }
        sink.expect(logged, routed.index, &routed.charges);
        let now = logged.time;
        let ids = self.ids;
        let key = |place: usize| label(&routed.request(), routed.route, &routed.charges, place, &ids);
        if !self.bans.is_empty()
            && let Some(ban) = routed.charges.banned(&self.bans, now)
        {
            let replayed = self.banned(number, routed.index, &routed.charges, &ban);
            return sink.decided(logged, &replayed, &key);
        }
        let is_missing = routed.charges.missing().is_some();
        if !is_missing && routed.charges.takes_places() {
            let labels = (0..routed.charges.checks.len()).map(key).collect();
            let RoutedRequest { index, charges, .. } = routed;
            let ticket = self.memory.in_flight().ticket();
            let request = WaitingRequest {
                number,
                route: index,
                logged: logged.clone(),
                charges,
                ticket,
                deadline: now,
                labels,
            };
            self.take_turn(request, now, None, sink);
            return;
        }
        let outcome = if is_missing { Outcome::default() } else { self.decide(&routed.charges, now) };
        let request = Concluded {
            number,
            route: routed.index,
            charges: &routed.charges,
            outcome: &outcome,
            now,
            places: None,
        };
        sink.decided(logged, &self.conclude(request, logged), &key);
    }

    fn decide(&self, charges: &RequestCharges<'p>, now: Timestamp) -> Outcome {
        if charges.charges.is_empty() {
            return Outcome::default();
        }
        if !charges.may_ban() {
            return self.memory.decide(&charges.charges, now);
        }
        let bans = charges.bans();
        BanningRequest { charges: &charges.charges, bans: &bans }.decide_in(&self.memory, &self.bans, now)
    }

    /// Decides a request under concurrency limits, or lets it wait. `waits_until`: it has waited so far. Returns whether
    /// it was decided.
    fn take_turn(
        &mut self,
        mut request: WaitingRequest<'p>,
        now: Timestamp,
        waits_until: Option<Timestamp>,
        sink: &mut impl ReplaySink,
    ) -> bool {
        let bans = request.charges.bans();
        let asked = BanningRequest { charges: &request.charges.charges, bans: &bans };
        let (mut outcome, mut places) = (Outcome::default(), None);
        if waits_until.is_some() && asked.is_banned(&self.bans, now) {
            outcome.banned = true;
        } else {
            match self.memory.admit(&request.charges.charges, now, &mut request.ticket) {
                Turn::Decided(decided, taken) => (outcome, places) = (decided, taken),
                Turn::Waits(decided, limit) => {
                    let deadline = waits_until.unwrap_or_else(|| now.plus(limit.max_wait()));
                    if now < deadline {
                        request.deadline = deadline;
                        self.agenda.wait(request);
                        return false;
                    }
                    outcome = decided;
                }
            }
            if !bans.is_empty() {
                outcome.banned = asked.count_refusals(&outcome, &self.memory, &self.bans, now);
            }
        }
        let WaitingRequest { number, route, logged, charges, labels, ticket, .. } = request;
        // It leaves the queue.
        drop(ticket);
        let concluded = Concluded { number, route, charges: &charges, outcome: &outcome, now, places };
        let replayed = self.conclude(concluded, &logged);
        sink.decided(&logged, &replayed, &|place| labels.get(place).cloned().unwrap_or_default());
        true
    }

    /// Does what is due until `now`.
    fn advance(&mut self, now: Timestamp, sink: &mut impl ReplaySink) {
        while let Some(due) = self.agenda.next(now) {
            match due {
                Due::Ends(end) => {
                    let RequestEnd { at, places, keys, corrections } = *end;
                    for correction in &corrections {
                        self.memory.settle(correction, at);
                    }
                    drop(places);
                    keys.into_iter().for_each(|key| self.wake(key, at, sink));
                }
                Due::GivesUp(number, at) => {
                    let Some(request) = self.agenda.take(number) else { continue };
                    let keys = place_keys(&request.charges);
                    self.take_turn(request, at, Some(at), sink);
                    keys.into_iter().for_each(|key| self.wake(key, at, sink));
                }
            }
        }
    }

    /// A place of this key may be free: those that wait for it are decided again, in the order of arrival.
    fn wake(&mut self, key: Fingerprint, now: Timestamp, sink: &mut impl ReplaySink) {
        let mut last = None;
        while let Some(number) = self.agenda.next_waiting(key, last) {
            let Some(request) = self.agenda.take(number) else { return };
            let deadline = request.deadline;
            if !self.take_turn(request, now, Some(deadline), sink) {
                return;
            }
            last = Some(number);
        }
    }

    /// Refuses a request because of a ban before its credential is looked at. Returns whether there is one.
    fn refuse_early(
        &self,
        number: u64,
        logged: &LoggedRequest,
        located: &LocatedRequest<'p, '_>,
        sink: &mut impl ReplaySink,
    ) -> bool {
        let (index, route, request, ids) = (located.index, located.route, located.request(), self.ids);
        let charges = RequestCharges::early(self.plan, route, &request, &self.secret);
        let Some(ban) = charges.banned(&self.bans, logged.time) else { return false };
        let replayed = self.banned(number, index, &charges, &ban);
        sink.decided(logged, &replayed, &|place| label(&request, route, &charges, place, &ids));
        true
    }

    /// Charges a wrong credential to the limit on them.
    fn refuse_credential(
        &mut self,
        number: u64,
        logged: &LoggedRequest,
        failure: AuthFailure,
        located: &LocatedRequest<'p, '_>,
        sink: &mut impl ReplaySink,
    ) {
        let (index, route, request) = (located.index, located.route, located.request());
        let status = failure.status();
        let unlimited = ReplayedRequest::answered(number, Some(index), status);
        let charges = self.plan.failure_charges(failure, route, &request, &self.secret);
        let Some(charges) = charges else { return sink.decided(logged, &unlimited, &|_| String::new()) };
        let ids = self.ids;
        let key = |place: usize| label(&request, route, &charges, place, &ids);
        let mut replayed = match charges.banned(&self.bans, logged.time) {
            Some(ban) => self.banned(number, index, &charges, &ban),
            None => {
                let outcome = self.decide(&charges, logged.time);
                let (now, places) = (logged.time, None);
                let request =
                    Concluded { number, route: index, charges: &charges, outcome: &outcome, now, places };
                self.conclude(request, logged)
            }
        };
        // The limit is not one of the route's: its place is in the auth.
        let limit = self.plan.auth(failure.auth).failures;
        replayed.limits.iter_mut().for_each(|result| result.limit = limit.unwrap_or(result.limit));
        if replayed.verdict != ReplayVerdict::Refused {
            replayed = ReplayedRequest { limits: replayed.limits, ..unlimited };
        }
        sink.decided(logged, &replayed, &key);
    }

    /// A ban refuses the request: no limit is asked.
    fn banned(
        &self,
        number: u64,
        route: RouteIndex,
        charges: &RequestCharges<'p>,
        ban: &BanRefusal<'p>,
    ) -> ReplayedRequest<'p> {
        let mut limits = SmallVec::new();
        for (place, used) in charges.checks.iter().enumerate() {
            let label = match used.applicability {
                _ if place == ban.index => DecisionLabel::Limited,
                Applicability::Exempt => DecisionLabel::Exempt,
                _ => continue,
            };
            limits.push(self.result(route, charges, (place, used), label, &Outcome::default()));
        }
        let logged = Some(LoggedLabel::of(&ban.tightest));
        ReplayedRequest { number, route: Some(route), verdict: ReplayVerdict::Refused, logged, limits }
    }

    /// From the store's outcome to the decision; an admitted request is in flight from then on.
    fn conclude(&mut self, request: Concluded<'p, '_>, logged: &LoggedRequest) -> ReplayedRequest<'p> {
        let Concluded { number, route, charges, outcome, now, places } = request;
        if outcome.banned
            && outcome.decisions.is_empty()
            && let Some(ban) = charges.banned(&self.bans, now)
        {
            return self.banned(number, route, charges, &ban);
        }
        let admitted = charges.admits(outcome);
        let label = |used: &LimitCheck<'p>| match self.is_banned_in_shadow(charges, used, now) {
            true => Some(DecisionLabel::ShadowLimited),
            false => DecisionLabel::of_check(used, outcome, admitted),
        };
        let labelled =
            charges.checks.iter().enumerate().filter_map(|(place, used)| Some((place, used, label(used)?)));
        let limits = labelled
            .map(|(place, used, label)| self.result(route, charges, (place, used), label, outcome))
            .collect();
        let replayed = ReplayedRequest {
            number,
            route: Some(route),
            verdict: ReplayVerdict::Refused,
            logged: None,
            limits,
        };
        if outcome.banned
            && let Some(ban) = charges.banned(&self.bans, now)
        {
            return ReplayedRequest { logged: Some(LoggedLabel::of(&ban.tightest)), ..replayed };
        }
        if let Some(refusal) = charges.missing() {
            let decision = DecisionLabel::Limited;
            let label = LoggedLabel { limit: &refusal.limit.name, decision, remaining: None, cost: None };
            return ReplayedRequest { logged: Some(label), ..replayed };
        }
        let Admission { sentence, tightest } = charges.decide(outcome);
        let label = tightest.as_ref().map(LoggedLabel::of);
        let delay = match sentence {
            AdmissionDecision::Refuse(_) => return ReplayedRequest { logged: label, ..replayed },
            AdmissionDecision::Admit(delay) => delay,
        };
        let forwarded = Forwarded { number, route, charges, outcome, at: now.plus(delay), places };
        self.begin(forwarded, logged);
        let waited = now.since(logged.time);
        let verdict = ReplayVerdict::Admitted(Micros(waited.0 + delay.0));
        let mut replayed = ReplayedRequest { verdict, logged: label, ..replayed };
        // Metrics count a wait for a place by request only; the report names the limit.
        let has_waited = |result: &&mut LimitResult| {
            result.label == DecisionLabel::Allowed && self.plan.limit(result.limit).is_concurrency()
        };
        if waited > Micros(0) {
            replayed.limits.iter_mut().filter(has_waited).for_each(|result| {
                (result.label, result.delay) = (DecisionLabel::Delayed, waited);
            });
        }
        replayed
    }

    /// An admitted request is forwarded.
    fn begin(&mut self, request: Forwarded<'p, '_>, logged: &LoggedRequest) {
        let Forwarded { number, route, charges, outcome, at, places } = request;
        let Service { was_refused, time: service } = self.durations.service(route, logged, at);
        let corrections = match was_refused {
            false => self.corrections(route, charges, outcome, logged, service),
            true => SmallVec::new(),
        };
        if places.is_none() && corrections.is_empty() {
            return;
        }
        let keys = if places.is_some() { place_keys(charges) } else { SmallVec::new() };
        let at = at.plus(service.unwrap_or_default());
        self.agenda.end(number, RequestEnd { at, places, keys, corrections });
    }

    /// What its response will correct, as `proxy/settlement.rs` does.
    fn corrections(
        &self,
        route: RouteIndex,
        charges: &RequestCharges<'p>,
        outcome: &Outcome,
        logged: &LoggedRequest,
        service: Option<Micros>,
    ) -> SmallVec<[Correction<'p>; 1]> {
        let mut corrections = SmallVec::new();
        for (used, limit_use) in charges.checks.iter().zip(&self.plan.route(route).limits) {
            let Some(cost) = limit_use.cost.settled() else { continue };
            if used.limit.is_concurrency() || used.mode == Mode::Shadow && used.denies(outcome) {
                continue;
            }
            let Some(units) = settled_units(cost, logged, service) else { continue };
            let difference = i64::from(units) - i64::from(cost.reserve);
            if difference == 0 {
                continue;
            }
            for index in used.indices() {
                let Some(charge) = charges.charges.get(index) else { continue };
                let times = outcome.counted_at.as_ref();
                let counted_at = times.and_then(|times| times.get(index).copied()).unwrap_or(logged.time);
                let charge = Charge { cost: Cost::ZERO, ..*charge };
                corrections.push(Correction { charge, counted_at, difference, shared: false });
            }
        }
        corrections
    }

    /// Whether an automatic ban of a shadow limit is in force: it is only counted.
    fn is_banned_in_shadow(
        &self,
        charges: &RequestCharges<'_>,
        used: &LimitCheck<'_>,
        now: Timestamp,
    ) -> bool {
        if self.bans.is_empty() || used.mode != Mode::Shadow || used.limit.ban.is_none() {
            return false;
        }
        let owner = charges.owner(used);
        owner.is_some_and(|owner| self.bans.until(used.limit.banned(owner), now).is_some())
    }

    fn result(
        &self,
        route: RouteIndex,
        charges: &RequestCharges<'_>,
        (place, used): (usize, &LimitCheck<'_>),
        label: DecisionLabel,
        outcome: &Outcome,
    ) -> LimitResult {
        let delays = used.decisions(outcome).iter().map(|decision| match decision.verdict {
            Verdict::Delay(delay) => delay,
            _ => Micros(0),
        });
        let delay = delays.max().unwrap_or_default();
        let limit = self.plan.route(route).limits.get(place).map_or(LimitIndex(0), |used| used.limit);
        let cost = used.cost().unwrap_or(Cost::ZERO);
        LimitResult { limit, place, label, owner: charges.owner(used), cost, delay }
    }
}

/// A request that is answered before any limit is checked.
fn answered(
    sink: &mut impl ReplaySink,
    logged: &LoggedRequest,
    number: u64,
    route: Option<RouteIndex>,
    status: StatusCode,
) {
    sink.decided(logged, &ReplayedRequest::answered(number, route, status), &|_| String::new());
}
