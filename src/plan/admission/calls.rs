//! The charges of a batch of calls: each call is charged as a request of its own, and all are admitted or none.
//!
//! Calls with one key of a limit are one charge with the sum of their costs, so that a counter is charged once. For
//! example, three calls of the tools `a`, `b` and `a` are charged 2 to `a` and 1 to `b` of a limit by tool, and 3 to a
//! limit by client.

use super::{Applicability, LimitCheck, RequestCharges, small};
use crate::limit::units::Cost;
use crate::plan::{Limit, LimitUse, Plan, Route};
use crate::route::RouteRequest;
use crate::route::content::JsonBatch;
use crate::route::key::KeySecret;
use crate::store::MAX_CHARGES;

impl<'a> RequestCharges<'a> {
    /// The same as [`Self::add_limits`] for each call of a batch.
    #[cold]
    pub(in crate::plan) fn add_calls(
        &mut self,
        plan: &'a Plan,
        route: &'a Route,
        (request, batch): (&RouteRequest<'_>, &JsonBatch),
        secret: &KeySecret,
        charged: impl Fn(&Limit, &LimitUse) -> bool,
    ) {
        for (call, content) in batch.calls().iter().enumerate() {
            let mut of_call = Self::default();
            let request = RouteRequest { content, ..*request };
            of_call.add_limits(plan, route, &request, secret, &charged);
            self.join(of_call, small(call));
            if self.are_too_many() {
                return;
            }
        }
    }

    /// Adds the charges of one more call.
    fn join(&mut self, mut of_call: Self, call: u8) {
        self.may_ban |= of_call.may_ban;
        self.takes_places |= of_call.takes_places;
        self.leaves_by_shares |= of_call.leaves_by_shares;
        for share in &of_call.shares {
            if !self.shares.iter().any(|known| known.place == share.place && known.key == share.key) {
                self.shares.push(*share);
            }
        }
        for check in &of_call.checks {
            let same = self.checks.iter().position(|known| {
                known.place == check.place && self.key_hash(known) == of_call.key_hash(check)
            });
            match (same, check.applicability) {
                (Some(same), Applicability::Charged(cost, _)) => self.charge_more(same, cost),
                // A call that is not charged adds nothing, and each refusal is one.
                (Some(same), other)
                    if self.checks.get(same).is_some_and(|same| same.applicability == other) => {}
                _ => self.append(check, &of_call, call),
            }
        }
        self.join_unlimited(of_call.unlimited.take(), call);
    }

    /// Charges the check at this index that much more.
    fn charge_more(&mut self, index: usize, more: Cost) {
        let Some(check) = self.checks.get_mut(index) else { return };
        let indices = check.indices();
        let Applicability::Charged(cost, _) = &mut check.applicability else { return };
        let units = cost.units().saturating_add(more.units()).min(Cost::MAX);
        *cost = Cost::new(units).unwrap_or(Cost::ZERO);
        let cost = *cost;
        for charge in self.charges.get_mut(indices).unwrap_or_default() {
            charge.cost = cost;
        }
    }

    /// Appends a check of another call, with its charges.
    fn append(&mut self, check: &LimitCheck<'a>, of_call: &Self, call: u8) {
        let mut check = LimitCheck { call, ..*check };
        let charges = of_call.charges.get(check.indices()).unwrap_or_default();
        if let Applicability::Charged(_, first) = &mut check.applicability {
            *first = self.charges.len();
        }
        self.charges.extend_from_slice(charges);
        self.checks.push(check);
    }

    /// Whether a batch has more charges than are decided at once.
    pub(in crate::plan) fn are_too_many(&self) -> bool {
        self.charges.len() > MAX_CHARGES
    }
}
