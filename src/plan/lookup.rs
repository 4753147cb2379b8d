//! Look-ups of the plan's routes, limits and upstreams.

use std::sync::Arc;

use super::action::RouteAction;
use super::template::{BodyTemplate, HeaderTemplate};
use super::{Limit, LimitIndex, Plan, Reject, Route, Upstream, UpstreamIndex};
use crate::route::RouteIndex;

impl Plan {
    /// The route at `index`.
    pub fn route(&self, index: RouteIndex) -> &Route {
        &self.routes[index.0]
    }

    /// The routes with a regular expression, in the order in which these are tried.
    pub fn regex_routes(&self) -> impl Iterator<Item = (RouteIndex, &Route)> {
        let routes = (0..).map(RouteIndex).zip(&self.routes);
        routes.filter(|(_, route)| route.conditions.path.is_regex())
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

impl Plan {
    /// Notes whether a text of the file has values of the request.
    #[must_use]
    pub fn with_templates(mut self) -> Self {
        let has = |headers: &[(_, HeaderTemplate)]| headers.iter().any(|(_, value)| value.has_values());
        let rejects = |reject: &Option<Arc<Reject>>| {
            let of = |reject: &Arc<Reject>| {
                has(&reject.headers) || reject.body.as_ref().is_some_and(BodyTemplate::has_values)
            };
            reject.as_ref().is_some_and(of)
        };
        let responds = |action: &RouteAction| match action {
            RouteAction::Respond(response) => {
                has(&response.headers)
                    || response.content.as_ref().is_some_and(|content| content.body.has_values())
            }
            RouteAction::Forward(_) | RouteAction::Redirect(_) => false,
        };
        let of_route = |route: &Route| {
            let edits = [&route.request_headers, &route.response_headers];
            edits.into_iter().any(|edits| has(&edits.set))
                || rejects(&route.reject)
                || responds(&route.action)
        };
        self.has_templates = self.errors.has_values()
            || self.limits.iter().any(|limit| rejects(&limit.reject))
            || self.routes.iter().any(of_route);
        self
    }
}

impl Route {
    /// The form of a refusal by `limit` on this route, if not the default: the route's setting overrides the limit's.
    pub fn reject_of<'p>(&'p self, limit: &'p Limit) -> Option<&'p Reject> {
        self.reject.as_deref().or(limit.reject.as_deref())
    }
}
