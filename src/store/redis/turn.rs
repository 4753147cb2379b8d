//! Requests with concurrency limits: their places in the servers, and their turn in the queues of this process.

use smallvec::SmallVec;

use super::client::RedisClient;
use super::errors::CallError;
use super::fallback;
use super::reporter::PlaceLease;
use crate::boxed_cold::boxed_cold;
use crate::clock;
use crate::limit::Verdict;
use crate::limit::units::Timestamp;
use crate::store::memory::in_flight::{Ticket, Turn};
use crate::store::{BanCharge, Charge, Group, Outcome, StoreRequest};

impl RedisClient {
    /// Decides a request with concurrency limits. See [`Counters::admit`](crate::store::Counters::admit).
    pub(in crate::store) async fn admit(
        &self,
        request: StoreRequest<'_>,
        now: Timestamp,
        ticket: &mut Ticket,
    ) -> (Turn, Option<PlaceLease>) {
        if request.charges.iter().any(Charge::is_adaptive) {
            return boxed_cold(|| self.admit_adaptive(request, now, ticket)).await;
        }
        self.admit_shared(request, now, ticket).await
    }

    /// The same for charges that the servers decide.
    pub(super) async fn admit_shared(
        &self,
        request: StoreRequest<'_>,
        now: Timestamp,
        ticket: &mut Ticket,
    ) -> (Turn, Option<PlaceLease>) {
        let charges = request.charges;
        if let Some(outcome) = self.spend(request, now).or_else(|| self.recall(request, now)) {
            return (Turn::Decided(outcome, None), None);
        }
        if let Some(turn) = self.stay_behind((charges, now), ticket).await {
            return (turn, None);
        }
        // From now on, since the call may be decided even if this is dropped meanwhile.
        let lease = self.reporter.lease(&self.script, charges, true, |_| true);
        // Whether a request that finds no place is refused is known only after its wait.
        let bans: SmallVec<[BanCharge<'_>; 1]> =
            request.bans.iter().filter(|ban| !has_queue(ban, charges)).copied().collect();
        let request = StoreRequest { charges, bans: &bans };
        let (asked, id) = (clock::now(), lease.as_ref().map(PlaceLease::id));
        match self.ask(request, now, asked, id).await {
            Ok(outcome) => self.take_turn(charges, outcome, lease, ticket),
            Err(fault) => {
                // A call that was sent may be executed later. Dropped, the lease is released.
                if matches!(fault, CallError::Down | CallError::Busy) {
                    lease.as_ref().inspect(|lease| lease.void());
                }
                drop(lease);
                self.take_turn_without(request, now, ticket)
            }
        }
    }

    /// Counts the refusals that no call has counted: of a request that has waited for a place in vain.
    pub(in crate::store) fn report_refusals(
        &self,
        request: StoreRequest<'_>,
        outcome: &Outcome,
        now: Timestamp,
    ) {
        let bans: SmallVec<[BanCharge<'_>; 1]> =
            request.bans.iter().filter(|ban| has_queue(ban, request.charges)).copied().collect();
        self.reporter.refused(&self.script, StoreRequest { bans: &bans, ..request }, outcome, now);
    }

    /// The turn of a request that may not overtake others of this process, unless a limit refuses it in any case.
    async fn stay_behind(
        &self,
        (charges, now): (&[Charge<'_>], Timestamp),
        ticket: &mut Ticket,
    ) -> Option<Turn> {
        let in_flight = self.memory.in_flight();
        if !in_flight.is_waited_for(charges, ticket) {
            return None;
        }
        let outcome = in_flight.behind_others(charges, self.look(charges, now).await.ok()?, ticket);
        match in_flight.wait(charges, outcome, ticket, |outcome| Turn::Decided(outcome, None)) {
            Turn::Decided(outcome, _) if !lacks_only_places(charges, &outcome) => None,
            turn => Some(turn),
        }
    }

    /// The turn of a request that the servers have decided. They hold a place for `lease` if they admit it.
    fn take_turn(
        &self,
        charges: &[Charge<'_>],
        outcome: Outcome,
        lease: Option<PlaceLease>,
        ticket: &mut Ticket,
    ) -> (Turn, Option<PlaceLease>) {
        let in_flight = self.memory.in_flight();
        // Else a node may execute its part of the call later.
        if outcome.decided_locally.is_empty() {
            lease.as_ref().inspect(|lease| lease.confirm());
        }
        if !outcome.decisions.is_empty() && refusing(charges, &outcome).next().is_none() {
            let places = in_flight.hold(charges, &outcome, ticket);
            if places_of(charges).all(|index| is_held(&outcome, index)) {
                return (Turn::Decided(outcome, places), lease);
            }
            // A shadow limit has no place for it.
            let is_held = |index| is_held(&outcome, index);
            lease.as_ref().inspect(|lease| self.reporter.narrow(lease, &self.script, charges, is_held));
            return (Turn::Decided(outcome, places), lease);
        }
        // Of charges in several slots, a node may have taken places before another one refused.
        if self.script.only_slot(charges).is_some() {
            lease.inspect(PlaceLease::void);
        }
        (in_flight.wait(charges, outcome, ticket, |outcome| Turn::Decided(outcome, None)), None)
    }

    /// The turn of a request that is decided without the servers.
    fn take_turn_without(
        &self,
        request: StoreRequest<'_>,
        now: Timestamp,
        ticket: &mut Ticket,
    ) -> (Turn, Option<PlaceLease>) {
        let charges = request.charges;
        let paid = self.pay(charges, now);
        let (outcome, places) = match fallback::admit(&self.memory, &paid.charges, now, ticket) {
            Turn::Decided(outcome, places) => (outcome, places),
            waits @ Turn::Waits(..) => {
                self.put_back(charges, &paid, now);
                return (waits, None);
            }
        };
        if outcome.unavailable || refusing(charges, &outcome).next().is_some() {
            self.put_back(charges, &paid, now);
        }
        self.counts.errors.add(1);
        if places.is_none() {
            return (Turn::Decided(self.without(request, outcome, now), None), None);
        }
        // The servers learn of it as soon as they are back.
        let lease = self.reporter.lease(&self.script, charges, false, |index| is_held(&outcome, index));
        (Turn::Decided(outcome, places), lease)
    }
}

/// The charges of concurrency limits, by index.
fn places_of(charges: &[Charge<'_>]) -> impl Iterator<Item = usize> {
    let all = charges.iter().enumerate();
    all.filter(|(_, charge)| charge.algorithm.as_concurrency().is_some()).map(|(index, _)| index)
}

/// Whether a charge's places are held.
fn is_held(outcome: &Outcome, index: usize) -> bool {
    outcome.decisions.get(index).is_some_and(|decision| decision.verdict == Verdict::Allow)
}

/// The charges that refuse the request.
fn refusing<'a>(charges: &'a [Charge<'a>], outcome: &Outcome) -> impl Iterator<Item = &'a Charge<'a>> {
    let decided = charges.iter().zip(&*outcome.decisions);
    decided
        .filter(|(charge, decision)| charge.group == Group::Enforced && decision.denies())
        .map(|(charge, _)| charge)
}

/// Whether the request is refused, and for want of places alone.
fn lacks_only_places(charges: &[Charge<'_>], outcome: &Outcome) -> bool {
    let mut refusing = refusing(charges, outcome).peekable();
    refusing.peek().is_some() && refusing.all(|charge| charge.algorithm.as_concurrency().is_some())
}

/// Whether the ban is of a concurrency limit whose requests may wait.
fn has_queue(ban: &BanCharge<'_>, charges: &[Charge<'_>]) -> bool {
    let limit = charges.get(ban.indices().start).and_then(|charge| charge.algorithm.as_concurrency());
    limit.is_some_and(|limit| limit.queue() > 0)
}
