//! `connection_limits` of `[server]`: limits of the new connections of a client.

use http::Method;

use super::admission::RequestCharges;
use super::cost::CostRule;
use super::{LimitIndex, LimitUse, Plan, Route};
use crate::http1::fields::Fields;
use crate::http1::request::Body;
use crate::limit::units::Cost;
use crate::route::client::ClientAddress;
use crate::route::content::RequestContent;
use crate::route::key::KeySecret;
use crate::route::path::{Path, PathMatching};
use crate::route::{RouteIndex, RouteRequest};

/// The name of new connections in metrics, in place of a route's.
pub const CONNECTIONS: &str = "server/connections";

/// What stands for a new connection where keys, exemptions and maps look for the client's address.
#[derive(Debug)]
pub struct NewConnection {
    client: ClientAddress,
    path: Path<'static>,
}

impl NewConnection {
    /// A connection of this client.
    pub fn of(client: ClientAddress) -> Self {
        Self { client, path: Path::plain("/", PathMatching::Strict) }
    }

    /// A request of which nothing but the client is known.
    pub fn request(&self) -> RouteRequest<'_> {
        RouteRequest {
            method: &Method::GET,
            host: "",
            path: &self.path,
            query: None,
            headers: Fields::NONE,
            body: Body::EMPTY,
            client: self.client,
            certificate: None,
            listener: None,
            content: &RequestContent::Unknown,
            consumer: None,
            upstream: None,
        }
    }
}

impl Plan {
    /// The route that stands for new connections; `None` without `connection_limits`.
    #[inline]
    pub fn connections(&self) -> Option<RouteIndex> {
        self.derived.connections
    }

    /// The charges of a new connection: one unit of each limit.
    pub fn connection_charges(
        &self,
        connections: RouteIndex,
        request: &RouteRequest<'_>,
        secret: &KeySecret,
    ) -> RequestCharges<'_> {
        RequestCharges::new(self, self.route(connections), request, secret)
    }
}

/// The route that stands for new connections.
pub(super) fn route(limits: &[LimitIndex]) -> Route {
    let cost = CostRule::Fixed(Cost::ONE);
    let used = |limit: &LimitIndex| LimitUse { limit: *limit, cost: cost.clone() };
    Route::of_calls(CONNECTIONS.into(), cost.clone(), limits.iter().map(used).collect())
}
