//! Connections to servers that carry the login of one client (NTLM, Negotiate): kept with that client's connection, never in a
//! pool.

use std::rc::Rc;
use std::time::Duration;

use tokio::time::Instant;

use super::pool::{EndpointPool, UpstreamConnection};
use crate::clock::deadline;
use crate::net::Peek;

/// Connections of one client; the oldest is closed for another. Each leads to another server.
const MOST: usize = 4;

/// One client's own connections to servers. Dropping it closes them.
#[derive(Debug, Default)]
pub struct PrivateConnections(Vec<(UpstreamConnection, Instant)>);

impl PrivateConnections {
    /// The first of these servers to which there is a connection.
    #[inline]
    pub(super) fn place(&self, pools: &[Rc<EndpointPool>]) -> Option<usize> {
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
        let usable = deadline::now() < expiry
            && connection.stream().is_some_and(|stream| stream.peek() == Peek::Silence);
        usable.then_some(connection)
    }

    /// Keeps a connection for as long as `span` after `now`. One that has a place among those that an upstream may have is
    /// closed instead: others wait for that place.
    #[cold]
    pub(super) fn keep(&mut self, mut connection: UpstreamConnection, now: Instant, span: Duration) {
        let Some(expiry) = connection.expiry(now, span).filter(|_| !connection.is_counted()) else { return };
        connection.in_flight = None;
        if self.0.len() >= MOST {
            self.0.remove(0);
        }
        self.0.push((connection, expiry));
    }
}
