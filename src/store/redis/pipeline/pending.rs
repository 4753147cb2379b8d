//! Pending replies. Slots are reused, so a call costs no allocation. A cancelled call keeps its slot until its reply
//! has arrived, so that no later reply is assigned to it.

use std::mem;
use std::task::{Context, Poll, Waker};

use slab::Slab;
use tokio::time::Instant;

use crate::store::redis::errors::CallError;
use crate::store::redis::resp::RespValue;

/// The reply to a call, and its time.
pub(super) type TimedReply = (Result<RespValue, CallError>, Instant);

/// The slot of a pending call. Its owner either cancels once or receives the reply once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReplySlot(usize);

/// The pending calls of one connection, by slot.
#[derive(Debug, Default)]
pub(super) struct PendingReplies(Slab<PendingCaller>);

#[derive(Debug)]
enum PendingCaller {
    Waits(Option<Waker>),
    Told(TimedReply),
    /// The call was cancelled before its reply.
    Gone,
}

impl PendingReplies {
    /// A slot for a new call.
    pub(super) fn enter(&mut self) -> ReplySlot {
        ReplySlot(self.0.insert(PendingCaller::Waits(None)))
    }

    /// Passes the reply to the call in this slot. Must be called once.
    pub(super) fn fulfil(&mut self, slot: ReplySlot, reply: TimedReply) {
        match self.0.get_mut(slot.0) {
            Some(caller @ PendingCaller::Waits(_)) => {
                if let PendingCaller::Waits(Some(waker)) = mem::replace(caller, PendingCaller::Told(reply)) {
                    waker.wake();
                }
            }
            _ => drop(self.0.try_remove(slot.0)),
        }
    }

    /// The reply to the call, once.
    pub(super) fn poll(&mut self, slot: ReplySlot, context: &mut Context<'_>) -> Poll<TimedReply> {
        match self.0.get_mut(slot.0) {
            Some(PendingCaller::Waits(Some(waker))) => waker.clone_from(context.waker()),
            Some(PendingCaller::Waits(waker)) => *waker = Some(context.waker().clone()),
            Some(PendingCaller::Told(_)) => {
                if let Some(PendingCaller::Told(reply)) = self.0.try_remove(slot.0) {
                    return Poll::Ready(reply);
                }
            }
            Some(PendingCaller::Gone) | None => {}
        }
        Poll::Pending
    }

    /// Cancels the call without a reply.
    pub(super) fn forget(&mut self, slot: ReplySlot) {
        match self.0.get_mut(slot.0) {
            Some(caller @ PendingCaller::Waits(_)) => *caller = PendingCaller::Gone,
            Some(PendingCaller::Told(_)) => drop(self.0.try_remove(slot.0)),
            Some(PendingCaller::Gone) | None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::now;

    fn poll(callers: &mut PendingReplies, slot: ReplySlot) -> Poll<TimedReply> {
        callers.poll(slot, &mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn callers_are_told_once_and_places_are_used_again() {
        let (mut callers, reply) = (PendingReplies::default(), (Err(CallError::Lost), now()));
        let (first, second) = (callers.enter(), callers.enter());
        assert!(poll(&mut callers, first).is_pending());
        callers.fulfil(first, reply.clone());
        assert_eq!(poll(&mut callers, first), Poll::Ready(reply.clone()));
        assert_eq!(callers.enter(), first);

        // A cancelled call holds its slot until the reply.
        callers.forget(second);
        assert_ne!(callers.enter(), second);
        callers.fulfil(second, reply.clone());
        assert_eq!(callers.enter(), second);

        // A call cancelled after its reply frees its slot at once.
        callers.fulfil(second, reply);
        callers.forget(second);
        assert_eq!(callers.enter(), second);
        assert_eq!(callers.0.len(), 3);
    }
}
