//! Connections to servers that serve one client only: they carry its login (NTLM, Negotiate), or a PROXY protocol header
//! with its address. They are kept with that client's connection, never in a pool.

use std::cell::{OnceCell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use tokio::time::Instant;

use super::pool::{EndpointPool, UpstreamConnection};
use crate::clock;
use crate::net::Peek;

/// The maximum number of unused connections of one client; the oldest is closed for another.
const MAX_CONNECTIONS: usize = 4;

/// One client's own unused connections to servers. Dropping it closes them.
#[derive(Debug, Default)]
pub struct PrivateConnections {
    /// Created by the first one: most clients have none, and each client connection has room for this.
    kept: OnceCell<Box<RefCell<Vec<PrivateConnection>>>>,
}

#[derive(Debug)]
struct PrivateConnection {
    connection: UpstreamConnection,
    expiry: Instant,
    /// The PROXY protocol header that it began with.
    proxy_header: Option<Box<[u8]>>,
}

/// The connections that a request may use as its client's own.
#[derive(Clone, Copy, Debug)]
pub struct OwnConnections<'r> {
    pub(super) kept: &'r PrivateConnections,
    /// The PROXY protocol header that the request's connection begins with.
    pub(super) proxy_header: Option<&'r [u8]>,
    keeps_logins: bool,
}

impl<'r> OwnConnections<'r> {
    /// Those of the client's session, or, with a header, those that began with one. `keeps_logins`: a connection with a
    /// login is kept. The streams of a client that speaks HTTP/2 share connections with its header, but no login.
    pub fn new(
        session: &'r PrivateConnections,
        announced: Option<&'r (Box<[u8]>, &'r PrivateConnections)>,
        keeps_logins: bool,
    ) -> Self {
        match announced {
            None => Self { kept: session, proxy_header: None, keeps_logins },
            Some((header, kept)) => Self { kept, proxy_header: Some(header), keeps_logins },
        }
    }

    /// Takes a connection that is not used any more: keeps it for `span` after `now`, here or in its server's pool, or
    /// closes it.
    pub(super) fn put(self, connection: UpstreamConnection, now: Instant, span: Duration) {
        match (connection.private, self.proxy_header) {
            (false, None) => connection.keep(now, span),
            (true, _) if !self.keeps_logins => {}
            (_, proxy_header) => self.kept.keep(connection, proxy_header, now, span),
        }
    }
}

impl PrivateConnections {
    /// The index of the first of these servers with a connection that carries a login.
    #[inline]
    pub(super) fn index(&self, pools: &[Rc<EndpointPool>]) -> Option<usize> {
        self.kept.get().and_then(|kept| Self::index_among(&kept.borrow(), pools))
    }

    #[cold]
    fn index_among(own: &[PrivateConnection], pools: &[Rc<EndpointPool>]) -> Option<usize> {
        let logins = || own.iter().map(|own| &own.connection).filter(|connection| connection.private);
        let latest = &logins().next_back()?.pool;
        let leads_there = |pool: &Rc<EndpointPool>| logins().any(|own| Rc::ptr_eq(&own.pool, pool));
        pools.iter().position(|pool| Rc::ptr_eq(latest, pool)).or_else(|| pools.iter().position(leads_there))
    }

    /// The connection to this server that began with this header, if it is usable.
    #[inline]
    pub(super) fn take(
        &self,
        pool: &Rc<EndpointPool>,
        proxy_header: Option<&[u8]>,
    ) -> Option<UpstreamConnection> {
        self.kept.get().and_then(|kept| Self::take_usable(&mut kept.borrow_mut(), pool, proxy_header))
    }

    #[cold]
    fn take_usable(
        kept: &mut Vec<PrivateConnection>,
        pool: &Rc<EndpointPool>,
        proxy_header: Option<&[u8]>,
    ) -> Option<UpstreamConnection> {
        let found = kept.iter().position(|own| {
            Rc::ptr_eq(&own.connection.pool, pool) && own.proxy_header.as_deref() == proxy_header
        })?;
        let PrivateConnection { mut connection, expiry, .. } = kept.remove(found);
        connection.reused = true;
        let usable =
            clock::now() < expiry && connection.stream().is_some_and(|stream| stream.peek() == Peek::Silence);
        usable.then_some(connection)
    }

    /// Keeps a connection for `span` after `now`. A connection that holds a permit of a connection limit is closed
    /// instead: other requests wait for that permit.
    #[cold]
    fn keep(
        &self,
        mut connection: UpstreamConnection,
        proxy_header: Option<&[u8]>,
        now: Instant,
        span: Duration,
    ) {
        let Some(expiry) = connection.expiry(now, span).filter(|_| !connection.is_counted()) else { return };
        connection.in_flight = None;
        let mut kept = self.kept.get_or_init(Box::default).borrow_mut();
        if kept.len() >= MAX_CONNECTIONS {
            kept.remove(0);
        }
        kept.push(PrivateConnection { connection, expiry, proxy_header: proxy_header.map(Box::from) });
    }
}
