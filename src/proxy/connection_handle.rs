//! A client's connection as the rest of its worker sees it: whether it is idle, and that it shall make room.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use tokio::time::Instant;

use super::idle_list::{IdleList, NONE};
use crate::clock::deadline::now;

/// Listed at the worker for as long as the connection is open.
#[derive(Debug)]
pub(crate) struct ConnectionHandle {
    /// The place in `server.listen` of the listener that took it.
    listener: usize,
    /// Since when it waits for another request.
    idle_since: Cell<Option<Instant>>,
    /// It is to make room for another if it is still idle.
    evicted: Cell<bool>,
    waiting: RefCell<Option<Waker>>,
    /// Where the worker looks for one that can make room, while the connection is listed there.
    list: RefCell<Option<Rc<IdleList<Self>>>>,
    /// Its place there.
    place: Cell<usize>,
}

impl ConnectionHandle {
    /// A connection to the listener at this place of `server.listen`.
    pub(crate) fn new(listener: usize) -> Rc<Self> {
        Rc::new(Self {
            listener,
            idle_since: Cell::default(),
            evicted: Cell::default(),
            waiting: RefCell::default(),
            list: RefCell::default(),
            place: Cell::new(NONE),
        })
    }

    /// From now on the worker finds it there when it is idle.
    pub(super) fn enlist(self: &Rc<Self>, list: &Rc<IdleList<Self>>) {
        self.place.set(list.insert(Rc::clone(self)));
        *self.list.borrow_mut() = Some(Rc::clone(list));
    }

    /// The connection is closed, or makes room for none any more.
    pub(super) fn unlist(&self) {
        if let Some(list) = self.list.take() {
            list.remove(self.place.replace(NONE));
        }
    }

    /// The place in `server.listen` of the listener that took it.
    pub(crate) fn listener(&self) -> usize {
        self.listener
    }

    /// The connection waits for another request since then.
    pub(super) fn mark_idle(&self, since: Instant, context: &Context<'_>) {
        if self.idle_since.replace(Some(since)) != Some(since)
            && !self.is_evicted()
            && let Some(list) = &*self.list.borrow()
        {
            list.link(self.place.get(), since);
        }
        let mut waiting = self.waiting.borrow_mut();
        if !waiting.as_ref().is_some_and(|known| known.will_wake(context.waker())) {
            *waiting = Some(context.waker().clone());
        }
    }

    /// What `future` brings, during which the connection counts as idle. `None`: it has to make room before.
    pub(super) async fn idle_during<F: Future>(&self, future: F) -> Option<F::Output> {
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

    /// A request has come.
    pub(super) fn mark_active(&self) {
        if self.idle_since.take().is_some()
            && let Some(list) = &*self.list.borrow()
        {
            list.unlink(self.place.get());
        }
    }

    /// Closes the connection if it is still idle.
    pub(crate) fn evict(&self) {
        self.evicted.set(true);
        if let Some(list) = &*self.list.borrow() {
            list.unlink(self.place.get());
        }
        if let Some(waker) = self.waiting.borrow_mut().take() {
            waker.wake();
        }
    }

    /// Whether it was told to make room.
    pub(crate) fn is_evicted(&self) -> bool {
        self.evicted.get()
    }
}
