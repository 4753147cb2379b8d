//! State that the workers, the admin listener and the control thread share while the gateway runs.
//!
//! On the request path nothing else is shared: the plan is read through a cached pointer, the store decides, and each
//! worker has a set of counters.

pub mod buffer_budget;
pub mod client_connections;
pub mod control;
pub mod worker_commands;

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::acme::runtime::AcmeRuntime;
use crate::auth::password_lanes::PasswordLanes;
use crate::auth::runtime::{AuthRuntime, AuthState};
use crate::auth::verification_pool::VerificationPool;
use crate::clock::Clock;
use crate::limit::wall_clock;
use crate::plan::Plan;
use crate::plan::loop_mark::LoopMark;
use crate::route::key::KeySecret;
use crate::route::mask::ShortIds;
use crate::store::Store;
use crate::store::fleet::GatewayIdentity;
use crate::telemetry::access_log::AccessLogger;
use crate::telemetry::history::History;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::refusal_samples::RefusalSamples;
use crate::telemetry::trace::Spans;
use crate::upstream::server_registry::ServerRegistry;
use buffer_budget::BufferBudget;
use client_connections::ClientConnections;
use control::Control;
use worker_commands::WorkerCommands;

/// One value for the whole process, behind an `Arc`.
#[derive(Debug)]
pub struct Shared {
    /// The active plan; a reload swaps it. A request keeps the plan that it began with.
    pub plan: Arc<ArcSwap<Plan>>,
    /// The counters of all limits.
    pub store: Store,
    /// The clock.
    pub clock: Clock,
    /// Keys the fingerprints of clients' keys, unless a shared store has a secret for the whole fleet.
    pub secret: KeySecret,
    /// Shows that a request has passed this process before.
    pub loop_mark: LoopMark,
    /// What the auths have learned.
    pub auth: AuthRuntime,
    /// Verifies credentials.
    pub verification: VerificationPool,
    /// The passwords that are being checked.
    pub passwords: PasswordLanes,
    /// The certificates that an authority issues, and the challenges under way.
    pub acme: AcmeRuntime,
    /// The metrics.
    pub metrics: Arc<Metrics>,
    /// The history, second by second. Only the control thread locks it.
    pub samples: Mutex<History>,
    /// Samples of the last requests that were refused or failed.
    pub refusals: RefusalSamples,
    /// The states of the upstreams' servers.
    pub server_registry: ServerRegistry,
    /// The access log.
    pub access_log: AccessLogger,
    /// The queue of finished spans.
    pub spans: Spans,
    /// Client connections open now, over all workers; limited by `max_connections`.
    pub connections: AtomicUsize,
    /// The same by client; limited by `max_connections_per_client`.
    pub client_connections: Arc<ClientConnections>,
    /// What requests hold that are not decided; limited by `max_buffered`.
    pub buffer_budget: Arc<BufferBudget>,
    /// The number of client connections above which descriptors are scarce; `usize::MAX` if they are not.
    pub scarce_above: AtomicUsize,
    /// Commands of the admin listener to workers.
    pub worker_commands: WorkerCommands,
    /// The active configuration, and the ways to change it.
    pub control: Control,
    /// Running or draining.
    pub life: watch::Receiver<Life>,
}

impl Shared {
    /// Keys the fingerprints of clients' keys under this plan.
    pub fn secret(&self, plan: &Plan) -> KeySecret {
        plan.store.shared.as_ref().map_or(self.secret, |shared| KeySecret::Fleet(shared.secret.0))
    }

    /// What this process tells other gateways of itself.
    pub fn identity(&self) -> GatewayIdentity {
        let Control { config_status, started, gateway_id, machine, .. } = &self.control;
        let listener = self.plan.load().server.listen.first().map(|listener| listener.address);
        let address = match listener {
            Some(address) if address.ip().is_unspecified() || address.ip().is_loopback() => {
                format!("{machine}:{}", address.port())
            }
            Some(address) => address.to_string(),
            None => machine.to_string(),
        };
        GatewayIdentity {
            id: *gateway_id,
            address,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            file_hash: u32::from_str_radix(&config_status.borrow().version, 16).unwrap_or_default(),
            since: wall_clock::system().wall_time(*started),
        }
    }

    /// What the auths of this plan have learned, in their order.
    pub fn auth_states(&self, plan: &Plan) -> Box<[AuthState]> {
        self.auth.states(plan.auth_methods())
    }

    /// Keys the short ids of masked values under this plan: with a secret in `[store]` the same in all gateways of a fleet,
    /// else of this process alone.
    pub fn short_ids(&self, plan: &Plan) -> ShortIds {
        ShortIds::new(&plan.store.secret.map_or(self.secret, |secret| KeySecret::Fleet(secret.0)))
    }
}

/// The phase of the process's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// Accepting connections.
    Running,
    /// No new connections; requests in flight finish; connections close after their response.
    Draining,
}
