//! HTTP/2 connections to one server; many requests share one.

mod liveness;
mod stream;

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::net::IpAddr;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::{Mutex, Notify};
use tokio::time::{Instant, timeout};

use super::connect::MAX_AGE;
use super::connection_limit::Permit;
use super::dns::ConnectedAddress;
use crate::clock::{Deadline, now};
use crate::http2::connection::{ConnectionEnd, Http2Codec, LocalSettings};
use crate::http2::frame::{ErrorCode, MAX_31_BITS};
use crate::http2::hpack::encoder::Scheme;
use crate::net::{Alpn, Stream};
use liveness::Liveness;
pub use stream::ConnectRule;
pub(super) use stream::{ClientStream, NoAnswer};

/// Concurrent requests on one connection, if the server accepts as many; more open another connection.
const MAX_STREAMS: usize = 100;
/// Connections to one server by one worker, where the upstream has no connection limit.
pub(super) const MAX_HTTP2_CONNECTIONS: usize = 8;
/// The initial flow-control window of a stream: bytes of a response that may wait for a client that reads nothing.
const STREAM_WINDOW: u32 = 16 << 10;
/// The maximum window of a stream: bytes of a response that may wait for a client that has read some.
const MAX_STREAM_WINDOW: u32 = 64 << 10;
/// The connection's window allows as much for all responses together: otherwise a few slow clients would block all
/// others.
const CONNECTION_WINDOW: u32 = MAX_31_BITS;
/// The minimum time between two connections opened to reach another address.
const SPREAD_EVERY: Duration = Duration::from_millis(100);
/// How long the rest of a frame may be missing before the connection takes no more requests.
const MAX_HALF_FRAME: Duration = Duration::from_millis(10);
/// How long it is remembered that a server ended connections after few requests.
const REMEMBERED: Duration = Duration::from_secs(10);
/// A request that waits for room looks again after this time, if nothing wakes it.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// How long an unused connection may take to send its last bytes.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// The maximum size of a response's fields, in bytes.
const MAX_FIELDS: usize = 64 << 10;

/// One worker's connections to one server.
#[derive(Debug)]
pub(super) struct Http2Pool {
    connections: RefCell<Vec<Rc<Http2Connection>>>,
    /// The maximum number of connections.
    max_connections: usize,
    /// How long a connection may be unused.
    idle_timeout: Duration,
    /// Held while a connection is opened: other requests wait for that instead of opening their own.
    pub(super) dialling: Mutex<()>,
    state: Rc<PoolState>,
    /// When a connection was last opened to reach another address.
    spread: Cell<Option<Instant>>,
}

/// What a pool and its connections know together.
#[derive(Debug, Default)]
struct PoolState {
    /// Wakes a request that waits for room on any connection.
    freed: Notify,
    /// The number of those.
    waiting: Cell<usize>,
    /// The concurrent requests that the last connection's server announced to accept.
    announced: Cell<Option<usize>>,
    /// The connections that the server ended lately with more requests on them than it served.
    short_lived: Cell<Option<ShortLived>>,
}

impl PoolState {
    /// Wakes a request that waits for room.
    fn wake_waiting(&self) {
        if self.waiting.get() > 0 {
            self.freed.notify_one();
        }
    }

    /// How many requests a connection may take in all, as far as the server has shown more than once.
    fn max_served(&self, now: Instant) -> usize {
        let lately = self.short_lived.get().filter(|lately| lately.count > 1 && lately.is_recent(now));
        lately.map_or(usize::MAX, |lately| lately.served)
    }

    /// Notes a connection that served this many requests and lost others.
    fn note_short_lived(&self, served: usize, now: Instant) {
        let before = self.short_lived.get().filter(|lately| lately.is_recent(now));
        let (served, count) = before.map_or((served, 1), |it| (it.served.min(served), it.count + 1));
        self.short_lived.set(Some(ShortLived { served, last: now, count }));
    }
}

/// Connections that a server ended after few requests, as one that takes a fixed number of them does.
#[derive(Clone, Copy, Debug)]
struct ShortLived {
    /// The fewest requests that one of them served.
    served: usize,
    last: Instant,
    count: u32,
}

impl ShortLived {
    fn is_recent(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.last) < REMEMBERED
    }
}

/// Where a request can go.
#[derive(Debug)]
pub(super) enum Pick {
    /// To this connection, which has room.
    Connection(Rc<Http2Connection>),
    /// To a new connection.
    Open,
    /// All connections are full, and there may be no more.
    Wait,
}

/// One connection.
#[derive(Debug)]
pub(super) struct Http2Connection {
    codec: Rc<Http2Codec>,
    /// `http` or `https`.
    scheme: Scheme,
    /// The address of its server.
    pub(super) address: ConnectedAddress,
    pub(super) since: Instant,
    /// Requests in flight.
    open: Cell<usize>,
    /// Requests so far.
    begun: Cell<usize>,
    /// When the last request ended.
    used: Cell<Instant>,
    /// The connection accepts no more requests: it has ended, the server is closing it, or no bytes are received any
    /// more.
    retired: Cell<bool>,
    /// The server has ended it without processing all its requests.
    loses_requests: Cell<bool>,
    /// The upstream has a connection limit: no other connection may be opened while this one is open.
    bounded: bool,
    liveness: Rc<Liveness>,
    pool: Rc<PoolState>,
}

/// The gateway's settings for servers. Server push is refused.
const SETTINGS: LocalSettings = LocalSettings {
    max_streams: MAX_STREAMS,
    stream_window: STREAM_WINDOW,
    max_stream_window: MAX_STREAM_WINDOW,
    connection_window: CONNECTION_WINDOW,
    max_header_list: MAX_FIELDS,
    connect_protocol: false,
};

impl Http2Pool {
    pub(super) fn new(max_connections: usize, idle_timeout: Duration) -> Self {
        Self {
            connections: RefCell::default(),
            max_connections,
            idle_timeout,
            dialling: Mutex::new(()),
            state: Rc::default(),
            spread: Cell::default(),
        }
    }

    /// Whether both pools have the same settings.
    pub(super) fn are_like(&self, others: &Self) -> bool {
        self.max_connections == others.max_connections && self.idle_timeout == others.idle_timeout
    }

    /// Where the next request goes: to the connection with the fewest requests, of several to the one that was unused for
    /// longest. Only connections with room are chosen, and where there may be no more connections, hampered ones, too.
    /// `fresh`: of those that were opened after this moment, unless there may be no more.
    pub(super) fn pick(&self, fresh: Option<Instant>) -> Pick {
        let mut connections = self.connections.borrow_mut();
        let now = now();
        let max_served = self.state.max_served(now);
        connections.retain(|connection| connection.is_young(now) && !connection.is_used_up(max_served));
        let is_full = connections.len() >= self.max_connections;
        let least_used = |is_eligible: &dyn Fn(&Http2Connection) -> bool| {
            let among = connections
                .iter()
                .filter(|connection| is_eligible(connection) && connection.has_room(now, max_served));
            among.min_by_key(|connection| (connection.open.get(), connection.used.get())).map(Rc::clone)
        };
        let is_fresh = |connection: &Http2Connection| fresh.is_none_or(|moment| connection.since >= moment);
        let good = least_used(&|connection| is_fresh(connection) && !connection.is_hampered(now));
        match good.or_else(|| if is_full { least_used(&|_| true) } else { None }) {
            Some(connection) => Pick::Connection(connection),
            None if is_full => Pick::Wait,
            None => Pick::Open,
        }
    }

    /// Waits until a connection may have room.
    pub(super) async fn wait(&self) {
        let _waiting = QueuedRequest::begin(&self.state);
        // Connections that end or that the server widens wake nobody.
        drop(timeout(LOOK_AGAIN, self.state.freed.notified()).await);
    }

    /// Whether another connection may be opened now to reach `addresses` without one. Rate-limited, since an address
    /// may not answer.
    pub(super) fn may_spread(&self, addresses: usize) -> bool {
        if self.connections.borrow().len() >= addresses.min(self.max_connections) {
            return false;
        }
        let now = now();
        let due = self.spread.get().is_none_or(|last| now.saturating_duration_since(last) >= SPREAD_EVERY);
        if due {
            self.spread.set(Some(now));
        }
        due
    }

    /// Whether a connection leads to this address.
    pub(super) fn lead_to(&self, address: IpAddr) -> bool {
        self.connections.borrow().iter().any(|connection| connection.address == ConnectedAddress::Ip(address))
    }

    /// Adds a connection to the pool.
    pub(super) fn add(&self, connection: &Rc<Http2Connection>) {
        self.connections.borrow_mut().push(Rc::clone(connection));
    }

    /// Drops connections that are unused or too old, and those with an address that `leads` rejects. Requests in flight
    /// go on.
    pub(super) fn expire(&self, now: Instant, leads: impl Fn(ConnectedAddress) -> bool) {
        let idle = |connection: &Http2Connection| {
            connection.open.get() == 0
                && now.saturating_duration_since(connection.used.get()) > self.idle_timeout
        };
        self.connections
            .borrow_mut()
            .retain(|connection| connection.is_young(now) && leads(connection.address) && !idle(connection));
    }
}

/// Counts a request that waits for room as long as this lives.
struct QueuedRequest<'p>(&'p PoolState);

impl<'p> QueuedRequest<'p> {
    fn begin(state: &'p PoolState) -> Self {
        state.waiting.set(state.waiting.get() + 1);
        Self(state)
    }
}

impl Drop for QueuedRequest<'_> {
    fn drop(&mut self) {
        self.0.waiting.set(self.0.waiting.get() - 1);
    }
}

impl Http2Connection {
    /// Starts HTTP/2 on a new connection. It ends with its last request once it is retired; `slot` is held until then.
    /// `tell` logs faults that only an operator can fix.
    pub(super) fn open(
        stream: Stream,
        address: ConnectedAddress,
        slot: Option<Permit>,
        pool: Option<&Http2Pool>,
        tell: impl Fn(&str) + 'static,
    ) -> io::Result<Rc<Self>> {
        if stream.is_tls() && stream.alpn() != Some(Alpn::Http2) {
            tell("no HTTP/2: it did not agree on `h2` by ALPN");
            return Err(io::ErrorKind::Unsupported.into());
        }
        let scheme = if stream.is_tls() { Scheme::Https } else { Scheme::Http };
        let codec = Http2Codec::client(Rc::new(stream), &SETTINGS);
        let now = now();
        let liveness = Rc::new(Liveness::default());
        let connection = Rc::new(Self {
            codec: Rc::clone(&codec),
            scheme,
            address,
            since: now,
            open: Cell::new(0),
            used: Cell::new(now),
            retired: Cell::new(false),
            loses_requests: Cell::new(false),
            bounded: slot.is_some(),
            begun: Cell::new(0),
            liveness: Rc::clone(&liveness),
            pool: pool.map_or_else(Rc::default, |pool| Rc::clone(&pool.state)),
        });
        tokio::task::spawn_local(async move {
            drive(&codec, &liveness).await;
            if codec.close_sending().is_err() {
                // The server has closed it before.
            }
            // The requests learn of its end through their streams.
            if let Some(ConnectionEnd::Fault(what)) = codec.end() {
                tell(&format!("no HTTP/2: {what}"));
            }
            drop(slot);
        });
        Ok(connection)
    }

    /// A stream for one request.
    pub(super) fn stream(self: &Rc<Self>) -> ClientStream {
        ClientStream::new(self)
    }

    fn is_young(&self, now: Instant) -> bool {
        let needed = self.bounded && self.open.get() > 0;
        !self.retired.get()
            && self.codec.is_usable()
            && (needed || now.saturating_duration_since(self.since) < MAX_AGE)
    }

    /// Whether it has served as many requests as the server serves on a connection, and none is left.
    fn is_used_up(&self, max_served: usize) -> bool {
        self.begun.get() >= max_served && self.open.get() == 0
    }

    /// Records that a request got no response. The server may be gone without closing the connection. If no bytes were
    /// received either, the connection is retired, so that the next request opens another if the limit allows it.
    fn mark_suspect(&self) {
        let needed = self.bounded && self.open.get() > 1;
        if !needed && self.liveness.is_doubtful(&self.codec, now()) {
            self.retired.set(true);
        }
    }

    /// Whether another request may be sent now. `max_served`: the requests that it may take in all.
    fn has_room(&self, now: Instant, max_served: usize) -> bool {
        let accepted = self.codec.max_requests();
        if accepted.is_some() {
            self.pool.announced.set(accepted);
        }
        // The server's limit is known once its SETTINGS were received.
        let accepted = accepted.or(self.pool.announced.get()).unwrap_or(MAX_STREAMS);
        let is_cut = |since| now.saturating_duration_since(since) >= MAX_HALF_FRAME;
        self.open.get() < MAX_STREAMS.min(accepted)
            && self.begun.get() < max_served
            && !self.codec.traffic().open_since().is_some_and(is_cut)
    }

    /// Whether a request may wait there for another's upload, or in vain.
    fn is_hampered(&self, now: Instant) -> bool {
        self.codec.is_choked() || self.liveness.is_suspect(&self.codec, now)
    }

    /// Whether more requests were assigned than the server accepts at once, as is known now.
    fn is_overbooked(&self) -> bool {
        self.codec.max_requests().is_some_and(|accepted| self.open.get() > accepted)
    }

    /// The server has ended the connection without processing all requests.
    fn note_going_away(&self) {
        self.retired.set(true);
        let served = self.codec.requests_served();
        if !self.loses_requests.replace(true) && served < MAX_STREAMS {
            self.pool.note_short_lived(served.max(1), now());
        }
    }
}

/// The last user of the connection is gone.
impl Drop for Http2Connection {
    fn drop(&mut self) {
        self.codec.abort(ErrorCode::NO_ERROR);
    }
}

/// Drives a connection to its end, and gives it up once it is dead. Once it is unused, the server has [`CLOSE_TIMEOUT`] to
/// accept the last bytes.
async fn drive(connection: &Rc<Http2Codec>, liveness: &Liveness) {
    let (mut deadline, mut ended_since) = (Deadline::default(), None);
    poll_fn(|context| {
        if connection.poll(context).is_ready() {
            return Poll::Ready(());
        }
        if connection.end().is_none() && liveness.poll_dead(connection, context).is_pending() {
            return Poll::Pending;
        }
        if connection.end().is_none() {
            // Its requests learn that it is lost; those that may be sent again go elsewhere.
            connection.abort(ErrorCode::NO_ERROR);
        }
        let since = *ended_since.get_or_insert_with(now);
        deadline.poll(context, since + CLOSE_TIMEOUT)
    })
    .await;
}

/// Counts a request as in flight as long as this lives.
#[derive(Debug)]
struct StreamPermit(Rc<Http2Connection>);

impl Drop for StreamPermit {
    fn drop(&mut self) {
        self.0.open.set(self.0.open.get() - 1);
        self.0.used.set(now());
        self.0.pool.wake_waiting();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::Pipe;

    #[tokio::test(start_paused = true)]
    async fn a_server_that_takes_nothing_holds_no_unused_connection() {
        let (ours, _theirs) = Pipe::new();
        let stream = Rc::new(Stream::Pipe(ours));
        let connection = Http2Codec::client(Rc::clone(&stream), &SETTINGS);
        // The pipe is full: no frame can be sent.
        let filled = poll_fn(|context| {
            while stream.poll_write(context, &[0; 1 << 10], &[]).is_ready() {}
            Poll::Ready(())
        });
        filled.await;
        connection.abort(ErrorCode::NO_ERROR);
        let (begun, liveness) = (now(), Liveness::default());
        let ending = tokio::time::timeout(CLOSE_TIMEOUT * 10, drive(&connection, &liveness));
        assert!(ending.await.is_ok(), "it is waited for without end");
        assert_eq!(now() - begun, CLOSE_TIMEOUT);
    }
}
