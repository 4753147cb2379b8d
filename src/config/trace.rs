//! `[trace]`.

use std::sync::Arc;

use http::uri::PathAndQuery;
use http::{HeaderName, header};

use super::endpoint::authority;
use super::report::quoted;
use super::table::ConfigTable;
use super::text::SyntaxError;
use super::value::ConfigValue;
use super::{headers, tls};
use crate::plan::log::Sample;
use crate::plan::{Endpoint, Trace};

/// A small sample shows the state of all requests; an attack must not overload the collector.
const DEFAULT_SAMPLE: f64 = 0.01;
/// The default path of a collector.
const DEFAULT_PATH: PathAndQuery = PathAndQuery::from_static("/v1/traces");
/// Bytes of `service_name`.
const MAX_NAME: usize = 256;
/// The usual port of collectors for gRPC.
const GRPC_PORT: u16 = 4_317;

/// The URL of a collector, in parts.
struct Target {
    server: Endpoint,
    secure: bool,
    path: PathAndQuery,
}

/// Reads `[trace]`. `None` if it has faults.
pub(super) fn read(mut table: ConfigTable<'_>) -> Option<Trace> {
    let collector = table.require("otlp", "\"http://127.0.0.1:4318\"", |value| collector(&value));
    let sample = table.or("sample", Sample::new(DEFAULT_SAMPLE), |value| value.share().map(Sample::new));
    let service_name =
        table.optional("service_name", |value| value.text()?.parse("the name of a service", service_name));
    let headers = table
        .optional("headers", |value| headers::fields_with(&value, objection, headers::field_value))
        .unwrap_or_default();
    table.finish().then_some(())?;
    let (collector, path) = collector?;
    let secret = headers.into_iter().map(|(name, mut value)| {
        value.set_sensitive(true);
        (name, value)
    });
    let service_name = service_name.unwrap_or_else(|| Arc::from("tollgate"));
    Some(Trace { collector, path, headers: secret.collect(), sample, service_name })
}

fn collector(value: &ConfigValue<'_>) -> Option<(Endpoint, PathAndQuery)> {
    let Target { server, secure, path } = value.text()?.parse("the URL of a collector", url)?;
    if server.port == GRPC_PORT {
        value.reader().warn(
            value.span(),
            "4317 is where collectors speak gRPC, as a rule; tollgate speaks OTLP over HTTP",
            "the port for that is 4318",
        );
    }
    let tls = if secure { Some(trust(&server, value)?) } else { None };
    Some((Endpoint { tls, ..server }, path))
}

fn trust(server: &Endpoint, value: &ConfigValue<'_>) -> Option<crate::net::TlsClientConfig> {
    let trust = tls::client(None, value, &[b"http/1.1"])?;
    if trust.name(&server.host).is_none() {
        value.fault(
            format!("no certificate can be for the name {}", quoted(&server.host)),
            "write the name that its certificate carries",
        );
        return None;
    }
    Some(trust)
}

/// Parses `http://HOST[:PORT][/PATH]`, or the same with `https`.
fn url(text: &str) -> Result<Target, SyntaxError> {
    const HELP: &str = "write `http://HOST:PORT` or `https://HOST:PORT`, such as `http://127.0.0.1:4318`";
    let secure = text.starts_with("https://");
    let (scheme, default_port) = if secure { ("https://", 443) } else { ("http://", 80) };
    let Some(rest) = text.strip_prefix(scheme) else {
        return Err(SyntaxError::new(format!("{} is not the URL of a collector", quoted(text)), HELP));
    };
    let (authority_text, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    if authority_text.contains('@') {
        // The text is not repeated: the part before the `@` may be a password.
        let help =
            "leave out what stands before the `@`, and use `headers = { authorization = \"${NAME}\" }`";
        return Err(SyntaxError::new("the URL of the collector has a user", help));
    }
    let server = authority(authority_text, default_port)?;
    let path = match path {
        "" | "/" => DEFAULT_PATH,
        path => PathAndQuery::try_from(path)
            .ok()
            .filter(|_| path.starts_with('/') && !path.contains('#'))
            .ok_or_else(|| {
                SyntaxError::new(
                    format!("{} has no good path", quoted(text)),
                    "without one, `/v1/traces` is meant",
                )
            })?,
    };
    Ok(Target { server, secure, path })
}

fn service_name(text: &str) -> Result<Arc<str>, SyntaxError> {
    let is_plain = !text.is_empty() && text.len() <= MAX_NAME && !text.chars().any(char::is_control);
    is_plain.then(|| Arc::from(text)).ok_or_else(|| {
        let help = format!("use 1 to {MAX_NAME} bytes without control characters");
        SyntaxError::new(format!("{} can not be the name of a service", quoted(text)), help)
    })
}

/// Headers that an export has already.
fn objection(name: &HeaderName) -> Option<&'static str> {
    if [header::HOST, header::CONTENT_TYPE, header::CONTENT_ENCODING].contains(name) {
        return Some("leave it out: tollgate sets it");
    }
    headers::framing(name)
}
