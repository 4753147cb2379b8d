//! What the workers, the admin listener and the control thread share while the gateway runs.
//!
//! Nothing else is shared in the request path: the plan is read through a cached pointer, the store decides, and the
//! counters are one set per worker.

pub mod crowd;
pub mod desk;
pub mod steering;

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::clock::Clock;
use crate::gateway::Gateway;
use crate::gateway::loop_mark::LoopMark;
use crate::route::key::Secret;
use crate::route::mask::ShortIds;
use crate::store::Store;
use crate::telemetry::access_log::AccessLogger;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::refusals::Refusals;
use crate::telemetry::samples::Samples;
use crate::telemetry::trace::Spans;
use crate::upstream::roster::Roster;
use crowd::Crowd;
use desk::Desks;
use steering::Steering;

/// One value for the whole process, behind an `Arc`.
#[derive(Debug)]
pub struct Shared {
    /// The plan in force; a reload swaps it. A request keeps the one it began with.
    pub gateway: Arc<ArcSwap<Gateway>>,
    /// The counters of all limits.
    pub store: Store,
    /// What time it is.
    pub clock: Clock,
    /// Keys the fingerprints of clients' keys, unless a shared store has a secret for the whole fleet.
    pub secret: Secret,
    /// What shows that a request has passed this process before.
    pub loop_mark: LoopMark,
    /// The counters of what happened.
    pub metrics: Arc<Metrics>,
    /// The same second by second. The control thread alone locks it.
    pub samples: Mutex<Samples>,
    /// The last requests that were refused or failed.
    pub refusals: Refusals,
    /// Which servers of the upstreams are fit.
    pub roster: Roster,
    /// The access log.
    pub access_log: AccessLogger,
    /// Where finished spans go.
    pub spans: Spans,
    /// Clients' connections open now, over all workers; held against `max_connections`.
    pub connections: AtomicUsize,
    /// The same by client; held against `max_connections_per_client`.
    pub crowd: Arc<Crowd>,
    /// Clients' connections above which descriptors are scarce; `usize::MAX` if they are not.
    pub scarce_above: AtomicUsize,
    /// What workers are to do for the admin listener.
    pub desks: Desks,
    /// What is in force, and how to change it.
    pub steering: Steering,
    /// Running or draining.
    pub life: watch::Receiver<Life>,
}

impl Shared {
    /// Keys the fingerprints of clients' keys under this plan.
    pub fn secret(&self, gateway: &Gateway) -> Secret {
        gateway.store.shared.as_ref().map_or(self.secret, |shared| Secret::Fleet(shared.secret.0))
    }

    /// Keys the short ids of masked values under this plan: the same in all gateways of a fleet that has a secret, else of this
    /// process alone.
    pub fn short_ids(&self, gateway: &Gateway) -> ShortIds {
        let fleet = gateway.store.shared.as_ref().filter(|shared| shared.has_secret);
        ShortIds::new(&fleet.map_or(self.secret, |shared| Secret::Fleet(shared.secret.0)))
    }
}

/// Where the process stands in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// Taking connections.
    Running,
    /// No new connections; requests in flight finish; connections close after their response.
    Draining,
}
