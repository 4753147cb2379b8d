//! Parts of a worker for unit tests: settings, a plan without routes, an upstream. All time-outs are the defaults
//! of the file.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::{mpsc, watch};

use crate::acme::runtime::AcmeRuntime;
use crate::auth::password_lanes::PasswordLanes;
use crate::auth::runtime::AuthRuntime;
use crate::auth::verification_pool::VerificationPool;
use crate::clock::Clock;
use crate::limit::units::Timestamp;
use crate::plan::action::ErrorPages;
use crate::plan::log::{AccessLog, Log, ProgramFormat, Sample, SecretHeaders};
use crate::plan::loop_mark::LoopMark;
use crate::plan::{self, Endpoint, Plan, PlanSections, Route, Server, StoreSettings, Upstream};
use crate::proxy::worker::Worker;
use crate::route::RouteTable;
use crate::route::key::KeySecret;
use crate::route::path::PathMatching;
use crate::shared::control::{ConfigStatus, Control};
use crate::shared::worker_commands::WorkerCommands;
use crate::shared::{Life, Shared};
use crate::store::Store;
use crate::telemetry::access_log::AccessLogger;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::trace::Spans;
use crate::upstream::server_registry::ServerRegistry;

const SECOND: Duration = Duration::from_secs(1);

/// A plan of this route to this upstream; without a route, the response to every request is 404.
pub(super) fn plan(server: Server, route: Option<(Route, Upstream)>) -> Plan {
    let (routes, upstreams): (Vec<_>, Vec<_>) = route.into_iter().unzip();
    let conditions = routes.iter().map(|route| route.conditions.clone()).collect();
    Plan::assemble(PlanSections {
        connection_limits: Vec::new(),
        server,
        admin: None,
        decisions: None,
        acme: None,
        store: StoreSettings { max_keys: 10, shared: None, secret: None, snapshot: None },
        log: Log {
            access: AccessLog::Off,
            file: None,
            sample: Sample::ALL,
            level: String::new(),
            program: ProgramFormat::Text,
            secrets: SecretHeaders::default(),
        },
        trace: None,
        limits: Vec::new(),
        auths: Vec::new(),
        upstreams: upstreams.into_iter().map(Arc::new).collect(),
        routes,
        descriptors: Vec::new(),
        table: RouteTable::new(conditions, PathMatching::default()),
        errors: ErrorPages::default(),
    })
}

/// An upstream of one server, which waits for long and tries once.
pub(super) fn upstream(address: SocketAddr) -> Upstream {
    let endpoint = Endpoint {
        host: address.ip().to_string(),
        port: address.port(),
        unix_socket: None,
        authority: address.to_string().into(),
        weight: 1,
        tls: None,
    };
    Upstream {
        connect_timeout: 20 * SECOND,
        idle_timeout: 2_000 * SECOND,
        ..Upstream::plain("backend", plan::Backend::Servers(vec![endpoint]))
    }
}

/// A worker with this plan, without listeners.
pub(super) fn worker(plan: Plan) -> Rc<Worker> {
    // The sender is never used, so it may be dropped.
    let (_, life) = watch::channel(Life::Running);
    let control = Control {
        reload: mpsc::channel(1).0,
        drain: mpsc::channel(1).0,
        config_status: watch::channel(ConfigStatus::default()).1,
        lists_read: watch::Sender::default(),
        started: Timestamp(0),
        gateway_id: 0,
        machine: "".into(),
    };
    let shared = Shared {
        store: Store::new(plan.store.max_keys, None).expect("a small one"),
        clock: Clock::manual(Timestamp(0)),
        secret: KeySecret::Process([0; 16]),
        loop_mark: LoopMark::new(0),
        auth: AuthRuntime::new([0; 16]),
        acme: AcmeRuntime::default(),
        verification: VerificationPool::new(1, 1),
        passwords: PasswordLanes::new(1, 1),
        metrics: Metrics::new(1),
        server_registry: ServerRegistry::default(),
        access_log: AccessLogger::disabled(),
        samples: parking_lot::Mutex::default(),
        refusals: crate::telemetry::refusal_samples::RefusalSamples::new(1),
        spans: Spans::default(),
        connections: AtomicUsize::new(1),
        scarce_above: AtomicUsize::new(usize::MAX),
        client_connections: Arc::default(),
        buffer_budget: Arc::default(),
        worker_commands: WorkerCommands::new(1),
        control,
        life,
        plan: Arc::new(ArcSwap::from_pointee(plan)),
    };
    Rc::new(Worker::new(0, Arc::new(shared)))
}
