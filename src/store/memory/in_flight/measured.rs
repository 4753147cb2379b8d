//! Requests under adaptive limits: the load at which they were admitted, and how they went on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use smallvec::SmallVec;

use super::{HeldPlaces, LimitedKey, LocalPlaces, RequestsInFlight, Ticket, UNDECIDED};
use crate::clock;
use crate::limit::adaptive_concurrency::{
    AdmissionLoad, CapacityBounds, CapacityEstimate, LatencySample, SampleOutcome,
};
use crate::limit::fair_queue::background_reserve;
use crate::limit::units::{Fingerprint, Timestamp};
use crate::limit::{Algorithm, Decision};
use crate::store::{Charge, Group};

/// An admission under an adaptive limit.
#[derive(Clone, Copy, Debug)]
pub(super) struct MeasuredAdmission {
    key: Fingerprint,
    bounds: CapacityBounds,
    load: AdmissionLoad,
}

/// Those of a request; few have more than one.
pub(super) type MeasuredAdmissions = SmallVec<[MeasuredAdmission; 1]>;

/// The places that a request has taken.
#[derive(Default)]
pub(super) struct TakenPlaces {
    pub(super) held: SmallVec<[HeldPlaces; 1]>,
    pub(super) measured: MeasuredAdmissions,
}

impl TakenPlaces {
    /// `None`: it has taken none.
    pub(super) fn into_places(self, in_flight: &Arc<RequestsInFlight>) -> Option<LocalPlaces> {
        let Self { held, measured } = self;
        let in_flight = Arc::clone(in_flight);
        (!held.is_empty()).then(|| LocalPlaces { in_flight, held, measured, sent: None })
    }
}

impl RequestsInFlight {
    /// Takes the places of charges under adaptive limits, all or none, for a request whose other charges a shared store
    /// decides. `None`: an enforced limit has no room; the request does not wait yet.
    pub fn reserve(
        self: &Arc<Self>,
        charges: &[Charge<'_>],
        now: Timestamp,
        ticket: &mut Ticket,
    ) -> (SmallVec<[Decision; 4]>, Option<Option<LocalPlaces>>) {
        let mut locked = self.lock(charges);
        let (mut decisions, mut taken) =
            (SmallVec::from_elem(UNDECIDED, charges.len()), TakenPlaces::default());
        let admitted = locked.evaluate(charges, Group::Enforced, now, ticket, &mut decisions);
        if admitted && ticket.waits_for.is_some_and(|(key, _)| charges.iter().any(|charge| charge.key == key))
        {
            locked.admitted(charges, ticket);
        }
        locked.settle(charges, admitted, now, ticket, (&mut decisions, &mut taken));
        (decisions, admitted.then(|| taken.into_places(self)))
    }

    /// For requests in virtual time, whose latencies do not depend on decisions: adaptive limits have their ceilings.
    pub(in crate::store) fn in_virtual_time() -> Self {
        Self { virtual_time: Some(AtomicU64::new(0)), ..Self::default() }
    }

    /// Whether the maximum of adaptive limits is found.
    pub(super) fn adapts(&self) -> bool {
        self.virtual_time.is_none()
    }

    /// Virtual time is `now`.
    pub fn set_time(&self, now: Timestamp) {
        if let Some(time) = &self.virtual_time {
            time.store(now.0, Ordering::Relaxed);
        }
    }

    /// The time by which places are used.
    pub(super) fn now(&self) -> Timestamp {
        match &self.virtual_time {
            None => now(),
            Some(time) => Timestamp(time.load(Ordering::Relaxed)),
        }
    }
}

impl LocalPlaces {
    /// The places of a request that were taken in two parts.
    pub fn joined(places: Option<Self>, others: Option<Self>) -> Option<Self> {
        match (places, others) {
            (Some(mut places), Some(mut others)) => {
                places.held.append(&mut others.held);
                places.measured.append(&mut others.measured);
                Some(places)
            }
            (places, others) => places.or(others),
        }
    }

    /// The request of this route, which any number stands for, is passed on now.
    pub(in crate::store) fn send(&mut self, route: impl FnOnce() -> u64) {
        if !self.measured.is_empty() {
            self.sent = Some((route(), now()));
        }
    }

    /// The request went on so: of several calls, the first counts. `None`: it says nothing of the backend's load.
    pub(in crate::store) fn end_measurement(&mut self, outcome: Option<SampleOutcome>) {
        let Some((route, sent)) = self.sent.take() else { return };
        let measured = std::mem::take(&mut self.measured);
        let Some(outcome) = outcome else { return };
        let now = now();
        for MeasuredAdmission { key, bounds, load } in measured {
            let sample = LatencySample { route, latency: now.since(sent), load, outcome };
            let mut shard = self.in_flight.shard(key).lock();
            if let Some(entry) = shard.get_mut(&key)
                && let Some(capacity) = &mut entry.capacity
            {
                capacity.learn(&bounds, &sample, now);
                entry.wake_next(now);
            }
        }
    }

    /// The request ends: if nothing is known of it, its client has left.
    pub(super) fn abandon(&mut self) {
        self.end_measurement(Some(SampleOutcome::Abandoned));
    }
}

impl LimitedKey {
    /// What was found as the maximum.
    pub(super) fn found_max(&self) -> u64 {
        self.capacity.as_ref().map_or(0, |capacity| capacity.found().into())
    }

    /// A request was admitted under an adaptive limit, and is among those that are held.
    pub(super) fn admit(
        &mut self,
        key: Fingerprint,
        bounds: CapacityBounds,
        now: Timestamp,
    ) -> MeasuredAdmission {
        let capacity = self.capacity.get_or_insert_with(|| Box::new(CapacityEstimate::new(&bounds, now)));
        MeasuredAdmission { key, bounds, load: capacity.admit(&bounds, self.held, now) }
    }
}

/// The algorithm of a charge with the maximum that is found so far, for the entry of its key. A cost above that, but not above
/// the ceiling, is admitted alone.
pub(super) fn algorithm_now(charge: &Charge<'_>, entry: Option<&LimitedKey>, adapts: bool) -> Algorithm {
    let Some(limit) = charge.algorithm.as_concurrency() else { return *charge.algorithm };
    let Some(bounds) = limit.capacity_bounds().filter(|_| adapts) else { return *charge.algorithm };
    let found = entry.and_then(|entry| entry.capacity.as_ref()).map(|capacity| capacity.max(&bounds));
    let max = found.unwrap_or_else(|| CapacityEstimate::new(&bounds, Timestamp(0)).max(&bounds));
    Algorithm::Concurrency(limit.with_max(max.max(charge.cost.min(limit.max()).units())))
}

/// The algorithm of a charge with this one's maximum, without the places that are not for background requests. A cost above what is
/// left is admitted alone.
pub(super) fn without_reserve(charge: &Charge<'_>, algorithm: &Algorithm) -> Algorithm {
    let Some(limit) = algorithm.as_concurrency() else { return *algorithm };
    let max = limit.max();
    let left = max.units().saturating_sub(background_reserve(max.units()));
    Algorithm::Concurrency(limit.with_max(left.max(charge.cost.min(max).units())))
}

fn now() -> Timestamp {
    Timestamp(clock::monotonic().0)
}
