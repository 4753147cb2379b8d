//! A client connection as the rest of its worker sees it: whether it is idle, whether it is to be evicted, and how long
//! it may live.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use tokio::time::Instant;

use super::idle_list::{IdleList, NONE};
use crate::clock::now;
use crate::plan::Server;

/// Listed at the worker for as long as the connection is open.
#[derive(Debug)]
pub(crate) struct ConnectionHandle {
    /// The index in `server.listen` of the listener that accepted the connection.
    listener: usize,
    /// Since when the connection waits for another request.
    idle_since: Cell<Option<Instant>>,
    /// Set when the connection is to be closed to free capacity, if it is still idle.
    evicted: Cell<bool>,
    waiting: RefCell<Option<Waker>>,
    /// The worker's list of connections that can be evicted, while this connection is in that list.
    list: RefCell<Option<Rc<IdleList<Self>>>>,
    /// The index in that list.
    index: Cell<usize>,
}

impl ConnectionHandle {
    /// A connection accepted by the listener at this index of `server.listen`.
    pub(crate) fn new(listener: usize) -> Rc<Self> {
        Rc::new(Self {
            listener,
            idle_since: Cell::default(),
            evicted: Cell::default(),
            waiting: RefCell::default(),
            list: RefCell::default(),
            index: Cell::new(NONE),
        })
    }

    /// Adds the connection to the worker's list. The worker can evict the connection from now on when it is idle.
    pub(crate) fn enlist(self: &Rc<Self>, list: &Rc<IdleList<Self>>) {
        self.index.set(list.insert(Rc::clone(self)));
        *self.list.borrow_mut() = Some(Rc::clone(list));
    }

    /// Removes the connection from the list: it is closed, or can no longer be evicted.
    pub(crate) fn unlist(&self) {
        if let Some(list) = self.list.take() {
            list.remove(self.index.replace(NONE));
        }
    }

    /// The index in `server.listen` of the listener that accepted the connection.
    pub(crate) fn listener(&self) -> usize {
        self.listener
    }

    /// Records that the connection waits for another request since `since`.
    pub(crate) fn mark_idle(&self, since: Instant, context: &Context<'_>) {
        if self.idle_since.replace(Some(since)) != Some(since)
            && !self.is_evicted()
            && let Some(list) = &*self.list.borrow()
        {
            list.link(self.index.get(), since);
        }
        let mut waiting = self.waiting.borrow_mut();
        if !waiting.as_ref().is_some_and(|known| known.will_wake(context.waker())) {
            *waiting = Some(context.waker().clone());
        }
    }

    /// Awaits `future`; meanwhile the connection counts as idle. `None`: the connection was evicted first.
    pub(crate) async fn idle_during<F: Future>(&self, future: F) -> Option<F::Output> {
        let (mut future, since) = (pin!(future), now());
        poll_fn(|context| {
            if let Poll::Ready(brought) = future.as_mut().poll(context) {
                self.mark_active();
                return Poll::Ready(Some(brought));
            }
            if self.is_evicted() {
                return Poll::Ready(None);
            }
            self.mark_idle(since, context);
            Poll::Pending
        })
        .await
    }

    /// Records that a request was received.
    pub(crate) fn mark_active(&self) {
        if self.idle_since.take().is_some()
            && let Some(list) = &*self.list.borrow()
        {
            list.unlink(self.index.get());
        }
    }

    /// Closes the connection if it is still idle.
    pub(crate) fn evict(&self) {
        self.evicted.set(true);
        if let Some(list) = &*self.list.borrow() {
            list.unlink(self.index.get());
        }
        if let Some(waker) = self.waiting.borrow_mut().take() {
            waker.wake();
        }
    }

    /// Whether the connection was told to close to free capacity.
    pub(crate) fn is_evicted(&self) -> bool {
        self.evicted.get()
    }
}

/// How long a connection serves requests. At its end the next response carries `connection: close`; over HTTP/2, GOAWAY
/// is sent without waiting for a response.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lifetime {
    /// The maximum number of requests.
    pub(crate) requests: u64,
    /// When the maximum age is reached. Computed once, so that a request only compares.
    pub(crate) until: Instant,
}

impl Lifetime {
    /// The lifetime of a connection opened at `now`. Up to a tenth of the age is subtracted, by `jitter` (of 256), so
    /// that connections opened together are not closed together.
    pub(crate) fn of(server: &Server, now: Instant, jitter: u8) -> Self {
        let age = server.max_connection_age;
        let until = now + (age - age / 10 * u32::from(jitter) / 256);
        Self { requests: server.max_requests_per_connection.unwrap_or(u64::MAX), until }
    }

    /// Whether the client is to open another connection.
    pub(crate) fn is_over(&self, requests: u64, now: Instant) -> bool {
        requests >= self.requests || now > self.until
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::clock::now;

    #[test]
    fn a_connection_is_over_after_its_last_request_or_its_age() {
        let opened = now();
        let hour = opened + Duration::from_secs(3600);
        let life = Lifetime { requests: 10_000, until: hour };
        assert!(!life.is_over(9_999, hour));
        assert!(life.is_over(10_000, opened));
        assert!(life.is_over(1, hour + Duration::from_micros(1)));
    }
}
