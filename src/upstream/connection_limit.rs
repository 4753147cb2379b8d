//! The connection limit of an upstream, over all workers, and the queue of requests that wait for a connection.
//!
//! Unused connections of an upstream with a limit are kept here, not with a worker: no connection is idle at one worker
//! while a request waits at another.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

use super::Failure;
use super::dns::ConnectedAddress;
use crate::net::Detached;
use crate::plan::{Endpoint, MaxConnections};

/// The connection limit of one upstream, for the whole process.
#[derive(Debug)]
pub(super) struct ConnectionLimit(Mutex<LimitState>);

/// The usage of a connection limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Connections, in use or not.
    pub connections: usize,
    /// Requests that wait for a connection.
    pub pending: usize,
}

#[derive(Debug)]
struct LimitState {
    max: MaxConnections,
    /// Connections that are open or being opened, used or not.
    open: usize,
    /// Unused connections, the last used at the end. Empty as long as a request waits.
    idle: Vec<IdleConnection>,
    /// The requests that wait, in order. Empty as long as there are fewer connections than the maximum.
    waiting: VecDeque<Waiter>,
}

/// An unused connection.
#[derive(Debug)]
pub(super) struct IdleConnection {
    pub(super) parked: Detached,
    pub(super) server: Arc<Endpoint>,
    pub(super) address: ConnectedAddress,
    /// When the connection was opened.
    pub(super) since: Instant,
    /// When the connection is closed.
    pub(super) expiry: Instant,
}

/// A request that waits.
#[derive(Debug)]
struct Waiter {
    server: Arc<Endpoint>,
    /// Receives an unused connection to its server, or the permit to open one.
    grant: oneshot::Sender<Option<IdleConnection>>,
}

impl ConnectionLimit {
    pub(super) fn new(max: MaxConnections) -> Self {
        Self(Mutex::new(LimitState { max, open: 0, idle: Vec::new(), waiting: VecDeque::new() }))
    }

    /// A permit for one connection, with an unused connection to this server if there is one and it is not to be
    /// `fresh`. Waiting requests are served in the order of their arrival, each within `max_wait`.
    ///
    /// # Errors
    ///
    /// [`Failure::Full`]: too many requests wait already, or the wait took too long.
    pub(super) async fn acquire(
        self: &Arc<Self>,
        server: &Arc<Endpoint>,
        fresh: bool,
        max_wait: Duration,
    ) -> Result<(Permit, Option<IdleConnection>), Failure> {
        let granted = {
            let mut state = self.0.lock();
            match state.take(server, fresh) {
                Some(kept) => return Ok((Permit(Some(Arc::clone(self))), kept)),
                None if state.waiting.len() >= state.max.pending => return Err(Failure::Full),
                None => state.wait(server),
            }
        };
        let mut guard = WaitGuard { bound: self, granted };
        let kept = timeout(max_wait, &mut guard.granted).await;
        let kept = kept.ok().and_then(Result::ok).ok_or(Failure::Full)?;
        // One that is handed on is closed if it is not fresh.
        Ok((Permit(Some(Arc::clone(self))), kept.filter(|_| !fresh)))
    }

    /// The number of connections, and of requests that wait for one.
    pub(super) fn usage(&self) -> Usage {
        let state = self.0.lock();
        Usage { connections: state.open, pending: state.waiting.len() }
    }

    /// Closes unused connections that have expired, and those that the server has closed.
    pub(super) fn expire(&self, now: Instant) {
        let mut state = self.0.lock();
        let before = state.idle.len();
        state.idle.retain(|kept| kept.expiry > now && !kept.parked.is_over());
        state.open -= before - state.idle.len();
    }

    /// Changes the limits. Excess connections are closed when they are returned.
    pub(super) fn resize(&self, max: MaxConnections) {
        let state = &mut *self.0.lock();
        state.max = max;
        while state.open < max.connections && !state.waiting.is_empty() {
            state.open += 1;
            state.hand_on(None);
        }
    }
}

impl LimitState {
    /// `None` if no permit is free.
    fn take(&mut self, server: &Arc<Endpoint>, fresh: bool) -> Option<Option<IdleConnection>> {
        if !self.waiting.is_empty() {
            return None;
        }
        let known = self.idle.iter().rposition(|kept| !fresh && kept.leads_to(server));
        if let Some(known) = known {
            return Some(Some(self.idle.remove(known)));
        }
        if self.open < self.max.connections {
            self.open += 1;
            return Some(None);
        }
        // The connection unused for longest is closed for the new one.
        (!self.idle.is_empty()).then(|| drop(self.idle.remove(0))).map(|()| None)
    }

    fn wait(&mut self, server: &Arc<Endpoint>) -> oneshot::Receiver<Option<IdleConnection>> {
        let (grant, granted) = oneshot::channel();
        self.waiting.push_back(Waiter { server: Arc::clone(server), grant });
        granted
    }

    /// Passes a permit on from a connection that is `kept`, or closed.
    fn hand_on(&mut self, mut kept: Option<IdleConnection>) {
        if self.open > self.max.connections {
            self.open -= 1;
            return;
        }
        while let Some(Waiter { server, grant }) = self.waiting.pop_front() {
            // A connection to another server is closed, so that the waiting request can open its own.
            match grant.send(kept.filter(|kept| kept.leads_to(&server))) {
                Ok(()) => return,
                Err(back) => kept = back,
            }
        }
        match kept {
            Some(kept) => self.idle.push(kept),
            None => self.open -= 1,
        }
    }
}

impl IdleConnection {
    fn leads_to(&self, server: &Arc<Endpoint>) -> bool {
        Arc::ptr_eq(&self.server, server)
            || (self.server.authority == server.authority && self.server.tls == server.tls)
    }
}

/// A place in the queue, released on drop.
struct WaitGuard<'b> {
    bound: &'b ConnectionLimit,
    granted: oneshot::Receiver<Option<IdleConnection>>,
}

impl Drop for WaitGuard<'_> {
    fn drop(&mut self) {
        let state = &mut *self.bound.0.lock();
        self.granted.close();
        // A permit granted to a request that left in the same moment goes to the next.
        if let Ok(kept) = self.granted.try_recv() {
            state.hand_on(kept);
        } else {
            state.waiting.retain(|waiter| !waiter.grant.is_closed());
        }
    }
}

/// The permit for one connection, as long as this lives.
#[derive(Debug)]
pub(super) struct Permit(Option<Arc<ConnectionLimit>>);

impl Permit {
    /// Leaves the connection to the next request that needs one.
    pub(super) fn keep(mut self, kept: IdleConnection) {
        if let Some(bound) = self.0.take() {
            bound.0.lock().hand_on(Some(kept));
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(bound) = &self.0 {
            bound.0.lock().hand_on(None);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::{Pin, pin};
    use std::task::{Context, Poll, Waker};

    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(10);

    fn bound(connections: usize, pending: usize) -> (Arc<ConnectionLimit>, Arc<Endpoint>) {
        let (host, authority) = ("10.0.0.1".to_owned(), "10.0.0.1:1".into());
        let server = Arc::new(Endpoint { host, port: 1, authority, weight: 1, unix_socket: None, tls: None });
        (Arc::new(ConnectionLimit::new(MaxConnections { connections, pending })), server)
    }

    fn usage(connections: usize, pending: usize) -> Usage {
        Usage { connections, pending }
    }

    type Acquired = Result<(Permit, Option<IdleConnection>), Failure>;

    fn poll(future: Pin<&mut impl Future<Output = Acquired>>) -> Poll<Acquired> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    fn is_full(acquired: &Poll<Acquired>) -> bool {
        matches!(acquired, Poll::Ready(Err(Failure::Full)))
    }

    fn is_served(acquired: &Poll<Acquired>) -> bool {
        matches!(acquired, Poll::Ready(Ok(_)))
    }

    #[tokio::test]
    async fn first_come_first_served() {
        let (bound, server) = bound(1, 2);
        let (slot, _) = bound.acquire(&server, false, TIMEOUT).await.expect("it is free");
        let mut first = pin!(bound.acquire(&server, false, TIMEOUT));
        let mut second = pin!(bound.acquire(&server, false, TIMEOUT));
        let mut third = pin!(bound.acquire(&server, false, TIMEOUT));
        assert!(poll(first.as_mut()).is_pending() && poll(second.as_mut()).is_pending());
        assert!(is_full(&poll(third.as_mut())), "two may wait");
        drop(slot);
        assert!(poll(second.as_mut()).is_pending());
        let Poll::Ready(Ok((slot, _))) = poll(first.as_mut()) else { panic!("it is its turn") };
        assert_eq!(bound.usage(), usage(1, 1));
        drop(slot);
        assert!(is_served(&poll(second.as_mut())));
        assert_eq!(bound.usage(), usage(0, 0));
    }

    #[tokio::test]
    async fn a_request_that_leaves_gives_up_its_place_and_its_permit() {
        let (bound, server) = bound(1, 9);
        let (slot, _) = bound.acquire(&server, false, TIMEOUT).await.expect("it is free");
        let mut last = Box::pin(bound.acquire(&server, false, TIMEOUT));
        {
            let mut granted = Box::pin(bound.acquire(&server, false, TIMEOUT));
            let mut leaving = Box::pin(bound.acquire(&server, false, TIMEOUT));
            assert!(poll(granted.as_mut()).is_pending() && poll(leaving.as_mut()).is_pending());
            assert!(poll(last.as_mut()).is_pending());
            drop(leaving);
            assert_eq!(bound.usage(), usage(1, 2));
            drop(slot);
            assert_eq!(bound.usage(), usage(1, 1), "granted, though it does not know yet");
        }
        assert!(is_served(&poll(last.as_mut())), "what was granted went to the next");
    }

    #[tokio::test(start_paused = true)]
    async fn no_request_waits_longer_than_its_timeout() {
        let (bound, server) = bound(1, 9);
        let (_slot, _) = bound.acquire(&server, false, TIMEOUT).await.expect("it is free");
        assert!(matches!(bound.acquire(&server, false, TIMEOUT).await, Err(Failure::Full)));
        assert_eq!(bound.usage(), usage(1, 0));
    }

    #[tokio::test]
    async fn other_numbers_hold_at_once() {
        let (bound, server) = bound(2, 9);
        let slots =
            [bound.acquire(&server, false, TIMEOUT).await, bound.acquire(&server, false, TIMEOUT).await];
        let mut waiting = pin!(bound.acquire(&server, false, TIMEOUT));
        assert!(poll(waiting.as_mut()).is_pending());
        bound.resize(MaxConnections { connections: 1, pending: 9 });
        let [first, second] = slots;
        drop(first);
        assert!(poll(waiting.as_mut()).is_pending(), "one too many is gone");
        drop(second);
        let acquired = poll(waiting.as_mut());
        assert!(is_served(&acquired));
        let mut waiting = pin!(bound.acquire(&server, false, TIMEOUT));
        assert!(poll(waiting.as_mut()).is_pending());
        bound.resize(MaxConnections { connections: 2, pending: 9 });
        assert!(is_served(&poll(waiting.as_mut())));
    }
}
