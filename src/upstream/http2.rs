//! HTTP/2 connections to one server; many requests share one.

mod stream;

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::net::IpAddr;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

use super::connect::MAX_AGE;
use super::connection_limit::Permit;
use super::dns::ConnectedAddress;
use crate::clock::{Deadline, now};
use crate::http2::connection::{ConnectionEnd, Http2Codec, LocalSettings};
use crate::http2::frame::{ErrorCode, MAX_31_BITS};
use crate::net::{Alpn, Stream};
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
/// A connection that is silent for this long while requests wait is no longer used.
const DOUBT: Duration = Duration::from_secs(1);
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
    /// When a connection was last opened to reach another address.
    spread: Cell<Option<Instant>>,
}

/// One connection.
#[derive(Debug)]
pub(super) struct Http2Connection {
    codec: Rc<Http2Codec>,
    /// `http` or `https`.
    scheme: &'static [u8],
    /// The address of its server.
    pub(super) address: ConnectedAddress,
    pub(super) since: Instant,
    /// Requests in flight.
    open: Cell<usize>,
    /// When the last request ended.
    used: Cell<Instant>,
    /// The connection accepts no more requests: it has ended, the server is closing it, or no bytes are received any
    /// more.
    retired: Cell<bool>,
    /// The upstream has a connection limit: no other connection may be opened while this one is open.
    bounded: bool,
    /// Since when a request waits, and the bytes received by then.
    waiting: Cell<Option<(Instant, u64)>>,
}

/// The gateway's settings for servers. Server push is refused.
const SETTINGS: LocalSettings = LocalSettings {
    max_streams: MAX_STREAMS,
    stream_window: STREAM_WINDOW,
    max_stream_window: MAX_STREAM_WINDOW,
    connection_window: CONNECTION_WINDOW,
    max_header_list: MAX_FIELDS,
};

impl Http2Pool {
    pub(super) fn new(max_connections: usize, idle_timeout: Duration) -> Self {
        Self {
            connections: RefCell::default(),
            max_connections,
            idle_timeout,
            dialling: Mutex::new(()),
            spread: Cell::default(),
        }
    }

    /// Whether both pools have the same settings.
    pub(super) fn are_like(&self, others: &Self) -> bool {
        self.max_connections == others.max_connections && self.idle_timeout == others.idle_timeout
    }

    /// The connection with the fewest requests; of several, the one that was unused for longest. `fresh`: of those that
    /// were opened after this moment, unless there may be no more connections. `None` if another is to be opened.
    pub(super) fn pick(&self, fresh: Option<Instant>) -> Option<Rc<Http2Connection>> {
        let mut connections = self.connections.borrow_mut();
        let now = now();
        connections.retain(|connection| connection.is_young(now));
        let is_full = connections.len() >= self.max_connections;
        let is_fresh =
            |connection: &&Rc<Http2Connection>| fresh.is_none_or(|moment| connection.since >= moment);
        let least_used = |among: &dyn Fn(&&Rc<Http2Connection>) -> bool| {
            let among = connections.iter().filter(|connection| among(connection));
            among.min_by_key(|connection| (connection.open.get(), connection.used.get())).map(Rc::clone)
        };
        match least_used(&is_fresh) {
            Some(connection) => (connection.has_room() || is_full).then_some(connection),
            None => is_full.then(|| least_used(&|_| true)).flatten(),
        }
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

impl Http2Connection {
    /// Starts HTTP/2 on a new connection. It ends with its last request once it is retired; `slot` is held until then.
    /// `tell` logs faults that only an operator can fix.
    pub(super) fn open(
        stream: Stream,
        address: ConnectedAddress,
        slot: Option<Permit>,
        tell: impl Fn(&str) + 'static,
    ) -> io::Result<Rc<Self>> {
        if stream.is_tls() && stream.alpn() != Some(Alpn::Http2) {
            tell("no HTTP/2: it did not agree on `h2` by ALPN");
            return Err(io::ErrorKind::Unsupported.into());
        }
        let scheme: &[u8] = if stream.is_tls() { b"https" } else { b"http" };
        let codec = Http2Codec::client(Rc::new(stream), &SETTINGS);
        let now = now();
        let connection = Rc::new(Self {
            codec: Rc::clone(&codec),
            scheme,
            address,
            since: now,
            open: Cell::new(0),
            used: Cell::new(now),
            retired: Cell::new(false),
            bounded: slot.is_some(),
            waiting: Cell::default(),
        });
        tokio::task::spawn_local(async move {
            drive(&codec).await;
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

    /// Records that a request was sent.
    fn wait(&self) {
        let heard = self.codec.traffic().received();
        if self.waiting.get().is_none_or(|(_, before)| before != heard) {
            self.waiting.set(Some((now(), heard)));
        }
    }

    /// Records that a request got no response. The server may be gone without closing the connection. If no bytes were
    /// received either, the connection is retired, so that the next request opens another if the limit allows it.
    fn mark_suspect(&self) {
        let needed = self.bounded && self.open.get() > 1;
        if let Some((since, before)) = self.waiting.get()
            && !needed
            && before == self.codec.traffic().received()
            && now().saturating_duration_since(since) >= DOUBT
        {
            self.retired.set(true);
        }
    }

    fn has_room(&self) -> bool {
        // The server's limits are known once its SETTINGS were received.
        let silent = self.codec.traffic().received() == 0;
        let accepted = if silent { MAX_STREAMS } else { self.codec.max_requests() };
        self.open.get() < MAX_STREAMS.min(accepted)
    }
}

/// The last user of the connection is gone.
impl Drop for Http2Connection {
    fn drop(&mut self) {
        self.codec.abort(ErrorCode::NO_ERROR);
    }
}

/// Drives a connection to its end. Once it is unused, the server has [`CLOSE_TIMEOUT`] to accept the last bytes.
async fn drive(connection: &Rc<Http2Codec>) {
    let (mut deadline, mut ended_since) = (Deadline::default(), None);
    poll_fn(|context| {
        if connection.poll(context).is_ready() {
            return Poll::Ready(());
        }
        if connection.end().is_none() {
            return Poll::Pending;
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
        let begun = now();
        let ending = tokio::time::timeout(CLOSE_TIMEOUT * 10, drive(&connection));
        assert!(ending.await.is_ok(), "it is waited for without end");
        assert_eq!(now() - begun, CLOSE_TIMEOUT);
    }
}
