//! Look-ups of the plan's routes, limits and upstreams.

use std::sync::Arc;

use super::{Limit, LimitIndex, Plan, Reject, Route, Upstream, UpstreamIndex};
use crate::route::RouteIndex;

impl Plan {
    /// The route at `index`.
    pub fn route(&self, index: RouteIndex) -> &Route {
        &self.routes[index.0]
    }

    /// The limit at `index`.
    pub fn limit(&self, index: LimitIndex) -> &Limit {
        &self.limits[index.0]
    }

    /// The limit of this name.
    pub fn limit_named(&self, name: &str) -> Option<LimitIndex> {
        self.limits.iter().position(|limit| *limit.name == *name).map(LimitIndex)
    }

    /// The upstream at `index`.
    pub fn upstream(&self, index: UpstreamIndex) -> &Arc<Upstream> {
        &self.upstreams[index.0]
    }
}

impl Route {
    /// The form of a refusal by `limit` on this route, if not the default: the route's setting overrides the limit's.
    pub fn reject_of<'p>(&'p self, limit: &'p Limit) -> Option<&'p Reject> {
        self.reject.as_deref().or(limit.reject.as_deref())
    }
}
