//! What a request that waits in a queue is told.

use std::sync::atomic::{AtomicU8, Ordering};

use tokio::sync::Notify;

/// The signal of one request.
#[derive(Debug, Default)]
pub(super) struct TurnSignal {
    changed: Notify,
    /// A [`DropReason`] by number; [`ENDED`]; 0: it waits.
    state: AtomicU8,
}

/// Why a request left a queue without a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DropReason {
    /// The queue is full, and its key has the most requests in it.
    QueueFull = 1,
    /// It has waited for as long as it may.
    MaxWait,
    /// All requests wait for long, and its priority is the lowest.
    LowPriority,
}

/// Its wait has ended as it should.
const ENDED: u8 = u8::MAX;

impl DropReason {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::QueueFull, Self::MaxWait, Self::LowPriority];

    /// Its place in [`Self::ALL`].
    pub fn index(self) -> usize {
        self as usize - 1
    }

    /// The value of the label `reason`.
    pub fn label(self) -> &'static str {
        match self {
            Self::QueueFull => "queue_full",
            Self::MaxWait => "max_wait",
            Self::LowPriority => "low_priority",
        }
    }
}

impl TurnSignal {
    /// Ends when it is told something.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// A place may be free for it.
    pub(super) fn wake(&self) {
        self.changed.notify_one();
    }

    /// It has left the queue since it is its turn.
    pub(super) fn end(&self) {
        self.state.store(ENDED, Ordering::Relaxed);
        self.changed.notify_one();
    }

    pub(super) fn is_ended(&self) -> bool {
        self.state.load(Ordering::Relaxed) == ENDED
    }

    /// It has left the queue for this reason.
    pub(super) fn drop_for(&self, reason: DropReason) {
        self.state.store(reason as u8, Ordering::Relaxed);
        self.changed.notify_one();
    }

    pub(super) fn dropped(&self) -> Option<DropReason> {
        let number = self.state.load(Ordering::Relaxed);
        DropReason::ALL.into_iter().find(|reason| *reason as u8 == number)
    }
}
