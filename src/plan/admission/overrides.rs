//! Charges of keys that have other numbers than their limit or tier.
//!
//! The key of a consumer whose tier is unlimited has no charge. It is kept aside, and is charged if it has an override.

use std::ops::Range;

use smallvec::SmallVec;

use super::{Applicability, Charge, LimitCheck, RequestCharges, charges, group_of};
use crate::limit::units::{Cost, Fingerprint};
use crate::plan::{Mode, Plan};
use crate::route::MatchedRequest;
use crate::route::key::{KeyResult, KeySecret};
use crate::store::Known;

/// Keys of a request whose tier has no limit.
#[derive(Debug, Default)]
pub(super) struct UnlimitedKeys<'a>(pub(super) SmallVec<[UnlimitedKey<'a>; 1]>);

/// A key whose tier has no limit.
#[derive(Clone, Debug)]
pub(super) struct UnlimitedKey<'a> {
    /// The check, which is exempt.
    pub(super) check: LimitCheck<'a>,
    /// The key.
    pub(super) key_hash: Fingerprint,
    /// The cost of the request for the limit.
    pub(super) cost: Cost,
    /// Of a leaky bucket with `share_by`: the key of the share.
    pub(super) share: Option<KeyResult>,
}

impl<'a> RequestCharges<'a> {
    /// Keeps the key of a check whose tier has no limit. A consumer without the key is exempt whatever the overrides.
    #[cold]
    pub(super) fn keep_unlimited(
        &mut self,
        check: LimitCheck<'a>,
        cost: Cost,
        matched: MatchedRequest<'_>,
        secret: &KeySecret,
    ) {
        let limit = check.limit;
        let KeyResult::Key(key_hash) = limit.key.claim(secret, matched) else { return };
        let shares_address = !matched.request.client.identified && limit.key.holds_address(matched);
        let check = LimitCheck { applicability: Applicability::Exempt, shares_address, ..check };
        let share = limit.share_by.as_ref().map(|share_by| share_by.claim(secret, matched));
        self.unlimited.get_or_insert_default().0.push(UnlimitedKey { check, key_hash, cost, share });
    }

    /// Adds the keys of a call of a batch whose tier has no limit. Calls with one key are charged together.
    pub(super) fn join_unlimited(&mut self, of_call: Option<Box<UnlimitedKeys<'a>>>, call: u8) {
        for key in of_call.into_iter().flat_map(|keys| keys.0) {
            let keys = &mut self.unlimited.get_or_insert_default().0;
            let is_same = |known: &&mut UnlimitedKey<'_>| {
                known.check.place == key.check.place && known.key_hash == key.key_hash
            };
            match keys.iter_mut().find(is_same) {
                Some(known) => {
                    let units = known.cost.units().saturating_add(key.cost.units()).min(Cost::MAX);
                    known.cost = Cost::new(units).unwrap_or(Cost::ZERO);
                }
                None => keys.push(UnlimitedKey { check: LimitCheck { call, ..key.check }, ..key }),
            }
        }
    }

    /// Charges the keys without a limit that have an override.
    fn charge_unlimited(&mut self, plan: &'a Plan, known: Known<'_>) {
        let Some(keys) = self.unlimited.take() else { return };
        for UnlimitedKey { check, key_hash, cost, share } in keys.0 {
            let Some(policies) = plan.overridden(check.limit, key_hash, known) else { continue };
            let applicability = Applicability::Charged(cost, self.charges.len());
            let charged = LimitCheck { overriding: Some(policies), applicability, ..check };
            self.charges.extend(charges(policies, key_hash, cost, group_of(check.mode, check.place)));
            self.may_ban |= check.limit.ban.is_some() && !check.shares_address;
            self.takes_places |= check.limit.is_concurrency();
            if let Some(share) = share {
                self.leaves_by_shares |= !check.limit.is_concurrency() && check.mode == Mode::Enforce;
                self.share(charged, share);
            }
            let is_it = |known: &&mut LimitCheck<'_>| {
                (known.place, known.call, known.applicability)
                    == (check.place, check.call, Applicability::Exempt)
            };
            match self.checks.iter_mut().find(is_it) {
                Some(exempt) => *exempt = charged,
                None => self.checks.push(charged),
            }
        }
    }
}

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
        self.charge_unlimited(plan, known);
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
