//! `[server]`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use http::HeaderName;
use ipnet::IpNet;

use super::report::quoted;
use super::table::ConfigTable;
use super::text::SyntaxError;
use super::value::ConfigValue;
use super::{networks, remedies, tls};
use crate::plan::{Listener, RatelimitHeaders, RatelimitPolicies, RequestIds, Server};
use crate::route::client::{ClientRule, ClientSource};
use crate::route::path::{EncodedDots, PathMatching};

/// The name of the section in messages.
pub(super) const TITLE: &str = "`[server]`";
/// The default address to listen on.
pub const DEFAULT_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8080);
/// More threads than this have no benefit.
const MAX_WORKERS: u32 = 1_024;
/// More than any kernel holds descriptors for.
const MAX_CONNECTIONS: u32 = 10_000_000;
/// More than a connection ever serves.
const MAX_REQUESTS: u64 = 1_000_000_000;
/// A request head smaller than this holds no ordinary request, one larger is an attack.
const HEADER_BYTES: (u64, u64) = (1 << 10, 1 << 20);

/// A sixteenth holds a body by which a limit counts (64 KiB), and a machine has the rest.
const BUFFERED_BYTES: (u64, u64) = (1 << 20, 64 << 30);

const PATH_MATCHING: [(&str, PathMatching); 2] =
    [("lenient", PathMatching::Lenient), ("strict", PathMatching::Strict)];

const ENCODED_DOTS: [(&str, EncodedDots); 2] = [("reject", EncodedDots::Reject), ("pass", EncodedDots::Pass)];

const REQUEST_IDS: [(&str, RequestIds); 3] =
    [("own", RequestIds::Own), ("all", RequestIds::All), ("off", RequestIds::Off)];

/// `[server]` of the file.
pub(super) struct ServerDraft<'a> {
    pub(super) server: Server,
    /// The bound on bodies that routes inherit (`None`: no bound).
    pub(super) max_body_bytes: Option<u64>,
    /// `limits`, whose names are known later.
    pub(super) limits: Option<ConfigValue<'a>>,
}

/// Reads `[server]`.
pub(super) fn read(mut table: ConfigTable<'_>) -> ServerDraft<'_> {
    let limits = table.take("limits");
    let certificates = table.take("tls");
    let tls = certificates.is_some();
    let default_listen = vec![Listener { address: DEFAULT_ADDRESS, tls, proxy_protocol: false }];
    let max_body_bytes = table.or("max_body_bytes", Some(10 << 20), |value| body_bound(&value));
    let server = Server {
        listen: table.or("listen", default_listen, |value| listen(&value, tls)),
        tls: certificates.as_ref().and_then(tls::server::read),
        workers: table.or("workers", available_cpus(), |value| positive(&value, MAX_WORKERS)),
        client: client_rule(&mut table),
        path_matching: table
            .or("path_matching", PathMatching::default(), |value| value.choice(&PATH_MATCHING)),
        encoded_dots: table.or("encoded_dots", EncodedDots::default(), |value| value.choice(&ENCODED_DOTS)),
        max_connections: table.or("max_connections", 10_000, |value| positive(&value, MAX_CONNECTIONS)),
        max_connections_per_client: table
            .optional("max_connections_per_client", |value| positive(&value, MAX_CONNECTIONS)),
        max_header_bytes: table.or("max_header_bytes", 32 << 10, |value| header_bound(&value)),
        max_buffered: table.or("max_buffered", 64 << 20, |value| buffer_bound(&value)),
        header_timeout: seconds(&mut table, "header_timeout", 10),
        body_timeout: seconds(&mut table, "body_timeout", 10),
        idle_timeout: seconds(&mut table, "idle_timeout", 60),
        write_timeout: seconds(&mut table, "write_timeout", 30),
        max_requests_per_connection: table.or("max_requests_per_connection", None, |value| {
            let bound = value.whole(0..=MAX_REQUESTS)?;
            Some((bound > 0).then_some(bound))
        }),
        max_connection_age: seconds(&mut table, "max_connection_age", 3600),
        drain_timeout: seconds(&mut table, "drain_timeout", 30),
        ratelimit_headers: table
            .or("ratelimit_headers", RatelimitHeaders::Both, |value| value.choice(&RatelimitHeaders::WORDS)),
        ratelimit_policies: table.or("ratelimit_policies", RatelimitPolicies::Tightest, |value| {
            value.choice(&RatelimitPolicies::WORDS)
        }),
        request_id: table.or("request_id", RequestIds::Own, |value| value.choice(&REQUEST_IDS)),
        via: table.or("via", false, |value| value.boolean()),
        addresses: networks::rules(&mut table),
    };
    if let Some(certificates) = certificates
        && !server.listen.iter().any(|listener| listener.tls)
        && !table.is_uncertain("listen")
    {
        let help = "leave `tls = false` out of an item of `listen`, or leave the certificates out";
        table.diagnostics().warn(certificates.span(), "no listener speaks TLS", help);
    }
    if let Some(span) = table.given("ratelimit_policies")
        && !server.ratelimit_headers.has_standard()
        && !table.is_uncertain("ratelimit_headers")
    {
        let written = server.ratelimit_headers.as_str();
        let message = format!("`ratelimit_policies` has no effect with `ratelimit_headers = \"{written}\"`");
        let help =
            "it is for `ratelimit` and `ratelimit-policy`: set `ratelimit_headers` to `both` or `standard`";
        table.diagnostics().warn(span, message, help);
    }
    let proxied = server.listen.iter().any(|listener| listener.proxy_protocol);
    if proxied && server.client.trusted_proxies.is_empty() && !table.is_uncertain("trusted_proxies") {
        let message =
            "`proxy_protocol` is `true`, but `trusted_proxies` is empty: all connections would be closed";
        table.diagnostics().fault(table.span(), message, "list the proxies in `trusted_proxies`");
    }
    table.finish();
    ServerDraft { server, max_body_bytes, limits }
}

/// The value of a duration's key, or this default in seconds.
pub(super) fn seconds(table: &mut ConfigTable<'_>, key: &'static str, default: u64) -> Duration {
    table.or(key, Duration::from_secs(default), |value| value.duration())
}

/// A bound on bodies: `None` (no bound) for 0.
pub(super) fn body_bound(value: &ConfigValue<'_>) -> Option<Option<u64>> {
    value.size(0, i64::MAX.unsigned_abs()).map(|bytes| (bytes > 0).then_some(bytes))
}

/// Parses `ADDRESS:PORT`.
pub(super) fn socket_address(text: &str) -> Result<SocketAddr, SyntaxError> {
    text.parse().map_err(|_| {
        let port = text.rsplit(':').next().and_then(|port| port.parse::<u16>().ok());
        let help = match (text.split(':').next(), port) {
            (Some(""), Some(port)) => {
                format!("for all addresses of this machine write `0.0.0.0:{port}` or `[::]:{port}`")
            }
            (Some("localhost"), Some(port)) => format!("write an address, not a name: `127.0.0.1:{port}`"),
            _ => "write an IP address and a port, such as `127.0.0.1:8080` or `[::1]:8080`".to_owned(),
        };
        SyntaxError::new(format!("{} is not an address with a port", quoted(text)), help)
    })
}

/// The CPUs that the affinity and the cgroup quota of this process leave it.
fn available_cpus() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get)
}

fn positive(value: &ConfigValue<'_>, max: u32) -> Option<usize> {
    usize::try_from(value.count(1, max)?).ok()
}

fn header_bound(value: &ConfigValue<'_>) -> Option<usize> {
    let (min, max) = HEADER_BYTES;
    usize::try_from(value.size(min, max)?).ok()
}

fn buffer_bound(value: &ConfigValue<'_>) -> Option<usize> {
    let (min, max) = BUFFERED_BYTES;
    usize::try_from(value.size(min, max)?).ok()
}

fn client_rule(table: &mut ConfigTable<'_>) -> ClientRule {
    let trusted_proxies = table.or("trusted_proxies", Vec::new(), |value| value.each(|item| proxy(&item)));
    let source = table.take("client_ip");
    let span = source.as_ref().map(ConfigValue::span);
    let source = source.and_then(|value| client_source(&value)).unwrap_or_default();
    let has_proxies = !trusted_proxies.is_empty() || table.is_uncertain("trusted_proxies");
    if let Some(span) = span.filter(|_| !has_proxies && source != ClientSource::Peer) {
        let help = "list the proxies in `trusted_proxies`, or leave `client_ip` out";
        table.diagnostics().warn(span, "`client_ip` has no effect: `trusted_proxies` is empty", help);
    }
    ClientRule {
        trusted_proxies,
        source,
        ipv4_prefix: table.or("ipv4_prefix", 32, |value| prefix(&value, 32)),
        ipv6_prefix: table.or("ipv6_prefix", 64, |value| prefix(&value, 128)),
    }
}

fn client_source(value: &ConfigValue<'_>) -> Option<ClientSource> {
    value.text()?.parse("a source of the client's address", |text| {
        const ALL: &str = "write `x-forwarded-for`, `forwarded`, `header:NAME` or `peer`";
        let refusal = |message: String, help: &str| Err(SyntaxError::new(message, help));
        match text.split_once(':') {
            None => match text {
                "x-forwarded-for" => Ok(ClientSource::XForwardedFor),
                "forwarded" => Ok(ClientSource::Forwarded),
                "peer" => Ok(ClientSource::Peer),
                "header" => refusal("`header` lacks a name".to_owned(), "write `header:NAME`"),
                _ => refusal(format!("{} is not a source of the client's address", quoted(text)), ALL),
            },
            Some(("header", name)) => match HeaderName::try_from(name) {
                Ok(name) if name == "x-forwarded-for" || name == "forwarded" => {
                    let help = format!("write `{name}`: the list in it is read");
                    refusal(
                        format!("`header:NAME` is for a header with one address, not for `{name}`"),
                        &help,
                    )
                }
                Ok(name) => Ok(ClientSource::Header(name)),
                Err(_) => refusal(
                    format!("{} lacks the name of a header", quoted(text)),
                    "write `header:NAME`, as in `header:x-real-ip`",
                ),
            },
            Some(_) => refusal(format!("{} is not a source of the client's address", quoted(text)), ALL),
        }
    })
}

fn prefix(value: &ConfigValue<'_>, longest: u32) -> Option<u8> {
    u8::try_from(value.count(0, longest)?).ok()
}

fn proxy(value: &ConfigValue<'_>) -> Option<IpNet> {
    let network = network(value)?;
    let is_mapped_ipv4 = matches!(network, IpNet::V6(v6) if v6.prefix_len() == 96
        && v6.network() == Ipv4Addr::UNSPECIFIED.to_ipv6_mapped());
    if network.prefix_len() == 0 || is_mapped_ipv4 {
        let message = format!("`{network}` believes every peer: any client can choose its own address");
        value.diagnostics().warn(value.span(), message, "list only the addresses of your proxies");
    }
    networks::warn_of_host_bits(network, value);
    Some(network)
}

fn network(value: &ConfigValue<'_>) -> Option<IpNet> {
    value.text()?.parse("a network", |text| {
        let address = || text.parse::<IpAddr>().ok().map(IpNet::from);
        text.parse().ok().or_else(address).ok_or_else(|| {
            let message = format!("{} is not a network", quoted(text));
            SyntaxError::new(message, "write an address, or a network such as `10.0.0.0/8` or `fd00::/8`")
        })
    })
}

/// `tls`: whether there are certificates.
fn listen(value: &ConfigValue<'_>, tls: bool) -> Option<Vec<Listener>> {
    if let Some(help) = value.whole_text().and_then(|number| remedies::port(number, true)) {
        return value.mismatch("a list", help);
    }
    let mut listeners: Vec<Listener> = Vec::new();
    value.some_of(|item| {
        let listener = listener(&item, tls)?;
        let address = listener.address;
        if address.port() != 0 && listeners.iter().any(|other| other.address == address) {
            item.fault(format!("the address `{address}` is listed twice"), "leave one of the two out");
        }
        listeners.push(listener);
        Some(())
    })?;
    Some(listeners)
}

fn listener(value: &ConfigValue<'_>, tls: bool) -> Option<Listener> {
    if value.is_text() {
        let address = value.text()?.parse("an address with a port", socket_address)?;
        if tls {
            tls_at_port_80(address, value);
        }
        return Some(Listener { address, tls, proxy_protocol: false });
    }
    if let Some(help) = value.whole_text().and_then(|number| remedies::port(number, false)) {
        return value.mismatch("a string or a table", help);
    }
    let mut table = value.table_beside_text("an item of `listen`")?;
    let address = table.require("address", "\"127.0.0.1:8080\"", |value| {
        value.text()?.parse("an address with a port", socket_address)
    });
    if let (Some(address), true, None) = (address, tls, table.given("tls")) {
        tls_at_port_80(address, value);
    }
    let tls = table.or("tls", tls, |value| speaks_tls(&value, tls));
    let proxy_protocol = table.or("proxy_protocol", false, |value| value.boolean());
    table.finish();
    Some(Listener { address: address?, tls, proxy_protocol })
}

/// The port of http, where a listener speaks TLS only since the file has certificates.
fn tls_at_port_80(address: SocketAddr, listener: &ConfigValue<'_>) {
    if address.port() == 80 {
        let message = format!("the listener `{address}` speaks TLS, since the file has a `[[server.tls]]`");
        let help = format!("write `{{ address = \"{address}\", tls = false }}` for plain HTTP");
        listener.diagnostics().warn(listener.span(), message, help);
    }
}

fn speaks_tls(value: &ConfigValue<'_>, certificates: bool) -> Option<bool> {
    let wanted = value.boolean()?;
    if wanted && !certificates {
        let help = "add one: `[[server.tls]]` with `cert = \"cert.pem\"` and `key = \"key.pem\"`";
        value.fault("TLS is wanted here, but there is no certificate", help);
    }
    Some(wanted)
}
