//! Hand-over: a process that is taken over gives its counters to the new one, and asks it from then on.
//!
//! Requests of its connections are not lost meanwhile: one that is decided after the hand-over is decided by the new
//! process ([`SuccessorCalls`], executed by [`PredecessorCalls`]), so that both together admit what one would. Places of
//! requests in flight are held in the new process until the old one frees them, or ends.
//!
//! ```text
//! call    length of the rest (u32) │ its number (u64) │ JSON
//! reply   the same
//! ```

mod calls;
mod message;
mod server;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwapOption;

pub use super::memory::in_flight::PlacesOfKey;
pub use calls::{CallReceiver, PendingCall, SuccessorCalls};
pub use server::PredecessorCalls;

/// Whether this process has handed its counters over, and the process that has them now.
#[derive(Debug, Default)]
pub struct HandOver {
    is_begun: AtomicBool,
    successor: ArcSwapOption<SuccessorCalls>,
}

impl HandOver {
    /// The process that has the counters; `None`: this one has them.
    #[inline]
    pub fn successor(&self) -> Option<Arc<SuccessorCalls>> {
        if self.is_begun.load(Ordering::Relaxed) { self.successor.load_full() } else { None }
    }

    /// Whether there may be a [`Self::successor`].
    #[inline(always)]
    pub(super) fn is_begun(&self) -> bool {
        self.is_begun.load(Ordering::Relaxed)
    }

    /// From now on the successor decides: what a worker decides at this moment ends here.
    pub(super) fn begin(&self, successor: Arc<SuccessorCalls>) {
        self.successor.store(Some(successor));
        self.is_begun.store(true, Ordering::Release);
    }

    /// The successor is gone: this process decides again, by the counters that it had.
    pub(super) fn end(&self) {
        self.is_begun.store(false, Ordering::Release);
        self.successor.store(None);
    }
}
