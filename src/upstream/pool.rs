//! Kept-alive connections to one server, in one worker.

use std::cell::RefCell;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use super::Failure;
use super::fitness::InFlight;
use crate::gateway::Endpoint;
use crate::socket::{Sight, Stream};

/// Unused connections kept for one server by one worker; more are closed.
const MAX_IDLE: usize = 1024;

/// One server's connections that are not in use.
#[derive(Debug)]
pub struct EndpointPool {
    endpoint: Endpoint,
    /// The address, where the host is one.
    address: Option<IpAddr>,
    /// The last used at the end: it is used next, so that the others can go.
    idle: RefCell<Vec<(Stream, Instant)>>,
}

/// A connection to a server.
#[derive(Debug)]
pub struct Connection {
    /// Its bytes.
    pub(super) stream: Stream,
    /// Where it may go when it is not in use.
    pub(super) pool: Rc<EndpointPool>,
    /// Whether it has served a request before.
    pub(super) reused: bool,
    /// Counts the request that it is used for, where somebody wants to know.
    #[expect(dead_code, reason = "it counts by being there")]
    pub(super) in_flight: Option<InFlight>,
}

impl EndpointPool {
    /// No connections yet.
    pub fn new(endpoint: &Endpoint) -> Self {
        let endpoint = endpoint.clone();
        Self { address: endpoint.host.parse().ok(), endpoint, idle: RefCell::default() }
    }

    /// `host:port`.
    pub fn authority(&self) -> &Arc<str> {
        &self.endpoint.authority
    }

    /// A kept connection, if one is usable. `careful`: the socket itself is asked.
    pub(super) fn take(self: &Rc<Self>, careful: bool) -> Option<Connection> {
        let mut idle = self.idle.borrow_mut();
        loop {
            let (stream, _) = idle.pop()?;
            // What has something to say unasked says that it closes.
            if !stream.has_news() && (!careful || stream.look() == Sight::Silence) {
                return Some(Connection { stream, pool: Rc::clone(self), reused: true, in_flight: None });
            }
        }
    }

    /// Keeps a connection until `expiry`.
    pub(super) fn put(&self, stream: Stream, expiry: Instant) {
        let mut idle = self.idle.borrow_mut();
        if idle.len() < MAX_IDLE {
            idle.push((stream, expiry));
        }
    }

    /// Closes connections whose time is over, and those that the server has closed.
    pub(super) fn expire(&self, now: Instant) {
        self.idle.borrow_mut().retain(|(stream, expiry)| *expiry > now && !stream.has_news());
    }

    /// Opens a connection; names are resolved anew each time.
    pub(super) async fn connect(self: &Rc<Self>, connect_timeout: Duration) -> Result<Connection, Failure> {
        let port = self.endpoint.port;
        let connecting = async {
            match self.address {
                Some(address) => TcpStream::connect((address, port)).await,
                None => TcpStream::connect((self.endpoint.host.as_str(), port)).await,
            }
        };
        let stream = match timeout(connect_timeout, connecting).await {
            Err(_) => return Err(Failure::ConnectTimeout),
            Ok(Err(_)) => return Err(Failure::Connect),
            Ok(Ok(stream)) => stream,
        };
        // Small requests must not wait for acknowledgements; a socket that refuses still works.
        let _ = stream.set_nodelay(true);
        let stream = Stream::Plain(stream);
        Ok(Connection { stream, pool: Rc::clone(self), reused: false, in_flight: None })
    }
}
