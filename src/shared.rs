//! What the workers, the admin listener and the control thread share while the gateway runs.
//!
//! Nothing else is shared in the request path: the plan is read through a cached pointer, the store decides, and the
//! counters are one set per worker.

pub mod client_connections;
pub mod control;
pub mod worker_commands;

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::clock::Clock;
use crate::plan::Plan;
use crate::plan::loop_mark::LoopMark;
use crate::route::key::KeySecret;
use crate::route::mask::ShortIds;
use crate::store::Store;
use crate::telemetry::access_log::AccessLogger;
use crate::telemetry::history::History;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::refusal_samples::RefusalSamples;
use crate::telemetry::trace::Spans;
use crate::upstream::server_registry::ServerRegistry;
use client_connections::ClientConnections;
use control::Control;
use worker_commands::WorkerCommands;

/// One value for the whole process, behind an `Arc`.
#[derive(Debug)]
pub struct Shared {
    /// The plan in force; a reload swaps it. A request keeps the one it began with.
    pub gateway: Arc<ArcSwap<Plan>>,
    /// The counters of all limits.
    pub store: Store,
    /// What time it is.
    pub clock: Clock,
    /// Keys the fingerprints of clients' keys, unless a shared store has a secret for the whole fleet.
    pub secret: KeySecret,
    /// What shows that a request has passed this process before.
    pub loop_mark: LoopMark,
    /// The counters of what happened.
    pub metrics: Arc<Metrics>,
    /// The same second by second. The control thread alone locks it.
    pub samples: Mutex<History>,
    /// The last requests that were refused or failed.
    pub refusals: RefusalSamples,
    /// Which servers of the upstreams are fit.
    pub server_registry: ServerRegistry,
    /// The access log.
    pub access_log: AccessLogger,
    /// Where finished spans go.
    pub spans: Spans,
    /// Clients' connections open now, over all workers; held against `max_connections`.
    pub connections: AtomicUsize,
    /// The same by client; held against `max_connections_per_client`.
    pub client_connections: Arc<ClientConnections>,
    /// Clients' connections above which descriptors are scarce; `usize::MAX` if they are not.
    pub scarce_above: AtomicUsize,
    /// What workers are to do for the admin listener.
    pub worker_commands: WorkerCommands,
    /// What is in force, and how to change it.
    pub control: Control,
    /// Running or draining.
    pub life: watch::Receiver<Life>,
}

impl Shared {
    /// Keys the fingerprints of clients' keys under this plan.
    pub fn secret(&self, gateway: &Plan) -> KeySecret {
        gateway.store.shared.as_ref().map_or(self.secret, |shared| KeySecret::Fleet(shared.secret.0))
    }

    /// Keys the short ids of masked values under this plan: the same in all gateways of a fleet that has a secret, else of this
    /// process alone.
    pub fn short_ids(&self, gateway: &Plan) -> ShortIds {
        let fleet = gateway.store.shared.as_ref().filter(|shared| shared.has_secret);
        ShortIds::new(&fleet.map_or(self.secret, |shared| KeySecret::Fleet(shared.secret.0)))
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
