//! `servers` of an upstream.

use crate::config::endpoint::{self, Listed, UpstreamTarget};
use crate::config::keys::{NamedSchema, Schema, count, keys};
use crate::config::report::quoted;
use crate::config::tls;
use crate::config::value::ConfigValue;
use crate::plan::{Backend, Endpoint, Protocol};

/// Maximum number of servers of one upstream.
pub(super) const MAX_SERVERS: u32 = 1_024;

keys! {
    /// A server with its weight.
    pub(super) WEIGHTED_SERVER: WeightedServerKeys = "an item of servers" {
        /// "http://HOST:PORT" (default port 80), "https://HOST:PORT" (default port 443), each with a path that
        /// stands before the requests' own; "unix:/PATH", a Unix socket; or "builtin:echo", which answers by
        /// itself.
        url = Schema::Named(&SERVER_URL), required "\"http://127.0.0.1:9001\"";
        /// Its share of the requests, 1 to 1000.
        weight: u32 = count(1, 1_000) => 1;
    }
}

/// The URL of a server, in the schema.
pub(super) static SERVER_URL: NamedSchema = NamedSchema {
    name: "server_url",
    description: "\"http://HOST:PORT\" (default port 80), \"https://HOST:PORT\" (default port 443), each with a path that stands before the requests' own; \"unix:/PATH\", a Unix socket; or \"builtin:echo\", which answers by itself.",
    schema: Schema::Matching(r"^https?://[^/?#@]+(/[^?#]*)?$|^unix:(//)?/[^ ]*[^ /]$|^builtin:echo$|\$\{"),
};

/// What `servers` names.
pub(super) enum Servers {
    Echo,
    Listed(Vec<Listed>),
}

impl Servers {
    /// Only this server.
    pub(super) fn of(target: UpstreamTarget) -> Self {
        match target {
            UpstreamTarget::Echo => Self::Echo,
            UpstreamTarget::Server(server) => Self::Listed(vec![server]),
        }
    }
}

/// The path of the servers' URLs: it is the same for all, so that a retry asks for the same.
pub(super) fn base_path(servers: &Servers, value: &ConfigValue<'_>) -> Option<Option<Box<str>>> {
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
pub(super) fn backend(
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

pub(super) fn servers(value: &ConfigValue<'_>) -> Option<Servers> {
    let items = value.list()?;
    if items.len() > MAX_SERVERS as usize {
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
    let weight = table.value(&WEIGHTED_SERVER.weight);
    let server = table.require(&WEIGHTED_SERVER.url, |value| endpoint_at(&value, weight));
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

pub(super) fn target(value: &ConfigValue<'_>) -> Option<UpstreamTarget> {
    value.text()?.parse("the URL of a server", endpoint::parse)
}
