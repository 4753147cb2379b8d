//! `[upstreams.NAME]`: short (`NAME = "http://…"`) or as a table.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;

use super::endpoint::{self, Listed, UpstreamTarget};
use super::report::{SourceSpan, quoted};
use super::server::seconds;
use super::sticky::{self, StickyDraft};
use super::table::ConfigTable;
use super::text::SyntaxError;
use super::value::{ConfigValue, Entry};
use super::{limits, name, remedies, tls};
use crate::labels::labels;
use crate::plan::sticky::{Sticky, StickyKey};
use crate::plan::{
    Backend, Balance, BreakerRule, Eject, Endpoint, HealthCheck, MaxConnections, Protocol,
    ProxyProtocolVersion, Retry, StatusSet, Upstream,
};
use crate::route::key::{Key, Repeated};

/// Maximum number of servers of one upstream.
const MAX_SERVERS: usize = 1_024;
/// Maximum weight of a server.
const MAX_WEIGHT: u32 = 1_000;
/// More attempts than this multiply a failure instead of hiding it.
const MAX_ATTEMPTS: u32 = 10;

labels! {
    /// The values of `balance`.
    enum Word {
        RoundRobin = "round-robin",
        LeastRequests = "least-requests",
        Random = "random",
        Hash = "hash",
    }
}

/// Connections to an upstream, and requests that wait for one.
const MAX_CONNECTIONS: u32 = 1_000_000;
const DEFAULT_PENDING: u32 = 1_024;
/// Failures or answers in a row.
const MAX_IN_A_ROW: u32 = 1_000_000;
/// Bytes of a health check's path.
const MAX_PATH: usize = 1_024;

const DEFAULT_RETRY: Retry =
    Retry { attempts: 2, budget_permille: 200, statuses: StatusSet::NONE, timeout: false };

/// An upstream of the file.
pub(super) struct UpstreamDraft {
    pub(super) name: Arc<str>,
    pub(super) span: SourceSpan,
    pub(super) sticky: Option<StickyDraft>,
    /// `None` if it has faults.
    pub(super) upstream: Option<Upstream>,
}

/// Reads one entry of `[upstreams]`.
pub(super) fn read(entry: &Entry<'_>) -> UpstreamDraft {
    let name: Arc<str> = entry.key.into();
    name::check_label(entry.key, entry.key_span, entry.value.diagnostics());
    let mut sticky = None;
    let upstream = match (entry.value.is_text(), entry.value.is_list()) {
        (true, _) => short(&name, &entry.value),
        (_, true) => {
            let servers = entry.value.written_list().unwrap_or_default();
            entry.value.mismatch("a string or a table", remedies::upstream_list(entry.key, &servers))
        }
        _ => long(&name, &entry.value, &mut sticky),
    };
    UpstreamDraft { name, span: entry.key_span, sticky, upstream }
}

fn short(name: &Arc<str>, value: &ConfigValue<'_>) -> Option<Upstream> {
    let servers = Servers::of(target(value)?);
    Some(Upstream {
        name: Arc::clone(name),
        base_path: base_path(&servers, value)?,
        backend: backend(servers, None, Protocol::Http1, value)?,
        protocol: Protocol::Http1,
        connect_timeout: Duration::from_secs(2),
        idle_timeout: Duration::from_secs(60),
        host: None,
        retry: DEFAULT_RETRY,
        balance: Balance::RoundRobin,
        eject: Some(Eject::DEFAULT),
        health: None,
        max_connections: None,
        breaker: None,
        send_proxy_protocol: None,
        sticky: None,
        slow_start: None,
    })
}

fn long(name: &Arc<str>, value: &ConfigValue<'_>, sticky: &mut Option<StickyDraft>) -> Option<Upstream> {
    let mut table = value.table_beside_text(&quoted(&format!("[upstreams.{name}]")))?;
    let balance = balance(&mut table);
    let protocols = [("http1", Protocol::Http1), ("http2", Protocol::Http2)];
    let protocol = table.or("protocol", Protocol::Http1, |value| value.choice(&protocols));
    let tls = table.take("tls");
    let backend = table.require("servers", "[\"http://127.0.0.1:9001\"]", |value| {
        let servers = servers(&value)?;
        Some((base_path(&servers, &value)?, backend(servers, tls.as_ref(), protocol, &value)?))
    });
    let connect_timeout = seconds(&mut table, "connect_timeout", 2);
    let idle_timeout = seconds(&mut table, "idle_timeout", 60);
    let host = table.optional("host", |value| value.text()?.parse("a host", host));
    let retry = table.or("retry", DEFAULT_RETRY, |value| retry(&value));
    let eject = table.or("eject", Some(Eject::DEFAULT), |value| eject(&value));
    let health = table.optional("health", |value| health(&value));
    let max_connections = max_connections(&mut table);
    let breaker = table.optional("breaker", |value| breaker(&value));
    *sticky = table.optional("sticky", |value| {
        if let Some(Balance::Hash(_)) = &balance {
            let help = "leave one of the two out: each of them says which server a client gets";
            value.fault("`sticky` does not go together with `balance = \"hash\"`", help);
        }
        sticky::read(&value)
    });
    let slow_start = table.optional("slow_start", |value| value.duration());
    let send_proxy_protocol = table.optional("send_proxy_protocol", |value| proxy_protocol(&value, protocol));
    table.finish().then_some(())?;
    let (name, (base_path, backend), balance) = (Arc::clone(name), backend?, balance?);
    Some(Upstream {
        name,
        base_path,
        backend,
        protocol,
        connect_timeout,
        idle_timeout,
        host,
        retry,
        balance,
        eject,
        health,
        max_connections,
        breaker,
        send_proxy_protocol,
        sticky: None,
        slow_start,
    })
}

impl UpstreamDraft {
    /// The upstream. `key`: that of sticky cookies without a secret of their own.
    pub(super) fn finish(self, key: Option<StickyKey>) -> Option<Upstream> {
        let mut upstream = self.upstream?;
        if let Some(StickyDraft { cookie, key: own }) = self.sticky {
            let sticky = Sticky::new(&cookie, &own.or(key)?, &self.name, upstream.endpoints());
            upstream.sticky = Some(Box::new(sticky));
        }
        Some(upstream)
    }
}

/// `max_pending` belongs to `max_connections` alone.
fn max_connections(table: &mut ConfigTable<'_>) -> Option<MaxConnections> {
    let connections = table.take("max_connections");
    let pending = table.take("max_pending");
    match (connections, pending) {
        (Some(connections), pending) => {
            let connections = connections.count(1, MAX_CONNECTIONS);
            let pending = pending.map_or(Some(DEFAULT_PENDING), |pending| pending.count(0, MAX_CONNECTIONS));
            Some(MaxConnections { connections: connections? as usize, pending: pending? as usize })
        }
        (None, Some(pending)) => {
            let help = "add, for example, `max_connections = 100`, or leave `max_pending` out";
            pending.fault("`max_pending` has no effect without `max_connections`", help);
            None
        }
        (None, None) => None,
    }
}

/// Which server is next. `hash_key` belongs to `balance = "hash"` alone.
fn balance(table: &mut ConfigTable<'_>) -> Option<Balance> {
    let balance = match table.or("balance", Word::RoundRobin, |value| value.choice(&Word::WORDS)) {
        Word::RoundRobin => Balance::RoundRobin,
        Word::LeastRequests => Balance::LeastRequests,
        Word::Random => Balance::Random,
        Word::Hash => {
            let parts = table.require("hash_key", "\"ip\"", |value| limits::parts(&value))?;
            if let Some(part) = parts.iter().find(|part| part.is_of_body()) {
                let message =
                    format!("`{part}` cannot be a `hash_key`: the server is chosen before the body is read");
                table.diagnostics().fault(table.span(), message, "name a header, a cookie or `ip`");
            }
            return Some(Balance::Hash(Key { repeated: Some(Repeated::Join), ..Key::new(parts) }));
        }
    };
    if table.is_uncertain("balance") {
        table.skip(&["hash_key"]);
        return None;
    }
    let help = "leave it out, or write `balance = \"hash\"`";
    table.misplaced("hash_key", "`hash_key` has no effect without `balance = \"hash\"`", help);
    Some(balance)
}

/// A connection with a PROXY protocol header serves one client; requests of many clients share one of HTTP/2.
fn proxy_protocol(value: &ConfigValue<'_>, protocol: Protocol) -> Option<ProxyProtocolVersion> {
    let version = value.choice(&[("v1", ProxyProtocolVersion::V1), ("v2", ProxyProtocolVersion::V2)])?;
    if protocol == Protocol::Http2 {
        let help = "leave one of the two out; with HTTP/2 the servers find the client in `x-forwarded-for`";
        value.fault("`send_proxy_protocol` does not go together with `protocol = \"http2\"`", help);
        return None;
    }
    Some(version)
}

fn eject(value: &ConfigValue<'_>) -> Option<Option<Eject>> {
    let mut table = value.table("`eject`")?;
    let failures = table.or("failures", Eject::DEFAULT.failures, |value| value.count(0, MAX_IN_A_ROW));
    let span = table.or("for", Eject::DEFAULT.span, |value| value.duration());
    let statuses = table.or("statuses", StatusSet::NONE, |value| statuses(&value));
    table.finish();
    Some((failures > 0).then_some(Eject { failures, span, statuses }))
}

/// A list of statuses and classes.
fn statuses(value: &ConfigValue<'_>) -> Option<StatusSet> {
    let mut set = StatusSet::NONE;
    value.some_of(|item| status(&item, &mut set, "`\"5xx\"`, `\"429\"`"))?;
    Some(set)
}

fn status(value: &ConfigValue<'_>, set: &mut StatusSet, examples: &str) -> Option<()> {
    let text = value.text()?;
    if set.add(text.as_str()).is_none() {
        value.fault(
            format!("{} is not an error status", quoted(text.as_str())),
            format!("write a status from 400 to 599, or a class: {examples}"),
        );
        return None;
    }
    Some(())
}

fn breaker(value: &ConfigValue<'_>) -> Option<BreakerRule> {
    let mut table = value.table("`breaker`")?;
    let failures_permille = table.or("failures", 500, |value| {
        let share = value.share()?;
        if permille(share) == 0 {
            value.fault(
                "a breaker with `failures = 0` would open without a failure",
                "write a share such as `0.5`",
            );
            return None;
        }
        Some(permille(share))
    });
    let requests = table.or("requests", 20, |value| value.count(1, MAX_IN_A_ROW));
    let span = table.or("for", Duration::from_secs(10), |value| value.duration());
    table.finish();
    Some(BreakerRule { failures_permille, requests, span })
}

fn health(value: &ConfigValue<'_>) -> Option<HealthCheck> {
    let path = value.written().filter(|text| health_path(text).is_ok() && !text.contains(['"', '$']));
    match (value.written(), value.written_boolean()) {
        (Some(_), _) => {
            let help = format!("write `health = {{ path = \"{}\" }}`", path.unwrap_or("/healthz"));
            return value.mismatch("a table", help);
        }
        (_, Some(true)) => {
            return value
                .mismatch("a table", "write `health = { path = \"/healthz\" }` with a path of the servers");
        }
        (_, Some(false)) => {
            return value.mismatch("a table", "leave it out: servers are not asked without `health`");
        }
        _ => {}
    }
    let mut table = value.table("`health`")?;
    let path = table.require("path", "\"/healthz\"", |value| value.text()?.parse("a path", health_path));
    let interval = seconds(&mut table, "interval", 5);
    let timeout = seconds(&mut table, "timeout", 1);
    let healthy = table.or("healthy", 2, |value| value.count(1, MAX_IN_A_ROW));
    let unhealthy = table.or("unhealthy", 3, |value| value.count(1, MAX_IN_A_ROW));
    table.finish();
    Some(HealthCheck { path: path?, interval, timeout, healthy, unhealthy })
}

fn health_path(text: &str) -> Result<Box<str>, SyntaxError> {
    let visible = text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#');
    if text.starts_with('/') && visible && text.len() <= MAX_PATH {
        return Ok(text.into());
    }
    let message = format!("{} is not a path to ask for", quoted(text));
    Err(SyntaxError::new(
        message,
        format!("write up to {MAX_PATH} bytes as they are sent: `/healthz`, `/status?brief=1`"),
    ))
}

/// What `servers` names.
enum Servers {
    Echo,
    Listed(Vec<Listed>),
}

impl Servers {
    /// Only this server.
    fn of(target: UpstreamTarget) -> Self {
        match target {
            UpstreamTarget::Echo => Self::Echo,
            UpstreamTarget::Server(server) => Self::Listed(vec![server]),
        }
    }
}

/// The path of the servers' URLs: it is the same for all, so that a retry asks for the same.
fn base_path(servers: &Servers, value: &ConfigValue<'_>) -> Option<Option<Box<str>>> {
    let Servers::Listed(listed) = servers else { return Some(None) };
    let mut paths = listed.iter().map(|server| &server.base_path);
    let first = paths.next()?;
    if let Some(other) = paths.find(|path| *path != first) {
        let shown = |path: &str| if path.is_empty() { "no path".to_owned() } else { quoted(path) };
        let message = format!(
            "the servers of this upstream have different paths: {} and {}",
            shown(first),
            shown(other)
        );
        value.fault(message, "make them two upstreams, or use `rewrite` of the routes");
        return None;
    }
    Some((!first.is_empty()).then(|| first.clone()))
}

/// The servers, with the `tls` settings for those with https. `value`: their list.
fn backend(
    servers: Servers,
    tls: Option<&ConfigValue<'_>>,
    protocol: Protocol,
    value: &ConfigValue<'_>,
) -> Option<Backend> {
    let listed = match servers {
        Servers::Listed(listed) => listed,
        Servers::Echo if tls.is_none() => return Some(Backend::Echo),
        Servers::Echo => Vec::new(),
    };
    if !listed.iter().any(|server| server.secure) {
        if let Some(tls) = tls {
            let help = "write `https://` before each server that speaks TLS, or leave `tls` out";
            tls.fault("`tls` has no effect: no server of the upstream begins with `https://`", help);
        }
        return Some(Backend::Servers(listed.into_iter().map(|server| server.endpoint).collect()));
    }
    let trust = tls::client(tls, value, &[protocol.alpn()])?;
    let secured = |server: Listed| {
        if !server.secure {
            return Some(server.endpoint);
        }
        if trust.name(&server.endpoint.host).is_none() {
            let message = format!("no certificate can be for the name {}", quoted(&server.endpoint.host));
            value.fault(
                message,
                "say which name the server's certificate carries: `tls = { server_name = \"…\" }`",
            );
            return None;
        }
        Some(Endpoint { tls: Some(trust.clone()), ..server.endpoint })
    };
    listed.into_iter().map(secured).collect::<Option<_>>().map(Backend::Servers)
}

fn servers(value: &ConfigValue<'_>) -> Option<Servers> {
    let items = value.list()?;
    if items.len() > MAX_SERVERS {
        value.fault(format!("{} names more than {MAX_SERVERS} servers", value.label()), "leave some out");
        return None;
    }
    if let [only] = items.as_slice()
        && only.is_text()
    {
        return target(only).map(Servers::of);
    }
    let mut servers: Vec<Listed> = Vec::new();
    value.some_of(|item| {
        let server = server(&item)?;
        let authority = &server.endpoint.authority;
        if servers.iter().any(|other| other.endpoint.authority == *authority) {
            let message = format!("the server `{authority}` is listed twice");
            item.fault(message, "leave one of the two out, or give it a larger `weight`");
        }
        servers.push(server);
        Some(())
    })?;
    Some(Servers::Listed(servers))
}

fn server(value: &ConfigValue<'_>) -> Option<Listed> {
    if value.is_text() {
        return endpoint_at(value, 1);
    }
    let mut table = value.table_beside_text("an item of `servers`")?;
    let weight = table.or("weight", 1, |value| value.count(1, MAX_WEIGHT));
    let server = table.require("url", "\"http://127.0.0.1:9001\"", |value| endpoint_at(&value, weight));
    table.finish();
    server
}

fn endpoint_at(value: &ConfigValue<'_>, weight: u32) -> Option<Listed> {
    match target(value)? {
        UpstreamTarget::Server(server) => {
            Some(Listed { endpoint: Endpoint { weight, ..server.endpoint }, ..server })
        }
        UpstreamTarget::Echo => {
            value.fault("`builtin:echo` cannot stand among servers", "make it an upstream of its own");
            None
        }
    }
}

fn target(value: &ConfigValue<'_>) -> Option<UpstreamTarget> {
    value.text()?.parse("the URL of a server", endpoint::parse)
}

fn host(text: &str) -> Result<HeaderValue, SyntaxError> {
    let refused = || {
        let message = format!("{} is not a host", quoted(text));
        SyntaxError::new(
            message,
            "write a name or an address, with a port if need be: `search.internal:8080`",
        )
    };
    endpoint::authority(text, 80).map_err(|_| refused())?;
    HeaderValue::from_str(text).map_err(|_| refused())
}

fn retry(value: &ConfigValue<'_>) -> Option<Retry> {
    let mut table = value.table("`retry`")?;
    let attempts = table.or("attempts", DEFAULT_RETRY.attempts, |value| value.count(1, MAX_ATTEMPTS));
    let budget_permille =
        table.or("budget", DEFAULT_RETRY.budget_permille, |value| value.share().map(permille));
    let mut timeout = false;
    let statuses = table.or("on", StatusSet::NONE, |value| {
        let mut set = StatusSet::NONE;
        value.some_of(|item| match item.text()?.as_str() {
            "timeout" => {
                timeout = true;
                Some(())
            }
            _ => status(&item, &mut set, "`\"503\"`, `\"5xx\"`; or `\"timeout\"`"),
        })?;
        Some(set)
    });
    table.finish();
    Some(Retry { attempts, budget_permille, statuses, timeout })
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share lies between 0 and 1")]
fn permille(share: f64) -> u32 {
    (share * 1_000.0).round() as u32
}
