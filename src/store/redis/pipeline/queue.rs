//! The commands and pending replies of one connection. No socket, no clock.
//!
//! Replies arrive in the order of the commands, so one queue assigns each to its call. All calls have the same timeout,
//! so they also expire in that order: expired calls at the front are only counted.

use std::collections::VecDeque;
use std::task::Waker;

use bytes::{Buf as _, BytesMut};
use tokio::time::Instant;

use super::pending::{PendingReplies, ReplySlot};
use crate::store::redis::errors::CallError;
use crate::store::redis::resp::{Command, RespValue};

/// The maximum number of pending replies.
const MAX_PENDING: usize = 8_192;
/// The maximum number of unsent bytes; the last call may exceed it.
const MAX_BYTES: usize = 1 << 20;
/// A buffer that has grown beyond this is freed when it is empty.
const MAX_KEPT: usize = 64 << 10;

/// The calls of one connection.
#[derive(Debug)]
pub(super) struct PipelineQueue {
    /// Calls that are pending, or have not consumed their reply yet.
    pub(super) callers: PendingReplies,
    /// Unsent bytes.
    pub(super) outbound: BytesMut,
    /// The end of `outbound`, counted in bytes since the beginning.
    end: u64,
    awaited: VecDeque<Awaited>,
    /// The number of expired calls at the front.
    expired: usize,
    /// Accepts calls: the server is available.
    open: bool,
    /// How often the script was loaded.
    loads: u64,
    /// Wakes the driver.
    sender: Option<Waker>,
}

/// A pending reply.
#[derive(Debug)]
struct Awaited {
    owner: CommandOwner,
    asked: Instant,
    /// Where its command begins, counted as `PipelineQueue::end` is.
    start: u64,
}

/// The owner of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CommandOwner {
    /// A pending call.
    Caller(ReplySlot),
    /// A call that has timed out.
    Late,
    /// No call: the reply is only consumed.
    Discarded,
}

impl PipelineQueue {
    /// An open, empty queue.
    pub(super) fn new() -> Self {
        Self {
            callers: PendingReplies::default(),
            outbound: BytesMut::new(),
            end: 0,
            awaited: VecDeque::new(),
            expired: 0,
            open: true,
            loads: 0,
            sender: None,
        }
    }

    /// Queues a call. `asked` is never earlier than an earlier call's.
    pub(super) fn call(
        &mut self,
        asked: Instant,
        write: impl FnOnce(&mut Command<'_>),
    ) -> Result<ReplySlot, CallError> {
        if !self.open {
            return Err(CallError::Down);
        }
        if self.awaited.len() >= MAX_PENDING || self.outbound.len() >= MAX_BYTES {
            return Err(CallError::Busy);
        }
        let slot = self.callers.enter();
        self.queue(CommandOwner::Caller(slot), asked, |out| Command::write(out, write));
        Ok(slot)
    }

    /// Queues a command without a waiting call.
    pub(super) fn command(&mut self, asked: Instant, write: impl FnOnce(&mut BytesMut)) {
        if self.open && self.awaited.len() < MAX_PENDING {
            self.queue(CommandOwner::Discarded, asked, write);
        }
    }

    fn queue(&mut self, owner: CommandOwner, asked: Instant, write: impl FnOnce(&mut BytesMut)) {
        let (start, waiting) = (self.end, self.outbound.len());
        write(&mut self.outbound);
        self.end += (self.outbound.len() - waiting) as u64;
        self.awaited.push_back(Awaited { owner, asked, start });
        // Unsent bytes have woken the driver already.
        if waiting == 0 {
            self.sender.iter().for_each(Waker::wake_by_ref);
        }
    }

    /// How often the script was loaded so far.
    pub(super) fn loads(&self) -> u64 {
        self.loads
    }

    /// Counts a load of the script, by a command or by a handshake.
    pub(super) fn count_load(&mut self) {
        self.loads += 1;
    }

    /// Sets the waker for unsent bytes.
    pub(super) fn set_sender(&mut self, waker: &Waker) {
        match &mut self.sender {
            Some(sender) => sender.clone_from(waker),
            None => self.sender = Some(waker.clone()),
        }
    }

    /// The owner of the next reply. `None` if none was pending.
    pub(super) fn next(&mut self) -> Option<CommandOwner> {
        let front = self.awaited.pop_front()?;
        self.expired = self.expired.saturating_sub(1);
        Some(front.owner)
    }

    /// Passes a reply to its owner.
    pub(super) fn tell(&mut self, owner: CommandOwner, reply: Result<RespValue, CallError>, at: Instant) {
        if let CommandOwner::Caller(slot) = owner {
            self.callers.fulfil(slot, (reply, at));
        }
    }

    /// The time of the oldest call that has not expired.
    pub(super) fn oldest(&self) -> Option<Instant> {
        self.awaited.get(self.expired).map(|front| front.asked)
    }

    /// Expires the calls made at `until` or before. Returns their number.
    pub(super) fn expire(&mut self, until: Instant, now: Instant) -> usize {
        let mut calls = 0;
        while let Some(awaited) = self.awaited.get_mut(self.expired).filter(|it| it.asked <= until) {
            if let CommandOwner::Caller(slot) = std::mem::replace(&mut awaited.owner, CommandOwner::Late) {
                self.callers.fulfil(slot, (Err(CallError::Timeout), now));
                calls += 1;
            }
            self.expired += 1;
        }
        calls
    }

    /// Removes expired calls. Only while there is no connection: no byte of the pending calls has been sent then.
    pub(super) fn forget_expired(&mut self) {
        self.awaited.drain(..self.expired);
        self.expired = 0;
        self.drop_unasked();
    }

    /// The connection is lost. Calls with a sent command, even in part, fail. The others wait for the next connection.
    pub(super) fn lose(&mut self, now: Instant) {
        let sent = self.end - self.outbound.len() as u64;
        while let Some(awaited) = self.awaited.pop_front_if(|front| front.start < sent) {
            self.tell(awaited.owner, Err(CallError::Lost), now);
        }
        self.expired = 0;
        self.drop_unasked();
    }

    /// The server is unavailable: all calls fail, until the queue is opened again. Those with a sent command are lost: the
    /// server may execute them later.
    pub(super) fn shut(&mut self, now: Instant) {
        self.open = false;
        self.lose(now);
        while let Some(owner) = self.next() {
            self.tell(owner, Err(CallError::Down), now);
        }
        self.drop_unasked();
    }

    /// The server is available again.
    pub(super) fn open(&mut self) {
        self.open = true;
    }

    /// Frees memory that only a burst needed.
    pub(super) fn shrink(&mut self) {
        if self.outbound.is_empty() && self.outbound.capacity() > MAX_KEPT {
            self.outbound = BytesMut::new();
        }
    }

    /// Drops the bytes at the front that belong to no pending reply.
    fn drop_unasked(&mut self) {
        let start = self.awaited.front().map_or(self.end, |front| front.start);
        let kept = usize::try_from(self.end - start).unwrap_or(0);
        self.outbound.advance(self.outbound.len().saturating_sub(kept));
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll};
    use std::time::Duration;

    use super::*;
    use crate::clock::now;

    const MS: Duration = Duration::from_millis(1);

    fn call(queue: &mut PipelineQueue, asked: Instant, word: &str) -> ReplySlot {
        queue.call(asked, |command| command.word(word.as_bytes())).unwrap()
    }

    /// The reply to a call; `None` while it is pending.
    fn reply(queue: &mut PipelineQueue, slot: ReplySlot) -> Option<Result<RespValue, CallError>> {
        match queue.callers.poll(slot, &mut Context::from_waker(Waker::noop())) {
            Poll::Ready((reply, _)) => Some(reply),
            Poll::Pending => None,
        }
    }

    fn words(queue: &PipelineQueue) -> String {
        String::from_utf8_lossy(&queue.outbound).replace("*1\r\n$1\r\n", "").replace("\r\n", " ")
    }

    #[test]
    fn answers_are_handed_out_in_the_order_of_the_commands() {
        let (mut queue, now) = (PipelineQueue::new(), now());
        let (a, b) = (call(&mut queue, now, "a"), call(&mut queue, now, "b"));
        queue.command(now, |out| Command::write(out, |command| command.word(b"x")));
        assert_eq!(words(&queue), "a b x ");
        for number in [1, 2] {
            let owner = queue.next().unwrap();
            queue.tell(owner, Ok(RespValue::Integer(number)), now);
        }
        assert_eq!(reply(&mut queue, b), Some(Ok(RespValue::Integer(2))));
        assert_eq!(reply(&mut queue, a), Some(Ok(RespValue::Integer(1))));
        assert_eq!((queue.next(), queue.next()), (Some(CommandOwner::Discarded), None));
    }

    #[test]
    fn a_call_that_expired_still_takes_its_answer() {
        let (mut queue, start) = (PipelineQueue::new(), now());
        let (a, b) = (call(&mut queue, start, "a"), call(&mut queue, start + MS, "b"));
        queue.outbound.clear();
        assert_eq!(queue.oldest(), Some(start));
        assert_eq!(queue.expire(start, start), 1);
        assert_eq!(reply(&mut queue, a), Some(Err(CallError::Timeout)));
        assert_eq!(queue.oldest(), Some(start + MS));
        assert_eq!(queue.next(), Some(CommandOwner::Late));
        assert_eq!(queue.oldest(), Some(start + MS));
        assert_eq!(queue.next(), Some(CommandOwner::Caller(b)));
        assert_eq!(queue.oldest(), None);
    }

    #[test]
    fn a_partly_sent_call_is_lost_and_a_waiting_call_goes_on_waiting() {
        let (mut queue, now) = (PipelineQueue::new(), now());
        let [a, b, c] = ["a", "b", "c"].map(|word| call(&mut queue, now, word));
        queue.outbound.advance("*1\r\n$1\r\na\r\n*1".len());
        queue.lose(now);
        assert_eq!(reply(&mut queue, a), Some(Err(CallError::Lost)));
        assert_eq!(reply(&mut queue, b), Some(Err(CallError::Lost)));
        assert_eq!(reply(&mut queue, c), None);
        assert_eq!(words(&queue), "c ");
        assert_eq!(queue.next(), Some(CommandOwner::Caller(c)));
    }

    #[test]
    fn a_call_that_expires_without_a_connection_is_never_sent() {
        let (mut queue, start) = (PipelineQueue::new(), now());
        let (a, _) = (call(&mut queue, start, "a"), call(&mut queue, start + MS, "b"));
        queue.expire(start, start);
        queue.forget_expired();
        assert_eq!(reply(&mut queue, a), Some(Err(CallError::Timeout)));
        assert_eq!(words(&queue), "b ");
        queue.expire(start + MS, start);
        queue.forget_expired();
        assert_eq!((words(&queue).as_str(), queue.oldest()), ("", None));
    }

    #[test]
    fn all_calls_fail_while_it_is_shut() {
        let (mut queue, now) = (PipelineQueue::new(), now());
        let [sent, partly_sent, unsent] = ["a", "b", "c"].map(|word| call(&mut queue, now, word));
        queue.outbound.advance("*1\r\n$1\r\na\r\n*1".len());
        queue.shut(now);
        for (call, fault) in
            [(sent, CallError::Lost), (partly_sent, CallError::Lost), (unsent, CallError::Down)]
        {
            assert_eq!(reply(&mut queue, call), Some(Err(fault)));
        }
        assert_eq!(queue.call(now, |command| command.word(b"b")), Err(CallError::Down));
        assert!(queue.outbound.is_empty());
        queue.open();
        call(&mut queue, now, "c");
        assert_eq!(words(&queue), "c ");
    }

    #[test]
    fn calls_and_bytes_are_bounded() {
        let (mut queue, now) = (PipelineQueue::new(), now());
        let fill = |queue: &mut PipelineQueue, word: &[u8]| {
            (0..=MAX_PENDING).map_while(|_| queue.call(now, |command| command.word(word)).ok()).count()
        };
        assert_eq!(fill(&mut queue, b"a"), MAX_PENDING);
        assert_eq!(queue.call(now, |command| command.word(b"a")), Err(CallError::Busy));
        queue.shut(now);
        queue.open();
        assert_eq!(fill(&mut queue, &[b'a'; 1 << 19]), 2);
        queue.shut(now);
        queue.shrink();
        assert!(queue.outbound.capacity() <= MAX_KEPT);
    }
}
