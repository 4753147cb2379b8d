//! What a worker has written of the usage of consumers.

use std::cell::RefCell;
use std::collections::HashMap;

use tokio::time::Instant;

/// What this process has written, by the ids of series: of the one worker that does.
#[derive(Debug, Default)]
pub(super) struct WrittenUsage(pub(super) RefCell<HashMap<u128, WrittenSeries>>);

/// What this process has written of a limit.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WrittenSeries {
    /// The number of the last call that was answered.
    pub(super) call: Option<u64>,
    /// When it was made.
    pub(super) told: Option<Instant>,
    /// The begin of the last window with rows of ended processes.
    pub(super) base: u64,
    /// The begin of the last window that has lost such rows.
    pub(super) lost: u64,
}
