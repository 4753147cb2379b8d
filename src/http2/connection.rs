//! A connection of HTTP/2 (RFC 9113): it reads frames, keeps the state of its streams, and sends what they have.
//!
//! One task drives the connection ([`Connection::poll`]). Each stream is used through a [`StreamHandle`] by the task of its request:
//! what it sends is put into the connection's buffer at once, and the driving task writes that buffer to the socket.

mod blocks;
mod end;
mod handle;
mod receive;
mod send;
mod settings;
mod streams;
#[cfg(test)]
mod tests;
mod waiting;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::BytesMut;
use tokio::time::Instant;

use super::flow::{DEFAULT_WINDOW, ReceiveWindow, SendWindow};
use super::frame::{ErrorCode, MAX_31_BITS, put_ping, put_window_update};
use super::head::{HeadError, ReceivedHead};
use super::hpack::decoder::Decoder;
use super::overhead::Overhead;
use super::traffic::Traffic;
use crate::clock::deadline::now;
use crate::net::Stream;
use blocks::Block;
pub use end::{ConnectionEnd, Reset};
pub use handle::{OpenError, StreamHandle, StreamLost};
use receive::Payload;
pub use settings::LocalSettings;
use settings::PeerSettings;
use streams::StreamMap;
use waiting::Waiting;

/// What a client sends before its first frame (RFC 9113 §3.4).
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Bytes that are read at once, and between two writes.
const READ: usize = 16 << 10;
/// Bytes of bodies that may wait for the socket. Streams with more wait until it has taken them.
const MAX_OUTBOUND: usize = 64 << 10;
/// The same while much waits in other connections.
const SCARCE_OUTBOUND: usize = 8 << 10;
/// Bytes of answers to control frames that may wait for the socket. Nothing is read until it has taken them.
const MAX_REPLIES: usize = 16 << 10;
/// A buffer of this size is kept while streams are open.
const KEPT_BUFFER: usize = 8 << 10;
/// Bytes of the dynamic table of HPACK (RFC 7541 §4.2), as nothing else is said.
const HEADER_TABLE: usize = 4 << 10;
/// The payloads of our PING frames: one asks whether the peer is there, the other follows the first GOAWAY.
const PING_ALIVE: [u8; 8] = *b"tollgate";
/// See [`PING_ALIVE`].
const PING_GOAWAY: [u8; 8] = *b"shutdown";

/// Which side of the connection this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The peer opens streams.
    Server,
    /// The peer serves them.
    Client,
}

/// A request whose head has come.
#[derive(Debug)]
pub struct ReceivedRequest {
    /// Its stream.
    pub stream: StreamHandle,
    /// Its head, or why there is none.
    pub head: Result<ReceivedHead, HeadError>,
    /// No body follows.
    pub ended: bool,
}

/// A connection of HTTP/2.
#[derive(Debug)]
pub struct Http2Codec {
    socket: Rc<Stream>,
    traffic: Rc<Traffic>,
    state: RefCell<State>,
    /// Of the task that drives the connection.
    driver: RefCell<Option<Waker>>,
    /// The peer has answered the PING that asked whether it is there.
    ponged: Cell<bool>,
}

/// What changes as frames come and go.
#[derive(Debug)]
struct State {
    role: Role,
    /// What came and is not a whole frame yet.
    inbound: BytesMut,
    /// Bytes of the client's preface that were not skipped yet.
    preface: usize,
    /// The peer's first frame has come: SETTINGS.
    greeted: bool,
    /// The DATA frame whose payload comes.
    payload: Option<Payload>,
    /// The header block that is open.
    block: Option<Block>,
    decoder: Decoder,
    max_header_list: usize,
    receive_window: ReceiveWindow,
    /// Frames that were not sent yet.
    outbound: BytesMut,
    /// Of these, bytes of answers to control frames, at most.
    replies: usize,
    /// The peer wants a smaller dynamic table: the next header block has to say so.
    table_update: bool,
    send_window: SendWindow,
    peer: PeerSettings,
    /// The window of a new stream for what the peer sends, and of one whose body is taken.
    stream_windows: (u32, u32),
    /// Bytes of bodies that came and were not taken.
    held: usize,
    waiting: Waiting,
    streams: StreamMap,
    /// Requests that were not taken up yet: the stream, its head, and whether that is all.
    requests: VecDeque<(u32, Result<ReceivedHead, HeadError>, bool)>,
    /// Frames of a client that carry nothing.
    overhead: Overhead,
    opened: Instant,
    /// Streams that were reset for the peer's faults.
    error_resets: u32,
    /// Streams that were reset in the read that opened them, of the present read.
    early_resets: u32,
    /// The last stream of the GOAWAY that was sent.
    goaway_sent: Option<u32>,
    /// The last stream of the GOAWAY that came.
    goaway_received: Option<u32>,
    /// Streams that wait for room to send.
    room_waiters: Vec<u32>,
    /// How often room was shared.
    round: u64,
    /// Tasks that wait to open a stream.
    open_waiters: Vec<Waker>,
    /// Nothing is read any more.
    end: Option<ConnectionEnd>,
}

impl Http2Codec {
    /// The gateway's side of a client's connection. `inbound` was read from it already and begins with the preface.
    pub fn server(
        socket: Rc<Stream>,
        inbound: BytesMut,
        traffic: Rc<Traffic>,
        settings: &LocalSettings,
    ) -> Rc<Self> {
        Self::new(Role::Server, socket, inbound, traffic, settings)
    }

    /// The gateway's side of a backend's connection.
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
        let state = State {
            role,
            inbound,
            preface: if role == Role::Server { PREFACE.len() } else { 0 },
            greeted: false,
            payload: None,
            block: None,
            decoder: Decoder::new(HEADER_TABLE),
            max_header_list: settings.max_header_list,
            receive_window: ReceiveWindow::new(settings.connection_window),
            outbound,
            replies: 0,
            table_update: false,
            send_window: SendWindow::new(DEFAULT_WINDOW),
            peer: PeerSettings::default(),
            stream_windows: (settings.stream_window, settings.max_stream_window),
            held: 0,
            waiting: Waiting::default(),
            streams: StreamMap::new(settings.max_streams),
            requests: VecDeque::new(),
            overhead: Overhead::default(),
            opened: now(),
            error_resets: 0,
            early_resets: 0,
            goaway_sent: None,
            goaway_received: None,
            room_waiters: Vec::new(),
            round: 0,
            open_waiters: Vec::new(),
            end: None,
        };
        Rc::new(Self {
            socket,
            traffic,
            state: RefCell::new(state),
            driver: RefCell::default(),
            ponged: Cell::default(),
        })
    }

    /// What is seen of it from outside.
    pub fn traffic(&self) -> &Rc<Traffic> {
        &self.traffic
    }

    /// Drives the connection: reads frames, and sends what there is. Ready with a request that has come, or with `None` once the
    /// connection has ended: by a fault, by the peer, or by GOAWAY after its last stream.
    pub fn poll(self: &Rc<Self>, context: &mut Context<'_>) -> Poll<Option<ReceivedRequest>> {
        self.register(context);
        let mut budget = READ * 4;
        loop {
            let mut state = self.state.borrow_mut();
            if let Some((stream, head, ended)) = state.requests.pop_front() {
                drop(state);
                let stream = StreamHandle::new(Rc::clone(self), stream);
                return Poll::Ready(Some(ReceivedRequest { stream, head, ended }));
            }
            let progress =
                state.end.is_none() && budget > 0 && self.poll_receive(context, &mut state, &mut budget);
            if progress {
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

    /// Has the driving task run.
    fn wake(&self) {
        if let Some(waker) = &*self.driver.borrow() {
            waker.wake_by_ref();
        }
    }

    /// Asks the peer whether it is there: see [`Self::take_pong`].
    pub fn ping(&self) {
        self.ponged.set(false);
        put_ping(false, PING_ALIVE, &mut self.state.borrow_mut().outbound);
        self.wake();
    }

    /// Whether the peer has answered the last [`Self::ping`].
    pub fn has_ponged(&self) -> bool {
        self.ponged.get()
    }

    /// Tells the peer to open no more streams (RFC 9113 §6.8). Those that it opens before it knows are served: the GOAWAY that names
    /// the last one follows once the peer has answered a PING.
    pub fn shut_down(&self) {
        let mut state = self.state.borrow_mut();
        if state.goaway_sent.is_none() {
            state.put_goaway(MAX_31_BITS, ErrorCode::NO_ERROR);
            put_ping(false, PING_GOAWAY, &mut state.outbound);
        }
        drop(state);
        self.wake();
    }

    /// Ends all streams now, and the connection once the peer has been told why.
    pub fn abort(&self, code: ErrorCode) {
        self.state.borrow_mut().fail(code, "");
        self.wake();
    }

    /// How the connection ended, if it did.
    pub fn end(&self) -> Option<ConnectionEnd> {
        self.state.borrow().end
    }

    /// Closes the sending side of the connection, which has ended.
    ///
    /// # Errors
    /// The socket is closed.
    pub fn close_sending(&self) -> io::Result<()> {
        self.socket.close_sending()
    }

    /// Whether the client has sent more frames that carry nothing than any honest one does, or has had too many streams reset for
    /// its own faults (CVE-2025-8671).
    pub fn is_flood(&self) -> bool {
        let state = self.state.borrow();
        let age = || (now() - state.opened).as_secs();
        state.overhead.is_flood(self.traffic.sent(), age) || state.error_resets > receive::MAX_ERROR_RESETS
    }
}
