//! The charges of limits that are looked at apart from those of a route.

use super::{Applicability, LimitCheck, RequestCharges, small};
use crate::limit::units::Cost;
use crate::plan::resolve::RoutedRequest;
use crate::plan::{Limit, LimitIndex, Plan, Route};
use crate::route::RouteRequest;
use crate::route::key::KeySecret;
use crate::store::{Charge, Known};

impl<'a> RequestCharges<'a> {
    /// The charges of a wrong credential: to `limit` alone, at the cost of one unit.
    pub fn of_failure(
        limit: &'a Limit,
        route: &'a Route,
        request: &RouteRequest<'_>,
        secret: &KeySecret,
    ) -> Self {
        let mut charges = Self::default();
        let matched = route.matched(request);
        let mode = limit.mode_of(matched);
        let check = LimitCheck {
            place: 0,
            call: 0,
            limit,
            tier: None,
            overriding: None,
            mode,
            applicability: Applicability::Free,
            shares_address: false,
        };
        charges.add(check, Some(Cost::ONE), matched, secret);
        charges
    }

    /// The charges of one unit to each of these limits, to look at what a request's keys have used of them. A limit that does
    /// not apply has no charge.
    #[cold]
    pub fn of_usage(
        plan: &'a Plan,
        limits: &[LimitIndex],
        request: &RoutedRequest<'_, '_>,
        known: Known<'_>,
        secret: &KeySecret,
    ) -> Self {
        let mut charges = Self::default();
        let seen = request.request();
        let matched = request.route.matched(&seen);
        for (place, limit) in limits.iter().enumerate() {
            let limit = plan.limit(*limit);
            let check = LimitCheck {
                place: small(place),
                call: 0,
                limit,
                tier: limit.tier_of(matched),
                overriding: None,
                mode: limit.mode_of(matched),
                applicability: Applicability::Free,
                shares_address: false,
            };
            charges.add(check, Some(Cost::ONE), matched, secret);
        }
        charges.override_numbers(plan, known);
        charges
    }

    /// The charges of one check.
    pub fn of_check(&self, check: &LimitCheck<'a>) -> &[Charge<'a>] {
        self.charges.get(check.indices()).unwrap_or_default()
    }
}
