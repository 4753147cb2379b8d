//! What the system and its people tell the process.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::Sender;

/// SIGTERM and SIGINT.
#[derive(Debug)]
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Takes them over: SIGTERM and SIGINT no longer end the process by themselves. Needs a tokio runtime around it.
    pub(super) fn take() -> io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Waits for the next SIGTERM or SIGINT and gives its name.
    pub(super) async fn stop(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}

/// Triggers a reload for each SIGHUP. A storm of them finds the channel full, and is one reload. Needs a tokio runtime
/// around it.
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
