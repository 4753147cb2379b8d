//! Requests under adaptive limits: the maximum of these is found by each gateway for itself, so their places are counted
//! in this process, and the servers decide the other charges.

use smallvec::SmallVec;

use super::client::RedisClient;
use super::fallback;
use super::reporter::PlaceLease;
use crate::limit::Decision;
use crate::limit::units::Timestamp;
use crate::store::memory::in_flight::{LocalPlaces, Ticket, Turn};
use crate::store::{BanCharge, Charge, ChargeSet, Decisions, Group, Outcome, StoreRequest, Unreachable};

/// A request in two parts.
struct DividedRequest<'a> {
    /// The charges of adaptive limits.
    adaptive: SmallVec<[Charge<'a>; 4]>,
    /// The others, which the servers decide.
    shared: SmallVec<[Charge<'a>; 4]>,
    /// The bans, with the indices of shared charges: an adaptive limit has none.
    bans: SmallVec<[BanCharge<'a>; 1]>,
    /// Of each charge of the request.
    is_adaptive: SmallVec<[bool; 4]>,
}

impl RedisClient {
    /// Decides a request with charges of adaptive limits. See [`Counters::admit`](crate::store::Counters::admit).
    ///
    /// Its places in this process are taken before the servers are asked, and are free again if these refuse: so the limit
    /// is exact, and the servers never have to take a charge back.
    pub(super) async fn admit_adaptive(
        &self,
        request: StoreRequest<'_>,
        now: Timestamp,
        ticket: &mut Ticket,
    ) -> (Turn, Option<PlaceLease>) {
        let divided = DividedRequest::of(request);
        let in_flight = self.memory.in_flight();
        if let Some(outcome) = self.recall(divided.shared(), now) {
            let own = self.look_here(&divided, now);
            return (Turn::Decided(divided.merged(&outcome, &own, now), None), None);
        }
        let (own, places) = in_flight.reserve(&divided.adaptive, now, ticket);
        let Some(places) = places else {
            let looked = self.look_shared(&divided.shared, now).await.unwrap_or_else(|_| divided.unlimited());
            if !divided.refuses(&looked) {
                let outcome = divided.merged(&looked.into(), &own, now);
                let turn =
                    in_flight.wait(request.charges, outcome, ticket, |outcome| Turn::Decided(outcome, None));
                return (turn, None);
            }
            // The servers refuse it and count that, as of any request. Should they have room again by now, it is charged and
            // refused for its place: less is admitted than allowed, never more.
            let (turn, lease) = self.admit_shared(divided.shared(), now, ticket).await;
            return (divided.turn(turn, &own, None, now), lease);
        };
        if divided.shared.is_empty() {
            return (Turn::Decided(divided.merged(&Outcome::default(), &own, now), places), None);
        }
        let (turn, lease) = self.admit_shared(divided.shared(), now, ticket).await;
        (divided.turn(turn, &own, places, now), lease)
    }
}

impl RedisClient {
    /// What would be decided on charges some of which are of adaptive limits.
    pub(super) async fn look_divided(
        &self,
        charges: &[Charge<'_>],
        now: Timestamp,
    ) -> Result<Decisions, Unreachable> {
        let divided = DividedRequest::of(StoreRequest::of(charges));
        let looked = self.look_shared(&divided.shared, now).await?;
        Ok(divided.merged(&looked.into(), &self.look_here(&divided, now), now).decisions)
    }

    fn look_here(&self, divided: &DividedRequest<'_>, now: Timestamp) -> SmallVec<[Decision; 4]> {
        divided.adaptive.iter().map(|charge| self.memory.in_flight().look(charge, now)).collect()
    }
}

impl<'a> DividedRequest<'a> {
    fn of(request: StoreRequest<'a>) -> Self {
        let shared_before =
            |index: usize| request.charges[..index].iter().filter(|charge| !charge.is_adaptive()).count();
        let (adaptive, shared) = request.charges.iter().copied().partition(Charge::is_adaptive);
        let bans = request.bans.iter().map(|ban| {
            let (first, count) = ban.of;
            let first = u8::try_from(shared_before(first.into())).unwrap_or(first);
            BanCharge { of: (first, count), ..*ban }
        });
        let is_adaptive = request.charges.iter().map(Charge::is_adaptive).collect();
        Self { adaptive, shared, bans: bans.collect(), is_adaptive }
    }

    fn shared(&self) -> StoreRequest<'_> {
        StoreRequest { charges: &self.shared, bans: &self.bans }
    }

    /// Decisions on the shared charges where the servers tell nothing.
    fn unlimited(&self) -> Decisions {
        Decisions::Together(self.shared.iter().map(fallback::unlimited).collect())
    }

    /// Whether these decisions on the shared charges refuse the request.
    fn refuses(&self, decisions: &[Decision]) -> bool {
        let enforced =
            self.shared.iter().zip(decisions).filter(|(charge, _)| charge.group == Group::Enforced);
        let mut refusing = enforced.filter(|(_, decision)| decision.denies());
        refusing.any(|(charge, _)| charge.algorithm.as_concurrency().is_none())
    }

    /// The turn of the whole request, from that of its shared charges. `places` are those of the others, if they were taken.
    fn turn(&self, turn: Turn, own: &[Decision], places: Option<LocalPlaces>, now: Timestamp) -> Turn {
        match turn {
            Turn::Waits(outcome, limit) => Turn::Waits(self.merged(&outcome, own, now), limit),
            Turn::Decided(outcome, shared) => {
                let admitted = self.admits(&outcome);
                let places = places.filter(|_| admitted);
                Turn::Decided(self.merged(&outcome, own, now), LocalPlaces::joined(places, shared))
            }
        }
    }

    /// Whether the request is admitted with this outcome of the shared charges.
    fn admits(&self, outcome: &Outcome) -> bool {
        let is_decided = !outcome.unavailable && !outcome.banned;
        let mut decided = self.shared.iter().zip(&*outcome.decisions);
        is_decided && decided.all(|(charge, decision)| charge.group != Group::Enforced || !decision.denies())
    }

    /// The outcome of the whole request, in the order of its charges.
    fn merged(&self, shared: &Outcome, own: &[Decision], now: Timestamp) -> Outcome {
        if shared.decisions.len() < self.shared.len() {
            // Nothing was decided.
            return shared.clone();
        }
        let (mut shared_index, mut own) = (0.., own.iter());
        let mut decided_locally = ChargeSet::default();
        let mut decisions = SmallVec::new();
        let mut times = shared.counted_at.is_some().then(Vec::new);
        for (index, is_adaptive) in self.is_adaptive.iter().enumerate() {
            let of_shared = if *is_adaptive { None } else { shared_index.next() };
            let decision = match of_shared {
                Some(index) => shared.decisions.get(index),
                None => own.next(),
            };
            decisions.extend(decision.copied());
            if of_shared.is_some_and(|index| shared.decided_locally.contains(index)) {
                decided_locally.insert(index);
            }
            if let Some(times) = &mut times {
                let time = of_shared.and_then(|index| shared.counted_at.as_ref()?.get(index).copied());
                times.push(time.unwrap_or(now));
            }
        }
        let counted_at = times.map(Vec::into_boxed_slice);
        let decisions = Decisions::Together(decisions);
        Outcome { decisions, decided_locally, counted_at, ..shared.clone() }
    }
}
