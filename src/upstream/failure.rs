//! Why a request got no response from a backend, and why it was sent again.

use std::sync::Arc;

use super::pool::EndpointPool;
use crate::labels::labels;

labels! {
    /// Why a backend gave no response: the `error` of the access log and of `tollgate_upstream_failures_total`.
    pub enum Failure {
        /// No server was tried: all fail their health checks.
        NoneHealthy = "no_healthy_upstream",
        /// The circuit breaker is open.
        BreakerOpen = "breaker_open",
        /// The upstream has reached its connection limit, and too many requests wait for a connection, or this one waited
        /// too long.
        Full = "upstream_full",
        /// No connection: refused, unreachable, or the server's name does not resolve.
        Connect = "connect",
        /// No connection within `connect_timeout`, TLS included.
        ConnectTimeout = "connect_timeout",
        /// A connection, but no TLS: the server's certificate is not trusted, the server rejects the gateway's, or speaks
        /// no TLS.
        Tls = "tls",
        /// No response head within `timeout`.
        Timeout = "timeout",
        /// The backend closed the connection before its response head was complete.
        Reset = "reset",
        /// The response is not valid HTTP, or is ambiguous.
        Protocol = "protocol",
        /// An HTTP/2 client asks for a WebSocket, and the server serves none over HTTP/2 (RFC 8441).
        NoWebSocket = "no_websocket",
        /// The exchange has taken the route's `max_duration`, and there is no response head yet.
        Overrun = "max_duration",
        /// The request body broke off: not the backend's fault.
        Upload = "upload",
    }
}

/// A failure, and the server that it came from.
#[derive(Debug)]
pub struct Failed {
    /// Why.
    pub failure: Failure,
    /// `host:port` of the last server tried, if any was.
    pub authority: Option<Arc<str>>,
    /// How often the request was sent, or a connection for it was attempted.
    pub attempts: u32,
    /// The seconds after which the upstream is tried again, where that is known.
    pub retry_after: Option<u64>,
    /// A server may have worked on the request: a byte of it was sent, and no server said that it was not processed.
    pub reached: bool,
}

impl Failed {
    /// A failure before any server was tried.
    pub(super) fn untried(failure: Failure) -> Self {
        Self { failure, authority: None, attempts: 0, retry_after: None, reached: false }
    }

    /// The end of the route's `max_duration`. A server may have worked on the request.
    pub fn overrun() -> Self {
        Self { reached: true, ..Self::untried(Failure::Overrun) }
    }

    /// A failure of the last of these attempts, at the server of the pool.
    pub(super) fn at(pool: &EndpointPool, failure: Failure, attempts: u32) -> Self {
        let authority = Some(Arc::clone(pool.authority()));
        Self { failure, authority, attempts, retry_after: None, reached: false }
    }
}

/// Why an attempt is followed by another one: the `reason` of `tollgate_upstream_retries_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryReason {
    /// It failed.
    Failed(Failure),
    /// The response has a status of `retry.on`.
    Status,
}

impl RetryReason {
    /// All of them; the last one is a status.
    pub const COUNT: usize = Failure::ALL.len() + 1;

    /// All of them, by [`Self::index`].
    pub fn all() -> impl Iterator<Item = Self> {
        Failure::ALL.into_iter().map(Self::Failed).chain([Self::Status])
    }

    /// The name of the reason.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Failed(failure) => failure.as_str(),
            Self::Status => "status",
        }
    }

    /// Its position among all, below [`Self::COUNT`].
    pub fn index(self) -> usize {
        match self {
            // The enum's discriminants count from 0, in the order of `ALL`.
            Self::Failed(failure) => failure as usize,
            Self::Status => Failure::ALL.len(),
        }
    }
}
