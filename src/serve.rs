//! `tollgate run`: starts, controls and ends the workers.
//!
//! The workers carry the traffic, one thread each. The main thread is the control thread: it handles signals, reloads
//! the config file and serves the admin listener, on a small runtime of its own.

mod acme;
mod announce;
mod changes;
mod clock_steps;
mod descriptors;
mod ended_bans;
mod issuers;
mod new_process;
#[cfg(feature = "http3")]
mod quic;
mod reload;
mod sampler;
mod shutdown;
mod signals;
mod snapshots;
mod systemd;
mod takeover;
mod upgrade;
mod usage_end;
mod watch;
#[cfg(not(feature = "http3"))]
mod without_quic;
mod workers;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch as life};
use tokio::task::JoinHandle;

use crate::admin::AdminListener;
use crate::auth::password_lanes::PasswordLanes;
use crate::auth::runtime::AuthRuntime;
use crate::auth::verification_pool::VerificationPool;
use crate::config::{self, NamedFile, Report};
use crate::limit::units::Timestamp;
use crate::plan::Plan;
use crate::plan::admin::Admin;
use crate::plan::log::Log;
use crate::plan::loop_mark::LoopMark;
use crate::proxy::{self, Listeners};
use crate::shared::control::{ConfigStatus, Control};
use crate::shared::worker_commands::WorkerCommands;
use crate::shared::{Life, Shared};
use crate::store::Store;
use crate::telemetry::access_log::{AccessLogWriter, AccessLogger, Output};
use crate::telemetry::metrics::Metrics;
use crate::telemetry::program_log::{self, ProgramLog};
use crate::telemetry::refusal_samples::RefusalSamples;
use crate::telemetry::trace::Spans;
use crate::telemetry::trace::exporter::Exporter;
use crate::upstream::server_registry::ServerRegistry;
use announce::announce;
pub use new_process::stand_between;
#[cfg(feature = "http3")]
use quic::QuicSockets;
use reload::{Reloader, RestartOnlySettings, log_report};
use shutdown::Shutdown;
use signals::{Rotation, Signals};
use snapshots::{EarlierCounters, SnapshotWriter};
use systemd::Systemd;
use takeover::{Asking, CounterOffer, Offer, Predecessor};
use upgrade::BinaryUpgrade;
#[cfg(not(feature = "http3"))]
use without_quic::NoQuicSockets as QuicSockets;
use workers::{ReadySignal, WorkerEnd, Workers};

/// How long the access log may take for its last lines, if its reader is stuck.
const LAST_LINES: Duration = Duration::from_secs(2);
/// The same after a second request to stop.
const LAST_LINES_AT_ONCE: Duration = Duration::from_millis(100);
/// How long the exporter may take for the last spans; after a second request to stop they are dropped.
const LAST_SPANS: Duration = Duration::from_secs(2);

/// Credentials that wait to be verified.
const MAX_UNVERIFIED: usize = 1024;
/// Passwords that wait to be checked, for each thread that checks them.
const MAX_UNCHECKED: usize = 64;

/// How to start, and when to reload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunOptions {
    /// Reload when the file changes.
    pub watch: bool,
    /// Take the listening sockets over from the running process, and have it end.
    pub takeover: bool,
    /// The level of the program log, which overrules the file's; `None`: the file's.
    pub level: Option<&'static str>,
}

/// How a gateway ended that was told to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Requests in flight finished, or `drain_timeout` was over; also after a takeover.
    Drained,
    /// Told to stop a second time, it ended at once.
    AtOnce,
}

/// Why a gateway did not start, or failed.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The config file has errors.
    #[error("{0}")]
    Config(Report),
    /// An address could not be listened on.
    #[error("{0}")]
    Listen(String),
    /// The running process could not be taken over. It goes on running.
    #[error("cannot take over from the process that runs: {0}")]
    Takeover(String),
    /// Another required system call failed.
    #[error("cannot {0}: {1}")]
    System(&'static str, io::Error),
    /// A worker ended by itself. The others would serve on with less capacity, unnoticed, so the process ends instead.
    #[error("{0}")]
    Worker(WorkerEnd),
}

/// Runs the gateway that `file` describes (a file, a directory, or `-`) until it is told to stop, or another process has
/// taken over. Blocks the calling thread, which becomes the control thread.
///
/// # Errors
///
/// See [`ServeError`].
pub fn run(file: &Path, options: RunOptions) -> Result<Ended, ServeError> {
    let loaded = config::load(file).map_err(ServeError::Config)?;
    let mut inherited = systemd::of_service_manager(&loaded.plan)?;
    let log = &loaded.plan.log;
    let log = program_log::start(&log.level, options.level, log.program)
        .map_err(|error| ServeError::System("start the program log", io::Error::other(error)))?;
    log_report(&log, &loaded.warnings);
    descriptors::raise(loaded.plan.server.max_connections);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build_local(tokio::runtime::LocalOptions::default())
        .map_err(|error| ServeError::System("start the control thread", error))?;
    let ended = runtime.block_on(async {
        let signals = Signals::take().map_err(|error| ServeError::System("take signals", error))?;
        let (receiver, mut control) = ControlReceiver::new(file, loaded.version, random()?);
        signals::reload_on_hangup(control.reload.clone())
            .map_err(|error| ServeError::System("take signals", error))?;
        let rotation = Rotation::take().map_err(|error| ServeError::System("take signals", error))?;
        let upgrade = BinaryUpgrade::take(file).map_err(|error| ServeError::System("take signals", error))?;
        let predecessor = match options.takeover {
            true => take_over(&loaded.plan, &mut inherited)?,
            false => None,
        };
        let earlier = EarlierCounters::read(&loaded.plan, predecessor.as_ref());
        receiver.begin(&mut control, earlier.clock.now());
        let triggers = control.reload.clone();
        let signals = (signals, rotation, upgrade);
        let running =
            RunningGateway::start(loaded.plan, signals, inherited, predecessor, earlier, control).await?;
        let (named, files) = life::channel(loaded.files);
        if options.watch {
            watch::start(file, files, triggers);
        }
        running.control(file, named, log, receiver).await
    });
    // A resolver may be slow to answer, and its answer is no longer needed.
    runtime.shutdown_background();
    ended
}

/// The receiving side of [`Control`].
struct ControlReceiver {
    due: mpsc::Receiver<()>,
    drain: mpsc::Receiver<()>,
    config_status: life::Sender<ConfigStatus>,
}

impl ControlReceiver {
    /// The state with this file active.
    fn new(file: &Path, version: String, gateway_id: [u8; 8]) -> (Self, Control) {
        let gateway_id = u64::from_le_bytes(gateway_id);
        let machine = rustix::system::uname().nodename().to_string_lossy().into();
        let (reload, due) = mpsc::channel(1);
        let (drain, drained) = mpsc::channel(1);
        let config_status = ConfigStatus { file: config::name_of(file), version, ..ConfigStatus::default() };
        let (sender, config_status) = life::channel(config_status);
        (
            Self { due, drain: drained, config_status: sender },
            Control {
                config_status,
                reload,
                drain,
                lists_read: life::Sender::default(),
                started: Timestamp::default(),
                gateway_id,
                machine,
            },
        )
    }

    /// The process has started at this moment.
    fn begin(&self, control: &mut Control, now: Timestamp) {
        self.config_status.send_modify(|status| status.loaded = now);
        control.started = now;
    }
}

/// The components of a running gateway.
struct RunningGateway {
    shared: Arc<Shared>,
    settled: RestartOnlySettings,
    life: life::Sender<Life>,
    signals: Signals,
    rotation: Rotation,
    upgrade: BinaryUpgrade,
    workers: Workers,
    admin: Option<AdminListener>,
    access_log: AccessLogWriter,
    offer: Offer,
    counter_offer: CounterOffer,
    quic: QuicSockets,
    supervisor: Systemd,
    /// Answers the process before this one, until it ends.
    predecessor_calls: Option<JoinHandle<()>>,
}

impl RunningGateway {
    /// Listens on every address, starts the workers, and lets the previous process end. Needs a tokio runtime around
    /// it.
    async fn start(
        mut plan: Plan,
        (signals, rotation, upgrade): (Signals, Rotation, BinaryUpgrade),
        mut inherited: Vec<TcpListener>,
        predecessor: Option<Predecessor>,
        earlier: EarlierCounters,
        control: Control,
    ) -> Result<Self, ServeError> {
        let listeners = bind(&plan, &mut inherited)?;
        let admin = plan.admin.as_ref().map(|admin| bind_admin(admin, &mut inherited)).transpose()?;
        drop(inherited);
        let settled = RestartOnlySettings::of(&plan, addresses(&listeners, plan.server.listen.len())?);
        settled.impose_on(&mut plan);
        let sockets = duplicate_sockets(&listeners, admin.as_ref())
            .map_err(|error| ServeError::System("keep the listeners for a takeover", error))?;
        let (quic, listeners) = QuicSockets::bind(listeners, &plan, predecessor.as_ref(), random)?;
        let access_log = start_access_log(&plan.log)?;
        let (life, born) = life::channel(Life::Running);
        let (shared, asking) = share(plan, earlier, &access_log, born, control)?;
        let shared = Arc::new(shared);
        let predecessor_calls = asking.map(|asking| asking.answer(&shared)).transpose();
        let predecessor_calls =
            predecessor_calls.map_err(|error| ServeError::System("answer the process before", error))?;
        let workers = Arc::clone(&shared);
        let work = move |worker, listeners, up: ReadySignal| {
            proxy::run(worker, listeners, Arc::clone(&workers), || up.call())
        };
        let mut workers = Workers::start(listeners, work)
            .map_err(|error| ServeError::System("start a worker thread", error))?;
        workers.all_up().await.map_err(ServeError::Worker)?;
        if let Some(predecessor) = predecessor {
            hand_over(predecessor);
        }
        let plan = shared.plan.load();
        let addresses = plan.server.listen.iter().map(|listener| listener.address);
        let offer = Offer::new(addresses.chain(admin.as_ref().map(AdminListener::address)), sockets);
        let counter_offer = CounterOffer::new();
        // A script that waits for the announced listeners may start a takeover at once.
        announce(&plan, &shared.control.config_status.borrow().file, admin.as_ref());
        let supervisor = Systemd::from_environment();
        drop(plan);
        Ok(Self {
            shared,
            settled,
            life,
            signals,
            rotation,
            upgrade,
            workers,
            admin,
            access_log,
            offer,
            counter_offer,
            quic,
            supervisor,
            predecessor_calls,
        })
    }

    /// Reloads and serves until it is told to stop, then drains.
    async fn control(
        self,
        file: &Path,
        named: life::Sender<Vec<NamedFile>>,
        log: ProgramLog,
        receiver: ControlReceiver,
    ) -> Result<Ended, ServeError> {
        let Self { shared, settled, life, signals, upgrade, workers, admin, mut quic, supervisor, .. } = self;
        quic.start();
        tokio::spawn(self.rotation.reopen(Arc::clone(&shared)));
        let exporter = Exporter::start(&shared.spans);
        let ControlReceiver { due, drain, config_status } = receiver;
        let (file, reloaded) = (file.to_owned(), Arc::clone(&shared));
        let reloader = Reloader::new(file, named, reloaded, settled, log, supervisor.clone(), config_status);
        supervisor.ready(&reloader.status());
        tokio::spawn(reloader.run(due));
        tokio::spawn(sampler::run(Arc::clone(&shared)));
        tokio::spawn(clock_steps::run(Arc::clone(&shared)));
        tokio::task::spawn_local(acme::run(Arc::clone(&shared)));
        tokio::task::spawn_local(self.counter_offer.run(Arc::clone(&shared)));
        let watchdog = tokio::spawn(supervisor.clone().keep_watchdog());
        let admin = admin.map(|admin| tokio::spawn(admin.run(Arc::clone(&shared))));
        let snapshots = SnapshotWriter::start(Arc::clone(&shared))?;
        let end = Shutdown {
            signals,
            upgrade,
            workers,
            quic,
            life,
            shared,
            admin,
            supervisor,
            watchdog,
            snapshots,
            asked: drain,
            predecessor_calls: self.predecessor_calls,
            is_complete: false,
        };
        let ended = end.wait(self.offer).await;
        let at_once = matches!(ended, Ok(Ended::AtOnce));
        let timeout = if at_once { LAST_LINES_AT_ONCE } else { LAST_LINES };
        if !at_once && !exporter.finish(LAST_SPANS).await {
            tracing::warn!("the last spans could not be exported");
        }
        if !self.access_log.finish(timeout) {
            tracing::warn!("the last lines of the access log could not be written");
        }
        ended
    }
}

/// Asks the running process for its listening sockets. `None`: there is no such process.
fn take_over(plan: &Plan, sockets: &mut Vec<TcpListener>) -> Result<Option<Predecessor>, ServeError> {
    let addresses = plan.server.listen.iter().map(|listener| listener.address);
    let addresses = addresses.chain(plan.admin.as_ref().map(|admin| admin.listen));
    let named = std::env::var(takeover::PREDECESSOR).ok();
    let of_parent = named.as_deref().map(takeover::unlisted).into_iter().flatten();
    let asked = takeover::ask(of_parent.chain(addresses)).map_err(|error| {
        ServeError::Takeover(match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                "it did not answer within 5 s\n  = help: it hangs, or another takeover is under way: try again, or stop it \
                 and start without `--takeover`"
                    .to_owned()
            }
            io::ErrorKind::UnexpectedEof => "it ended before it had passed its listening sockets".to_owned(),
            _ => error.to_string(),
        })
    })?;
    let Some((predecessor, passed)) = asked else {
        if named.is_some() {
            let words = "the process that started this one does not offer its listening sockets any more";
            return Err(ServeError::Takeover(words.to_owned()));
        }
        tracing::info!("no running process to take over from: starting as usual");
        return Ok(None);
    };
    tracing::info!("process {} passes {} listening sockets", predecessor.process, passed.len());
    sockets.extend(passed);
    Ok(Some(predecessor))
}

/// Lets the previous process end.
fn hand_over(predecessor: Predecessor) {
    let process = predecessor.process;
    match predecessor.relieve() {
        Ok(()) => tracing::info!("took over from process {process}, which drains"),
        // Its sockets are shared with this process: connections that it no longer accepts are accepted here.
        Err(error) => {
            tracing::warn!(%error, "process {process} did not confirm the takeover: it is gone, or hangs and should be killed");
        }
    }
}

/// Duplicates of all listening sockets, for a process that takes over.
fn duplicate_sockets(listeners: &[Listeners], admin: Option<&AdminListener>) -> io::Result<Vec<TcpListener>> {
    let workers = listeners.iter().flatten().map(|(_, listener)| listener.try_clone());
    workers.chain(admin.map(AdminListener::socket)).collect()
}

fn start_access_log(log: &Log) -> Result<AccessLogWriter, ServeError> {
    Output::open(log.file.as_deref())
        .and_then(|output| AccessLogger::start(log.access.clone(), output))
        .map_err(|error| ServeError::System("start the access log", error))
}

fn share(
    plan: Plan,
    earlier: EarlierCounters,
    access_log: &AccessLogWriter,
    life: life::Receiver<Life>,
    control: Control,
) -> Result<(Shared, Option<Asking>), ServeError> {
    let (secret, credentials, mark) = (earlier.secret(random)?, random()?, random()?);
    let store = Store::new(plan.store.max_keys, plan.store.shared.clone()).map_err(|error| {
        let counters = "reserve the counters of `max_keys` in [store]";
        ServeError::System(counters, io::Error::new(io::ErrorKind::OutOfMemory, error))
    })?;
    control.lists_read.send_replace(earlier.knows_lists());
    // Before the plan's policies are registered: a changed one converts its counters, as a reload does.
    let (clock, asking) = earlier.restore(&store, &plan);
    reload::register(&store, &plan, &clock);
    let acme = acme::first(&plan, &clock);
    let shared = Shared {
        store,
        clock,
        secret,
        loop_mark: LoopMark::new(u64::from_le_bytes(mark)),
        auth: AuthRuntime::new(credentials),
        acme,
        verification: VerificationPool::new(plan.server.workers.div_ceil(2), MAX_UNVERIFIED),
        passwords: PasswordLanes::new(plan.server.workers.div_ceil(2), MAX_UNCHECKED),
        metrics: Metrics::new(plan.server.workers),
        samples: Mutex::default(),
        refusals: RefusalSamples::new(plan.server.workers),
        server_registry: ServerRegistry::default(),
        access_log: access_log.logger(),
        spans: Spans::default(),
        connections: AtomicUsize::new(0),
        scarce_above: AtomicUsize::new(usize::MAX),
        client_connections: Arc::default(),
        buffer_budget: Arc::default(),
        worker_commands: WorkerCommands::new(plan.server.workers),
        control,
        life,
        plan: Arc::new(ArcSwap::from_pointee(plan)),
    };
    Ok((shared, asking))
}

fn random<const N: usize>() -> Result<[u8; N], ServeError> {
    let mut bytes = [0; N];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .map_err(|error| ServeError::System("get random bytes", error.into()))?;
    Ok(bytes)
}

fn bind(plan: &Plan, inherited: &mut Vec<TcpListener>) -> Result<Vec<Listeners>, ServeError> {
    let addresses = plan.server.listen.iter().map(|listener| listener.address);
    proxy::bind(addresses, plan.server.workers, inherited)
        .map_err(|error| ServeError::Listen(with_remedy(error.to_string(), &error)))
}

fn bind_admin(admin: &Admin, inherited: &mut Vec<TcpListener>) -> Result<AdminListener, ServeError> {
    let bound = match proxy::take(inherited, admin.listen).pop() {
        Some(listener) => AdminListener::adopt(listener),
        None => AdminListener::bind(admin),
    };
    bound.map_err(|error| {
        let message = format!("the admin listener cannot listen on {}: {error}", admin.listen);
        ServeError::Listen(with_remedy(message, &error))
    })
}

/// Adds a remedy to the message.
fn with_remedy(message: String, error: &io::Error) -> String {
    let remedy = match error.kind() {
        io::ErrorKind::AddrInUse => {
            "another process listens there: find it with `ss -ltnp`, stop it, or choose another port; a tollgate of the same \
             user can be taken over with `--takeover`"
        }
        io::ErrorKind::PermissionDenied => {
            "ports below 1024 need the capability CAP_NET_BIND_SERVICE: grant it, or choose a higher port"
        }
        io::ErrorKind::AddrNotAvailable => "this machine has no such address: `ip addr` lists those it has",
        _ => return message,
    };
    format!("{message}\n  = help: {remedy}")
}

/// The addresses of the listeners, in the order of `server.listen`: all workers listen on the same addresses.
fn addresses(listeners: &[Listeners], count: usize) -> Result<Vec<SocketAddr>, ServeError> {
    let of_first = listeners.first().map(Vec::as_slice).unwrap_or_default();
    let at = |index| of_first.iter().find(|(of, _)| *of == index);
    (0..count)
        .filter_map(at)
        .map(|(_, listener)| listener.local_addr())
        .collect::<io::Result<_>>()
        .map_err(|error| ServeError::System("ask for a listener's address", error))
}
