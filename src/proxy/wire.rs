//! What the gate and the service tell each other about one connection.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::Waker;
use std::time::Duration;

use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::framing::Fault;

/// How often a waiting client that has sent ahead is looked at.
const GONE_CHECK: Duration = Duration::from_millis(50);
/// Why a request body broke off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyFault {
    /// Its chunks are malformed.
    Malformed,
    /// No byte for `body_timeout`, or too few.
    Timeout,
    /// The client closed its side.
    Gone,
}

/// What gate and service tell each other about one connection.
#[derive(Debug)]
pub(crate) struct Wire {
    pub(super) stream: TcpStream,
    /// Heads handed to hyper.
    pub(super) heads: Cell<u64>,
    /// The refused head, by its place among the heads; nothing is read behind it.
    pub(super) fault: Cell<Option<(u64, Fault)>>,
    /// Why the body being read broke off.
    pub(super) body_fault: Cell<Option<BodyFault>>,
    /// Requests whose answer is complete.
    answered: Cell<u64>,
    /// Whether the upgrade that the last head asks for is granted; `None` while undecided.
    pub(super) upgrade: Cell<Option<bool>>,
    /// The gate waits: for that decision, or for another request.
    waiting: RefCell<Option<Waker>>,
    /// Since when it waits for another request.
    idle_since: Cell<Option<Instant>>,
    /// The connection is to make room for another if it is still idle.
    evicted: Cell<bool>,
    /// Request body bytes taken from the socket.
    pub(super) body_bytes: Cell<u64>,
    /// The client closed its sending side.
    pub(super) ended: Cell<bool>,
    /// The client took no byte for `write_timeout`.
    stalled: Cell<bool>,
}

impl Wire {
    pub(crate) fn new(stream: TcpStream) -> Rc<Self> {
        Rc::new(Self {
            stream,
            heads: Cell::new(0),
            fault: Cell::new(None),
            body_fault: Cell::new(None),
            answered: Cell::new(0),
            upgrade: Cell::new(None),
            waiting: RefCell::new(None),
            idle_since: Cell::new(None),
            evicted: Cell::new(false),
            body_bytes: Cell::new(0),
            ended: Cell::new(false),
            stalled: Cell::new(false),
        })
    }

    /// The fault of the head at this place, if it was refused.
    pub(crate) fn fault_of(&self, head: u64) -> Option<Fault> {
        self.fault.get().and_then(|(place, fault)| (place == head).then_some(fault))
    }

    /// Why the request body broke off, if the gate knows.
    pub(crate) fn body_fault(&self) -> Option<BodyFault> {
        self.body_fault.get()
    }

    /// A request's answer is complete (or given up). An upgrade that was not granted by now is not granted.
    pub(crate) fn answered(&self) {
        self.answered.set(self.answered.get() + 1);
        if self.is_idle() && self.upgrade.get().is_none() {
            self.decide_upgrade(false);
        }
    }

    /// Whether no request is being served.
    pub(crate) fn is_idle(&self) -> bool {
        self.heads.get() == self.answered.get()
    }

    /// The upgrade that the last head asked for is granted: what follows is not HTTP.
    pub(crate) fn grant_upgrade(&self) {
        self.decide_upgrade(true);
    }

    fn decide_upgrade(&self, granted: bool) {
        self.upgrade.set(Some(granted));
        self.wake_gate();
    }

    /// Keeps the gate's waker until something is decided about it.
    pub(super) fn wait(&self, waker: &Waker) {
        let mut waiting = self.waiting.borrow_mut();
        if !waiting.as_ref().is_some_and(|known| known.will_wake(waker)) {
            *waiting = Some(waker.clone());
        }
    }

    fn wake_gate(&self) {
        if let Some(waker) = self.waiting.borrow_mut().take() {
            waker.wake();
        }
    }

    /// The gate waits for another request since then, or no longer.
    pub(super) fn rest(&self, since: Option<Instant>) {
        self.idle_since.set(since);
    }

    /// Since when the connection could make room for another without harm; `None` if a request is being served or sent.
    pub(crate) fn idle_since(&self) -> Option<Instant> {
        self.idle_since.get().filter(|_| self.is_idle() && !self.is_evicted())
    }

    /// Closes the connection if it is still idle.
    pub(crate) fn evict(&self) {
        self.evicted.set(true);
        self.wake_gate();
    }

    /// Whether it was told to make room.
    pub(crate) fn is_evicted(&self) -> bool {
        self.evicted.get()
    }

    /// Whether the client took no byte for `write_timeout`, so that the connection was reset.
    pub(crate) fn is_stalled(&self) -> bool {
        self.stalled.get()
    }

    /// Ends once the client has closed its sending side or the connection is broken, even if bytes before that are unread.
    pub(crate) async fn client_gone(&self) {
        // Bytes that nobody reads yet would make the socket ready at once, again and again: look now and then instead.
        while !self.ended.get() {
            match self.stream.ready(Interest::READABLE).await {
                Ok(ready) if !ready.is_read_closed() => tokio::time::sleep(GONE_CHECK).await,
                _ => return,
            }
        }
    }

    /// Closes with a reset, because the client takes nothing: whatever is unsent is dropped at once.
    pub(super) fn reset(&self) {
        self.stalled.set(true);
        // A socket that cannot be told so is closed the ordinary way.
        let _ = socket2::SockRef::from(&self.stream).set_linger(Some(Duration::ZERO));
    }
}
