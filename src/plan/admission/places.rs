//! Requests that wait for a place: whose shares they take, and why they are refused.

use smallvec::SmallVec;

use super::{Applicability, LimitCheck, RefusalCause, RequestCharges};
use crate::limit::fair_queue::Priority;
use crate::limit::units::{Fingerprint, Micros};
use crate::plan::Limit;
use crate::route::key::KeyResult;
use crate::store::{Outcome, PlaceClaims, PlaceShare};

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

    /// The key of the request's share of the places of a limit.
    pub fn share_key(&self, check: &LimitCheck<'_>) -> Option<Fingerprint> {
        let Applicability::Charged(_, first) = check.applicability else { return None };
        let place = self.charges.get(first)?.key;
        self.shares.iter().find(|share| share.place == place).map(|share| share.key)
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

    /// Whether the limit that is charged at this key refuses.
    pub fn is_refused_at(&self, key: Fingerprint, outcome: &Outcome) -> bool {
        let check = self.index_of(key).and_then(|index| self.checks.get(index));
        check.is_some_and(|check| check.denies(outcome))
    }

    /// The cause, if the request was dropped from the queue of this limit, or not let in, for the share of its key.
    pub(super) fn over_share(&self, limit: &Limit, outcome: &Outcome) -> Option<RefusalCause> {
        let dropped = outcome.dropped.filter(|dropped| dropped.is_over_share && limit.share_by.is_some())?;
        let check = self.checks.get(self.index_of(dropped.place)?)?;
        std::ptr::eq(check.limit, limit).then_some(RefusalCause::OverShare)
    }

    /// The wait that is told to a request without a place, and the cause.
    pub(super) fn without_place(&self, limit: &Limit, outcome: &Outcome) -> (Option<Micros>, RefusalCause) {
        match self.over_share(limit, outcome) {
            Some(cause) => (Some(limit.estimated_wait()), cause),
            _ if limit.protects_backend() => (Some(limit.estimated_wait()), RefusalCause::Overloaded),
            _ => (None, RefusalCause::InFlight),
        }
    }
}
