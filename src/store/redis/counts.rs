//! A worker's counts of its calls to the shared store.

use crate::counter::{CallTime, Counter, Histogram};

/// A worker's counts: only its thread writes them.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct RedisCounts {
    /// Calls sent to the servers, including refunds and look-ups.
    pub calls: Counter,
    /// Requests decided without the servers, in part or whole.
    pub errors: Counter,
    /// Denials answered from the cache, without a call.
    pub remembered: Counter,
    /// Units of costs that were corrected, but whose correction the servers may not know of.
    pub unsettled: Counter,
    /// The duration of the calls that were answered.
    pub duration: Histogram<CallTime>,
}
