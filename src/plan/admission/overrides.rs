//! Charges of keys that have other numbers than their limit or tier.

use std::ops::Range;

use super::{Applicability, Charge, RequestCharges, charges, group_of};
use crate::plan::Plan;
use crate::store::Known;

impl<'a> RequestCharges<'a> {
    /// Replaces the numbers of keys that have an override. Numbers that a call brings stay.
    #[inline]
    pub fn override_numbers(&mut self, plan: &'a Plan, known: Known<'_>) {
        if !known.overrides.is_empty() {
            self.find_overrides(plan, known);
        }
    }

    #[cold]
    fn find_overrides(&mut self, plan: &'a Plan, known: Known<'_>) {
        for index in 0..self.checks.len() {
            let Some(check) = self.checks.get(index).copied() else { continue };
            let Applicability::Charged(cost, _) = check.applicability else { continue };
            let Some(key_hash) = self.key_hash(&check).filter(|_| check.overriding.is_none()) else {
                continue;
            };
            let Some(policies) = plan.overridden(check.limit, key_hash, known) else { continue };
            let group = group_of(check.mode, check.place);
            self.replace(check.indices(), charges(policies, key_hash, cost, group).collect());
            if let Some(check) = self.checks.get_mut(index) {
                check.overriding = Some(policies);
            }
        }
    }

    /// Replaces the charges of one limit, which may be more or fewer than those of a tier.
    fn replace(&mut self, old: Range<usize>, new: Vec<Charge<'a>>) {
        let end = old.start + new.len();
        for check in &mut self.checks {
            if let Applicability::Charged(_, first) = &mut check.applicability
                && *first >= old.end
            {
                *first = *first - old.end + end;
            }
        }
        self.charges.drain(old.clone());
        self.charges.insert_many(old.start, new);
    }
}
