//! `[upstreams.NAME]`: short (`NAME = "http://…"`) or as a table.

mod failures;
mod health;
mod servers;

use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;

use super::diagnostics::Diagnostics;
use super::endpoint;
use super::keys::{NamedSchema, Schema, choice, count, duration, keys};
use super::limits::KEY;
use super::report::{SourceSpan, quoted};
use super::sticky::{self, STICKY, StickyDraft};
use super::table::ConfigTable;
use super::text::SyntaxError;
use super::tls::TRUST;
use super::value::{ConfigValue, Entry};
use super::{limits, name, remedies};
use crate::labels::labels;
use crate::plan::StoreSettings;
use crate::plan::sticky::{Sticky, StickyBy, StickyKey};
use crate::plan::{Backend, Balance, MaxConnections, Protocol, ProxyProtocolVersion, Upstream};
use crate::route::key::{Key, Repeated};
use failures::{BREAKER, EJECT, RETRY};
use health::HEALTH;
use servers::{SERVER_URL, Servers, WEIGHTED_SERVER};

labels! {
    /// The values of `balance`.
    pub(super) enum Word {
        RoundRobin = "round-robin",
        LeastRequests = "least-requests",
        Random = "random",
        Hash = "hash",
    }
}

const PROTOCOLS: [(&str, Protocol); 2] = [("http1", Protocol::Http1), ("http2", Protocol::Http2)];
const VERSIONS: [(&str, ProxyProtocolVersion); 2] =
    [("v1", ProxyProtocolVersion::V1), ("v2", ProxyProtocolVersion::V2)];

/// Connections to an upstream, and requests that wait for one.
const MAX_CONNECTIONS: u64 = 1_000_000;

keys! {
    /// A service behind the gateway.
    pub(super) UPSTREAM: UpstreamKeys = "[upstreams.NAME]" {
        /// URLs of servers, 1 to 1024 of them, none twice.
        servers = Schema::List((1, servers::MAX_SERVERS), &SERVER_ITEM), required "[\"http://127.0.0.1:9001\"]";
        /// Which server is next. round-robin: in turn, by weight. least-requests: of two drawn by lot, the one with
        /// fewer requests in flight for its weight. random: drawn by weight. hash: the same one for the same
        /// `hash_key`.
        balance: Word = choice(&Word::WORDS) => Word::RoundRobin;
        /// balance = "hash": requests with the same key go to the same server. As the `key` of a limit; where a
        /// header, cookie or query parameter is absent, the client's address stands in.
        hash_key = KEY, example "\"ip\"";
        /// What the servers speak. http2: HTTP/2, which gRPC needs; over TLS it is agreed on by ALPN, without TLS
        /// it is spoken at once.
        protocol: Protocol = choice(&PROTOCOLS) => Protocol::Http1;
        /// How TLS is spoken to servers with https://. Default: the system's authorities, no certificate of our
        /// own.
        tls = Schema::Table(&TRUST);
        /// Connections to all servers together, used or not, over all workers, 1 to 10^6. Default: any number.
        max_connections: usize = count(1, MAX_CONNECTIONS);
        /// Requests that wait for a connection, each for connect_timeout at most, 0 to 10^6; more are answered 503.
        /// Goes with max_connections.
        max_pending: usize = count(0, MAX_CONNECTIONS) => 1_024;
        /// How long connecting may take, TLS included; and waiting for a connection where they have a bound.
        connect_timeout: Duration = duration() => Duration::from_secs(2);
        /// How long an unused connection is kept.
        idle_timeout: Duration = duration() => Duration::from_secs(60);
        /// The Host that the servers see: a name or an address, with a port if need be. Default: the client's,
        /// unchanged.
        host = Schema::Name;
        /// When a server that fails requests is left alone for a while. Default { failures = 5, for = "10s" }.
        eject = Schema::Table(&EJECT);
        /// When requests are answered 503 at once, since too many attempts at the servers fail. Default: never.
        breaker = Schema::Table(&BREAKER);
        /// A cookie, or a header that carries a session, keeps a client at the server of its first response, as long
        /// as that is available. Not with balance = "hash". Default: none.
        sticky = Schema::Table(&STICKY);
        /// Each connection to a server begins with a PROXY protocol header of this version, which names the client.
        /// Not with protocol = "http2". Default: no header.
        send_proxy_protocol: ProxyProtocolVersion = choice(&VERSIONS);
        /// The time in which a server that is back gets from a tenth of its share of the requests to all of it.
        /// Default: all at once.
        slow_start: Duration = duration();
        /// How servers are asked whether they are well, each on a connection of its own. Default: they are not
        /// asked.
        health = Schema::Table(&HEALTH);
        /// When another attempt is made, on another server where there is one. Default { attempts = 2, budget = 0.2 }.
        retry = Schema::Table(&RETRY);
    }
}

/// `[upstreams.NAME]`, in the schema.
pub(super) static WRITTEN: NamedSchema = NamedSchema {
    name: "written_upstream",
    description: "A service: the URL of its only server, or a table.",
    schema: Schema::Either(&[Schema::Named(&SERVER_URL), Schema::Table(&UPSTREAM)]),
};
const SERVER_ITEM: Schema = Schema::Either(&[Schema::Named(&SERVER_URL), Schema::Table(&WEIGHTED_SERVER)]);

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
    let title = quoted(&format!("[upstreams.{name}]"));
    let upstream = match (entry.value.is_text(), entry.value.is_list()) {
        (true, _) => {
            let table = ConfigTable::empty(&title, entry.value.span(), entry.value.diagnostics());
            upstream(&name, table, Some(&entry.value), &mut sticky)
        }
        (_, true) => {
            let servers = entry.value.written_list().unwrap_or_default();
            entry.value.mismatch("a string or a table", remedies::upstream_list(entry.key, &servers))
        }
        _ => {
            let table = entry.value.table_beside_text(&title);
            table.and_then(|table| upstream(&name, table, None, &mut sticky))
        }
    };
    UpstreamDraft { name, span: entry.key_span, sticky, upstream }
}

/// An upstream, of which `table` has the settings. `only`: its only server, if it is written alone.
fn upstream(
    name: &Arc<str>,
    mut table: ConfigTable<'_>,
    only: Option<&ConfigValue<'_>>,
    sticky: &mut Option<StickyDraft>,
) -> Option<Upstream> {
    let balance = balance(&mut table);
    let protocol = table.value(&UPSTREAM.protocol);
    let tls = table.take(&UPSTREAM.tls);
    let backend = |value: &ConfigValue<'_>, servers: Servers| {
        Some((
            servers::base_path(&servers, value)?,
            servers::backend(servers, tls.as_ref(), protocol, value)?,
        ))
    };
    let backend = match only {
        Some(value) => backend(value, Servers::of(servers::target(value)?)),
        None => table.require(&UPSTREAM.servers, |value| backend(&value, servers::servers(&value)?)),
    };
    let connect_timeout = table.value(&UPSTREAM.connect_timeout);
    let idle_timeout = table.value(&UPSTREAM.idle_timeout);
    let host = table.optional(&UPSTREAM.host, |value| value.text()?.parse("a host", host));
    let known = backend.as_ref().filter(|_| !table.is_uncertain(UPSTREAM.servers.name));
    let servers = known.map(|(_, backend)| match backend {
        Backend::Servers(servers) => servers.len(),
        Backend::Echo => 0,
    });
    let retry = table.section(&UPSTREAM.retry, "`retry`").map(|table| failures::retry(table, servers));
    let eject = table.section(&UPSTREAM.eject, "`eject`").and_then(failures::eject);
    let known_protocol = (!table.is_uncertain(UPSTREAM.protocol.name)).then_some(protocol);
    let health = table.optional(&UPSTREAM.health, |value| {
        health::read(&value, known_protocol, backend.as_ref().map(|(_, backend)| backend))
    });
    let max_connections = max_connections(&mut table);
    let breaker = table.optional(&UPSTREAM.breaker, |value| failures::breaker(&value));
    *sticky = table.optional(&UPSTREAM.sticky, |value| {
        if let Some(Balance::Hash(_)) = &balance {
            let help = "leave one of the two out: each of them says which server a client gets";
            value.fault("`sticky` does not go together with `balance = \"hash\"`", help);
        }
        sticky::read(&value)
    });
    let slow_start = table.get(&UPSTREAM.slow_start);
    if let (Some(span), Some(0 | 1)) = (table.given(UPSTREAM.slow_start.name), servers) {
        let message = "`slow_start` has no effect: there is no second server for the other requests";
        table.diagnostics().warn(span, message, "leave it out");
    }
    if servers == Some(0) {
        echo_without_servers(&table);
    }
    let send_proxy_protocol =
        table.optional(&UPSTREAM.send_proxy_protocol, |value| proxy_protocol(&value, protocol));
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
        retry: retry?,
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
    /// The upstream. `key`: that of `sticky` without a secret of its own.
    pub(super) fn finish(self, key: Option<StickyKey>) -> Option<Upstream> {
        let mut upstream = self.upstream?;
        if let Some(StickyDraft { by, key: own, .. }) = self.sticky {
            let (key, servers) = (own.or(key)?, upstream.endpoints());
            let sticky = Sticky::new(by, &key, &self.name, servers);
            upstream.sticky = Some(Box::new(sticky));
        }
        Some(upstream)
    }
}

/// The session of a client lasts as long as its server, so the name of the server in it has to outlive the gateway.
pub(super) fn check_sticky_secrets(
    upstreams: &[UpstreamDraft],
    store: &StoreSettings,
    diagnostics: &Diagnostics<'_>,
) {
    let has_secret = store.secret.is_some();
    let drafts = upstreams.iter().filter_map(|upstream| upstream.sticky.as_ref());
    for draft in drafts.filter(|draft| matches!(draft.by, StickyBy::Header(_)) && draft.key.is_none()) {
        if diagnostics.is_known(has_secret) && !has_secret {
            let message =
                "`header` needs a secret: with one of the process, each restart would end all sessions";
            let help =
                "add `secret_env = \"STICKY_SECRET\"`, or `secret = \"${STICKY_SECRET}\"` to `[store]`";
            diagnostics.fault(draft.span, message, help);
        }
    }
}

/// Warns of keys about the servers of an upstream, of which the built-in echo has none.
fn echo_without_servers(table: &ConfigTable<'_>) {
    let keys = [
        UPSTREAM.balance.name,
        UPSTREAM.breaker.name,
        UPSTREAM.connect_timeout.name,
        UPSTREAM.eject.name,
        UPSTREAM.health.name,
        UPSTREAM.idle_timeout.name,
        UPSTREAM.max_connections.name,
        UPSTREAM.retry.name,
        UPSTREAM.send_proxy_protocol.name,
        UPSTREAM.sticky.name,
    ];
    for (key, span) in keys.into_iter().filter_map(|key| Some((key, table.given(key)?))) {
        let message = format!("`{key}` has no effect: `builtin:echo` answers without a server");
        table.diagnostics().warn(span, message, "leave it out, or name a server");
    }
}

/// `max_pending` belongs to `max_connections` alone.
fn max_connections(table: &mut ConfigTable<'_>) -> Option<MaxConnections> {
    let connections = table.get(&UPSTREAM.max_connections);
    if table.given(UPSTREAM.max_connections.name).is_some() {
        let pending = table.value(&UPSTREAM.max_pending);
        return Some(MaxConnections { connections: connections?, pending });
    }
    if let Some(pending) = table.take(&UPSTREAM.max_pending) {
        let help = "add, for example, `max_connections = 100`, or leave `max_pending` out";
        pending.fault("`max_pending` has no effect without `max_connections`", help);
    }
    None
}

/// Which server is next. `hash_key` belongs to `balance = "hash"` alone.
fn balance(table: &mut ConfigTable<'_>) -> Option<Balance> {
    let balance = match table.value(&UPSTREAM.balance) {
        Word::RoundRobin => Balance::RoundRobin,
        Word::LeastRequests => Balance::LeastRequests,
        Word::Random => Balance::Random,
        Word::Hash => {
            let parts = table.require(&UPSTREAM.hash_key, |value| limits::parts_before_upstream(&value))?;
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
    let version = value.choice(&VERSIONS)?;
    if protocol == Protocol::Http2 {
        let help = "leave one of the two out; with HTTP/2 the servers find the client in `x-forwarded-for`";
        value.fault("`send_proxy_protocol` does not go together with `protocol = \"http2\"`", help);
        return None;
    }
    Some(version)
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
