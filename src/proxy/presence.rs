//! A client's connection as the rest of its worker sees it: whether it is idle, and that it shall make room.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use tokio::time::Instant;

use crate::clock::deadline::now;

/// Listed at the worker for as long as the connection is open.
#[derive(Debug)]
pub(crate) struct Presence {
    /// The place in `server.listen` of the listener that took it.
    listener: usize,
    /// Since when it waits for another request.
    idle_since: Cell<Option<Instant>>,
    /// It is to make room for another if it is still idle.
    evicted: Cell<bool>,
    waiting: RefCell<Option<Waker>>,
}

impl Presence {
    /// A connection to the listener at this place of `server.listen`.
    pub(crate) fn new(listener: usize) -> Rc<Self> {
        Rc::new(Self {
            listener,
            idle_since: Cell::default(),
            evicted: Cell::default(),
            waiting: RefCell::default(),
        })
    }

    /// The place in `server.listen` of the listener that took it.
    pub(crate) fn listener(&self) -> usize {
        self.listener
    }

    /// The connection waits for another request since then.
    pub(super) fn rest(&self, since: Instant, context: &Context<'_>) {
        self.idle_since.set(Some(since));
        let mut waiting = self.waiting.borrow_mut();
        if !waiting.as_ref().is_some_and(|known| known.will_wake(context.waker())) {
            *waiting = Some(context.waker().clone());
        }
    }

    /// What `future` brings, during which the connection counts as idle. `None`: it has to make room before.
    pub(super) async fn rest_during<F: Future>(&self, future: F) -> Option<F::Output> {
        let (mut future, since) = (pin!(future), now());
        poll_fn(|context| {
            if let Poll::Ready(brought) = future.as_mut().poll(context) {
                self.rouse();
                return Poll::Ready(Some(brought));
            }
            if self.is_evicted() {
                return Poll::Ready(None);
            }
            self.rest(since, context);
            Poll::Pending
        })
        .await
    }

    /// A request has come.
    pub(super) fn rouse(&self) {
        self.idle_since.set(None);
    }

    /// Since when the connection could make room for another without harm; `None` if a request is being served.
    pub(crate) fn idle_since(&self) -> Option<Instant> {
        self.idle_since.get().filter(|_| !self.is_evicted())
    }

    /// Closes the connection if it is still idle.
    pub(crate) fn evict(&self) {
        self.evicted.set(true);
        if let Some(waker) = self.waiting.borrow_mut().take() {
            waker.wake();
        }
    }

    /// Whether it was told to make room.
    pub(crate) fn is_evicted(&self) -> bool {
        self.evicted.get()
    }
}
