//! SIGUSR2: starts the binary that now stands at this process's path. It takes over from this process (`takeover`).

use std::convert::Infallible;
use std::ffi::OsString;
use std::fmt::Display;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::{Child, Command, ExitStatus};
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};

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
    /// SIGCHLD.
    children: Signal,
    /// The path of the binary, or the reason why no other can be started.
    program: Result<PathBuf, String>,
    arguments: Vec<OsString>,
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
        let children = signal(SignalKind::child())?;
        Ok(Self { signal: signal(SignalKind::user_defined2())?, children, program, arguments })
    }

    /// Starts the new process after each signal, and reports one that does not take over from `addresses`. A new process
    /// that takes over ends the wait from outside: this future is dropped then, and the new process goes on.
    pub(super) async fn serve(&mut self, addresses: &[SocketAddr], supervisor: &Systemd) -> Infallible {
        loop {
            received(&mut self.signal).await;
            let failure = match self.start(addresses) {
                Ok(child) => self.failure_of(child, supervisor).await,
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

    fn start(&self, addresses: &[SocketAddr]) -> Result<Child, String> {
        let program = self.program.as_ref().map_err(Clone::clone)?;
        let mut command = Command::new(program);
        command.args(&self.arguments).env(takeover::PREDECESSOR, takeover::listed(addresses));
        for name in OF_THIS_PROCESS {
            command.env_remove(name);
        }
        command.spawn().map_err(|error| format!("cannot start `{}`: {error}", program.display()))
    }

    /// Waits until the new process ends, or ends it when it takes too long. Returns the reason.
    async fn failure_of(&mut self, mut child: Child, supervisor: &Systemd) -> String {
        let Self { signal, children, .. } = self;
        let process = child.id();
        tracing::info!("SIGUSR2: process {process} starts, to take over");
        supervisor.status(&format!("process {process} starts, to take over"));
        let mut late = pin!(tokio::time::sleep(STARTING));
        loop {
            tokio::select! {
                biased;
                ended = ended(&mut child, children) => return match ended {
                    Ok(status) => format!("process {process} ended with {status}"),
                    Err(error) => format!("process {process} is lost: {error}"),
                },
                () = received(signal) => {
                    tracing::warn!("SIGUSR2: ignored, process {process} already starts");
                }
                () = &mut late => {
                    // A killed process ends at once.
                    let killed = child.kill().and_then(|()| child.wait()).map(drop);
                    return late_words(process, killed);
                }
            }
        }
    }
}

/// Waits until the child has ended. `children` is the signal for that.
async fn ended(child: &mut Child, children: &mut Signal) -> io::Result<ExitStatus> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        received(children).await;
    }
}

async fn received(signal: &mut Signal) {
    if signal.recv().await.is_none() {
        // The runtime no longer delivers signals: it ends.
        std::future::pending::<()>().await;
    }
}

fn late_words(process: impl Display, killed: io::Result<()>) -> String {
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
