//! Reload: replaces the plan under running traffic. Also logs the faults of a file.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::Receiver;
use tokio::sync::watch::Sender;

use super::acme;
use super::changes::changes;
use super::ended_bans::end_bans;
use super::issuers::Issuers;
use super::systemd::Systemd;
use crate::clock::Clock;
use crate::config::{self, ConfigFinding, NamedFile, Report};
use crate::limit::wall_clock;
use crate::plan::admin::Admin;
use crate::plan::decisions::DecisionService;
use crate::plan::log::Log;
use crate::plan::{Limit, Listener, ListenerRole, Plan};
use crate::shared::Shared;
use crate::shared::control::{ConfigStatus, EndedBans, Reload, Warnings};
use crate::store::Store;
use crate::telemetry::access_log::Output;
use crate::telemetry::program_log::ProgramLog;
use crate::upstream::health::HealthChecks;

/// How long triggers are collected: several in this time are one reload.
const GATHER: Duration = Duration::from_millis(50);

/// Reloads the config file when triggered.
#[derive(Debug)]
pub(super) struct Reloader {
    file: PathBuf,
    /// Receives the files that the configuration consists of and names.
    named: Sender<Vec<NamedFile>>,
    shared: Arc<Shared>,
    settled: RestartOnlySettings,
    log: ProgramLog,
    supervisor: Systemd,
    checks: HealthChecks,
    issuers: Issuers,
    config_status: Sender<ConfigStatus>,
}

/// The log data of an adopted file.
struct Adopted {
    version: String,
    warnings: Vec<String>,
    effect: ReloadEffect,
}

/// What a new plan has changed.
struct ReloadEffect {
    /// A setting, or what is in a file that a setting names.
    changed: bool,
    ended_bans: Vec<EndedBans>,
}

/// Why the old plan stays: a summary, and each error.
struct Refused {
    why: String,
    lines: Vec<String>,
}

/// The settings that a reload cannot change.
#[derive(Clone, Debug)]
pub(super) struct RestartOnlySettings {
    /// `server.listen` as written.
    listen: Vec<Listener>,
    /// The same with port 0 resolved.
    resolved: Vec<Listener>,
    workers: usize,
    admin: Option<Admin>,
    decisions: Option<DecisionService>,
    max_keys: usize,
}

impl RestartOnlySettings {
    pub(super) fn of(plan: &Plan, addresses: Vec<SocketAddr>) -> Self {
        let listen = plan.server.listen.clone();
        let resolved = listen.iter().zip(addresses);
        Self {
            resolved: resolved.map(|(listener, address)| Listener { address, ..listener.clone() }).collect(),
            listen,
            workers: plan.server.workers,
            admin: plan.admin.clone(),
            decisions: plan.decisions.clone(),
            max_keys: plan.store.max_keys,
        }
    }

    /// Sets these settings in a new plan, so that the active plan always shows the effective ones.
    pub(super) fn impose_on(&self, plan: &mut Plan) {
        plan.server.listen.clone_from(&self.resolved);
        plan.server.workers = self.workers;
        plan.admin = self.effective_admin(plan.admin.take());
        plan.decisions = self.effective_decisions(plan.decisions.take());
        plan.store.max_keys = self.max_keys;
    }

    /// The address of the running listener with the tokens and the certificate of the file, if both have an `[admin]`.
    /// All stay as they are where the file has no token although others can reach the listener.
    fn effective_admin(&self, file: Option<Admin>) -> Option<Admin> {
        let running = self.admin.as_ref()?;
        let is_private = running.listen.ip().to_canonical().is_loopback();
        match file {
            Some(file) if is_private || file.needs_token() => Some(Admin { listen: running.listen, ..file }),
            _ => Some(running.clone()),
        }
    }

    /// The same of `[decisions]`. TLS begins or ends only with the listener, and without it a certificate is no access.
    fn effective_decisions(&self, file: Option<DecisionService>) -> Option<DecisionService> {
        let running = self.decisions.as_ref()?;
        match file {
            Some(file) if file.tls.is_some() == running.tls.is_some() => {
                Some(DecisionService { listen: running.listen, ..file })
            }
            _ => Some(running.clone()),
        }
    }

    /// The settings of `plan` that take effect only after a restart.
    pub(super) fn unlike(&self, plan: &Plan) -> Vec<&'static str> {
        let of_clients = self.listen.iter().filter(|listener| listener.role == ListenerRole::Traffic);
        let settings = [
            ("server.listen", !plan.server.client_listeners().eq(of_clients)),
            ("server.workers", plan.server.workers != self.workers),
            ("admin", self.effective_admin(plan.admin.clone()) != plan.admin),
            ("decisions", self.effective_decisions(plan.decisions.clone()) != plan.decisions),
            ("store.max_keys", plan.store.max_keys != self.max_keys),
        ];
        settings.into_iter().filter_map(|(name, differs)| differs.then_some(name)).collect()
    }
}

impl Reloader {
    /// Begins the health checks and the fetching of keys, too. Needs the control thread's runtime around it.
    pub(super) fn new(
        file: PathBuf,
        named: Sender<Vec<NamedFile>>,
        shared: Arc<Shared>,
        settled: RestartOnlySettings,
        log: ProgramLog,
        supervisor: Systemd,
        config_status: Sender<ConfigStatus>,
    ) -> Self {
        let mut checks = HealthChecks::default();
        checks.adopt(&shared.plan.load().upstreams, &shared.server_registry);
        let mut issuers = Issuers::default();
        issuers.adopt(&shared.auth_states(&shared.plan.load()));
        Self { file, named, shared, settled, log, supervisor, checks, issuers, config_status }
    }

    /// Reloads for each trigger, or once for several in quick succession.
    pub(super) async fn run(mut self, mut due: Receiver<()>) {
        while due.recv().await.is_some() {
            tokio::time::sleep(GATHER).await;
            while due.try_recv().is_ok() {}
            self.supervisor.reloading();
            let status =
                if self.reload() { self.status() } else { format!("{}; the file has faults", self.status()) };
            self.supervisor.ready(&status);
        }
    }

    /// The state for the service manager.
    pub(super) fn status(&self) -> String {
        let plan = self.shared.plan.load();
        let addresses: Vec<_> =
            plan.server.listen.iter().map(|listener| listener.address.to_string()).collect();
        format!("{} routes on {}", plan.taking_routes().count(), addresses.join(", "))
    }

    /// Activates the file's plan, or leaves everything as it is if the file has errors. Returns whether it had none.
    fn reload(&mut self) -> bool {
        self.config_status.send_modify(|config_status| config_status.begun += 1);
        let adopted = self.try_reload();
        if let Err(refused) = &adopted {
            tracing::error!("not reloaded: {}; the previous configuration stays in force", refused.why);
        }
        let good = adopted.is_ok();
        self.shared.metrics.reloaded(good);
        self.note(adopted);
        good
    }

    fn try_reload(&mut self) -> Result<Adopted, Refused> {
        if config::is_standard_input(&self.file) {
            let why = "the configuration came from standard input, which cannot be read again".to_owned();
            return Err(Refused { lines: vec![why.clone()], why });
        }
        let loaded = config::load(&self.file).map_err(|report| {
            log_report(&self.log, &report);
            self.watch_faulty(report.files());
            let why = match report.errors() {
                1 => "one error in the file".to_owned(),
                count => format!("{count} errors in the file"),
            };
            Refused { why, lines: report.error_lines() }
        })?;
        log_report(&self.log, &loaded.warnings);
        let other = self.other_output(&loaded.plan.log);
        let output = other.map_err(|why| Refused { lines: vec![why.clone()], why })?;
        let effect = self.adopt(loaded.plan, output);
        self.named.send_replace(loaded.files);
        Ok(Adopted { version: loaded.version, warnings: loaded.warnings.warning_lines(), effect })
    }

    /// Watches the files of a configuration with errors beside those of the active one, so that the change that mends it
    /// is noticed wherever it is made.
    fn watch_faulty(&self, faulty: &[NamedFile]) {
        let is_faulty = |file: &NamedFile| faulty.iter().any(|other| other.path == file.path);
        let active = self.named.borrow().clone();
        let others = active.iter().filter(|file| !is_faulty(file)).map(NamedFile::again);
        let all = faulty.iter().cloned().chain(others).collect();
        self.named.send_replace(all);
    }

    /// Publishes the result for the admin listener.
    fn note(&self, adopted: Result<Adopted, Refused>) {
        let time = self.shared.clock.now();
        self.config_status.send_modify(|config_status| {
            let result = adopted.map_err(|refused| refused.lines).map(|adopted| {
                let ReloadEffect { changed, ended_bans } = adopted.effect;
                let changed = changed || config_status.version != adopted.version;
                config_status.version = adopted.version;
                config_status.loaded = time;
                Warnings { changed, lines: adopted.warnings, ended_bans }
            });
            config_status.last = Some(Reload { number: config_status.begun, time, result });
        });
    }

    /// The access log's new output, if it changes.
    fn other_output(&self, log: &Log) -> Result<Option<Output>, String> {
        if log.file == self.shared.plan.load().log.file {
            return Ok(None);
        }
        let opened = Output::open(log.file.as_deref());
        opened.map(Some).map_err(|error| format!("the file of the access log cannot be opened: {error}"))
    }

    fn adopt(&mut self, mut plan: Plan, output: Option<Output>) -> ReloadEffect {
        let waiting = self.settled.unlike(&plan);
        for setting in &waiting {
            tracing::warn!("`{setting}` has changed, which takes effect only after a restart");
        }
        self.settled.impose_on(&mut plan);
        self.settled.admin.clone_from(&plan.admin);
        self.settled.decisions.clone_from(&plan.decisions);
        keep_sessions(&mut plan, &self.shared.plan.load());
        acme::attach(&self.shared.acme, &plan, &self.shared.clock);
        register(&self.shared.store, &plan, &self.shared.clock);
        self.shared.store.share(plan.store.shared.as_ref());
        self.log.change(&plan.log.level, plan.log.program);
        self.shared.access_log.change(plan.log.access.clone(), output);
        let last = self.shared.plan.swap(Arc::new(plan));
        self.checks.adopt(&self.shared.plan.load().upstreams, &self.shared.server_registry);
        let plan = self.shared.plan.load();
        // Made before the former ones are forgotten: an issuer of both keeps its keys.
        let auths = self.shared.auth_states(&plan);
        self.shared.auth.retain(plan.auth_methods());
        self.issuers.adopt(&auths);
        let changes = changes(&last, &plan);
        tracing::info!("{}", summary(changes.len(), waiting.len()));
        for change in &changes {
            tracing::info!("changed: {change}");
        }
        ReloadEffect { changed: !changes.is_empty(), ended_bans: end_bans(&self.shared, &last, &plan) }
    }
}

/// The line that counts the changes in force. `waiting`: the number of changed settings that only a restart applies.
pub(super) fn summary(changes: usize, waiting: usize) -> String {
    match (changes, waiting) {
        (0, 0) => "reloaded: no changes".to_owned(),
        (0, _) => "reloaded: nothing changes before a restart".to_owned(),
        _ => format!("reloaded: {}", config::counted(changes, "change")),
    }
}

/// With unchanged certificates, TLS sessions of clients can still be resumed. If the file has no certificates any more,
/// TLS listeners go on with the previous ones.
fn keep_sessions(plan: &mut Plan, last: &Plan) {
    if plan.server.tls.is_none() || plan.server.tls == last.server.tls {
        plan.server.tls.clone_from(&last.server.tls);
    }
    if let (Some(decisions), Some(last)) = (&mut plan.decisions, &last.decisions)
        && decisions.tls == last.tls
    {
        decisions.tls.clone_from(&last.tls);
    }
    if let (Some(admin), Some(last)) = (&mut plan.admin, &last.admin)
        && admin.tls == last.tls
    {
        admin.tls.clone_from(&last.tls);
    }
}

/// Registers all policies of a plan with the store, which must be done before the plan is used.
pub(super) fn register(store: &Store, plan: &Plan, clock: &Clock) {
    store.register(plan.limits.iter().flat_map(Limit::registrations), clock.now());
    let usage = plan.limits.iter().filter_map(|limit| limit.usage.as_ref());
    store.usage().configure(usage, wall_clock::system().wall_time(clock.now()));
}

/// Logs all errors and warnings of the report: as a report for a reader, or as a record each where the program log is
/// JSON.
pub(super) fn log_report(log: &ProgramLog, report: &Report) {
    if !log.is_json() {
        return report.print();
    }
    for ConfigFinding { severity, message, help, file, line, column } in report.findings() {
        if severity == "error" {
            tracing::error!(severity, file, line, column, help, "{message}");
        } else {
            tracing::warn!(severity, file, line, column, help, "{message}");
        }
    }
    if report.hidden() > 0 {
        tracing::warn!("and {} more faults of the file that are not shown", report.hidden());
    }
}
