//! What a worker has told the other gateways, and read of them.

use std::cell::{Cell, RefCell};

use tokio::time::Instant;

/// What this gateway has told the others: of the one worker that does.
#[derive(Debug, Default)]
pub(super) struct FleetMember {
    /// When it told last.
    pub(super) told: Cell<Option<Instant>>,
    /// Its record, as it was told last.
    pub(super) record: RefCell<Vec<u8>>,
    /// The clock in it.
    pub(super) clock_ahead_ms: Cell<i32>,
    /// Records of processes at its address that are gone.
    pub(super) predecessors: RefCell<Vec<Vec<u8>>>,
    /// The version of the list that was read last, and how many were gone.
    pub(super) read: Cell<Option<(i64, i64)>>,
    /// It tells no more.
    pub(super) has_left: Cell<bool>,
}
