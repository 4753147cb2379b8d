//! Requests under adaptive limits: the load at which they were admitted, and how they went on.

use std::sync::Arc;

use smallvec::SmallVec;

use super::{HeldPlaces, LimitedKey, LocalPlaces, RequestsInFlight};
use crate::clock;
use crate::limit::Algorithm;
use crate::limit::adaptive_concurrency::{
    AdmissionLoad, CapacityBounds, CapacityEstimate, LatencySample, SampleOutcome,
};
use crate::limit::units::{Fingerprint, Timestamp};
use crate::store::Charge;

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
    pub(super) held: HeldPlaces,
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
    /// Without estimates: adaptive limits have their ceilings. For requests whose latencies do not depend on decisions.
    pub(in crate::store) fn without_estimates() -> Self {
        Self { adapts: false, ..Self::default() }
    }
}

impl LocalPlaces {
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
                entry.wake_first();
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
    pub(super) fn admit(&mut self, key: Fingerprint, bounds: CapacityBounds) -> MeasuredAdmission {
        let now = now();
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

fn now() -> Timestamp {
    Timestamp(clock::monotonic().0)
}
