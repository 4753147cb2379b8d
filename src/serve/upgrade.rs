//! SIGUSR2: starts the binary that now stands at this process's path. It takes over from this process (`takeover`).

use std::convert::Infallible;
use std::ffi::OsString;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::new_process::NewProcess;
use super::systemd::Systemd;
use super::takeover;
use crate::config;

/// How long the new process may take until it serves. Longer than each step of a takeover together.
const STARTING: Duration = Duration::from_secs(60);

/// The argument with which the new process starts.
const TAKEOVER: &str = "--takeover";

/// What a service manager has set for one process. The new process gets its sockets from this one, and is another one.
const OF_THIS_PROCESS: [&str; 5] =
    ["LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES", "LISTEN_FDS_FIRST_FD", "WATCHDOG_PID"];

/// SIGUSR2, and what it starts.
#[derive(Debug)]
pub(super) struct BinaryUpgrade {
    signal: Signal,
    /// The path of the binary, or the reason why no other can be started.
    program: Result<PathBuf, String>,
    arguments: Vec<OsString>,
    /// The process that was started, until it has taken over or ended.
    started: Option<NewProcess>,
}

impl BinaryUpgrade {
    /// Handles the signal: it no longer ends the process. Notes the path of the binary, since `/proc/self/exe` leads to
    /// no file once the binary is replaced. Needs a tokio runtime around it.
    pub(super) fn take(file: &Path) -> io::Result<Self> {
        let program = match config::is_standard_input(file) {
            true => Err("the configuration came from standard input, which cannot be read again".to_owned()),
            false => path_of_binary().map_err(|error| format!("the path of the binary is unknown: {error}")),
        };
        let mut arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
        if !arguments.iter().any(|argument| argument == TAKEOVER) {
            // Before a command, where `--` does not precede it.
            arguments.insert(0, TAKEOVER.into());
        }
        Ok(Self { signal: signal(SignalKind::user_defined2())?, program, arguments, started: None })
    }

    /// Starts the new process after each signal, and reports one that does not take over from `addresses`. A new process
    /// that takes over ends the wait from outside: this future is dropped then, and [`Self::let_go`] ends the matter.
    pub(super) async fn serve(&mut self, addresses: &[SocketAddr], supervisor: &Systemd) -> Infallible {
        loop {
            received(&mut self.signal).await;
            let failure = match self.start(addresses) {
                Ok(new) => self.failure_of(new, supervisor).await,
                Err(error) => error,
            };
            tracing::error!("not upgraded: {failure}; this process continues");
            supervisor.status(&format!("not upgraded: {failure}"));
        }
    }

    /// Reports each signal that comes too late.
    pub(super) async fn ignore(&mut self) -> Infallible {
        loop {
            received(&mut self.signal).await;
            tracing::warn!("SIGUSR2: ignored, this process drains");
        }
    }

    /// The new process has taken over: from now on it is a child of the service manager, as this process is.
    pub(super) fn let_go(&mut self) {
        if let Some(new) = self.started.take() {
            new.let_go();
        }
    }

    fn start(&self, addresses: &[SocketAddr]) -> Result<NewProcess, String> {
        let program = self.program.as_ref().map_err(Clone::clone)?;
        let mut command = NewProcess::command();
        command.args(&self.arguments).env(takeover::PREDECESSOR, takeover::listed(addresses));
        for name in OF_THIS_PROCESS {
            command.env_remove(name);
        }
        NewProcess::start(program.as_os_str(), command)
    }

    /// Waits until the new process ends, or ends it when it takes too long. Returns the reason.
    async fn failure_of(&mut self, new: NewProcess, supervisor: &Systemd) -> String {
        let Self { signal, started, .. } = self;
        let process = new.process;
        tracing::info!("SIGUSR2: process {process} starts, to take over");
        supervisor.status(&format!("process {process} starts, to take over"));
        let new = started.insert(new);
        let mut late = pin!(tokio::time::sleep(STARTING));
        let end = loop {
            tokio::select! {
                biased;
                end = new.ended() => break Some(end),
                () = received(signal) => {
                    tracing::warn!("SIGUSR2: ignored, process {process} already starts");
                }
                () = &mut late => break None,
            }
        };
        match (started.take(), end) {
            (Some(new), None) => late_words(process, new.kill().await),
            (new, end) => {
                new.into_iter().for_each(NewProcess::let_go);
                format!("process {process} {}", end.unwrap_or_default())
            }
        }
    }
}

async fn received(signal: &mut Signal) {
    if signal.recv().await.is_none() {
        // The runtime no longer delivers signals: it ends.
        std::future::pending::<()>().await;
    }
}

fn late_words(process: u32, killed: io::Result<()>) -> String {
    let end = killed.map_or_else(|error| format!("cannot be killed: {error}"), |()| "was killed".to_owned());
    format!("process {process} did not take over within {STARTING:?} and {end}")
}

/// The path of the running binary: as it was typed, if it leads there, so that a symbolic link is followed anew.
fn path_of_binary() -> io::Result<PathBuf> {
    let running = std::env::current_exe()?;
    let typed = std::env::args_os().next().map(PathBuf::from).filter(|typed| typed.components().count() > 1);
    let leads_there = |typed: &PathBuf| typed.canonicalize().is_ok_and(|typed| typed == running);
    typed.filter(leads_there).map_or(Ok(running), std::path::absolute)
}
