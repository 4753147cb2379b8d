//! The count of open connections, over TCP and QUIC.

use std::rc::Rc;
use std::sync::atomic::Ordering;

use crate::proxy::worker::connection_handle::ConnectionHandle;
use crate::proxy::worker::{Worker, WorkerPlan};
use crate::shared::client_connections::ClientConnection;

/// Counts a connection for as long as it is open, and lists it among those that can be evicted.
pub(crate) struct ConnectionGuard {
    index: usize,
    /// The connection's entry in the worker's list.
    handle: Option<Rc<ConnectionHandle>>,
    /// The connection counts among those of its client.
    pub(super) client: Option<ClientConnection>,
    worker: Rc<Worker>,
    plan: Rc<WorkerPlan>,
}

impl ConnectionGuard {
    pub(crate) fn new(index: usize, worker: Rc<Worker>, handle: Option<&Rc<ConnectionHandle>>) -> Self {
        let plan = worker.plan();
        worker.accepted.set(worker.accepted.get() + 1);
        if let Some(handle) = handle {
            handle.enlist(&worker.idle);
        }
        worker.open.set(worker.open.get() + 1);
        worker.shared.connections.fetch_add(1, Ordering::Relaxed);
        plan.metrics.connection_opened(index);
        Self { index, handle: handle.cloned(), client: None, worker, plan }
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        if let Some(handle) = &self.handle {
            handle.unlist();
        }
        self.worker.open.set(self.worker.open.get() - 1);
        self.worker.shared.connections.fetch_sub(1, Ordering::Relaxed);
        self.plan.metrics.connection_closed(self.index);
        self.worker.closed.notify_one();
    }
}
