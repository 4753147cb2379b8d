//! Connections to servers that carry the login of one client (NTLM, Negotiate). They are kept with that client's
//! connection, never in a pool.

use std::rc::Rc;
use std::time::Duration;

use tokio::time::Instant;

use super::pool::{EndpointPool, UpstreamConnection};
use crate::clock;
use crate::net::Peek;

/// The maximum number of connections of one client; the oldest is closed for another. Each leads to another server.
const MAX_CONNECTIONS: usize = 4;

/// One client's own connections to servers. Dropping it closes them.
#[derive(Debug, Default)]
pub struct PrivateConnections(Vec<(UpstreamConnection, Instant)>);

impl PrivateConnections {
    /// The index of the first of these servers with a connection.
    #[inline]
    pub(super) fn index(&self, pools: &[Rc<EndpointPool>]) -> Option<usize> {
        let (connection, _) = self.0.last()?;
        let leads_there = |pool: &Rc<EndpointPool>| self.0.iter().any(|(own, _)| Rc::ptr_eq(&own.pool, pool));
        let latest = pools.iter().position(|pool| Rc::ptr_eq(&connection.pool, pool));
        latest.or_else(|| pools.iter().position(leads_there))
    }

    /// The connection to this server, if it is usable.
    #[inline]
    pub(super) fn take(&mut self, pool: &Rc<EndpointPool>) -> Option<UpstreamConnection> {
        if self.0.is_empty() { None } else { self.take_usable(pool) }
    }

    #[cold]
    fn take_usable(&mut self, pool: &Rc<EndpointPool>) -> Option<UpstreamConnection> {
        let found = self.0.iter().position(|(connection, _)| Rc::ptr_eq(&connection.pool, pool))?;
        let (mut connection, expiry) = self.0.remove(found);
        connection.reused = true;
        let usable =
            clock::now() < expiry && connection.stream().is_some_and(|stream| stream.peek() == Peek::Silence);
        usable.then_some(connection)
    }

    /// Keeps a connection for `span` after `now`. A connection that holds a permit of a connection limit is closed
    /// instead: other requests wait for that permit.
    #[cold]
    pub(super) fn keep(&mut self, mut connection: UpstreamConnection, now: Instant, span: Duration) {
        let Some(expiry) = connection.expiry(now, span).filter(|_| !connection.is_counted()) else { return };
        connection.in_flight = None;
        if self.0.len() >= MAX_CONNECTIONS {
            self.0.remove(0);
        }
        self.0.push((connection, expiry));
    }
}
