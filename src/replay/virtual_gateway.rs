//! The gateway in virtual time: one worker, the memory store, and no connection.

use std::cell::OnceCell;

use http::StatusCode;
use smallvec::SmallVec;

use super::caller::{ConsumerNames, LoggedConsumers, answered_unlogged, draw};
use super::decided::{DecidedLimits, ReplaySink, ReplayVerdict, ReplayedRequest};
use super::described::DescribedRequest;
use super::in_flight::{Agenda, Due, RequestEnd, WaitingRequest, place_keys};
use super::keys_of_log::label;
use super::logged_call::LoggedCall;
use super::logged_response::{Service, ServiceTimes, settled_units};
use crate::http1::fields::FieldSpan;
use crate::http1::request::RequestHead;
use crate::limit::units::{Cost, Fingerprint, Micros, Timestamp};
use crate::log_reader::request::LoggedRequest;
use crate::plan::admission::RequestCharges;
use crate::plan::auth::CallerIdentity;
use crate::plan::decision::{LimitPhase, Need, RequestDecision, RequestVerdict};
use crate::plan::resolve::{RouteLookup, locate_logged};
use crate::plan::{Limit, LimitIndex, LimitUse, Plan};
use crate::route::RouteIndex;
use crate::route::content::RequestContent;
use crate::route::key::KeySecret;
use crate::route::mask::ShortIds;
use crate::store::bans::Bans;
use crate::store::memory::in_flight::{LocalPlaces, Turn};
use crate::store::memory::{MemoryStore, OutOfMemory};
use crate::store::overrides::Overrides;
use crate::store::{Charge, Correction, Known, Outcome, StoreRequest};

/// A gateway that decides the requests of a log at the times of the log.
#[derive(Debug)]
pub struct VirtualGateway<'p> {
    pub(super) plan: &'p Plan,
    pub(super) memory: MemoryStore,
    bans: Bans,
    pub(super) secret: KeySecret,
    pub(super) ids: ShortIds,
    consumers: ConsumerNames<'p>,
    agenda: Agenda<'p>,
    durations: ServiceTimes,
    spans: Vec<FieldSpan>,
    /// The number of requests so far.
    requests: u64,
}

/// An admitted request.
struct ForwardedRequest<'p, 'c> {
    number: u64,
    route: RouteIndex,
    charges: &'c RequestCharges<'p>,
    outcome: &'c Outcome,
    /// When it is forwarded, after all delays.
    at: Timestamp,
    places: Option<LocalPlaces>,
}

impl<'p> VirtualGateway<'p> {
    /// A gateway without any counter. `secret` keys the hashes of keys: any random bytes. `logged`
    /// takes the consumers that only the log names.
    ///
    /// # Errors
    ///
    /// The system has no memory for the store.
    pub fn new(plan: &'p Plan, logged: &'p LoggedConsumers, secret: [u8; 16]) -> Result<Self, OutOfMemory> {
        let memory = MemoryStore::in_virtual_time(plan.store.max_keys)?;
        memory.register_all(plan.limits.iter().flat_map(Limit::registrations), Timestamp(0));
        let secret = KeySecret::Process(secret);
        Ok(Self {
            plan,
            memory,
            bans: Bans::default(),
            secret,
            ids: ShortIds::new(&secret),
            consumers: ConsumerNames::new(plan, logged),
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

    /// Requests so far with an API key that no consumer has: they are refused.
    pub fn wrong_keys(&self) -> u64 {
        self.consumers.wrong_keys()
    }

    /// Decides a request that is not earlier than those before it.
    pub fn request(&mut self, logged: &LoggedRequest, sink: &mut impl ReplaySink) {
        self.advance(logged.time, sink);
        let number = self.requests;
        self.requests += 1;
        let mut spans = std::mem::take(&mut self.spans);
        match LoggedCall::of(logged) {
            None => match RequestHead::parse(&logged.head, &mut spans) {
                Ok(head) => self.serve(number, (logged, None), &head, sink),
                Err(fault) => answered(sink, logged, number, None, fault.status()),
            },
            Some(LoggedCall::OfDescriptors(head)) => {
                let called = RequestHead::parse(&head, &mut spans).map_err(|fault| fault.status());
                if let Err(status) = called.and_then(|head| self.call(number, logged, &head, sink)) {
                    answered(sink, logged, number, None, status);
                }
            }
            Some(LoggedCall::OfLimits(limits)) => {
                if self.call_of_limits(number, logged, &limits, sink).is_none() {
                    let status = logged.status.and_then(|status| StatusCode::from_u16(status).ok());
                    answered(sink, logged, number, None, status.unwrap_or(StatusCode::OK));
                }
            }
        }
        self.spans = spans;
    }

    /// Decides a request that is described in full, and is not earlier than those before it.
    pub fn described(&mut self, described: &DescribedRequest, sink: &mut impl ReplaySink) {
        let logged = &described.logged;
        self.advance(logged.time, sink);
        let number = self.requests;
        self.requests += 1;
        let mut spans = std::mem::take(&mut self.spans);
        match RequestHead::parse(&logged.head, &mut spans) {
            Ok(head) => self.serve(number, (logged, Some(described)), &head, sink),
            Err(fault) => answered(sink, logged, number, None, fault.status()),
        }
        self.spans = spans;
    }

    /// The log has ended: the requests that still wait are decided.
    pub fn finish(&mut self, sink: &mut impl ReplaySink) {
        self.advance(Timestamp(u64::MAX), sink);
    }

    /// Drives the decision on a request as far as the log tells, or on one that is described in full.
    fn serve(
        &mut self,
        number: u64,
        (logged, described): (&LoggedRequest, Option<&DescribedRequest>),
        head: &RequestHead<'_>,
        sink: &mut impl ReplaySink,
    ) {
        let plan = self.plan;
        let for_route = described.map(|described| described.content_for_route(plan, head));
        let (for_route, read) = (for_route.unwrap_or(RequestContent::Unknown), OnceCell::new());
        let mut seen = None;
        let RouteLookup { route, outcome, .. } = match described {
            Some(described) => described.locate(plan, head, &for_route, &mut seen),
            None => locate_logged(plan, head, ConsumerNames::sender(logged), &mut seen),
        };
        let index = route.map(|(index, _)| index);
        let located = match outcome {
            Ok(located) => located,
            Err(fault) => return answered(sink, logged, number, index, fault.response.status()),
        };
        if described.is_none()
            && let Some(status) = answered_unlogged(logged, located.route, &head.method)
        {
            return answered(sink, logged, number, index, status);
        }
        // A described request has its credential, unless its consumer is named in place of it.
        let is_named = described.is_none() || !logged.consumer.is_empty();
        let credential = is_named.then(|| self.consumers.check(logged, &located));
        let mut decision = RequestDecision::new(plan, &self.secret, located, draw(number));
        if let Some(credential) = credential {
            decision = decision.with_logged_credential(credential);
        }
        let (now, mut decided) = (logged.time, DecidedLimits::new(self.plan));
        let mut need = decision.begin(self.known(now), &mut decided);
        let mut outcome = Outcome::default();
        loop {
            need = match need {
                Need::Store if decision.request().charges.takes_places() => {
                    return self.queue(number, logged, &mut decision, decided, sink);
                }
                Need::Store => {
                    let request = decision.request();
                    if request.charges.checks.len() == request.route.limits.len() {
                        sink.expect(logged, request.index, &request.charges);
                    }
                    outcome = self.decide(&request.charges, now);
                    decision.decided(&outcome, self.known(now), &mut decided)
                }
                Need::Body => {
                    let body = described.map(|described| {
                        let route = decision.request().route;
                        read.get_or_init(|| described.content(head, &route.json_pointers, route.max_key_body))
                    });
                    // A log has neither bodies nor credentials.
                    decision.read(body.unwrap_or(&RequestContent::Unknown), self.known(now), &mut decided)
                }
                Need::Credential(_) if described.is_some() => {
                    let unverified = ReplayedRequest::undecided(number, index, ReplayVerdict::Unverified);
                    return sink.decided(logged, &unverified, &|_| String::new());
                }
                Need::Credential(_) => {
                    decision.accepted(CallerIdentity::default(), self.known(now), &mut decided)
                }
                Need::Done => break,
            };
        }
        self.conclude((number, logged), &mut decision, &outcome, decided, sink);
    }

    /// A request without concurrency limits is decided.
    fn conclude(
        &mut self,
        (number, logged): (u64, &LoggedRequest),
        decision: &mut RequestDecision<'p, '_>,
        outcome: &Outcome,
        decided: DecidedLimits<'p>,
        sink: &mut impl ReplaySink,
    ) {
        let now = logged.time;
        let verdict = decision.verdict();
        let request = decision.request();
        if let RequestVerdict::Admitted(delay, _) = &verdict {
            let (charges, at) = (&request.charges, now.plus(*delay));
            let forwarded =
                ForwardedRequest { number, route: request.index, charges, outcome, at, places: None };
            self.forward(forwarded, logged);
        }
        let (plan, ids, seen) = (self.plan, self.ids, request.request());
        let replayed = decided.replayed(number, request.index, &verdict, Micros(0));
        sink.decided(logged, &replayed, &|limit| label(&seen, request.route, plan.limit(limit), &ids));
    }

    /// A request under concurrency limits is decided, or waits for a place.
    fn queue(
        &mut self,
        number: u64,
        logged: &LoggedRequest,
        decision: &mut RequestDecision<'p, '_>,
        decided: DecidedLimits<'p>,
        sink: &mut impl ReplaySink,
    ) {
        let request = decision.request();
        let (seen, route) = (request.request(), request.route);
        let label =
            |used: &LimitUse| (used.limit, label(&seen, route, self.plan.limit(used.limit), &self.ids));
        let labels = route.limits.iter().map(label).collect();
        let index = request.index;
        sink.expect(logged, index, &request.charges);
        let request = WaitingRequest {
            number,
            route: index,
            logged: logged.clone(),
            ticket: self.memory.in_flight().ticket(request.charges.claims(route.priority)),
            charges: std::mem::take(&mut decision.request_mut().charges),
            deadline: logged.time,
            labels,
            decided,
        };
        self.take_turn(request, logged.time, None, sink);
    }

    pub(super) fn known(&self, now: Timestamp) -> Known<'_> {
        Known { bans: &self.bans, overrides: Overrides::none(), memory: Some(&self.memory), now }
    }

    pub(super) fn decide(&self, charges: &RequestCharges<'_>, now: Timestamp) -> Outcome {
        let bans = charges.bans();
        StoreRequest { charges: &charges.charges, bans: &bans }.decide_in(&self.memory, &self.bans, now)
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
        let asked = StoreRequest { charges: &request.charges.charges, bans: &bans };
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
                        let displaced = request.ticket.take_displaced();
                        self.agenda.wait(request);
                        displaced.into_iter().for_each(|ticket| self.drop_waiting(ticket, now, sink));
                        return false;
                    }
                    outcome = Outcome { dropped: request.ticket.time_out(), ..decided };
                }
            }
            if !bans.is_empty() {
                outcome.banned = asked.count_refusals(&outcome, &self.memory, &self.bans, now);
            }
        }
        let WaitingRequest { number, route, logged, charges, labels, ticket, mut decided, .. } = request;
        // It leaves the queue.
        drop(ticket);
        let ruling = charges.rule(&outcome, self.known(now));
        let seen = (&outcome, self.known(now));
        decided.add(LimitPhase::Route, self.plan.route(route), &charges, seen, &ruling);
        let verdict = ruling.verdict();
        if let RequestVerdict::Admitted(delay, _) = &verdict {
            let at = now.plus(*delay);
            self.forward(
                ForwardedRequest { number, route, charges: &charges, outcome: &outcome, at, places },
                &logged,
            );
        }
        let replayed = decided.replayed(number, route, &verdict, now.since(logged.time));
        let label = |limit: LimitIndex| {
            let found = labels.iter().find(|(index, _)| *index == limit);
            found.map(|(_, label)| label.clone()).unwrap_or_default()
        };
        sink.decided(&logged, &replayed, &label);
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
                    self.memory.in_flight().set_time(at);
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

    /// A place of this key may be free: those that wait for it are decided again, each when it is its turn.
    fn wake(&mut self, key: Fingerprint, now: Timestamp, sink: &mut impl ReplaySink) {
        while let Some(ticket) = self.memory.in_flight().next_ticket(key, now) {
            let Some(number) = self.agenda.of_ticket(ticket) else { return };
            let Some(request) = self.agenda.take(number) else { return };
            let deadline = request.deadline;
            if !self.take_turn(request, now, Some(deadline), sink) {
                return;
            }
        }
    }

    /// The request that waits with the ticket of this number has been dropped from its queue.
    fn drop_waiting(&mut self, ticket: u64, now: Timestamp, sink: &mut impl ReplaySink) {
        let Some(number) = self.agenda.of_ticket(ticket) else { return };
        if let Some(request) = self.agenda.take(number) {
            self.take_turn(request, now, Some(now), sink);
        }
    }

    /// An admitted request is forwarded.
    fn forward(&mut self, request: ForwardedRequest<'p, '_>, logged: &LoggedRequest) {
        let ForwardedRequest { number, route, charges, outcome, at, places } = request;
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

    /// What its response will correct.
    fn corrections(
        &self,
        route: RouteIndex,
        charges: &RequestCharges<'p>,
        outcome: &Outcome,
        logged: &LoggedRequest,
        service: Option<Micros>,
    ) -> SmallVec<[Correction<'p>; 1]> {
        let mut corrections = SmallVec::new();
        for reservation in charges.reservations(self.plan.route(route), outcome, logged.time) {
            let Some(units) = settled_units((reservation.cost, reservation.reserved), logged, service) else {
                continue;
            };
            let difference = i64::from(units) - i64::from(reservation.reserved);
            if difference != 0 {
                corrections.extend(reservation.charges.into_iter().map(|reserved| Correction {
                    charge: Charge { cost: Cost::ZERO, ..reserved.charge },
                    counted_at: reserved.counted_at,
                    difference,
                    shared: reserved.shared,
                }));
            }
        }
        corrections
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
