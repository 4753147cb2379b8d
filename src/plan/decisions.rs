//! `[decisions]`: the listener where other proxies and applications ask whether a request may pass.

use std::net::SocketAddr;

use super::action::RouteAction;
use super::admin::Token;
use super::{Limit, LimitUse, ListenerTls, Plan, Route};
use crate::limit::Algorithm;
use crate::route::RouteIndex;
use crate::route::key::Part;

/// The name in logs and metrics of what applications ask about limits that they name themselves.
pub const NAMED_LIMITS: &str = "decisions/limits";

/// `[decisions]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecisionService {
    /// The address to listen on, as in the file. The listener is the last of `server.listen`.
    pub listen: SocketAddr,
    /// The secret that each call has, read from the environment variable `token_env` when the file was loaded.
    pub token: Option<Token>,
    /// TLS there.
    pub tls: Option<ListenerTls>,
    /// A client that shows a certificate needs no token: `client_auth = "optional"`.
    pub certificate_suffices: bool,
}

impl Limit {
    /// Whether it can decide on a request that another proxy forwards. A leaky bucket would have to delay the request,
    /// and nobody tells when a place of a concurrency limit is free again.
    pub fn can_be_asked(&self) -> bool {
        !self.policies.iter().any(|policy| {
            matches!(
                policy.algorithm,
                Algorithm::LeakyBucket(_)
                    | Algorithm::Concurrency(_)
                    | Algorithm::Ban(_)
                    | Algorithm::Lease(_)
            )
        })
    }
}

impl LimitUse {
    /// Whether the limit can decide on such a request here. The other proxy sends neither the body, by which a key or a
    /// cost may count, nor the response, by which a cost may be settled.
    pub fn can_be_asked(&self, limit: &Limit) -> bool {
        limit.can_be_asked()
            && self.cost.settled().is_none()
            && self.cost.json_pointers().next().is_none()
            && !limit.reads_body()
            && !limit.key.parts.contains(&Part::Upstream)
    }
}

impl Plan {
    /// The limits that applications may name when they ask; `None` without `[decisions]`.
    pub fn named_limits(&self) -> Option<RouteIndex> {
        let last = self.routes.len().checked_sub(1)?;
        let is_it =
            |route: &&Route| matches!(route.action, RouteAction::Decide) && *route.name == *NAMED_LIMITS;
        self.routes.last().filter(is_it).map(|_| RouteIndex(last))
    }

    /// The limits of the routes that cannot be asked, each with its route's name: another proxy's request is admitted
    /// without them.
    pub fn limits_left_out(&self) -> impl Iterator<Item = (&str, &str)> {
        let uses = self.routes.iter().flat_map(|route| route.limits.iter().map(move |used| (route, used)));
        uses.map(|(route, used)| (route, used, self.limit(used.limit)))
            .filter(|(_, used, limit)| !used.can_be_asked(limit))
            .map(|(route, _, limit)| (&*route.name, &*limit.name))
    }
}
