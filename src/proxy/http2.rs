//! A client's connection that speaks HTTP/2: its streams, how long it lives, and what it may not do.

mod stream;
mod stream_guard;

use std::future::{Future as _, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::BytesMut;
use tokio::time::Instant;

use super::connection_handle::ConnectionHandle;
use super::lifetime::Lifetime;
use super::linger::linger;
use super::peer::ConnectionPeer;
use super::worker::Worker;
use crate::clock::deadline::{Deadline, now};
use crate::http2::connection::{Http2Codec, LocalSettings};
use crate::http2::frame::ErrorCode;
use crate::http2::traffic::{Mark, Traffic};
use crate::net::Stream;
use crate::telemetry::metrics::ConnectionRejectReason;
use stream_guard::{ClientStreams, StreamGuard};

/// Streams at once; the client is told.
const MAX_STREAMS: usize = 100;
/// Bytes of a request's body that a client may send before we have taken any: of one stream, and of all together.
const STREAM_WINDOW: u32 = 64 << 10;
/// See [`STREAM_WINDOW`].
const CONNECTION_WINDOW: u32 = 1 << 20;
/// How often a client is asked whether it is there, and how long it may take to say so.
const PING_EVERY: Duration = Duration::from_secs(20);
/// A client to which more bytes than these were sent since the last question that it answered may be slow to find the next
/// one behind them.
const MAY_HIDE_PING: u64 = 64 << 10;
/// For so long at most. The kernel sees to it that it acknowledges bytes meanwhile.
const SLOW_PONG: Duration = Duration::from_secs(300);
/// How long after GOAWAY a client may still open streams. They are refused once the client has answered the PING
/// that follows the first GOAWAY, which a client may never do.
const GOAWAY_GRACE: Duration = Duration::from_secs(60);
/// How long a connection that has nothing left to do may take to close.
const LINGER: Duration = Duration::from_secs(2);

/// The answer to a client that agreed on HTTP/2 and sends something else (RFC 9113 §3.4): the server's preface, an empty
/// SETTINGS, and GOAWAY with PROTOCOL_ERROR.
pub(super) const INVALID_PREFACE: &[u8] = b"\0\0\0\x04\0\0\0\0\0\0\0\x08\x07\0\0\0\0\0\0\0\0\0\0\0\0\x01";

/// Serves a connection whose client has sent the preface: it stands in `come`.
pub(super) async fn serve(
    stream: Rc<Stream>,
    come: BytesMut,
    handle: Rc<ConnectionHandle>,
    peer: &ConnectionPeer,
    life: Lifetime,
    worker: Rc<Worker>,
) {
    let plan = worker.plan();
    let server = &plan.gateway.server;
    let traffic = Rc::new(Traffic::new(Some(server.write_timeout)));
    let settings = settings(server.max_header_bytes);
    let connection = Http2Codec::server(Rc::clone(&stream), come, Rc::clone(&traffic), &settings);
    let now = now();
    let peer = ConnectionPeer { http2: true, ..peer.clone() };
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

fn settings(max_header_bytes: usize) -> LocalSettings {
    LocalSettings {
        max_streams: MAX_STREAMS,
        stream_window: STREAM_WINDOW,
        max_stream_window: STREAM_WINDOW,
        connection_window: CONNECTION_WINDOW,
        max_header_list: max_header_bytes,
    }
}

/// One client's connection.
struct Client {
    connection: Rc<Http2Codec>,
    streams: Rc<ClientStreams>,
    stream: Rc<Stream>,
    /// Taken up so far.
    requests: u64,
    life: Lifetime,
    /// When the client was last asked whether it is there, or seen to be.
    pinged: Instant,
    awaits_pong: bool,
    asked: SentPing,
    /// Of the bytes sent, those that the client has read for certain.
    read: u64,
    traffic: Rc<Traffic>,
    /// How far that was when the client was last asked.
    mark: Mark,
    stage: Stage,
    /// The client has opened a stream long after it was told to open no more.
    ignores_goaway: bool,
    header_timeout: Duration,
    idle_timeout: Duration,
    deadline: Deadline,
}

/// The last question whether the client is there.
#[derive(Clone, Copy, Debug)]
struct SentPing {
    at: Instant,
    /// Bytes that the socket had taken before it.
    sent: u64,
}

impl SentPing {
    /// Whether it may wait behind so many bytes that the client has perhaps not read.
    fn may_be_hidden(&self, unread: u64, now: Instant) -> bool {
        unread > MAY_HIDE_PING && now < self.at + SLOW_PONG
    }
}

/// How far the connection's end is.
#[derive(Clone, Copy, Debug)]
enum Stage {
    Open,
    /// Since then the client is told to open no more streams here.
    Leaving(Instant),
    /// Since then all it has is to be told why.
    Aborted(Instant),
}

/// What comes next for a connection.
#[derive(Clone, Copy, Debug)]
enum ConnAction {
    /// The client is asked whether it is there.
    Ping,
    /// The client has not answered that.
    PingTimeout,
    /// It is to open no more streams; those that are open may finish.
    Leave,
    /// All ends for this reason.
    Abort(ErrorCode),
    /// The client is not there: closed without a word.
    Close,
}

impl Client {
    /// Ready once the connection is of no use any more.
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
            let fate = match self.due_action() {
                Some(fate) => fate,
                None => {
                    let (at, fate) = self.next_action();
                    ready!(self.deadline.poll(context, at));
                    fate
                }
            };
            match fate {
                ConnAction::Ping => self.ping(),
                // What it takes slowly may stand before our question.
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

    /// What does not wait for a time.
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

    /// Whether the client does harm by the number of its frames.
    fn is_flood(&self) -> bool {
        self.streams.is_flood() || self.connection.is_flood()
    }

    /// What time brings next.
    fn next_action(&self) -> (Instant, ConnAction) {
        let leaving = match self.stage {
            Stage::Open => None,
            Stage::Leaving(since) => Some(since),
            // A client that takes nothing is not told, and not waited for.
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

    /// Until when bytes of ended streams waited for the socket: now, if they still do. A connection that is to make room does
    /// not wait for them.
    fn unsent_until(&self, idle_since: Instant) -> Instant {
        let blocked = self.traffic.last_blocked().filter(|_| !self.streams.is_evicted());
        blocked.unwrap_or(idle_since)
    }

    /// Whether the client may be reading steadily and has not come to our question yet.
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
