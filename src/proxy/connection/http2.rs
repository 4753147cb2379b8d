//! A client connection that speaks HTTP/2: its streams, its lifetime, and its limits against abuse.

mod stream;

use std::future::{Future as _, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::BytesMut;
use tokio::time::Instant;

use super::linger::linger;
use super::stream_guard::{ClientStreams, StreamGuard};
use crate::clock::{Deadline, now};
use crate::http2::connection::{Http2Codec, LocalSettings};
use crate::http2::frame::ErrorCode;
use crate::http2::traffic::{Mark, Traffic};
use crate::net::Stream;
use crate::plan::ListenerRole;
use crate::proxy::session::peer::ConnectionPeer;
use crate::proxy::worker::Worker;
use crate::proxy::worker::connection_handle::{ConnectionHandle, Lifetime};
use crate::telemetry::metrics::ConnectionRejectReason;

/// The maximum number of concurrent streams, as announced to the client.
const MAX_STREAMS: usize = 100;
/// The initial flow-control window of a stream; bytes of a request body that a client may send before any is read.
const STREAM_WINDOW: u32 = 8 << 10;
/// The window of a stream with a body being read.
const MAX_STREAM_WINDOW: u32 = 64 << 10;
/// The flow-control window of the connection: room for the initial windows of all streams, so that bodies that wait stop
/// no other, and for some larger ones of bodies that are being read.
const CONNECTION_WINDOW: u32 = 1 << 20;
/// The interval of PINGs, and how long the client may take to acknowledge one.
const PING_EVERY: Duration = Duration::from_secs(20);
/// A client that was sent more bytes than this since the last acknowledged PING may be slow to reach the next PING
/// behind them.
const MAY_HIDE_PING: u64 = 64 << 10;
/// The maximum extra time for that. The kernel makes sure that the client acknowledges bytes meanwhile.
const SLOW_PONG: Duration = Duration::from_secs(300);
/// How long after GOAWAY a client may still open streams. They are refused once the client has acknowledged the PING
/// that follows the first GOAWAY, which a client may never do.
const GOAWAY_GRACE: Duration = Duration::from_secs(60);
/// How long a connection without open streams may take to close.
const LINGER: Duration = Duration::from_secs(2);

/// The response to a client that negotiated HTTP/2 and sends something else (RFC 9113 §3.4): the server's preface, an
/// empty SETTINGS, and GOAWAY with PROTOCOL_ERROR.
pub(crate) const INVALID_PREFACE: &[u8] = b"\0\0\0\x04\0\0\0\0\0\0\0\x08\x07\0\0\0\0\0\0\0\0\0\0\0\0\x01";

/// Serves a connection after the client's preface; the preface is in `received`.
pub(crate) async fn serve(
    stream: Rc<Stream>,
    received: BytesMut,
    handle: Rc<ConnectionHandle>,
    peer: &ConnectionPeer,
    life: Lifetime,
    worker: Rc<Worker>,
) {
    let plan = worker.plan();
    let server = &plan.server;
    let traffic = Rc::new(Traffic::new(Some(server.write_timeout)));
    let settings = settings(server.max_header_bytes, peer.role);
    let connection = Http2Codec::server(Rc::clone(&stream), received, Rc::clone(&traffic), &settings);
    let now = now();
    let peer = peer.with_http2(&stream);
    let mut client = Client {
        connection,
        streams: ClientStreams::new(Rc::clone(&handle), peer, Rc::clone(&worker), now),
        stream: Rc::clone(&stream),
        requests: 0,
        life,
        pinged: now,
        awaits_pong: false,
        asked: SentPing { at: now, sent: 0 },
        read: 0,
        mark: traffic.mark(),
        traffic: Rc::clone(&traffic),
        stage: Stage::Open,
        ignores_goaway: false,
        header_timeout: server.header_timeout,
        idle_timeout: server.idle_timeout,
        deadline: Deadline::default(),
    };
    drop(plan);
    let mut woken = pin!(worker.drain_begins());
    poll_fn(|context| {
        #[expect(
            clippy::let_underscore_must_use,
            reason = "polled to be woken: the drain flag itself is read below"
        )]
        let _: Poll<()> = if worker.is_draining() { Poll::Pending } else { woken.as_mut().poll(context) };
        client.poll(context)
    })
    .await;
    drop(client);
    if traffic.is_stalled() {
        worker.plan().metrics.connection_rejected(handle.listener(), ConnectionRejectReason::Stalled);
    } else {
        linger(&stream, &handle, &worker).await;
    }
}

fn settings(max_header_bytes: usize, role: ListenerRole) -> LocalSettings {
    LocalSettings {
        max_streams: MAX_STREAMS,
        stream_window: STREAM_WINDOW,
        max_stream_window: MAX_STREAM_WINDOW,
        connection_window: CONNECTION_WINDOW,
        max_header_list: max_header_bytes,
        connect_protocol: role == ListenerRole::Traffic,
    }
}

/// One client connection.
struct Client {
    connection: Rc<Http2Codec>,
    streams: Rc<ClientStreams>,
    stream: Rc<Stream>,
    /// Requests received so far.
    requests: u64,
    life: Lifetime,
    /// When the client was last sent a PING, or received from.
    pinged: Instant,
    awaits_pong: bool,
    asked: SentPing,
    /// Of the bytes sent, those that the client has certainly read.
    read: u64,
    traffic: Rc<Traffic>,
    /// The traffic mark at the last PING.
    mark: Mark,
    stage: Stage,
    /// The client has opened a stream long after GOAWAY.
    ignores_goaway: bool,
    header_timeout: Duration,
    idle_timeout: Duration,
    deadline: Deadline,
}

/// The last PING.
#[derive(Clone, Copy, Debug)]
struct SentPing {
    at: Instant,
    /// Bytes that the socket had accepted before it.
    sent: u64,
}

impl SentPing {
    /// Whether the PING may wait after `unread` bytes that the client has perhaps not read.
    fn may_be_hidden(&self, unread: u64, now: Instant) -> bool {
        unread > MAY_HIDE_PING && now < self.at + SLOW_PONG
    }
}

/// The phase of the connection's life.
#[derive(Clone, Copy, Debug)]
enum Stage {
    Open,
    /// GOAWAY was sent then: the client is to open no more streams.
    Leaving(Instant),
    /// The connection was aborted then; only the GOAWAY with the reason is left to send.
    Aborted(Instant),
}

/// The next action for a connection.
#[derive(Clone, Copy, Debug)]
enum ConnAction {
    /// Send a PING.
    Ping,
    /// The client has not acknowledged the PING.
    PingTimeout,
    /// Send GOAWAY; open streams may finish.
    Leave,
    /// Abort with this reason.
    Abort(ErrorCode),
    /// The client is gone: close without sending anything.
    Close,
}

impl Client {
    /// Ready once the connection can be closed.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        loop {
            while let Poll::Ready(request) = self.connection.poll(context) {
                let Some(request) = request else { return Poll::Ready(()) };
                self.requests += 1;
                if matches!(self.stage, Stage::Leaving(since) if now() >= since + GOAWAY_GRACE) {
                    self.ignores_goaway = true;
                    request.stream.reset(ErrorCode::REFUSED_STREAM);
                    continue;
                }
                stream::spawn(request, StreamGuard::take(&self.streams));
            }
            self.note_pong();
            self.streams.mark_idle_if_empty(context);
            let action = match self.due_action() {
                Some(action) => action,
                None => {
                    let (at, action) = self.next_action();
                    ready!(self.deadline.poll(context, at));
                    action
                }
            };
            match action {
                ConnAction::Ping => self.ping(),
                // Bytes that the client reads slowly may precede the PING.
                ConnAction::PingTimeout if self.traffic.has_moved_since(self.mark) || self.is_slow() => {
                    self.wait_on()
                }
                ConnAction::PingTimeout | ConnAction::Close => return Poll::Ready(()),
                ConnAction::Leave => {
                    self.connection.shut_down();
                    self.stage = Stage::Leaving(now());
                }
                ConnAction::Abort(reason) => {
                    self.connection.abort(reason);
                    self.stage = Stage::Aborted(now());
                }
            }
        }
    }

    /// An action due at once.
    fn due_action(&self) -> Option<ConnAction> {
        let worn_out = self.requests >= self.life.requests;
        match self.stage {
            Stage::Aborted(_) => None,
            _ if self.ignores_goaway || self.is_flood() => {
                Some(ConnAction::Abort(ErrorCode::ENHANCE_YOUR_CALM))
            }
            Stage::Leaving(_) => None,
            Stage::Open => {
                let leaves = worn_out || self.streams.worker.is_draining() || self.streams.is_evicted();
                leaves.then_some(ConnAction::Leave)
            }
        }
    }

    /// Whether the number of the client's frames amounts to a flood.
    fn is_flood(&self) -> bool {
        self.streams.count_rapid_resets(self.connection.take_unserved_resets());
        self.streams.is_flood() || self.connection.is_flood()
    }

    /// The next timed action.
    fn next_action(&self) -> (Instant, ConnAction) {
        let leaving = match self.stage {
            Stage::Open => None,
            Stage::Leaving(since) => Some(since),
            // A client that accepts nothing cannot be sent the reason, and is not waited for.
            Stage::Aborted(since) => return (since + LINGER, ConnAction::Close),
        };
        let idle_since = self.streams.idle_since();
        let ping = (
            self.pinged + PING_EVERY,
            if self.awaits_pong { ConnAction::PingTimeout } else { ConnAction::Ping },
        );
        let block = self.traffic.open_since();
        let block =
            block.map(|since| (since + self.header_timeout, ConnAction::Abort(ErrorCode::PROTOCOL_ERROR)));
        let idle = idle_since.map(|since| match leaving {
            None => (since + self.idle_timeout, ConnAction::Leave),
            Some(leaving) => (since.max(leaving).max(self.unsent_until(since)) + LINGER, ConnAction::Close),
        });
        let age = leaving.is_none().then_some((self.life.until, ConnAction::Leave));
        [block, idle, age]
            .into_iter()
            .flatten()
            .fold(ping, |first, next| if next.0 < first.0 { next } else { first })
    }

    /// Until when bytes of ended streams waited for the socket: now, if they still do. An evicted connection does not
    /// wait for them.
    fn unsent_until(&self, idle_since: Instant) -> Instant {
        let blocked = self.traffic.last_blocked().filter(|_| !self.streams.is_evicted());
        blocked.unwrap_or(idle_since)
    }

    /// Whether the client may be reading steadily and has not reached the PING yet.
    fn is_slow(&self) -> bool {
        let unread = self.traffic.sent() - self.read;
        self.traffic.is_blocked()
            || self.asked.may_be_hidden(unread, now()) && self.traffic.enforce_ack_timeout(&self.stream)
    }

    fn wait_on(&mut self) {
        self.pinged = now();
        self.mark = self.traffic.mark();
    }

    fn ping(&mut self) {
        self.wait_on();
        self.connection.ping();
        self.awaits_pong = true;
        self.asked = SentPing { at: self.pinged, sent: self.traffic.sent() };
    }

    fn note_pong(&mut self) {
        if self.awaits_pong && self.connection.has_ponged() {
            self.awaits_pong = false;
            self.read = self.asked.sent;
        }
    }
}

#[cfg(test)]
mod tests;
