//! `[upstreams.NAME]`: the backends, and how requests get to them.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;

use super::Route;
use super::health_check::HealthCheck;
use super::statuses::StatusSet;
use super::sticky::Sticky;
use crate::limit::units::Fingerprint;
use crate::net::TlsClientConfig;
use crate::route;
use crate::route::key::{Key, KeyResult, KeySecret};

/// Keys the hash that selects servers: public, so that all gateways of a fleet select the same.
const AFFINITY: KeySecret = KeySecret::Process([0; 16]);

/// `[upstreams.NAME]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upstream {
    /// Its name.
    pub name: Arc<str>,
    /// The servers, or the built-in echo.
    pub backend: Backend,
    /// The base path of all its servers, without a final slash: it is put in front of each forwarded path.
    pub base_path: Option<Box<str>>,
    /// The protocol of its servers.
    pub protocol: Protocol,
    /// The timeout for connecting, and for waiting at the connection limit.
    pub connect_timeout: Duration,
    /// How long an unused connection is kept.
    pub idle_timeout: Duration,
    /// The Host for the backend; `None`: the client's.
    pub host: Option<HeaderValue>,
    /// The rule for retries.
    pub retry: Retry,
    /// The load balancing.
    pub balance: Balance,
    /// The rule for ejecting a failing server; `None`: never.
    pub eject: Option<Eject>,
    /// The health checks of servers; `None`: none.
    pub health: Option<HealthCheck>,
    /// The connection limit; `None`: no limit.
    pub max_connections: Option<MaxConnections>,
    /// The circuit breaker; `None`: none.
    pub breaker: Option<BreakerRule>,
    /// The cookie or header that keeps a client at its server; `None`: none.
    pub sticky: Option<Box<Sticky>>,
    /// The PROXY protocol header that each connection to its servers begins with; `None`: none.
    pub send_proxy_protocol: Option<ProxyProtocolVersion>,
    /// The time in which a server that is back gets to its share of the requests; `None`: at once.
    pub slow_start: Option<Duration>,
}

/// The connection limit of an upstream, all servers and workers together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaxConnections {
    /// Used or idle; at least 1.
    pub connections: usize,
    /// Requests that may wait for a connection.
    pub pending: usize,
}

/// The protocol of a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2: by ALPN with TLS, else with prior knowledge.
    Http2,
}

/// The version of a PROXY protocol header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyProtocolVersion {
    /// A line of text.
    V1,
    /// Binary.
    V2,
}

impl Protocol {
    /// Its ALPN name (RFC 7301).
    pub fn alpn(self) -> &'static [u8] {
        match self {
            Self::Http1 => b"http/1.1",
            Self::Http2 => b"h2",
        }
    }
}

/// The load balancing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Balance {
    /// Round robin, by weight.
    RoundRobin,
    /// Of two servers drawn by weight, the one with fewer requests in flight for its weight.
    LeastRequests,
    /// A random server, by weight.
    Random,
    /// The same server for all requests with the same key.
    Hash(Key),
}

/// What a request says about the server that it is to go to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Affinity {
    /// The hash that selects the server: equal for requests with equal `hash_key`. 0 if the load balancing uses none.
    pub hash: u64,
    /// The index of the server that the sticky cookie or header names.
    pub server: Option<usize>,
}

/// The rule for ejecting a failing server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Eject {
    /// Failures in a row; at least 1.
    pub failures: u32,
    /// The duration of the first ejection; at least 1 ms.
    pub span: Duration,
    /// The statuses of responses that are failures.
    pub statuses: StatusSet,
}

/// The rule for a circuit breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerRule {
    /// The share of failed attempts, 5xx responses among them, at which it opens, in thousandths (500 = 50 %).
    pub failures_permille: u32,
    /// It opens only with at least this many attempts in 10 s; at least 1.
    pub requests: u32,
    /// How long it is open; at least 1 ms.
    pub span: Duration,
}

impl Eject {
    /// The rule where the file has no `eject`.
    pub const DEFAULT: Self = Self { failures: 5, span: Duration::from_secs(10), statuses: StatusSet::NONE };
}

impl Upstream {
    /// After this many failures in a row a server counts as down, whether or not it can be ejected. Where the file
    /// disables ejection, the default still identifies a server that is down.
    pub fn down_after(&self) -> u32 {
        self.eject.unwrap_or(Eject::DEFAULT).failures
    }
}

/// The backend of an upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Backend {
    /// `builtin:echo`: the gateway itself.
    Echo,
    /// Servers, selected by the load balancing. At least one.
    Servers(Vec<Endpoint>),
}

/// One server of an upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Host name or address, without brackets. The path of a Unix socket.
    pub host: String,
    /// TCP port. 0 for a Unix socket.
    pub port: u16,
    /// The Unix socket that it listens on; `None`: it listens at `host` and `port`.
    pub unix_socket: Option<Arc<Path>>,
    /// `host:port` as in a Host header, or `unix:PATH`; also its label in metrics.
    pub authority: Arc<str>,
    /// Its share of the requests; at least 1.
    pub weight: u32,
    /// `https://`: TLS to the server.
    pub tls: Option<TlsClientConfig>,
}

impl Endpoint {
    /// The Host of a request that has none of its own: `host:port`. A Unix socket has no name, so it gets `localhost`, as
    /// from curl.
    pub fn host_field(&self) -> &str {
        if self.unix_socket.is_some() { "localhost" } else { &self.authority }
    }

    /// The same host at another port. A Unix socket has none.
    pub fn at_port(&self, port: u16) -> Self {
        let Some((host, _)) = self.authority.rsplit_once(':').filter(|_| self.unix_socket.is_none()) else {
            return self.clone();
        };
        Self { port, authority: format!("{host}:{port}").into(), ..self.clone() }
    }
}

/// The rule for retries.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Retry {
    /// Attempts in all, the first included; 1 = never retry.
    pub attempts: u32,
    /// Retries per request of the last 10 s, in thousandths (200 = 20 %).
    pub budget_permille: u32,
    /// The statuses after which an idempotent request is retried.
    pub statuses: StatusSet,
    /// Whether an idempotent request is retried that was not answered in time.
    pub timeout: bool,
}

impl Eq for Retry {}

impl Retry {
    /// Whether small bodies of idempotent requests are kept, so that these can be sent again.
    pub fn keeps_bodies(&self) -> bool {
        self.timeout || !self.statuses.is_empty()
    }
}

#[cfg(test)]
impl Upstream {
    /// An upstream with nothing beside its servers, for tests: it tries once, and ejects none.
    pub fn plain(name: &str, backend: Backend) -> Self {
        Self {
            name: name.into(),
            backend,
            base_path: None,
            protocol: Protocol::Http1,
            connect_timeout: Duration::from_secs(2),
            idle_timeout: Duration::from_secs(60),
            host: None,
            retry: Retry { attempts: 1, budget_permille: 0, statuses: StatusSet::NONE, timeout: false },
            balance: Balance::RoundRobin,
            eject: None,
            health: None,
            max_connections: None,
            breaker: None,
            sticky: None,
            send_proxy_protocol: None,
            slow_start: None,
        }
    }
}

impl Upstream {
    /// Its servers; `builtin:echo` has none.
    pub fn endpoints(&self) -> &[Endpoint] {
        match &self.backend {
            Backend::Servers(servers) => servers,
            Backend::Echo => &[],
        }
    }

    /// What the request says about its server.
    pub fn affinity(&self, request: &route::RouteRequest<'_>, route: &Route) -> Affinity {
        let server = self.sticky.as_ref().and_then(|sticky| sticky.server(request.headers));
        Affinity { hash: self.affinity_hash(request, route), server }
    }

    fn affinity_hash(&self, request: &route::RouteRequest<'_>, route: &Route) -> u64 {
        let Balance::Hash(key) = &self.balance else { return 0 };
        match key.claim(&AFFINITY, route.matched(request)) {
            KeyResult::Key(Fingerprint(bits)) => {
                let [low, high] =
                    [bits, bits >> 64].map(|half| u64::try_from(half & u128::from(u64::MAX)).unwrap_or(0));
                low ^ high
            }
            KeyResult::Skip | KeyResult::Deny | KeyResult::Repeated | KeyResult::Unreadable(_) => 0,
        }
    }
}
