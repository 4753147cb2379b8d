//! What a worker counts of its way to the shared counters.

use crate::counter::{CallTime, Counter, Histogram};

/// A worker's counters: its thread alone writes them.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct RedisCounts {
    /// Calls sent to the servers, refunds and looks included.
    pub calls: Counter,
    /// Requests that were decided without the servers, in part or whole.
    pub errors: Counter,
    /// Refusals that were told from memory, without a call.
    pub remembered: Counter,
    /// How long the calls took that were answered.
    pub duration: Histogram<CallTime>,
}
