//! Kept-alive connections to one server, in one worker.

use std::cell::{Cell, RefCell};
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::Failure;
use super::dial::{Undialled, dial};
use super::fitness::InFlight;
use super::names::Site;
use crate::clock::deadline;
use crate::gateway::Endpoint;
use crate::socket::{Sight, Stream};

/// Unused connections kept for one server by one worker; more are closed.
const MAX_IDLE: usize = 1024;
/// An older connection serves no further request, so that what balances connections before the servers can move them.
const MAX_AGE: Duration = Duration::from_secs(3600);
/// TLS that fails is told of once in so long, for each server and worker.
const TELL_EVERY: Duration = Duration::from_secs(60);

/// One server's connections that are not in use.
#[derive(Debug)]
pub struct EndpointPool {
    endpoint: Endpoint,
    site: Site,
    /// Whose turn it is among the server's addresses.
    turn: Cell<usize>,
    /// The last used at the end: it is used next, so that the others can go.
    idle: RefCell<Vec<(Line, Instant)>>,
    /// When a person was last told that TLS fails.
    told: Cell<Option<Instant>>,
}

/// An open connection, whoever uses it.
#[derive(Debug)]
pub(super) struct Line {
    stream: Stream,
    /// The address that it leads to.
    address: IpAddr,
    since: Instant,
}

/// A connection to a server, in use.
#[derive(Debug)]
pub struct Connection {
    /// Its bytes.
    pub stream: Stream,
    address: IpAddr,
    since: Instant,
    /// Where it may go when it is not in use.
    pub(super) pool: Rc<EndpointPool>,
    /// Whether it has served a request before.
    pub(super) reused: bool,
    /// Counts the request that it is used for, where somebody wants to know.
    pub(super) in_flight: Option<InFlight>,
}

impl EndpointPool {
    /// No connections yet.
    pub(super) fn new(endpoint: &Endpoint, site: Site) -> Self {
        Self {
            endpoint: endpoint.clone(),
            site,
            turn: Cell::default(),
            idle: RefCell::default(),
            told: Cell::default(),
        }
    }

    /// `host:port`.
    pub fn authority(&self) -> &Arc<str> {
        &self.endpoint.authority
    }

    /// Whether its connections lead to that server, in the same way.
    pub(super) fn leads_to(&self, endpoint: &Endpoint, site: &Site) -> bool {
        self.endpoint.tls == endpoint.tls && self.site.is(site)
    }

    /// A kept connection, if one is usable. `careful`: the socket itself is asked.
    pub(super) fn take(self: &Rc<Self>, careful: bool) -> Option<Connection> {
        let mut idle = self.idle.borrow_mut();
        loop {
            let (line, _) = idle.pop()?;
            // What has something to say unasked says that it closes.
            if !line.stream.has_news() && (!careful || line.stream.look() == Sight::Silence) {
                return Some(self.connection(line, true));
            }
        }
    }

    fn connection(self: &Rc<Self>, Line { stream, address, since }: Line, reused: bool) -> Connection {
        Connection { stream, address, since, pool: Rc::clone(self), reused, in_flight: None }
    }

    /// Keeps a connection until `expiry`.
    fn put(&self, line: Line, expiry: Instant) {
        let mut idle = self.idle.borrow_mut();
        if idle.len() < MAX_IDLE {
            idle.push((line, expiry));
        }
    }

    /// Closes connections whose time is over, those that the server has closed, and those to addresses that it has left.
    pub(super) fn expire(&self, now: Instant) {
        let is_good = |line: &Line| self.site.has(line.address) && !line.stream.has_news();
        self.idle.borrow_mut().retain(|(line, expiry)| *expiry > now && is_good(line));
    }

    /// Opens a connection.
    pub(super) async fn connect(self: &Rc<Self>, connect_timeout: Duration) -> Result<Connection, Failure> {
        let turn = self.turn.get();
        self.turn.set(turn.wrapping_add(1));
        match dial(&self.endpoint, &self.site, turn, connect_timeout).await {
            Ok((stream, address)) => {
                let line = Line { stream, address, since: deadline::now() };
                Ok(self.connection(line, false))
            }
            Err(fault) => {
                if let Undialled::Tls(_) = fault {
                    self.tell(&fault);
                }
                Err(fault.failure())
            }
        }
    }

    /// What is wrong with TLS only an operator can mend, and the access log does not say what it is.
    fn tell(&self, fault: &Undialled) {
        let now = deadline::now();
        if self.told.get().is_none_or(|told| now.saturating_duration_since(told) >= TELL_EVERY) {
            self.told.set(Some(now));
            tracing::warn!("server {}: {fault}", self.endpoint.authority);
        }
    }
}

impl Connection {
    /// Keeps it for another request, for as long as `span` after `now`, unless it has grown old or the server has left its
    /// address.
    pub(super) fn keep(self, now: Instant, span: Duration) {
        let Self { stream, address, since, pool, .. } = self;
        if now < since + MAX_AGE && pool.site.has(address) {
            pool.put(Line { stream, address, since }, (now + span).min(since + MAX_AGE));
        }
    }
}
