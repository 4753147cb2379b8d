//! `tollgate run`: starts the workers, steers them, and ends them.
//!
//! The workers carry the traffic, one thread each. The main thread is the control thread: it takes signals, reloads
//! the file and answers the admin listener, on a small runtime of its own.

mod crew;
mod descriptors;
mod reload;
mod signals;
mod watch;

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::{mpsc, watch as life};

use crate::admin::AdminListener;
use crate::clock::Clock;
use crate::config::{self, NamedFile, Report};
use crate::gateway::{Admin, Gateway, Listener};
use crate::proxy::{self, Listeners};
use crate::route::key::Secret;
use crate::shared::{Life, Shared};
use crate::store::Store;
use crate::telemetry::access_log::{AccessLogWriter, AccessLogger};
use crate::telemetry::metrics::Metrics;
use crate::telemetry::program_log::{self, ProgramLog};
use crate::upstream::roster::Roster;
use crew::{Crew, WorkerEnd};
use reload::{Reloader, Settled};
use signals::Signals;

/// How long the access log may take for its last lines, should its reader be stuck.
const LAST_LINES: Duration = Duration::from_secs(2);
/// The same when somebody asked twice to stop.
const LAST_LINES_AT_ONCE: Duration = Duration::from_millis(100);

/// How a gateway ended that was asked to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Requests in flight finished, or `drain_timeout` was over.
    Drained,
    /// Asked a second time, it left at once.
    AtOnce,
}

/// Why a gateway did not start, or fell over.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// The file has faults.
    #[error("{0}")]
    Config(Report),
    /// An address cannot be listened on.
    #[error("{0}")]
    Listen(String),
    /// The system refused something else that is needed.
    #[error("cannot {0}: {1}")]
    System(&'static str, io::Error),
    /// A worker ended by itself. The others would carry on with less, unnoticed, so the process ends instead.
    #[error("{0}")]
    Worker(WorkerEnd),
}

/// Runs the gateway that `file` describes until it is told to stop; with `watch`, reloads when the file changes.
/// Blocks the calling thread, which becomes the control thread.
///
/// # Errors
/// See [`Fault`].
pub fn run(file: &Path, watch: bool) -> Result<Ended, Fault> {
    // Before the file is loaded, so that no change in between is missed.
    let seen = watch.then(|| watch::contents(file));
    let loaded = config::load(file).map_err(Fault::Config)?;
    let log = program_log::start(&loaded.gateway.log.level)
        .map_err(|error| Fault::System("start the program log", io::Error::other(error)))?;
    reload::tell(&loaded.warnings);
    descriptors::raise(loaded.gateway.server.max_connections);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build_local(tokio::runtime::LocalOptions::default())
        .map_err(|error| Fault::System("start the control thread", error))?;
    let ended = runtime.block_on(async {
        let signals = Signals::take().map_err(|error| Fault::System("take signals", error))?;
        let (triggers, due) = mpsc::channel(1);
        signals::reload_on_hangup(triggers.clone()).map_err(|error| Fault::System("take signals", error))?;
        let running = Running::start(loaded.gateway, signals)?;
        let (named, files) = life::channel(loaded.files);
        if let Some(seen) = seen {
            watch::start(file.to_owned(), seen, files, triggers);
        }
        running.steer(file, named, log, due).await
    });
    // A resolver may be slow to answer: nobody waits for it any more.
    runtime.shutdown_background();
    ended
}

/// Everything that runs.
struct Running {
    shared: Arc<Shared>,
    settled: Settled,
    life: life::Sender<Life>,
    signals: Signals,
    crew: Crew,
    admin: Option<AdminListener>,
    access_log: AccessLogWriter,
}

impl Running {
    /// Binds every address and starts the workers. Needs a tokio runtime around it.
    fn start(mut gateway: Gateway, signals: Signals) -> Result<Self, Fault> {
        let listeners = bind(&gateway)?;
        let admin = gateway.admin.as_ref().map(bind_admin).transpose()?;
        let settled = Settled::of(&gateway, addresses(&listeners)?);
        settled.impose_on(&mut gateway);
        let access_log = AccessLogger::start(gateway.log.access, io::stdout())
            .map_err(|error| Fault::System("start the access log", error))?;
        let (life, born) = life::channel(Life::Running);
        let shared = Arc::new(share(gateway, &access_log, born)?);
        announce(&shared.gateway.load(), admin.as_ref());
        let workers = Arc::clone(&shared);
        let work = move |worker, listeners| proxy::run(worker, listeners, Arc::clone(&workers));
        let crew =
            Crew::start(listeners, work).map_err(|error| Fault::System("start a worker thread", error))?;
        Ok(Self { shared, settled, life, signals, crew, admin, access_log })
    }

    /// Reloads and answers until it is told to stop, then drains.
    async fn steer(
        self,
        file: &Path,
        named: life::Sender<Vec<NamedFile>>,
        log: ProgramLog,
        due: mpsc::Receiver<()>,
    ) -> Result<Ended, Fault> {
        let reloader = Reloader::new(file.to_owned(), named, Arc::clone(&self.shared), self.settled, log);
        tokio::spawn(reloader.run(due));
        if let Some(admin) = self.admin {
            tokio::spawn(admin.run(Arc::clone(&self.shared)));
        }
        let ended = wait(self.signals, self.crew, &self.life, &self.shared).await;
        let patience = match ended {
            Ok(Ended::AtOnce) => LAST_LINES_AT_ONCE,
            _ => LAST_LINES,
        };
        if !self.access_log.finish(patience) {
            tracing::warn!("the last lines of the access log could not be written");
        }
        ended
    }
}

/// Waits for the first signal, then for the requests in flight.
async fn wait(
    mut signals: Signals,
    mut crew: Crew,
    life: &life::Sender<Life>,
    shared: &Shared,
) -> Result<Ended, Fault> {
    let signal = tokio::select! {
        signal = signals.stop() => signal,
        end = crew.next_end() => return Err(Fault::Worker(end)),
    };
    let patience = shared.gateway.load().server.drain_timeout;
    tracing::info!("{signal}: draining, requests in flight have {patience:?} to finish");
    life.send_replace(Life::Draining);
    tokio::select! {
        biased;
        signal = signals.stop() => {
            tracing::warn!("{signal} again: leaving at once");
            return Ok(Ended::AtOnce);
        }
        drained = crew.all_drained() => drained.map_err(Fault::Worker)?,
        () = tokio::time::sleep(patience) => {
            let open = shared.connections.load(Ordering::Relaxed);
            tracing::warn!("drain_timeout is over: {open} connections are cut off");
        }
    }
    tracing::info!("stopped");
    Ok(Ended::Drained)
}

fn share(
    gateway: Gateway,
    access_log: &AccessLogWriter,
    life: life::Receiver<Life>,
) -> Result<Shared, Fault> {
    let mut secret = [0; 16];
    rustix::rand::getrandom(&mut secret, rustix::rand::GetRandomFlags::empty())
        .map_err(|error| Fault::System("get random bytes", error.into()))?;
    let store = Store::new(gateway.store.max_keys, gateway.store.shared.clone()).map_err(|error| {
        let counters = "reserve the counters of `max_keys` in [store]";
        Fault::System(counters, io::Error::new(io::ErrorKind::OutOfMemory, error))
    })?;
    reload::register(&store, &gateway);
    Ok(Shared {
        store,
        clock: Clock::system(),
        secret: Secret::Process(secret),
        metrics: Metrics::new(gateway.server.workers),
        roster: Roster::default(),
        access_log: access_log.logger(),
        connections: AtomicUsize::new(0),
        crowd: Arc::default(),
        life,
        gateway: Arc::new(ArcSwap::from_pointee(gateway)),
    })
}

fn bind(gateway: &Gateway) -> Result<Vec<Listeners>, Fault> {
    proxy::bind(gateway.server.listen.iter().map(|listener| listener.address), gateway.server.workers)
        .map_err(|error| Fault::Listen(with_remedy(error.to_string(), &error)))
}

fn bind_admin(admin: &Admin) -> Result<AdminListener, Fault> {
    AdminListener::bind(admin).map_err(|error| {
        let message = format!("the admin listener cannot listen on {}: {error}", admin.listen);
        Fault::Listen(with_remedy(message, &error))
    })
}

/// Adds what a person can do about it.
fn with_remedy(message: String, error: &io::Error) -> String {
    let remedy = match error.kind() {
        io::ErrorKind::AddrInUse => {
            "another process listens there: find it with `ss -ltnp`, stop it, or choose another port"
        }
        io::ErrorKind::PermissionDenied => {
            "ports below 1024 need the capability CAP_NET_BIND_SERVICE: grant it, or choose a higher port"
        }
        io::ErrorKind::AddrNotAvailable => "this machine has no such address: `ip addr` lists those it has",
        _ => return message,
    };
    format!("{message}\n  = help: {remedy}")
}

/// Where the listeners are, in the order of `server.listen`: all workers' are at the same addresses.
fn addresses(listeners: &[Listeners]) -> Result<Vec<SocketAddr>, Fault> {
    let first = listeners.iter().take(1).flatten();
    first
        .map(std::net::TcpListener::local_addr)
        .collect::<io::Result<_>>()
        .map_err(|error| Fault::System("ask for a listener's address", error))
}

/// One line for each listener, which scripts may wait for.
fn announce(gateway: &Gateway, admin: Option<&AdminListener>) {
    for Listener { address, tls, .. } in &gateway.server.listen {
        tracing::info!("listening on {address}{}", if *tls { " (TLS)" } else { "" });
    }
    if let Some(admin) = admin {
        tracing::info!("admin listening on {}", admin.address());
    }
}
