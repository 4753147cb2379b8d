//! Observations of a connection from outside, for its whole life.

use std::cell::Cell;
use std::io;
use std::task::Poll;
use std::time::Duration;

use tokio::time::Instant;

use crate::clock::now;
use crate::net::{AckTimeout, Stream};

/// Bytes of a PING, which the socket of a dead connection accepts, too.
const PING_FRAME: u64 = 17;

/// Observations of a connection from outside.
#[derive(Debug, Default)]
pub struct Traffic {
    /// Since when a header block is open.
    open_since: Cell<Option<Instant>>,
    received: Cell<u64>,
    sent: Cell<u64>,
    /// How long the peer may leave bytes unacknowledged, where that is limited.
    ack_timeout: Option<AckTimeout>,
    /// The socket accepted nothing of the last write, and the kernel measures for how long.
    blocked: Cell<bool>,
    /// When the socket accepted bytes after it had last been blocked.
    unblocked: Cell<Option<Instant>>,
    /// The kernel has ended the connection, since the peer acknowledged nothing.
    stalled: Cell<bool>,
}

/// The state of the traffic at some time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mark {
    received: u64,
    sent: u64,
}

impl Traffic {
    /// For a peer that must acknowledge bytes within `timeout`. `None`: the kernel's default applies.
    pub fn new(timeout: Option<Duration>) -> Self {
        Self { ack_timeout: timeout.map(AckTimeout::new), ..Self::default() }
    }

    /// Since when a header block is open, if one is: no other frame may come meanwhile, so all streams wait for its end
    /// (RFC 9113 §6.10).
    pub fn open_since(&self) -> Option<Instant> {
        self.open_since.get()
    }

    /// Notes whether a header block is open.
    pub fn note_block(&self, open: bool) {
        match (open, self.open_since.get()) {
            (true, None) => self.open_since.set(Some(now())),
            (false, Some(_)) => self.open_since.set(None),
            _ => {}
        }
    }

    /// Bytes received.
    pub fn received(&self) -> u64 {
        self.received.get()
    }

    /// Counts bytes received.
    pub fn add_received(&self, bytes: usize) {
        self.received.set(self.received.get() + bytes as u64);
    }

    /// Bytes accepted by the socket.
    pub fn sent(&self) -> u64 {
        self.sent.get()
    }

    /// Counts bytes accepted by the socket.
    pub fn add_sent(&self, bytes: usize) {
        self.sent.set(self.sent.get() + bytes as u64);
    }

    /// Whether the socket blocks. The kernel then ends the connection, unless the peer acknowledges bytes.
    pub fn is_blocked(&self) -> bool {
        self.blocked.get()
    }

    /// When the socket blocked last: now, if it still does.
    pub fn last_blocked(&self) -> Option<Instant> {
        if self.is_blocked() { Some(now()) } else { self.unblocked.get() }
    }

    /// Whether the kernel has ended the connection, since the peer acknowledged nothing for too long.
    pub fn is_stalled(&self) -> bool {
        self.stalled.get()
    }

    /// Has the kernel limit how long the peer may leave bytes unacknowledged. Returns whether it does.
    pub fn enforce_ack_timeout(&self, stream: &Stream) -> bool {
        self.ack_timeout.as_ref().is_some_and(|timeout| timeout.enforce(stream))
    }

    /// Notes whether a write has blocked.
    pub fn note_write<T>(&self, stream: &Stream, polled: &Poll<io::Result<T>>) {
        match polled {
            Poll::Pending => self.blocked.set(self.enforce_ack_timeout(stream)),
            Poll::Ready(Ok(_)) => {
                if self.blocked.replace(false) {
                    self.unblocked.set(Some(now()));
                }
            }
            Poll::Ready(Err(error)) => self.note_end(error),
        }
    }

    /// Notes why the connection has ended.
    pub fn note_end(&self, error: &io::Error) {
        if error.kind() == io::ErrorKind::TimedOut {
            self.stalled.set(true);
        }
    }

    /// The present state.
    pub fn mark(&self) -> Mark {
        Mark { received: self.received.get(), sent: self.sent.get() }
    }

    /// Whether the peer showed activity since `mark`: it has sent bytes, or its socket accepted more than a PING.
    pub fn has_moved_since(&self, mark: Mark) -> bool {
        self.received.get() != mark.received || self.sent.get() - mark.sent > PING_FRAME
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ping_that_goes_out_is_no_sign_of_life() {
        let traffic = Traffic::default();
        let mark = traffic.mark();
        traffic.add_sent(17);
        assert!(!traffic.has_moved_since(mark));
        traffic.add_sent(1);
        assert!(traffic.has_moved_since(mark), "the peer takes an answer");
        let mark = traffic.mark();
        traffic.add_received(1);
        assert!(traffic.has_moved_since(mark));
    }
}
