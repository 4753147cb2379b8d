//! The charges of a call: of several descriptors, or of limits that an application names. They are charged all or none.
//!
//! A call has no route, no credential and no body of its own. Its limits rule as those of a request do: by bans, and by
//! the store's decision ([`Ruling`](super::Ruling)).

use smallvec::SmallVec;

use crate::limit::units::{Cost, Fingerprint};
use crate::plan::admission::{Applicability, LimitCheck, RequestCharges, small};
use crate::plan::{LimitIndex, Mode, Plan, Policy, TierIndex};
use crate::route::key::KeySecret;
use crate::route::{MatchedRequest, RouteIndex};

/// The charges of a call.
#[derive(Debug, Default)]
pub struct CallCharges<'p> {
    /// All of them.
    pub charges: RequestCharges<'p>,
    /// For each check, whose it is.
    pub owners: SmallVec<[CheckOwner; 4]>,
}

/// What a check of a call is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckOwner {
    /// The index of the descriptor, or of the limit that was named.
    pub item: usize,
    /// The route whose limit it is.
    pub route: RouteIndex,
    /// The limit's index on that route.
    pub place: usize,
    /// The limit.
    pub limit: LimitIndex,
}

/// A part of a call that has limits.
#[derive(Clone, Copy, Debug)]
pub struct CallItem<'p> {
    /// The plan.
    pub plan: &'p Plan,
    /// Its index in the call.
    pub item: usize,
    /// The route with its limits.
    pub route: RouteIndex,
    /// The units of the call for each of them.
    pub cost: Cost,
    /// Other numbers of their only policy.
    pub overriding: Option<&'p [Policy]>,
}

/// The key that an application names.
#[derive(Clone, Copy, Debug)]
pub struct NamedKey {
    /// The owner of its counters.
    pub key_hash: Fingerprint,
    /// The tier of the consumer, if the limit has one of this name.
    pub tier: Option<TierIndex>,
    /// Whether the limit is enforced for it.
    pub mode: Mode,
}

impl<'p> CallCharges<'p> {
    /// Adds the charges of a descriptor to all limits of its route.
    pub fn add(&mut self, item: CallItem<'p>, matched: MatchedRequest<'_>, secret: &KeySecret) {
        for (place, limit_use) in item.plan.route(item.route).limits.iter().enumerate() {
            let limit = item.plan.limit(limit_use.limit);
            let mode = limit.mode_of(matched);
            let applicability = Applicability::Free;
            let overriding = item.overriding;
            let (tier, shares_address, of_call) = (None, false, self.owners.len());
            let check = LimitCheck {
                place: small(of_call),
                call: 0,
                limit,
                tier,
                overriding,
                mode,
                applicability,
                shares_address,
            };
            self.charges.add(check, Some(item.cost), matched, secret);
            let CallItem { item, route, .. } = item;
            self.owners.push(CheckOwner { item, route, place, limit: limit_use.limit });
        }
    }

    /// Adds the charges of one key to the limit of the item's route at this place.
    pub fn add_key(&mut self, item: CallItem<'p>, place: usize, key: NamedKey) {
        let Some(limit_use) = item.plan.route(item.route).limits.get(place) else { return };
        let limit = item.plan.limit(limit_use.limit);
        let NamedKey { key_hash, tier, mode } = key;
        let applicability = Applicability::Free;
        let overriding = item.overriding;
        let (shares_address, of_call) = (false, self.owners.len());
        let check = LimitCheck {
            place: small(of_call),
            call: 0,
            limit,
            tier,
            overriding,
            mode,
            applicability,
            shares_address,
        };
        self.charges.add_key(check, key_hash, item.cost);
        let CallItem { item, route, .. } = item;
        self.owners.push(CheckOwner { item, route, place, limit: limit_use.limit });
    }
}
