//! The charges of one limit alone.

use super::{Applicability, LimitCheck, RequestCharges};
use crate::limit::units::Cost;
use crate::plan::{Limit, Route};
use crate::route::RouteRequest;
use crate::route::key::KeySecret;

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
}
