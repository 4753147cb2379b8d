//! `[server]`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use http::HeaderName;
use ipnet::IpNet;
use rustls::ServerConfig;

use super::acme::AcmeDraft;
use super::headers::{self, FIELDS};
use super::keys::{ANY, NamedSchema, SOME, Schema, choice, count, duration, flag, keys, size};
use super::report::{SourceSpan, quoted};
use super::set_names::USE;
use super::table::ConfigTable;
use super::text::SyntaxError;
use super::value::ConfigValue;
use super::{compress, geo, name, networks, remedies, templates, tls};
use crate::plan::compression::Compression;
use crate::plan::template::HeaderTemplate;
use crate::plan::{Listener, ListenerRole, RatelimitHeaders, RatelimitPolicies, RequestIds, Server};
use crate::route::client::{ClientRule, ClientSource};
use crate::route::path::{EncodedDots, PathMatching};

keys! {
    /// How clients are served.
    pub(super) SERVER: ServerKeys = "[server]" {
        /// Limits of every route, before its own, by name. Default: none.
        limits = Schema::List(ANY, &Schema::Text);
        /// Limits of the new connections of a client, by name: a connection over one is closed. Their key is "ip".
        /// Default: none.
        connection_limits = Schema::List(ANY, &Schema::Text);
        /// Addresses to listen on, at least one. Default ["127.0.0.1:8080"]. Port 0 picks a free port and logs it.
        listen = Schema::List(SOME, &Schema::Either(&[Schema::Named(&ADDRESS), Schema::Table(&LISTENER)]));
        /// Certificates for clients. The first is the default: for clients that send no server name, or one that no
        /// certificate covers.
        tls = Schema::List(SOME, &Schema::Table(&tls::server::SERVER_CERTIFICATE));
        /// Threads that serve requests, 1 to 1024. Default: the CPUs that this process may use.
        workers: usize = count(1, 1_024);
        /// Addresses and networks of proxies that are believed about their clients' addresses. Default: none.
        trusted_proxies = Schema::List(ANY, &Schema::Text);
        /// Where trusted_proxies name the client: x-forwarded-for (the default), forwarded, header:NAME (one
        /// address), or peer (nowhere: the peer is the client).
        client_ip = Schema::Matching(r"^(x-forwarded-for|forwarded|peer|header:.+|.*\$\{.*)$");
        /// Prefix length by which IPv4 clients are told apart, 0 to 32.
        ipv4_prefix: u8 = count(0, 32) => 32;
        /// Prefix length by which IPv6 clients are told apart, 0 to 128.
        ipv6_prefix: u8 = count(0, 128) => 64;
        /// Files with the countries and autonomous systems of addresses. Default: none.
        geo = Schema::Table(&geo::GEO);
        /// Connections from clients at one time, 1 to 10000000.
        max_connections: usize = count(1, MAX_CONNECTIONS) => 10_000;
        /// Connections from one client at one time, 1 to 10000000; trusted proxies have no bound. Default: none.
        max_connections_per_client: usize = count(1, MAX_CONNECTIONS);
        /// The largest request head, 1KiB to 1MiB; a larger one is answered 431.
        max_header_bytes: usize = size(1 << 10, 1 << 20) => 32 << 10;
        /// Bytes that all requests hold together before they are decided, 1MiB to 64GiB. Over it, the client
        /// network that holds most loses its newest request: 503.
        max_buffered: usize = size(1 << 20, 64 << 30) => 64 << 20;
        /// The largest request body; a larger one is answered 413. 0: no bound. A route may have its own.
        max_body_bytes: u64 = size(0, MAX_SIZE) => 10 << 20;
        /// Which responses of upstreams are compressed, and how. A route may have its own. Default: none.
        compress = compress::EITHER;
        /// From the first byte of a request head to its last; then 408.
        header_timeout: Duration = duration() => Duration::from_secs(10);
        /// Silence inside a request body; then 408.
        body_timeout: Duration = duration() => Duration::from_secs(10);
        /// How long a connection without a request is kept.
        idle_timeout: Duration = duration() => Duration::from_secs(60);
        /// How long a client may acknowledge no byte of its answer; then its connection is reset.
        write_timeout: Duration = duration() => Duration::from_secs(30);
        /// How long requests may go on after SIGTERM.
        drain_timeout: Duration = duration() => Duration::from_secs(30);
        /// Which fields tell clients what is left: `ratelimit` (standard), `x-ratelimit-*` (legacy).
        ratelimit_headers: RatelimitHeaders = choice(&RatelimitHeaders::WORDS) => RatelimitHeaders::Both;
        /// The limits that `ratelimit` and `ratelimit-policy` list: the one with the least left (tightest), or
        /// every enforced one (all).
        ratelimit_policies: RatelimitPolicies = choice(&RatelimitPolicies::WORDS) => RatelimitPolicies::Tightest;
        /// Requests that one client connection serves before it is closed, up to 1000000000; 0: no bound.
        max_requests_per_connection: u64 = count(0, 1_000_000_000) => 0;
        /// How long a client connection serves new requests, less up to 10 %; then `connection: close`, or GOAWAY.
        max_connection_age: Duration = duration() => Duration::from_secs(3600);
        /// How the paths of routes are compared with those of requests. Lenient: without letter case,
        /// without one trailing slash, and without `;…` in a segment. Strict: byte for byte, once normalised.
        path_matching: PathMatching = choice(&PATH_MATCHING) => PathMatching::Lenient;
        /// Paths with a dot segment for backends that decode `%2F` and `%5C` or drop `;…` first, such as
        /// `/a/..%2Fb` and `/a/..;/b`: 400 (reject), or forwarded as spelled (pass).
        encoded_dots: EncodedDots = choice(&ENCODED_DOTS) => EncodedDots::Reject;
        /// Which answers carry `x-request-id`: those that tollgate makes itself (own), all, or none (off).
        request_id: RequestIds = choice(&REQUEST_IDS) => RequestIds::Own;
        /// Whether `via` is appended to requests; it makes some backends stop compressing.
        via: bool = flag() => false;
        /// Fields that every answer has, those of the gateway itself included: fixed values, such as
        /// strict-transport-security. The edits of a route win in what its upstream answers. Default: none.
        set_response_headers = Schema::Named(&FIELDS);
        + USE;
        + networks::ADDRESS_RULES;
    }
}

keys! {
    /// An address with its settings.
    pub(super) LISTENER: ListenerKeys = "an item of listen" {
        /// What routes call it in `listeners`, none twice. Default: none.
        name = Schema::TextUpTo(256);
        /// An IP address with a port: "127.0.0.1:8080", "[::1]:8080".
        address = Schema::Named(&ADDRESS), required "\"127.0.0.1:8080\"";
        /// Whether clients speak TLS here. Default: whether there is a [[server.tls]].
        tls: bool = flag();
        /// Whether clients speak HTTP/3 here, too, over QUIC on the UDP port of the same number. Needs TLS.
        http3: bool = flag() => false;
        /// Whether trusted proxies say, by PROXY protocol version 1 or 2, whose connection it is; all others are
        /// closed.
        proxy_protocol: bool = flag() => false;
    }
}

/// An address to listen on, in the schema.
pub(super) static ADDRESS: NamedSchema = NamedSchema {
    name: "address",
    description: "An IP address with a port: \"127.0.0.1:8080\", \"[::1]:8080\".",
    schema: Schema::Matching(r"^([0-9.]+|\[[0-9A-Fa-f:.%]+\]):[0-9]+$|\$\{"),
};

/// The name of the section in messages.
pub(super) const TITLE: &str = "`[server]`";
/// The default address to listen on.
pub const DEFAULT_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8080);
/// More than any kernel holds descriptors for.
const MAX_CONNECTIONS: u64 = 10_000_000;
/// The largest bound on a body.
pub(super) const MAX_SIZE: u64 = i64::MAX.unsigned_abs();

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
    /// `compress` that routes inherit.
    pub(super) compression: Option<Arc<Compression>>,
    /// `limits`, whose names are known later.
    pub(super) limits: Option<ConfigValue<'a>>,
    /// `connection_limits`, likewise.
    pub(super) connection_limits: Option<ConfigValue<'a>>,
    /// The place of `geo`.
    pub(super) geo_place: Option<SourceSpan>,
    /// Whether a `[[server.tls]]` has `acme`.
    pub(super) names_acme: bool,
    /// Whether all `[[server.tls]]` could be read.
    pub(super) server_is_sound: bool,
}

/// Reads `[server]`.
pub(super) fn read<'a>(mut table: ConfigTable<'a>, acme: Option<&AcmeDraft>) -> ServerDraft<'a> {
    let limits = table.take(&SERVER.limits);
    let connection_limits = table.take(&SERVER.connection_limits);
    let geo_place = table.given(SERVER.geo.name);
    let certificates = table.take(&SERVER.tls);
    let tls = certificates.is_some();
    let default_listen = vec![traffic(DEFAULT_ADDRESS, tls)];
    let max_body_bytes = body_bound(table.value(&SERVER.max_body_bytes));
    let compression = table.optional(&SERVER.compress, |value| compress::read(&value)).flatten();
    let server = Server {
        listen: table.or(&SERVER.listen, default_listen, |value| listen(&value, tls)),
        tls: certificates.as_ref().and_then(|value| tls::server::read(value, acme)),
        workers: table.get(&SERVER.workers).unwrap_or_else(available_cpus),
        client: client_rule(&mut table),
        path_matching: table.value(&SERVER.path_matching),
        encoded_dots: table.value(&SERVER.encoded_dots),
        max_connections: table.value(&SERVER.max_connections),
        max_connections_per_client: table.get(&SERVER.max_connections_per_client),
        max_header_bytes: table.value(&SERVER.max_header_bytes),
        max_buffered: table.value(&SERVER.max_buffered),
        header_timeout: table.value(&SERVER.header_timeout),
        body_timeout: table.value(&SERVER.body_timeout),
        idle_timeout: table.value(&SERVER.idle_timeout),
        write_timeout: table.value(&SERVER.write_timeout),
        max_requests_per_connection: Some(table.value(&SERVER.max_requests_per_connection))
            .filter(|bound| *bound > 0),
        max_connection_age: table.value(&SERVER.max_connection_age),
        drain_timeout: table.value(&SERVER.drain_timeout),
        ratelimit_headers: table.value(&SERVER.ratelimit_headers),
        ratelimit_policies: table.value(&SERVER.ratelimit_policies),
        request_id: table.value(&SERVER.request_id),
        via: table.value(&SERVER.via),
        response_headers: table.or(&SERVER.set_response_headers, Vec::new(), |value| {
            headers::fields_with(&value, headers::framing_or_own, fixed_value)
        }),
        addresses: networks::rules(&mut table),
    };
    // The routes are their sets and themselves already.
    table.skip(&[USE.sets.name]);
    check_listeners(&table, &server, certificates);
    check_fields(&table, &server);
    table.finish();
    let names_acme = server.tls.as_ref().is_some_and(|tls| tls.acme().next().is_some());
    let server_is_sound = server.tls.is_some() == tls;
    let compression = compression.map(Arc::new);
    ServerDraft {
        server,
        max_body_bytes,
        compression,
        limits,
        connection_limits,
        geo_place,
        names_acme,
        server_is_sound,
    }
}

/// Reports listeners that serve no client, and certificates that no listener shows.
fn check_listeners(table: &ConfigTable<'_>, server: &Server, certificates: Option<ConfigValue<'_>>) {
    if let Some(certificates) = certificates
        && !server.listen.iter().any(|listener| listener.tls)
        && !table.is_uncertain(SERVER.listen.name)
    {
        let help = "leave `tls = false` out of an item of `listen`, or leave the certificates out";
        table.diagnostics().warn(certificates.span(), "no listener speaks TLS", help);
    }
    if let Some(listen) = table.given(SERVER.listen.name)
        && server.listen.iter().any(|listener| listener.http3)
        && server.tls.as_ref().is_some_and(|tls| !speaks_tls13(&tls.config))
    {
        table.diagnostics().fault(
            listen,
            "`http3` needs TLS 1.3, and `ciphers` of `[[server.tls]]` has no suite of it",
            "add `TLS_AES_128_GCM_SHA256` to `ciphers`, or leave `http3` out",
        );
    }
    let proxied = server.listen.iter().any(|listener| listener.proxy_protocol);
    if proxied && server.client.trusted_proxies.is_empty() && !table.is_uncertain("trusted_proxies") {
        let message =
            "`proxy_protocol` is `true`, but `trusted_proxies` is empty: all connections would be closed";
        table.diagnostics().fault(table.span(), message, "list the proxies in `trusted_proxies`");
    }
}

fn speaks_tls13(tls: &ServerConfig) -> bool {
    tls.crypto_provider().cipher_suites.iter().any(|suite| suite.tls13().is_some())
}

/// Warns of a rule for fields that no response has.
fn check_fields(table: &ConfigTable<'_>, server: &Server) {
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
}

/// A value for all answers: some of them are written before a request is read.
fn fixed_value(value: &ConfigValue<'_>) -> Option<HeaderTemplate> {
    let template = templates::header(value)?;
    if template.has_values() {
        value.fault(
            "an answer without a request has no values of it",
            "write a fixed value, or this header in `set_response_headers` of routes",
        );
        return None;
    }
    Some(template)
}

/// A bound on bodies: `None` (no bound) for 0.
pub(super) fn body_bound(bytes: u64) -> Option<u64> {
    Some(bytes).filter(|bytes| *bytes > 0)
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

fn client_rule(table: &mut ConfigTable<'_>) -> ClientRule {
    let trusted_proxies =
        table.or(&SERVER.trusted_proxies, Vec::new(), |value| value.each(|item| proxy(&item)));
    let source = table.take(&SERVER.client_ip);
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
        ipv4_prefix: table.value(&SERVER.ipv4_prefix),
        ipv6_prefix: table.value(&SERVER.ipv6_prefix),
        locations: table.optional(&SERVER.geo, |value| geo::read(&value)).map(Arc::new),
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
        if listener.name.is_some() && listeners.iter().any(|other| other.name == listener.name) {
            item.fault("two listeners have one name", "give each a name of its own");
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
        return Some(traffic(address, tls));
    }
    if let Some(help) = value.whole_text().and_then(|number| remedies::port(number, false)) {
        return value.mismatch("a string or a table", help);
    }
    let mut table = value.table_beside_text("an item of `listen`")?;
    let address = table
        .require(&LISTENER.address, |value| value.text()?.parse("an address with a port", socket_address));
    if let (Some(address), true, None) = (address, tls, table.given(LISTENER.tls.name)) {
        tls_at_port_80(address, value);
    }
    let tls = table.or(&LISTENER.tls, tls, |value| speaks_tls(&value, tls));
    let proxy_protocol = table.value(&LISTENER.proxy_protocol);
    let http3 = table.optional(&LISTENER.http3, |value| speaks_http3(&value, (tls, proxy_protocol)));
    let name = table.optional(&LISTENER.name, |value| {
        let text = value.text()?;
        name::check_label(text.as_str(), text.span(), text.diagnostics());
        Some(text.into_string().into())
    });
    table.finish();
    let http3 = http3.unwrap_or_default();
    Some(Listener { name, http3, proxy_protocol, ..traffic(address?, tls) })
}

/// A listener for requests of clients.
fn traffic(address: SocketAddr, tls: bool) -> Listener {
    Listener { name: None, address, tls, http3: false, proxy_protocol: false, role: ListenerRole::Traffic }
}

/// `http3` of a listener. Reports one that has no TLS, or that is reached through proxies that speak TCP.
fn speaks_http3(value: &ConfigValue<'_>, (tls, proxy_protocol): (bool, bool)) -> Option<bool> {
    let wanted = value.boolean()?;
    let fault = match (tls, proxy_protocol) {
        _ if !wanted => return Some(false),
        _ if !cfg!(feature = "http3") => {
            ("this build of tollgate has no HTTP/3", "build it with the feature `http3`")
        }
        (false, _) => (
            "`http3` needs TLS, which this listener does not speak",
            "QUIC is always encrypted: add a certificate as `[[server.tls]]`, and leave `tls = false` out",
        ),
        (true, true) => (
            "`http3` does not go together with `proxy_protocol`",
            "a PROXY protocol header belongs to TCP: give HTTP/3 a listener of its own",
        ),
        (true, false) => return Some(true),
    };
    value.fault(fault.0, fault.1);
    None
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
