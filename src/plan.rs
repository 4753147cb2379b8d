//! The compiled, immutable plan: what `gateway.toml` means. `config` builds it, `proxy` runs it.

pub mod admission;
pub mod certificates;
pub mod cors;
pub mod log;
mod lookup;
pub mod loop_mark;
pub mod resolve;
pub mod trace;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, StatusCode};
use rustls::ServerConfig;

use crate::limit::Algorithm;
use crate::limit::units::{Cost, Fingerprint, Timestamp};
use crate::net::TlsClientConfig;
use crate::route::client::ClientRule;
use crate::route::exemptions::Exemptions;
use crate::route::folding::PathMatching;
use crate::route::key::{Key, KeyResult, KeySecret};
use crate::route::path::Path;
use crate::route::{self, Conditions, RouteTable};
use crate::store::redis::settings as redis;
use crate::store::{OnError, ParamsId, SharedKeyInfo};
use log::Log;
use trace::Trace;

/// The whole plan. Indices inside it are always valid.
#[derive(Debug)]
pub struct Plan {
    /// `[server]`.
    pub server: Server,
    /// `[admin]`, if any.
    pub admin: Option<Admin>,
    /// `[store]`.
    pub store: StoreSettings,
    /// `[log]`.
    pub log: Log,
    /// `[trace]`, if any: without it nothing is traced.
    pub trace: Option<Arc<Trace>>,
    /// `[limits.*]` in file order.
    pub limits: Vec<Limit>,
    /// `[upstreams.*]` in file order.
    pub upstreams: Vec<Arc<Upstream>>,
    /// `[[routes]]` in file order.
    pub routes: Vec<Route>,
    /// The routes' conditions, compiled for lookup.
    pub table: RouteTable,
}

/// A limit's place in [`Gateway::limits`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LimitIndex(pub usize);

/// An upstream's place in [`Gateway::upstreams`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct UpstreamIndex(pub usize);

/// `[server]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// Where to listen; port 0 picks one. At least one.
    pub listen: Vec<Listener>,
    /// `[[server.tls]]`. There is one wherever a listener speaks TLS.
    pub tls: Option<ListenerTls>,
    /// Worker threads; at least 1.
    pub workers: usize,
    /// Whose word is believed, and how wide a client is.
    pub client: ClientRule,
    /// How the paths of routes are compared with those of requests.
    pub path_matching: PathMatching,
    /// Connections at once, all workers together.
    pub max_connections: usize,
    /// Of one client at once, trusted proxies excepted; `None`: no bound.
    pub max_connections_per_client: Option<usize>,
    /// Bytes of a request head.
    pub max_header_bytes: usize,
    /// First byte to whole head.
    pub header_timeout: Duration,
    /// No request body byte for so long.
    pub body_timeout: Duration,
    /// Kept-alive connections.
    pub idle_timeout: Duration,
    /// Client takes no byte for so long.
    pub write_timeout: Duration,
    /// Requests on one connection; `None`: no bound.
    pub max_requests_per_connection: Option<u64>,
    /// How long a connection serves new requests.
    pub max_connection_age: Duration,
    /// How long requests in flight may take to finish on shutdown.
    pub drain_timeout: Duration,
    /// Which rate-limit fields responses carry.
    pub ratelimit_headers: RatelimitHeaders,
    /// Which answers carry `x-request-id`.
    pub request_id: RequestIds,
    /// Append `via` to requests.
    pub via: bool,
}

/// An item of `server.listen`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listener {
    /// Where; port 0 picks one.
    pub address: SocketAddr,
    /// Whether clients speak TLS there.
    pub tls: bool,
    /// Whether trusted proxies say there, by PROXY protocol and before TLS, whom they speak for.
    pub proxy_protocol: bool,
}

/// How TLS is spoken to clients.
#[derive(Clone, Debug)]
pub struct ListenerTls {
    /// Our certificates, and what we ask of clients.
    pub config: Arc<ServerConfig>,
    /// A hash of all that it was made of.
    pub files: [u8; 32],
    /// Whether clients are asked for a certificate.
    pub asks_clients: bool,
    /// When the first of our certificates expires.
    pub first_expiry: Timestamp,
}

impl PartialEq for ListenerTls {
    fn eq(&self, other: &Self) -> bool {
        self.files == other.files
    }
}

impl Eq for ListenerTls {}

/// Which rate-limit fields responses carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RatelimitHeaders {
    /// `ratelimit-policy` and `ratelimit` of draft-ietf-httpapi-ratelimit-headers.
    Standard,
    /// `x-ratelimit-limit`, `-remaining`, `-reset`.
    Legacy,
    /// Both.
    Both,
    /// None.
    Off,
}

/// Which answers carry `x-request-id`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestIds {
    /// Those that the gateway makes itself.
    Own,
    /// All.
    All,
    /// None.
    Off,
}

/// `[admin]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admin {
    /// Where to listen.
    pub listen: SocketAddr,
    /// The bearer token, read from the environment variable `token_env` when the file was loaded.
    pub token: Option<Token>,
}

/// A secret that neither `Debug` nor `Display` shows.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(pub String);

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(…)")
    }
}

/// `[store]`.
#[derive(Clone, Debug)]
pub struct StoreSettings {
    /// The hard bound on entries of the memory store.
    pub max_keys: usize,
    /// `backend = "redis"`: where the counters are shared. Where that cannot be asked, the memory store goes on counting.
    pub shared: Option<Arc<redis::RedisSettings>>,
}

/// `[upstreams.NAME]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upstream {
    /// Its name.
    pub name: Arc<str>,
    /// Who answers.
    pub backend: Backend,
    /// What its servers speak.
    pub protocol: Protocol,
    /// To connect; to wait for a connection where they have a bound.
    pub connect_timeout: Duration,
    /// How long an unused connection is kept.
    pub idle_timeout: Duration,
    /// The Host that the backend sees; `None`: the client's.
    pub host: Option<HeaderValue>,
    /// When another attempt is made.
    pub retry: Retry,
    /// Which server is next.
    pub balance: Balance,
    /// When a server that fails requests is left alone; `None`: never.
    pub eject: Option<Eject>,
    /// How servers are asked whether they are well; `None`: not at all.
    pub health: Option<HealthCheck>,
    /// How many connections there may be; `None`: any number.
    pub max_connections: Option<MaxConnections>,
}

/// How many connections an upstream may have, all servers and workers together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaxConnections {
    /// Used or not; at least 1.
    pub connections: usize,
    /// Requests that wait for one.
    pub pending: usize,
}

/// What a backend speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2: by ALPN where there is TLS, else with prior knowledge.
    Http2,
}

impl Protocol {
    /// Its name where it is agreed on with TLS (RFC 7301).
    pub fn alpn(self) -> &'static [u8] {
        match self {
            Self::Http1 => b"http/1.1",
            Self::Http2 => b"h2",
        }
    }
}

/// Which server is next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Balance {
    /// In turn, by weight.
    RoundRobin,
    /// Of two drawn by weight, the one with fewer requests in flight for its weight.
    LeastRequests,
    /// Drawn by weight.
    Random,
    /// The same for all requests with the same key.
    Hash(Key),
}

/// When a server that fails requests is left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Eject {
    /// Failures in a row; at least 1.
    pub failures: u32,
    /// For how long at first; at least 1 ms.
    pub span: Duration,
}

impl Eject {
    /// What holds where the file has no `eject`.
    pub const DEFAULT: Self = Self { failures: 5, span: Duration::from_secs(10) };
}

impl Upstream {
    /// After this many failures in a row a server counts as down, whether or not it can be ejected. Where the file
    /// switches ejection off, the default still tells a server that is away.
    pub fn down_after(&self) -> u32 {
        self.eject.unwrap_or(Eject::DEFAULT).failures
    }
}

/// How servers are asked whether they are well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthCheck {
    /// Path and query, in origin-form.
    pub path: Box<str>,
    /// From one question to the next; at least 1 ms.
    pub interval: Duration,
    /// From connecting to the answer's head; at least 1 ms.
    pub timeout: Duration,
    /// Good answers in a row that make a server healthy again; at least 1.
    pub healthy: u32,
    /// Bad ones that make it unhealthy; at least 1.
    pub unhealthy: u32,
}

/// Who answers for an upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Backend {
    /// `builtin:echo`: tollgate itself.
    Echo,
    /// Servers, taken in turn by weight. At least one.
    Servers(Vec<Endpoint>),
}

/// One server of an upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Host name or address, without brackets.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// `host:port` as a Host field would carry it; also its label in metrics.
    pub authority: Arc<str>,
    /// Its share of the requests; at least 1.
    pub weight: u32,
    /// `https://`: how TLS is spoken to it.
    pub tls: Option<TlsClientConfig>,
}

/// When another attempt is made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Retry {
    /// Attempts in all, the first included; 1 = never retry.
    pub attempts: u32,
    /// Retries per request of the last 10 s, in thousandths (200 = 20 %).
    pub budget_permille: u32,
}

impl Eq for Retry {}

/// `[limits.NAME]`.
#[derive(Clone, Debug)]
pub struct Limit {
    /// Its name.
    pub name: Arc<str>,
    /// One per rate; at least one.
    pub policies: Vec<Policy>,
    /// Whose allowance.
    pub key: Key,
    /// Who is exempt.
    pub exempt: Exemptions,
    /// Refuse, or only count.
    pub mode: Mode,
    /// What happens where a shared store cannot be asked.
    pub on_error: OnError,
    /// How a refusal looks, if not the default.
    pub reject: Option<Arc<Reject>>,
    /// Whether admin views show key values whole.
    pub reveal: bool,
}

/// One rate of a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Its name in responses: the limit's, or with several rates `NAME:RATE` (`per-client:100/min`).
    pub name: Arc<str>,
    /// Names limit, algorithm, key and the policy's place: a reload keeps its counters while this stays.
    pub remote: SharedKeyInfo,
    /// Decides.
    pub algorithm: Algorithm,
    /// The version of its numbers, as the store knows it.
    pub numbers: ParamsId,
    /// `ratelimit-policy` and `ratelimit`, as lines of a head, up to the number of what remains.
    pub standard: Box<str>,
    /// `x-ratelimit-limit` and `x-ratelimit-remaining`, up to the same.
    pub legacy: Box<str>,
}

/// Refuse, or only count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Refuse.
    Enforce,
    /// Decide, count, log, but let through.
    Shadow,
}

/// How a refusal looks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reject {
    /// 400 to 599.
    pub status: StatusCode,
    /// `content-type` of `body`.
    pub content_type: Option<HeaderValue>,
    /// The body; `None`: the default problem+json.
    pub body: Option<Bytes>,
    /// Further fields.
    pub headers: Vec<(HeaderName, HeaderValue)>,
}

/// `[[routes]]`.
#[derive(Clone, Debug)]
pub struct Route {
    /// Its name.
    pub name: Arc<str>,
    /// When it matches.
    pub conditions: Conditions,
    /// Who answers.
    pub upstream: UpstreamIndex,
    /// The route's cost; `None` = 0, never charged.
    pub cost: Option<Cost>,
    /// Which limits apply, in file order.
    pub limits: Vec<LimitUse>,
    /// Request sent whole → response head.
    pub timeout: Duration,
    /// Silence inside a response body.
    pub read_timeout: Duration,
    /// Silence of an upgraded connection, in both directions.
    pub tunnel_timeout: Duration,
    /// Bytes of a request body; `None`: no bound.
    pub max_body_bytes: Option<u64>,
    /// Removed from the front of the path before forwarding.
    pub strip_prefix: Option<Box<str>>,
    /// Edits of the request's fields.
    pub request_headers: HeaderEdits,
    /// Edits of the response's fields.
    pub response_headers: HeaderEdits,
    /// Where requests are sent that came another way than they should; `None`: all are served.
    pub redirect: Option<Redirect>,
    /// Which sites' scripts may read its answers; `None`: the backend's business.
    pub cors: Option<Box<cors::Cors>>,
    /// How a refusal looks; wins over the limit's.
    pub reject: Option<Arc<Reject>>,
}

/// Where requests are sent that came another way than they should.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Redirect {
    /// Those without TLS come again with it.
    Https,
}

/// A limit as a route uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitUse {
    /// Which.
    pub limit: LimitIndex,
    /// What a request costs there; `None` = 0, never charged.
    pub cost: Option<Cost>,
}

/// Edits of header fields: first removed, then set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeaderEdits {
    /// Replaced by this one value.
    pub set: Vec<(HeaderName, HeaderValue)>,
    /// Dropped.
    pub remove: Vec<HeaderName>,
}

/// Keys the hash that chooses servers: known to all, so that all gateways of a fleet choose the same.
const AFFINITY: KeySecret = KeySecret::Process([0; 16]);

impl Route {
    /// The path that the backend sees: as the client spelled it, less the route's prefix.
    pub fn forwarded_path<'p>(&self, path: &'p Path<'_>) -> &'p str {
        let merge_slashes = self.conditions.merge_slashes;
        match self.strip_prefix.as_deref() {
            Some(prefix) => path.without_prefix(prefix, merge_slashes),
            None => path.form(merge_slashes),
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

    /// What a hash chooses the server by: equal for requests whose `hash_key` is. 0 where none is asked for.
    pub fn affinity(&self, request: &route::RouteRequest<'_>, route: &Route) -> u64 {
        let Balance::Hash(key) = &self.balance else { return 0 };
        match key.claim(&AFFINITY, request, &route.name, route.conditions.merge_slashes) {
            KeyResult::Key(Fingerprint(bits)) => {
                let [low, high] =
                    [bits, bits >> 64].map(|half| u64::try_from(half & u128::from(u64::MAX)).unwrap_or(0));
                low ^ high
            }
            KeyResult::Skip | KeyResult::Deny | KeyResult::Repeated => 0,
        }
    }
}
