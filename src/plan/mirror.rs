//! `mirror = { upstream = "canary", share = 0.05 }` of a route: copies of some of its requests go to another upstream.
//!
//! A copy is what the backend gets, and its response is dropped. For example, a new version of a service sees a twentieth
//! of the callers of the present one. The same callers are copied each time, so that it sees their whole sessions.

use std::sync::Arc;
use std::time::Duration;

use super::key_share::KeyShare;
use super::resolve::RoutedRequest;
use super::{Affinity, BreakerRule, Plan, Retry, Route, StatusSet, Upstream, UpstreamIndex};
use crate::http1::name::Name;
use crate::route::key::{Key, Part};

/// The rule of the circuit breaker of copies, where the upstream has none of its own.
const BREAKER: BreakerRule =
    BreakerRule { failures_permille: 500, requests: 20, span: Duration::from_secs(10) };

/// `mirror` of a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mirror {
    /// The upstream that gets the copies.
    pub upstream: UpstreamIndex,
    /// The callers whose requests are copied.
    callers: KeyShare,
    /// What tells callers apart.
    pub key: Key,
    /// The maximum number of bytes of a body that is copied.
    pub max_body: usize,
}

/// Where the copy of a request goes.
#[derive(Clone, Debug)]
pub struct MirrorTarget {
    /// The upstream.
    pub upstream: UpstreamIndex,
    /// The path and query there.
    pub target: String,
    /// What the request says about its server there.
    pub affinity: Affinity,
}

impl Mirror {
    /// Copies for the upstream, of the requests of this share, from 0 to 1, of the keys. All routes choose the same keys.
    pub fn new(upstream: UpstreamIndex, share: f64, key: Key, max_body: usize) -> Self {
        Self { upstream, callers: KeyShare::new(share, &["mirror"]), key, max_body }
    }

    /// The key where the file gives none: the consumer, or else the client's address.
    pub fn default_key() -> Key {
        Key::new(vec![Part::Consumer])
    }

    /// The share, from 0 to 1.
    pub fn share(&self) -> f64 {
        self.callers.share()
    }

    /// The share as text: `5 %`.
    pub fn percent(&self) -> String {
        self.callers.percent()
    }
}

impl RoutedRequest<'_, '_> {
    /// Whether the route copies the request: its key is in the share.
    pub fn is_mirrored_by(&self, mirror: &Mirror) -> bool {
        mirror.callers.has(&mirror.key, self.route.matched(&self.request()))
    }

    /// Whether a gateway that is trusted says that the request is a copy.
    pub fn is_copy(&self, plan: &Plan) -> bool {
        self.head().fields.known(Name::TollgateMirror).is_some() && plan.server.client.trusts(self.seen.peer)
    }

    /// Where a copy of the request goes. `None`: the route makes an ambiguous target of its path.
    pub fn mirror_target(&self, plan: &Plan, mirror: &Mirror) -> Option<MirrorTarget> {
        let upstream = mirror.upstream;
        let target = plan.forwarded_target((self.route, upstream), self.seen.head, &self.seen.path).ok()?;
        // The sessions of clients are with the servers of the route's own upstream.
        let hash = plan.upstream(upstream).affinity(&self.request(), self.route).hash;
        Some(MirrorTarget {
            upstream,
            target: target.into_owned(),
            affinity: Affinity { hash, server: None },
        })
    }
}

/// The upstreams of all mirrors, as copies use them: their connections take no places of other requests, and their
/// failures eject no server.
pub(super) fn upstreams_of_mirrors(
    routes: &[Route],
    upstreams: &[Arc<Upstream>],
) -> Vec<(UpstreamIndex, Arc<Upstream>)> {
    let is_of_mirror = |index| {
        routes.iter().filter_map(|route| route.mirror.as_ref()).any(|mirror| mirror.upstream == index)
    };
    let indices = (0..).map(UpstreamIndex).zip(upstreams);
    let of_mirrors = indices.filter(|(index, _)| is_of_mirror(*index));
    of_mirrors.map(|(index, upstream)| (index, Arc::new(upstream.for_copies()))).collect()
}

impl Upstream {
    fn for_copies(&self) -> Self {
        Self {
            retry: Retry { attempts: 1, budget_permille: 0, statuses: StatusSet::NONE, timeout: false },
            eject: None,
            max_connections: None,
            breaker: Some(self.breaker.unwrap_or(BREAKER)),
            sticky: None,
            ..self.clone()
        }
    }
}
