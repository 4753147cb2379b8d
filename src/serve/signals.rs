//! Signals to the process.

use std::io;
use std::sync::Arc;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::Sender;

use crate::shared::Shared;
use crate::telemetry::access_log::Output;

/// SIGTERM and SIGINT.
#[derive(Debug)]
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Handles the signals: SIGTERM and SIGINT no longer end the process by themselves. Needs a tokio runtime around
    /// it.
    pub(super) fn take() -> io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Waits for the next SIGTERM or SIGINT and returns its name.
    pub(super) async fn stop(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}

/// Triggers a reload for each SIGHUP. Several SIGHUPs in quick succession find the channel full, and are one reload.
/// Needs a tokio runtime around it.
pub(super) fn reload_on_hangup(triggers: Sender<()>) -> io::Result<()> {
    let mut hangup = signal(SignalKind::hangup())?;
    tokio::spawn(async move {
        while hangup.recv().await.is_some() {
            // Full: a reload is due anyway.
            let _ = triggers.try_send(());
        }
    });
    Ok(())
}

/// SIGUSR1.
#[derive(Debug)]
pub(super) struct Rotation(Signal);

impl Rotation {
    /// Handles the signal: it no longer ends the process. Needs a tokio runtime around it.
    pub(super) fn take() -> io::Result<Self> {
        signal(SignalKind::user_defined1()).map(Self)
    }

    /// Reopens the access log's file after each signal, since the file may have been renamed or removed. If it cannot
    /// be opened, and without a file, the log goes on where it is.
    pub(super) async fn reopen(mut self, shared: Arc<Shared>) {
        while self.0.recv().await.is_some() {
            let plan = shared.plan.load();
            let Some(file) = &plan.log.file else {
                tracing::info!(
                    "SIGUSR1: the access log goes to standard output, so there is nothing to reopen"
                );
                continue;
            };
            match Output::open(Some(file)) {
                Ok(output) => shared.access_log.redirect(output),
                Err(error) => tracing::warn!(
                    "SIGUSR1: cannot open `{}`: {error}; the access log stays in the open file",
                    file.display()
                ),
            }
        }
    }
}
