//! Kept-alive connections to one server, in one worker.

use std::cell::{Cell, RefCell};
use std::io::ErrorKind;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::Failure;
use super::connect::{ConnectError, MAX_AGE, connect};
use super::connection_limit::{ConnectionLimit, IdleConnection, Permit};
use super::dns::{ConnectedAddress, HostAddress};
use super::http2::{ClientStream, Http2Connection, Http2Pool, Pick};
use super::in_flight::WorkerInFlight;
use super::server_state::ServerState;
use crate::clock;
use crate::http2::connection::StreamHandle;
use crate::net::{Peek, Stream};
use crate::plan::Endpoint;

/// Unused connections that one worker keeps for one server; more are closed.
const MAX_IDLE: usize = 1024;
/// The minimum time between two log lines about failing TLS or HTTP/2, for each server and worker.
const TELL_EVERY: Duration = Duration::from_secs(60);

/// One server's unused connections.
#[derive(Debug)]
pub struct EndpointPool {
    endpoint: Arc<Endpoint>,
    host_address: HostAddress,
    /// The upstream's connection limit. With a limit, unused connections are kept there.
    bound: Option<Arc<ConnectionLimit>>,
    /// The index of the server's address to connect to next.
    turn: Cell<usize>,
    /// The last used is at the end. It is used next, so that the others can expire.
    idle: RefCell<Vec<(Box<RawConnection>, Instant)>>,
    /// Where the server speaks HTTP/2: its connections, which are shared.
    http2_pool: Option<Http2Pool>,
    /// When a log line last reported failing TLS or HTTP/2.
    reported: Cell<Option<Instant>>,
    /// The operating system's error when a connection last failed.
    connect_error: Cell<ErrorKind>,
    in_flight: Arc<WorkerInFlight>,
}

/// How long a request waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timeouts {
    /// For a connection to be opened, or for one within the connection limit.
    pub(super) connect: Duration,
    /// For its response; and for room on a shared connection.
    pub(super) response: Duration,
}

/// An open HTTP/1.1 connection, in use or not.
#[derive(Debug)]
struct RawConnection {
    stream: Stream,
    /// The server's address.
    address: ConnectedAddress,
    since: Instant,
}

/// The connection or stream that carries a request to a server.
#[derive(Debug)]
enum Carrier {
    /// A connection of its own. Boxed for as long as it is open, since only a pointer moves: from the pool and back,
    /// and along with the exchange.
    Http1(Box<RawConnection>),
    /// A stream of a shared connection.
    Http2(Box<ClientStream>),
}

/// A connection to a server, in use.
#[derive(Debug)]
pub struct UpstreamConnection {
    carrier: Carrier,
    /// Its permit, where connections are limited.
    slot: Option<Permit>,
    /// The pool that it returns to when it is not in use.
    pub(super) pool: Rc<EndpointPool>,
    /// Whether it has served a request before.
    pub(super) reused: bool,
    /// Whether a login is bound to it, so that it may serve one client only. It stays so.
    pub(super) private: bool,
    /// Counts the request that it is used for.
    pub(super) in_flight: Option<InFlight>,
}

/// A request in flight at a server, counted as long as this lives. It waits for a connection, or has one.
#[derive(Debug)]
pub(super) struct InFlight {
    pool: Rc<EndpointPool>,
    /// The count of all workers together, where the load balancing needs it.
    shared: Option<Arc<ServerState>>,
}

impl InFlight {
    pub(super) fn begin(pool: &Rc<EndpointPool>, shared: Option<&Arc<ServerState>>) -> Self {
        pool.in_flight.begun.add(1);
        shared.inspect(|server| server.request_begins());
        Self { pool: Rc::clone(pool), shared: shared.cloned() }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.pool.in_flight.ended.add(1);
        self.shared.as_ref().inspect(|server| server.request_ends());
    }
}

impl EndpointPool {
    /// A pool without connections.
    pub(super) fn new(
        endpoint: &Endpoint,
        host_address: HostAddress,
        bound: Option<Arc<ConnectionLimit>>,
        http2_pool: Option<Http2Pool>,
    ) -> Self {
        Self {
            endpoint: Arc::new(endpoint.clone()),
            host_address,
            bound,
            turn: Cell::default(),
            idle: RefCell::default(),
            http2_pool,
            reported: Cell::default(),
            connect_error: Cell::new(ErrorKind::Other),
            in_flight: Arc::default(),
        }
    }

    /// `host:port`.
    pub fn authority(&self) -> &Arc<str> {
        &self.endpoint.authority
    }

    /// The operating system's error when a connection last failed.
    pub(super) fn connect_error(&self) -> ErrorKind {
        self.connect_error.get()
    }

    /// This worker's requests in flight at the server.
    pub(super) fn in_flight(&self) -> &Arc<WorkerInFlight> {
        &self.in_flight
    }

    /// Whether its connections lead to that server, in the same way.
    pub(super) fn leads_to(
        &self,
        endpoint: &Endpoint,
        host_address: &HostAddress,
        bound: Option<&Arc<ConnectionLimit>>,
        http2_pool: Option<&Http2Pool>,
    ) -> bool {
        let bound = self.bound.as_ref().map(Arc::as_ptr) == bound.map(Arc::as_ptr);
        let same_protocol = match (&self.http2_pool, http2_pool) {
            (None, None) => true,
            (Some(own), Some(http2_pool)) => own.are_like(http2_pool),
            _ => false,
        };
        bound && same_protocol && self.endpoint.tls == endpoint.tls && self.host_address.is(host_address)
    }

    /// A kept connection that is not shared, if there is one. `careful`: the socket itself is checked.
    pub(super) fn idle_connection(self: &Rc<Self>, careful: bool) -> Option<UpstreamConnection> {
        if self.idle.borrow().is_empty() { None } else { self.take(careful) }
    }

    /// A new connection, or a kept or shared one unless it is to be opened after a moment (`fresh`) or to begin with a
    /// PROXY protocol header.
    pub(super) async fn connection(
        self: &Rc<Self>,
        fresh: Option<Instant>,
        proxy_header: Option<&[u8]>,
        timeouts: Timeouts,
    ) -> Result<UpstreamConnection, Failure> {
        let connect_timeout = timeouts.connect;
        if let Some(http2_pool) = &self.http2_pool {
            return self.stream(http2_pool, fresh, timeouts).await;
        }
        let Some(bound) = &self.bound else {
            return self.connect(None, proxy_header, connect_timeout).await;
        };
        let (slot, kept) =
            bound.acquire(&self.endpoint, fresh.is_some() || proxy_header.is_some(), connect_timeout).await?;
        match kept.and_then(|kept| self.revive(kept)) {
            Some(line) => Ok(self.use_raw(line, Some(slot), true)),
            None => self.connect(Some(slot), proxy_header, connect_timeout).await,
        }
    }

    /// An HTTP/2 stream, on an open connection with room or on a new one. `fresh`: on one that is opened after this moment.
    async fn stream(
        self: &Rc<Self>,
        http2_pool: &Http2Pool,
        fresh: Option<Instant>,
        timeouts: Timeouts,
    ) -> Result<UpstreamConnection, Failure> {
        if let Pick::Connection(connection) = http2_pool.pick(fresh) {
            self.spread_http2(http2_pool, timeouts.connect);
            return Ok(self.use_http2(&connection, true));
        }
        let acquiring = async {
            loop {
                let acquired = self.try_stream(http2_pool, fresh, timeouts.connect);
                match timeout(timeouts.connect, acquired).await.map_err(|_| Failure::ConnectTimeout)?? {
                    Some(stream) => return Ok(stream),
                    None => http2_pool.wait().await,
                }
            }
        };
        timeout(timeouts.response, acquiring).await.unwrap_or(Err(Failure::Full))
    }

    /// As [`Self::stream`]. `None`: all connections are full, and there may be no more.
    async fn try_stream(
        self: &Rc<Self>,
        http2_pool: &Http2Pool,
        fresh: Option<Instant>,
        connect_timeout: Duration,
    ) -> Result<Option<UpstreamConnection>, Failure> {
        let mut turn = None;
        loop {
            match http2_pool.pick(fresh) {
                Pick::Connection(connection) => return Ok(Some(self.use_http2(&connection, true))),
                Pick::Wait => return Ok(None),
                Pick::Open if turn.is_none() => turn = Some(http2_pool.dialling.lock().await),
                Pick::Open => {
                    let connection = self.http2_connection(http2_pool, connect_timeout).await?;
                    return Ok(Some(self.use_http2(&connection, false)));
                }
            }
        }
    }

    /// Opens a connection that requests may share.
    async fn http2_connection(
        self: &Rc<Self>,
        http2_pool: &Http2Pool,
        connect_timeout: Duration,
    ) -> Result<Rc<Http2Connection>, Failure> {
        let slot = match &self.bound {
            Some(bound) => Some(bound.acquire(&self.endpoint, true, connect_timeout).await?.0),
            None => None,
        };
        self.retire_unresolved(http2_pool);
        let RawConnection { stream, address, .. } = *self.dial(None, connect_timeout).await?;
        let pool = Rc::downgrade(self);
        let tell = move |fault: &str| drop(pool.upgrade().inspect(|pool| pool.warn_connect_failure(fault)));
        let connection = Http2Connection::open(stream, address, slot, Some(http2_pool), tell)
            .map_err(|_| Failure::Protocol)?;
        http2_pool.add(&connection);
        Ok(connection)
    }

    /// Behind a name there may be many servers. Few connections suffice for many requests, so one to each address is
    /// opened, and all servers get requests. The connections are opened in the background, since no request depends on
    /// them.
    fn spread_http2(self: &Rc<Self>, http2_pool: &Http2Pool, connect_timeout: Duration) {
        let addresses = self.host_address.known().map_or(1, |known| known.len());
        if http2_pool.may_spread(addresses) {
            let pool = Rc::clone(self);
            tokio::task::spawn_local(async move {
                if let Some(http2_pool) = &pool.http2_pool {
                    let _turn = http2_pool.dialling.lock().await;
                    #[expect(
                        clippy::let_underscore_must_use,
                        reason = "a request that needs a connection opens one itself, and reports what is wrong"
                    )]
                    let _ =
                        timeout(connect_timeout, pool.http2_connection(http2_pool, connect_timeout)).await;
                }
            });
        }
    }

    /// Selects the next address without a connection, if there is one.
    fn retire_unresolved(&self, http2_pool: &Http2Pool) {
        let Some(known) = self.host_address.known() else { return };
        let turn = self.turn.get();
        let indices = (0..known.len()).map(|index| turn.wrapping_add(index));
        let mut addresses =
            indices.zip(known.iter().cycle().skip(turn.checked_rem(known.len()).unwrap_or(0)));
        if let Some((index, _)) = addresses.find(|(_, address)| !http2_pool.lead_to(**address)) {
            self.turn.set(index);
        }
    }

    fn use_http2(self: &Rc<Self>, connection: &Rc<Http2Connection>, reused: bool) -> UpstreamConnection {
        self.using(Carrier::Http2(Box::new(connection.stream())), None, reused)
    }

    /// Adopts an unused connection of another worker, if it is usable.
    fn revive(
        &self,
        IdleConnection { parked, address, since, .. }: IdleConnection,
    ) -> Option<Box<RawConnection>> {
        let stream = parked.resume().ok().filter(|_| self.host_address.has(address))?;
        // This thread's runtime does not watch the socket yet.
        (stream.peek() == Peek::Silence).then(|| Box::new(RawConnection { stream, address, since }))
    }

    /// A kept connection, if one is usable. `careful`: the socket itself is checked.
    fn take(self: &Rc<Self>, careful: bool) -> Option<UpstreamConnection> {
        let mut idle = self.idle.borrow_mut();
        loop {
            let (line, _) = idle.pop()?;
            // Input without a request means that the server closes the connection.
            if !line.stream.has_input() && (!careful || line.stream.peek() == Peek::Silence) {
                return Some(self.use_raw(line, None, true));
            }
        }
    }

    fn use_raw(
        self: &Rc<Self>,
        line: Box<RawConnection>,
        slot: Option<Permit>,
        reused: bool,
    ) -> UpstreamConnection {
        self.using(Carrier::Http1(line), slot, reused)
    }

    fn using(self: &Rc<Self>, carrier: Carrier, slot: Option<Permit>, reused: bool) -> UpstreamConnection {
        UpstreamConnection { carrier, slot, pool: Rc::clone(self), reused, private: false, in_flight: None }
    }

    /// Keeps a connection until `expiry`.
    fn put(&self, line: Box<RawConnection>, expiry: Instant) {
        let mut idle = self.idle.borrow_mut();
        if idle.len() < MAX_IDLE {
            idle.push((line, expiry));
        }
    }

    /// Closes connections that have expired, those that the server has closed, and those to addresses that its name no
    /// longer has.
    pub(super) fn expire(&self, now: Instant) {
        let is_good = |line: &RawConnection| self.host_address.has(line.address) && !line.stream.has_input();
        self.idle.borrow_mut().retain(|(line, expiry)| *expiry > now && is_good(line));
        if let Some(bound) = &self.bound {
            bound.expire(now);
        }
        if let Some(http2_pool) = &self.http2_pool {
            http2_pool.expire(now, |address| self.host_address.has(address));
        }
    }

    /// Opens a connection.
    async fn connect(
        self: &Rc<Self>,
        slot: Option<Permit>,
        proxy_header: Option<&[u8]>,
        connect_timeout: Duration,
    ) -> Result<UpstreamConnection, Failure> {
        Ok(self.use_raw(self.dial(proxy_header, connect_timeout).await?, slot, false))
    }

    async fn dial(
        &self,
        proxy_header: Option<&[u8]>,
        connect_timeout: Duration,
    ) -> Result<Box<RawConnection>, Failure> {
        let turn = self.turn.get();
        self.turn.set(turn.wrapping_add(1));
        match connect(&self.endpoint, &self.host_address, turn, proxy_header, connect_timeout).await {
            Ok((stream, address)) => Ok(Box::new(RawConnection { stream, address, since: clock::now() })),
            Err(fault) => {
                match &fault {
                    ConnectError::Connect(error) => self.connect_error.set(error.kind()),
                    ConnectError::Tls(_) => self.warn_connect_failure(&fault.to_string()),
                    ConnectError::Timeout => {}
                }
                Err(fault.failure())
            }
        }
    }

    /// Only an operator can fix failing TLS or HTTP/2, and the access log does not contain the reason.
    fn warn_connect_failure(&self, fault: &str) {
        let now = clock::now();
        if self.reported.get().is_none_or(|reported| now.saturating_duration_since(reported) >= TELL_EVERY) {
            self.reported.set(Some(now));
            tracing::warn!("server {}: {fault}", self.endpoint.authority);
        }
    }
}

impl UpstreamConnection {
    /// Its byte stream. `None`: it is an HTTP/2 stream.
    pub fn stream(&self) -> Option<&Stream> {
        match &self.carrier {
            Carrier::Http1(line) => Some(&line.stream),
            Carrier::Http2(_) => None,
        }
    }

    /// Its HTTP/2 stream. `None`: it is an HTTP/1.1 connection.
    pub(super) fn http2(&mut self) -> Option<&mut ClientStream> {
        match &mut self.carrier {
            Carrier::Http1(_) => None,
            Carrier::Http2(stream) => Some(stream),
        }
    }

    /// Its HTTP/2 stream, on which a WebSocket was opened. `None`: it is an HTTP/1.1 connection.
    pub fn websocket(&self) -> Option<&StreamHandle> {
        match &self.carrier {
            Carrier::Http1(_) => None,
            Carrier::Http2(stream) => stream.handle(),
        }
    }

    /// Whether it holds a permit of a connection limit.
    pub(super) fn is_counted(&self) -> bool {
        self.slot.is_some()
    }

    /// Until when it may serve another request, if it is kept for `span` after `now`. `None` if it is too old, its
    /// server's name no longer has its address, or it is an HTTP/2 stream, which is used once.
    pub(super) fn expiry(&self, now: Instant, span: Duration) -> Option<Instant> {
        let Carrier::Http1(line) = &self.carrier else { return None };
        let expiry = (now + span).min(line.since + MAX_AGE);
        let usable = now < expiry && self.pool.host_address.has(line.address);
        usable.then_some(expiry)
    }

    /// Keeps it for another request, for `span` after `now`, unless it is too old or its server's name no longer has
    /// its address.
    pub(super) fn keep(self, now: Instant, span: Duration) {
        let Some(expiry) = self.expiry(now, span) else { return };
        let Self { carrier: Carrier::Http1(line), slot, pool, .. } = self else { return };
        match slot {
            None => pool.put(line, expiry),
            Some(slot) => {
                let RawConnection { stream, address, since } = *line;
                if let Ok(parked) = stream.detach() {
                    slot.keep(IdleConnection {
                        parked,
                        server: Arc::clone(&pool.endpoint),
                        address,
                        since,
                        expiry,
                    });
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
