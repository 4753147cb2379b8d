//! The open streams of one client connection.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::{Context, Waker};
use std::time::Duration;

use tokio::time::Instant;

use crate::clock::now;
use crate::http2::reset_rate::ResetRate;
use crate::proxy::session::peer::ConnectionPeer;
use crate::proxy::worker::Worker;
use crate::proxy::worker::connection_handle::ConnectionHandle;

/// The streams that a client may reset within ten seconds so soon that it cannot have waited for their responses: it
/// causes work for nothing (CVE-2023-44487, rapid reset). A front proxy passes on the cancelled requests of thousands of
/// clients.
const MAX_RAPID_RESETS: u32 = 2_000;
/// A stream that lived for less is reset too soon, even where a round trip is shorter.
const MIN_WAIT: Duration = Duration::from_millis(50);
/// A client that was slow to acknowledge SETTINGS, or has not, may wait for this long.
const MAX_WAIT: Duration = Duration::from_secs(1);

/// State shared by the streams of one connection.
#[derive(Debug)]
pub(super) struct ClientStreams {
    pub(super) worker: Rc<Worker>,
    pub(super) peer: Rc<ConnectionPeer>,
    pub(super) handle: Rc<ConnectionHandle>,
    open: Cell<usize>,
    /// Since when no stream is open, if none is.
    idle_since: Cell<Instant>,
    rapid_resets: Cell<ResetRate>,
    /// The task of a connection that no frame wakes when its streams end.
    waiting: RefCell<Option<Waker>>,
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
            rapid_resets: Cell::new(ResetRate::new(now)),
            waiting: RefCell::default(),
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

    /// Counts streams that the client has reset too soon.
    pub(super) fn count_rapid_resets(&self, resets: u32) {
        if resets > 0 {
            let (mut rate, now) = (self.rapid_resets.get(), now());
            (0..resets).for_each(|_| rate.count(now));
            self.rapid_resets.set(rate);
            if self.is_flood() {
                self.wake();
            }
        }
    }

    /// Wakes the present task when the last stream ends, and when the client floods. A connection of HTTP/2 is woken by the
    /// frames of its streams.
    #[cfg(feature = "http3")]
    pub(super) fn wake_when_idle(&self, context: &Context<'_>) {
        let mut waiting = self.waiting.borrow_mut();
        if !waiting.as_ref().is_some_and(|known| known.will_wake(context.waker())) {
            *waiting = Some(context.waker().clone());
        }
    }

    fn wake(&self) {
        if let Some(waker) = self.waiting.borrow_mut().take() {
            waker.wake();
        }
    }

    /// Whether the client opens streams only to reset them.
    pub(super) fn is_flood(&self) -> bool {
        self.rapid_resets.get().exceeds(MAX_RAPID_RESETS)
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
        Self { streams: Rc::clone(streams), opened: now() }
    }

    pub(super) fn streams(&self) -> &ClientStreams {
        &self.streams
    }

    /// When the stream was opened.
    pub(super) fn opened(&self) -> Instant {
        self.opened
    }

    /// Records that the client reset the stream before its response, `round_trip` being the time between a frame and its
    /// acknowledgement, if known.
    pub(super) fn client_reset(&self, round_trip: Option<Duration>) {
        let wait = round_trip.unwrap_or(MAX_WAIT).clamp(MIN_WAIT, MAX_WAIT);
        if now().saturating_duration_since(self.opened) < wait {
            self.streams.count_rapid_resets(1);
        }
    }
}

impl Drop for StreamGuard {
    fn drop(&mut self) {
        self.streams.open.set(self.streams.open.get() - 1);
        if self.streams.open.get() == 0 {
            self.streams.idle_since.set(now());
            self.streams.wake();
        }
    }
}
