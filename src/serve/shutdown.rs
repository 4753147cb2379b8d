//! Shutdown: the process drains when it is told to stop or was taken over.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use super::QuicSockets;
use super::signals::Signals;
use super::snapshots::SnapshotWriter;
use super::systemd::Systemd;
use super::takeover::{Offer, Successor};
use super::upgrade::BinaryUpgrade;
use super::usage_end::write_usage;
use super::workers::Workers;
use super::{Ended, ServeError};
use crate::shared::{Life, Shared};

/// The data needed for the shutdown.
#[derive(Debug)]
pub(super) struct Shutdown {
    pub(super) signals: Signals,
    pub(super) upgrade: BinaryUpgrade,
    pub(super) workers: Workers,
    pub(super) quic: QuicSockets,
    pub(super) life: watch::Sender<Life>,
    pub(super) shared: Arc<Shared>,
    pub(super) admin: Option<JoinHandle<()>>,
    pub(super) supervisor: Systemd,
    pub(super) watchdog: JoinHandle<()>,
    pub(super) snapshots: SnapshotWriter,
    /// Requests to drain, from the admin listener.
    pub(super) asked: mpsc::Receiver<()>,
    /// Answers the process before this one, until it ends.
    pub(super) predecessor_calls: Option<JoinHandle<()>>,
    /// All requests have ended.
    pub(super) is_complete: bool,
}

/// Why the process ends.
enum ShutdownCause {
    /// This signal was received, or the same was requested through the API.
    Signal(&'static str),
    /// Another process has taken the sockets over.
    Successor(Successor),
}

impl Shutdown {
    /// Waits for the first signal or a successor, then for the requests in flight. Then the counters no longer change,
    /// and are written for the last time.
    pub(super) async fn wait(mut self, offer: Offer) -> Result<Ended, ServeError> {
        let ended = self.end(offer).await;
        if !self.is_complete {
            self.shared.store.usage().note_loss(self.shared.clock.wall_now());
        }
        if let Some(successor) = self.shared.store.successor() {
            successor.all_sent().await;
        }
        write_usage(&self.shared, self.is_complete).await;
        self.snapshots.finish(self.is_complete).await;
        ended
    }

    async fn end(&mut self, offer: Offer) -> Result<Ended, ServeError> {
        let cause = tokio::select! {
            signal = self.signals.stop() => ShutdownCause::Signal(signal),
            Some(()) = self.asked.recv() => ShutdownCause::Signal("POST /api/v1/drain"),
            successor = offer.taken() => ShutdownCause::Successor(successor),
            end = self.workers.next_end() => return Err(ServeError::Worker(end)),
            never = self.upgrade.serve(&offer.addresses, &self.supervisor) => match never {},
        };
        // The offer holds the ports open, and the names that a successor needs.
        drop(offer);
        let was_stopped = matches!(cause, ShutdownCause::Signal(_));
        self.explain(cause).await;
        self.drain(was_stopped).await
    }

    /// Reports the cause to the log and the service manager.
    async fn explain(&mut self, cause: ShutdownCause) {
        let timeout = self.shared.plan.load().server.drain_timeout;
        match cause {
            ShutdownCause::Signal(signal) => {
                tracing::info!("{signal}: draining, requests in flight have {timeout:?} to finish");
                self.supervisor.stopping("draining");
                self.quic.withdraw();
            }
            ShutdownCause::Successor(successor) => {
                let process = successor.process;
                tracing::info!(
                    "process {process} has taken over: draining, requests in flight have {timeout:?} to finish"
                );
                // From now on the service manager hears the successor, and only logs what others send.
                self.watchdog.abort();
                self.upgrade.let_go();
                self.supervisor.handed_over_to(process);
                self.quic.hand_over();
                self.snapshots.leave().await;
                // From now on the successor serves the admin listener.
                if let Some(admin) = &self.admin {
                    admin.abort();
                }
                successor.acknowledge().await;
            }
        }
    }

    /// Waits for the requests in flight, then for the end of the process before this one: its requests count here, or by way
    /// of this process in the next one. A second signal ends the wait. The first one after a takeover does not, since a
    /// service manager that stops the service signals the process before and the one after.
    async fn drain(&mut self, mut was_stopped: bool) -> Result<Ended, ServeError> {
        let timeout = self.shared.plan.load().server.drain_timeout;
        self.life.send_replace(Life::Draining);
        let mut late = pin!(tokio::time::sleep(timeout));
        loop {
            tokio::select! {
                biased;
                signal = self.signals.stop() => {
                    if was_stopped {
                        tracing::warn!("{signal} again: exiting at once");
                        return Ok(Ended::AtOnce);
                    }
                    tracing::info!("{signal}: already draining");
                    was_stopped = true;
                    continue;
                }
                never = self.upgrade.ignore() => match never {},
                drained = self.workers.all_drained(), if !self.is_complete => {
                    drained.map_err(ServeError::Worker)?;
                    self.is_complete = true;
                    continue;
                }
                () = ended(&mut self.predecessor_calls), if self.is_complete => {}
                () = &mut late => match self.shared.connections.load(Ordering::Relaxed) {
                    _ if self.is_complete => {
                        tracing::warn!("`drain_timeout` reached: the process before this one still runs");
                    }
                    open => tracing::warn!("`drain_timeout` reached: closing {open} connections"),
                },
            }
            break;
        }
        tracing::info!("stopped");
        Ok(Ended::Drained)
    }
}

/// Waits until the process before this one has ended, if there is one.
async fn ended(predecessor_calls: &mut Option<JoinHandle<()>>) {
    if let Some(calls) = predecessor_calls {
        // However it ends, no call follows.
        let _ = calls.await;
    }
}
