//! An HTTP/2 connection (RFC 9113): reads frames, keeps the state of its streams, and sends their data.
//!
//! One task drives the connection ([`Http2Codec::poll`]). Each stream is used through a [`StreamHandle`] by the task of
//! its request: its data are put into the connection's buffer at once, and the driving task writes that buffer to the
//! socket.
//!
//! How a connection ends is a [`ConnectionEnd`]; how a stream ends early, a [`Reset`].

mod blocks;
mod handle;
mod receive;
mod resets;
mod send;
mod settings;
mod state;
mod streams;
#[cfg(test)]
mod tests;
mod waiting;

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::BytesMut;

use super::flow::DEFAULT_WINDOW;
use super::frame::{ErrorCode, MAX_31_BITS, put_ping, put_window_update};
use super::head::{HeadError, ReceivedHead};
use super::traffic::Traffic;
use crate::clock::now;
use crate::net::Stream;
use state::ConnectionState;

pub use handle::{OpenError, StreamHandle, StreamLost};
pub use settings::LocalSettings;

/// The preface of a client, sent before its first frame (RFC 9113 §3.4).
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Bytes read at once, and between two writes.
const READ: usize = 16 << 10;
/// Maximum bytes of bodies that may wait for the socket. Streams with more data wait until it has accepted them.
const MAX_OUTBOUND: usize = 64 << 10;
/// The same while many bytes wait in other connections.
const SCARCE_OUTBOUND: usize = 8 << 10;
/// Maximum bytes of replies to control frames that may wait for the socket. No frame is read until it has accepted
/// them.
const MAX_REPLIES: usize = 16 << 10;
/// A buffer of this size is kept while streams are open.
const KEPT_BUFFER: usize = 8 << 10;
/// The payload of the gateway's PING that checks the peer.
const PING_ALIVE: [u8; 8] = *b"tollgate";
/// The payload of the PING that follows the first GOAWAY.
const PING_GOAWAY: [u8; 8] = *b"shutdown";

/// The gateway's role on the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The peer opens streams.
    Server,
    /// The peer serves them.
    Client,
}

/// A request with a complete head.
#[derive(Debug)]
pub struct ReceivedRequest {
    /// Its stream.
    pub stream: StreamHandle,
    /// Its head, or why it is invalid.
    pub head: Result<ReceivedHead, HeadError>,
}

/// A connection of HTTP/2.
#[derive(Debug)]
pub struct Http2Codec {
    socket: Rc<Stream>,
    traffic: Rc<Traffic>,
    state: RefCell<ConnectionState>,
    /// The waker of the task that drives the connection.
    driver: RefCell<Option<Waker>>,
    /// The peer has acknowledged the last checking PING.
    ponged: Cell<bool>,
}

impl Http2Codec {
    /// A client's connection. `inbound` was read from it already and begins with the preface.
    pub fn server(
        socket: Rc<Stream>,
        inbound: BytesMut,
        traffic: Rc<Traffic>,
        settings: &LocalSettings,
    ) -> Rc<Self> {
        Self::new(Role::Server, socket, inbound, traffic, settings)
    }

    /// A connection to a backend.
    pub fn client(socket: Rc<Stream>, settings: &LocalSettings) -> Rc<Self> {
        Self::new(Role::Client, socket, BytesMut::new(), Rc::default(), settings)
    }

    fn new(
        role: Role,
        socket: Rc<Stream>,
        inbound: BytesMut,
        traffic: Rc<Traffic>,
        settings: &LocalSettings,
    ) -> Rc<Self> {
        let mut outbound = BytesMut::new();
        if role == Role::Client {
            outbound.extend_from_slice(PREFACE);
        }
        settings.put(role, &mut outbound);
        let more = settings.connection_window.saturating_sub(DEFAULT_WINDOW);
        if more > 0 {
            put_window_update(0, more, &mut outbound);
        }
        traffic.add_received(inbound.len());
        let state = ConnectionState::new(role, (inbound, outbound), settings);
        Rc::new(Self {
            socket,
            traffic,
            state: RefCell::new(state),
            driver: RefCell::default(),
            ponged: Cell::default(),
        })
    }

    /// Observations of the connection from outside.
    pub fn traffic(&self) -> &Rc<Traffic> {
        &self.traffic
    }

    /// Drives the connection: reads frames, and sends pending ones. Ready with a received request, or with `None` once
    /// the connection has ended: by an error, by the peer, or by GOAWAY after its last stream.
    pub fn poll(self: &Rc<Self>, context: &mut Context<'_>) -> Poll<Option<ReceivedRequest>> {
        self.register(context);
        let mut budget = READ * 4;
        // A request is returned once the socket is read empty: a frame after it may reset it.
        let mut may_hold_more = false;
        loop {
            let mut state = self.state.borrow_mut();
            if !may_hold_more && let Some((stream, head)) = state.requests.pop_front() {
                drop(state);
                let stream = StreamHandle::new(Rc::clone(self), stream);
                return Poll::Ready(Some(ReceivedRequest { stream, head }));
            }
            let before = budget;
            let progress =
                state.end.is_none() && budget > 0 && self.poll_receive(context, &mut state, &mut budget);
            if progress || std::mem::take(&mut may_hold_more) {
                may_hold_more = before - budget == READ && budget > 0;
                continue;
            }
            let paused = state.is_paused();
            let flushed = self.poll_send(context, &mut state);
            if paused && flushed && state.end.is_none() {
                continue;
            }
            if state.is_over(flushed) {
                state.lose_streams();
                return Poll::Ready(None);
            }
            if budget == 0 {
                context.waker().wake_by_ref();
            }
            return Poll::Pending;
        }
    }

    fn register(&self, context: &Context<'_>) {
        let mut driver = self.driver.borrow_mut();
        if driver.as_ref().is_none_or(|waker| !waker.will_wake(context.waker())) {
            *driver = Some(context.waker().clone());
        }
    }

    /// Wakes the driving task.
    fn wake(&self) {
        if let Some(waker) = &*self.driver.borrow() {
            waker.wake_by_ref();
        }
    }

    /// Sends a PING: see [`Self::has_ponged`].
    pub fn ping(&self) {
        self.ponged.set(false);
        put_ping(false, PING_ALIVE, &mut self.state.borrow_mut().outbound.bytes);
        self.wake();
    }

    /// Sends a PING, unless the peer has sent neither HEADERS nor DATA since the last one. Returns whether it was sent.
    pub fn ping_once(&self) -> bool {
        let may_ping = std::mem::take(&mut self.state.borrow_mut().may_ping);
        if may_ping {
            self.ping();
        }
        may_ping
    }

    /// Whether the peer has acknowledged the last [`Self::ping`].
    pub fn has_ponged(&self) -> bool {
        self.ponged.get()
    }

    /// Sends GOAWAY, so that the peer opens no more streams (RFC 9113 §6.8). Streams that the peer opens before it has
    /// read that are served: the GOAWAY with the last stream follows once the peer has acknowledged a PING.
    pub fn shut_down(&self) {
        let mut state = self.state.borrow_mut();
        if state.goaway.sent.is_none() {
            state.put_goaway(MAX_31_BITS, ErrorCode::NO_ERROR);
            put_ping(false, PING_GOAWAY, &mut state.outbound.bytes);
        }
        drop(state);
        self.wake();
    }

    /// Ends all streams now, and the connection once the peer was sent the reason.
    pub fn abort(&self, code: ErrorCode) {
        self.state.borrow_mut().fail(code, "");
        self.wake();
    }

    /// How the connection ended, if it has.
    pub fn end(&self) -> Option<ConnectionEnd> {
        self.state.borrow().end
    }

    /// Closes the sending side of the connection, which has ended.
    ///
    /// # Errors
    ///
    /// The socket is closed.
    pub fn close_sending(&self) -> io::Result<()> {
        self.socket.close_sending()
    }

    /// How long the client took to acknowledge SETTINGS; `None` until it has.
    pub fn round_trip(&self) -> Option<Duration> {
        self.state.borrow().round_trip
    }

    /// The streams since the last call that the client reset in the same read that opened them. They were not served.
    pub fn take_unserved_resets(&self) -> u32 {
        std::mem::take(&mut self.state.borrow_mut().abuse.unserved_resets)
    }

    /// Whether the client has sent more overhead frames than any honest client does, or has had too many streams reset
    /// for its own errors (CVE-2025-8671).
    pub fn is_flood(&self) -> bool {
        let state = self.state.borrow();
        let age = || (now() - state.opened).as_secs();
        state.abuse.overhead.is_flood(self.traffic.sent(), age)
            || state.abuse.error_resets.exceeds(resets::MAX_ERROR_RESETS)
    }
}

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionEnd {
    /// The peer closed it, or the socket failed.
    Lost,
    /// The peer violated the protocol, in this way.
    Fault(&'static str),
    /// This side ended it, for a reason or since it was no longer needed.
    Aborted,
}

/// How a stream ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reset {
    /// The peer reset it.
    Remote(ErrorCode),
    /// This side reset it, since the peer violated a rule.
    Fault,
    /// The peer's GOAWAY shows that it was not served.
    GoneAway,
    /// The connection was lost.
    Lost,
}

/// The error of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FrameError {
    /// A connection error (RFC 9113 §5.4.1).
    Connection(ErrorCode, &'static str),
    /// A stream error (RFC 9113 §5.4.2).
    Stream(u32, ErrorCode),
}

impl FrameError {
    /// PROTOCOL_ERROR of the connection.
    fn protocol(what: &'static str) -> Self {
        Self::Connection(ErrorCode::PROTOCOL_ERROR, what)
    }
}
