//! Where the plan's routes, limits and upstreams are found.

use std::sync::Arc;

use super::{Gateway, Limit, LimitIndex, Route, Upstream, UpstreamIndex};
use crate::route::RouteIndex;

impl Gateway {
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
