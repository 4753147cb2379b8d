//! Whether a connection to a server is alive: a path may swallow its bytes while new connections work.

use std::cell::{Cell, RefCell};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::Instant;

use crate::clock::{Deadline, now};
use crate::http2::connection::Http2Codec;

/// A connection that is silent for this long while a request waits gets no further requests, and one PING.
const DOUBT: Duration = Duration::from_secs(1);
/// A connection that is silent for this long after the PING is dead.
const PING_TIMEOUT: Duration = Duration::from_secs(5);

/// What is known about one connection.
#[derive(Debug, Default)]
pub(super) struct Liveness {
    /// The first request since the last bytes were received: when it was sent, and all bytes received by then.
    waiting: Cell<Option<(Instant, u64)>>,
    /// The last PING, likewise.
    pinged: Cell<Option<(Instant, u64)>>,
    deadline: RefCell<Deadline>,
}

impl Liveness {
    /// Records that a request was sent.
    pub(super) fn request_sent(&self, connection: &Http2Codec) {
        let received = connection.traffic().received();
        if self.waiting.get().is_none_or(|(_, before)| before != received) {
            self.waiting.set(Some((now(), received)));
        }
    }

    /// Whether the connection has been silent for [`DOUBT`] while a request waited.
    pub(super) fn is_doubtful(&self, connection: &Http2Codec, now: Instant) -> bool {
        self.waiting.get().is_some_and(|(since, before)| {
            before == connection.traffic().received() && now.saturating_duration_since(since) >= DOUBT
        })
    }

    /// Ready once the connection is dead. Polled after each change of the connection.
    pub(super) fn poll_dead(&self, connection: &Http2Codec, context: &mut Context<'_>) -> Poll<()> {
        let received = connection.traffic().received();
        let silent = |since: &(Instant, u64)| since.1 == received;
        if self.pinged.get().is_none() {
            let Some((since, _)) = self.waiting.get().filter(silent) else { return Poll::Pending };
            ready!(self.deadline.borrow_mut().poll(context, since + DOUBT));
            if !connection.ping_once() {
                return Poll::Pending;
            }
            self.pinged.set(Some((now(), received)));
        }
        let Some((at, _)) = self.pinged.get().filter(silent) else {
            self.pinged.set(None);
            return Poll::Pending;
        };
        self.deadline.borrow_mut().poll(context, at + PING_TIMEOUT)
    }
}
