//! Decisions on requests that take no place: where a shared store, which has the places, is away.

use smallvec::SmallVec;

use super::MemoryStore;
use crate::limit::Decision;
use crate::limit::units::Timestamp;
use crate::store::{Charge, Decisions, Group, Outcome};

impl MemoryStore {
    /// Decides a request with or without concurrency limits. No place is taken.
    pub fn decide_without_places(&self, charges: &[Charge<'_>], now: Timestamp) -> Outcome {
        let is_concurrency = |charge: &Charge<'_>| charge.algorithm.as_concurrency().is_some();
        if !charges.iter().any(is_concurrency) {
            return self.decide(charges, now);
        }
        let others: SmallVec<[Charge<'_>; 4]> =
            charges.iter().filter(|charge| !is_concurrency(charge)).copied().collect();
        let places: SmallVec<[Decision; 4]> = charges
            .iter()
            .filter(|charge| is_concurrency(charge))
            .map(|charge| self.in_flight.look(charge, now))
            .collect();
        let enforced = charges.iter().filter(|charge| is_concurrency(charge)).zip(&places);
        let has_places = enforced
            .filter(|(charge, _)| charge.group == Group::Enforced)
            .all(|(_, decision)| !decision.denies());
        let others = self.decide_beside(&others, now, has_places);
        let counted_at = others.counted_at.map(|times| {
            let mut times = times.into_iter();
            let mut time = |charge| if is_concurrency(charge) { None } else { times.next() };
            charges.iter().map(|charge| time(charge).unwrap_or(now)).collect()
        });
        let (mut others, mut places) = (others.decisions.into_iter(), places.into_iter());
        let decision = |charge| if is_concurrency(charge) { places.next() } else { others.next() };
        let decisions = Decisions::Together(charges.iter().filter_map(decision).collect());
        Outcome { counted_at, ..Outcome::from(decisions) }
    }
}
