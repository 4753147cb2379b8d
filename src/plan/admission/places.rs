//! Requests that wait for a place: whose shares they take, and why they are refused.

use smallvec::SmallVec;

use super::{Applicability, LimitCheck, RefusalCause, RequestCharges};
use crate::limit::fair_queue::Priority;
use crate::limit::units::{Fingerprint, Micros};
use crate::plan::Limit;
use crate::route::key::KeyResult;
use crate::store::{Outcome, PlaceClaims, PlaceShare, QueueDrop};

impl<'a> RequestCharges<'a> {
    /// Adds the request's share of the places of a limit.
    #[cold]
    pub(super) fn share(&mut self, check: LimitCheck<'a>, key: KeyResult) {
        // Each request has such a key.
        let KeyResult::Key(key) = key else { return };
        let weight = check.limit.weight(check.tier);
        let Applicability::Charged(_, first) = check.applicability else { return };
        let place = self.charges.get(first).map(|charge| charge.key);
        self.shares.extend(place.map(|place| PlaceShare { place, key, weight }));
    }

    /// Whose shares of places the request takes, on a route with this priority.
    pub fn claims(&self, priority: Priority) -> PlaceClaims {
        PlaceClaims { priority, shares: SmallVec::from_slice(&self.shares) }
    }

    /// The index of the limit that is charged at this key.
    pub fn index_of(&self, key: Fingerprint) -> Option<usize> {
        let of_limit = |check: &LimitCheck<'_>| {
            let first = self.charges.get(check.indices().start).filter(|_| check.cost().is_some());
            first.is_some_and(|charge| charge.key == key)
        };
        self.checks.iter().position(of_limit)
    }

    /// The wait that is told to a request without a place, and the cause.
    pub(super) fn without_place(&self, limit: &Limit, outcome: &Outcome) -> (Option<Micros>, RefusalCause) {
        let of_limit = |drop: &QueueDrop| {
            let check = self.index_of(drop.place).and_then(|index| self.checks.get(index));
            check.is_some_and(|check| std::ptr::eq(check.limit, limit))
        };
        match outcome.dropped.filter(of_limit) {
            Some(drop) if drop.is_over_share && limit.share_by.is_some() => {
                (Some(limit.estimated_wait()), RefusalCause::OverShare)
            }
            _ if limit.protects_backend() => (Some(limit.estimated_wait()), RefusalCause::Overloaded),
            _ => (None, RefusalCause::InFlight),
        }
    }
}
