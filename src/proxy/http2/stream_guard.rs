//! The open streams of one client connection.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::Context;
use std::time::Duration;

use tokio::time::Instant;

use super::super::connection_handle::ConnectionHandle;
use super::super::peer::ConnectionPeer;
use super::super::worker::Worker;
use crate::clock::now;

/// The number of streams opened within [`WINDOW`] from which resets count. A client that opens at least this many and
/// resets half of them before their responses is disconnected: it causes work for nothing (CVE-2023-44487, rapid reset,
/// at any pace).
const FLOOD: u32 = 100;
/// See [`FLOOD`].
const WINDOW: Duration = Duration::from_secs(1);

/// State shared by the streams of one connection.
#[derive(Debug)]
pub(super) struct ClientStreams {
    pub(super) worker: Rc<Worker>,
    pub(super) peer: Rc<ConnectionPeer>,
    pub(super) handle: Rc<ConnectionHandle>,
    open: Cell<usize>,
    /// Since when no stream is open, if none is.
    idle_since: Cell<Instant>,
    lately: RefCell<RecentStreams>,
}

/// The client's streams in the present window.
#[derive(Debug)]
struct RecentStreams {
    since: Instant,
    opened: u32,
    taken_back: u32,
}

impl ClientStreams {
    pub(super) fn new(
        handle: Rc<ConnectionHandle>,
        peer: ConnectionPeer,
        worker: Rc<Worker>,
        now: Instant,
    ) -> Rc<Self> {
        Rc::new(Self {
            worker,
            peer: Rc::new(peer),
            handle,
            open: Cell::new(0),
            idle_since: Cell::new(now),
            lately: RefCell::new(RecentStreams { since: now, opened: 0, taken_back: 0 }),
        })
    }

    /// Since when no stream is open; `None` while one is.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        (self.open.get() == 0).then(|| self.idle_since.get())
    }

    /// If no stream is open, tells the worker that this connection can be evicted.
    pub(super) fn mark_idle_if_empty(&self, context: &Context<'_>) {
        match self.idle_since() {
            Some(since) => self.handle.mark_idle(since, context),
            None => self.handle.mark_active(),
        }
    }

    /// Whether the connection was evicted and has no open stream.
    pub(super) fn is_evicted(&self) -> bool {
        self.open.get() == 0 && self.handle.is_evicted()
    }

    /// Whether the client opens streams only to reset them.
    pub(super) fn is_flood(&self) -> bool {
        let lately = self.lately.borrow();
        lately.opened >= FLOOD && lately.taken_back * 2 >= lately.opened
    }
}

/// Counts one stream as open for as long as it is served.
#[derive(Debug)]
pub(super) struct StreamGuard {
    streams: Rc<ClientStreams>,
    opened: Instant,
}

impl StreamGuard {
    pub(super) fn take(streams: &Rc<ClientStreams>) -> Self {
        streams.open.set(streams.open.get() + 1);
        let now = now();
        let mut lately = streams.lately.borrow_mut();
        if now - lately.since >= WINDOW {
            *lately = RecentStreams { since: now, opened: 0, taken_back: 0 };
        }
        lately.opened += 1;
        Self { streams: Rc::clone(streams), opened: now }
    }

    pub(super) fn streams(&self) -> &ClientStreams {
        &self.streams
    }

    /// When the stream was opened.
    pub(super) fn opened(&self) -> Instant {
        self.opened
    }

    /// Records that the client reset the stream before its response.
    pub(super) fn client_reset(&self) {
        self.streams.lately.borrow_mut().taken_back += 1;
    }
}

impl Drop for StreamGuard {
    fn drop(&mut self) {
        self.streams.open.set(self.streams.open.get() - 1);
        if self.streams.open.get() == 0 {
            self.streams.idle_since.set(now());
        }
    }
}
