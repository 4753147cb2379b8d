//! The requests in flight at a server.

use crate::counter::Counter;

/// One worker's requests in flight at a server. The worker writes it, any thread may read.
#[derive(Debug, Default)]
pub(super) struct WorkerInFlight {
    pub(super) begun: Counter,
    pub(super) ended: Counter,
}

impl WorkerInFlight {
    pub(super) fn count(&self) -> u64 {
        // `ended` is read first: a request that begins and ends in between then counts as in flight, not as minus one.
        let ended = self.ended.get();
        self.begun.get().saturating_sub(ended)
    }
}
