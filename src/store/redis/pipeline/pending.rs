//! Who waits for an answer. Places are used again: a call costs no allocation, and a caller that leaves keeps its place until its answer
//! has come, so that no later answer is mistaken for it.

use std::mem;
use std::task::{Context, Poll, Waker};

use slab::Slab;
use tokio::time::Instant;

use crate::store::redis::errors::CallError;
use crate::store::redis::resp::RespValue;

/// What a caller is told, and when that came.
pub(super) type TimedReply = (Result<RespValue, CallError>, Instant);

/// Where a caller stands. Whoever has it says once that it leaves, or hears once what it is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReplySlot(usize);

/// The callers of one connection, by place.
#[derive(Debug, Default)]
pub(super) struct PendingReplies(Slab<Caller>);

#[derive(Debug)]
enum Caller {
    Waits(Option<Waker>),
    Told(TimedReply),
    /// It left before it was told.
    Gone,
}

impl PendingReplies {
    /// A place for one that waits.
    pub(super) fn enter(&mut self) -> ReplySlot {
        ReplySlot(self.0.insert(Caller::Waits(None)))
    }

    /// Tells the caller at `place` what it waits for. To be called once.
    pub(super) fn fulfil(&mut self, place: ReplySlot, told: TimedReply) {
        match self.0.get_mut(place.0) {
            Some(caller @ Caller::Waits(_)) => {
                if let Caller::Waits(Some(waker)) = mem::replace(caller, Caller::Told(told)) {
                    waker.wake();
                }
            }
            _ => drop(self.0.try_remove(place.0)),
        }
    }

    /// What the caller was told, once.
    pub(super) fn poll(&mut self, place: ReplySlot, context: &mut Context<'_>) -> Poll<TimedReply> {
        match self.0.get_mut(place.0) {
            Some(Caller::Waits(Some(waker))) => waker.clone_from(context.waker()),
            Some(Caller::Waits(waker)) => *waker = Some(context.waker().clone()),
            Some(Caller::Told(_)) => {
                if let Some(Caller::Told(told)) = self.0.try_remove(place.0) {
                    return Poll::Ready(told);
                }
            }
            Some(Caller::Gone) | None => {}
        }
        Poll::Pending
    }

    /// The caller leaves without an answer.
    pub(super) fn forget(&mut self, place: ReplySlot) {
        match self.0.get_mut(place.0) {
            Some(caller @ Caller::Waits(_)) => *caller = Caller::Gone,
            Some(Caller::Told(_)) => drop(self.0.try_remove(place.0)),
            Some(Caller::Gone) | None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::deadline::now;

    fn poll(callers: &mut PendingReplies, place: ReplySlot) -> Poll<TimedReply> {
        callers.poll(place, &mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn callers_are_told_once_and_places_are_used_again() {
        let (mut callers, told) = (PendingReplies::default(), (Err(CallError::Lost), now()));
        let (first, second) = (callers.enter(), callers.enter());
        assert!(poll(&mut callers, first).is_pending());
        callers.fulfil(first, told.clone());
        assert_eq!(poll(&mut callers, first), Poll::Ready(told.clone()));
        assert_eq!(callers.enter(), first);

        // One that left holds its place until the answer comes.
        callers.forget(second);
        assert_ne!(callers.enter(), second);
        callers.fulfil(second, told.clone());
        assert_eq!(callers.enter(), second);

        // One that was told but does not listen any more leaves at once.
        callers.fulfil(second, told);
        callers.forget(second);
        assert_eq!(callers.enter(), second);
        assert_eq!(callers.0.len(), 3);
    }
}
