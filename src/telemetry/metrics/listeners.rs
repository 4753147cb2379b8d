//! Client connections by listener.

use super::WorkerMetrics;
use super::family::{Groups, families};
use crate::counter::Counter;
use crate::labels::labels;
use crate::plan::Server;

families! {
    from (listeners: &Groups<'_, ConnectionCounters, 1>, server: &Server)

    Gauge tollgate_connections{listener} "Client connections open now." always
        = sum(listeners, ConnectionCounters::open);
    Gauge tollgate_max_connections{}
        "The setting `max_connections`: the maximum of open client connections, all listeners together."
        = value(Some(server.max_connections));
    Counter tollgate_connections_accepted_total{listener} "Client connections accepted." always
        = sum(listeners, |listener| listener.opened.get());
    Counter tollgate_connections_refused_total{listener, reason}
        "Client connections rejected or closed early, by cause."
        = used_by(listeners, ConnectionRejectReason::ALL.map(ConnectionRejectReason::as_str), |listener| {
            &listener.rejected
        });
}

labels! {
    /// Why a connection was rejected, or closed early: the `reason` of `tollgate_connections_refused_total`.
    pub enum ConnectionRejectReason {
        /// On a listener with PROXY protocol, the peer is not a trusted proxy.
        Untrusted = "untrusted_proxy",
        /// The PROXY protocol header is missing or malformed.
        Preamble = "proxy_protocol",
        /// The client has `max_connections_per_client` already.
        PerClient = "per_client",
        /// A limit of `connection_limits` has refused it.
        Limit = "limit",
        /// There are `max_connections` already, none of them idle.
        Crowd = "max_connections",
        /// The TLS handshake failed, or was not complete in time.
        Handshake = "tls",
        /// The client accepted nothing of a response for `write_timeout`.
        Stalled = "write_timeout",
    }
}

/// The counters of connections to a listener.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct ConnectionCounters {
    opened: Counter,
    closed: Counter,
    rejected: [Counter; ConnectionRejectReason::ALL.len()],
}

impl ConnectionCounters {
    fn open(&self) -> u64 {
        // `closed` is read first: a connection that opens and closes in between then counts as open, not as minus one.
        let closed = self.closed.get();
        self.opened.get().saturating_sub(closed)
    }
}

impl WorkerMetrics {
    /// Counts a connection to the listener at this index of `server.listen`.
    pub fn connection_opened(&self, listener: usize) {
        self.series.listeners.at(listener).opened.add(1);
    }

    /// Counts a connection to that listener that is rejected, or closed early.
    pub fn connection_rejected(&self, listener: usize, why: ConnectionRejectReason) {
        self.series.listeners.at(listener).rejected[why as usize].add(1);
    }

    /// Counts a closed client connection.
    pub fn connection_closed(&self, listener: usize) {
        self.series.listeners.at(listener).closed.add(1);
    }
}
