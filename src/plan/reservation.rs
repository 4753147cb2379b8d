//! Costs that are reserved on admission: which charges are corrected once the response has ended.

use std::sync::Arc;

use smallvec::SmallVec;

use super::admission::{Applicability, LimitCheck, RequestCharges};
use super::cost::SettledCost;
use super::{LimitIndex, LimitUse, Mode, Route, TierIndex};
use crate::limit::units::{Fingerprint, Timestamp};
use crate::store::{Charge, OnError, Outcome};

/// A limit that has charged a request a reservation.
#[derive(Debug)]
pub struct Reservation<'c, 'p> {
    /// The limit.
    pub limit: LimitIndex,
    /// The tier of the request's consumer there.
    pub tier: Option<TierIndex>,
    /// The owner of its counters.
    pub key_hash: Option<Fingerprint>,
    /// How the cost is found.
    pub cost: &'c Arc<SettledCost>,
    /// The units.
    pub reserved: u32,
    /// Those that counted.
    pub charges: SmallVec<[ReservedCharge<'p>; 1]>,
}

/// A policy that has charged a reservation.
#[derive(Debug)]
pub struct ReservedCharge<'p> {
    /// The policy's index in the limit.
    pub policy: usize,
    /// The charge.
    pub charge: Charge<'p>,
    /// When it counted.
    pub counted_at: Timestamp,
    /// Whether a shared store has decided it, and not this process.
    pub shared: bool,
}

impl<'p> RequestCharges<'p> {
    /// The reservations of a request that was admitted at `now`. The places of a concurrency limit stay as they are.
    pub fn reservations<'c>(
        &'c self,
        route: &'c Route,
        outcome: &'c Outcome,
        now: Timestamp,
    ) -> impl Iterator<Item = Reservation<'c, 'p>> {
        let uses = self.checks.iter().zip(&route.limits);
        uses.filter_map(move |(check, limit_use)| self.reservation(check, limit_use, outcome, now))
    }

    fn reservation<'c>(
        &'c self,
        check: &'c LimitCheck<'p>,
        limit_use: &'c LimitUse,
        outcome: &Outcome,
        now: Timestamp,
    ) -> Option<Reservation<'c, 'p>> {
        let (Some(cost), Applicability::Charged(_, first)) = (limit_use.cost.settled(), check.applicability)
        else {
            return None;
        };
        let is_charged = check.mode == Mode::Enforce || !check.denies(outcome);
        if !is_charged || check.limit.is_concurrency() {
            return None;
        }
        let reserved = |policy: usize| {
            let index = first + policy;
            let charge = *self.charges.get(index)?;
            let is_local = outcome.decided_locally.contains(index);
            let is_counted = !is_local || check.limit.on_error == OnError::Local;
            let counted_at = outcome.counted_at.as_ref().and_then(|times| times.get(index).copied());
            let counted_at = counted_at.unwrap_or(now);
            is_counted.then_some(ReservedCharge { policy, charge, counted_at, shared: !is_local })
        };
        let reserved_units = self.charges.get(first).map_or(0, |charge| charge.cost.units());
        Some(Reservation {
            reserved: reserved_units,
            limit: limit_use.limit,
            tier: check.tier,
            key_hash: self.key_hash(check),
            cost,
            charges: (0..check.policies().len()).filter_map(reserved).collect(),
        })
    }
}
