//! `health` of an upstream: how its servers are asked whether they are well.

use std::time::Duration;

use http::{HeaderName, HeaderValue, Method, header};

use super::failures::{MAX_IN_A_ROW, statuses};
use super::host;
use crate::config::headers;
use crate::config::keys::{SOME, Schema, choice, count, duration, keys};
use crate::config::report::{SourceSpan, quoted};
use crate::config::table::ConfigTable;
use crate::config::text::SyntaxError;
use crate::config::value::ConfigValue;
use crate::labels::labels;
use crate::plan::health_check::{GrpcProbe, HealthCheck, HttpProbe, Probe};
use crate::plan::{Backend, Protocol, StatusSet};

labels! {
    /// The values of `type`.
    pub(super) enum CheckType {
        Http = "http",
        Tcp = "tcp",
        Grpc = "grpc",
    }
}

/// Bytes of a check's path.
const MAX_PATH: usize = 1_024;
/// Bytes of the name of a gRPC service.
const MAX_SERVICE: usize = 256;
/// The beginning of the paths of the gRPC health service.
const GRPC_HEALTH: &str = "/grpc.health.v1.Health/";

keys! {
    /// How servers are asked whether they are well, each on a connection of its own. Default: they are not asked.
    pub(super) HEALTH: HealthKeys = "health" {
        /// What is asked. http: a request for `path`, in the `protocol` of the upstream. tcp: a connection, with the
        /// handshake of TLS to servers with https://. grpc: grpc.health.v1.Health/Check, which needs protocol =
        /// "http2".
        kind as "type": CheckType = choice(&CheckType::WORDS) => CheckType::Http;
        /// type = "http": path and query, up to 1024 bytes, as they are sent.
        path = Schema::Name, example "\"/healthz\"";
        /// type = "http": the method of the request. Default "GET".
        method = Schema::Name;
        /// type = "http": the statuses of good answers, 200 to 599, "2xx" to "5xx". A redirect is not followed. Default
        /// ["2xx", "3xx"].
        statuses = Schema::List(SOME, &Schema::Either(&[Schema::Text, Schema::Whole(200, 599)]));
        /// Not with type = "tcp": further headers, such as authorization = "Bearer ${TOKEN}".
        headers = Schema::Named(&headers::FIELDS);
        /// Not with type = "tcp": the Host of the check. Default: that of the upstream, else the server's own. SNI is
        /// that of requests.
        host = Schema::Name;
        /// The port of each server that is asked. Default: the server's own.
        port: u16 = count(1, 65_535);
        /// type = "grpc": the service that is asked about, up to 256 bytes. Default: the server as a whole.
        service = Schema::Name;
        /// From one check to the next.
        interval: Duration = duration() => Duration::from_secs(5);
        /// From connecting to the end of the check: the head of the answer, of gRPC the whole answer.
        timeout: Duration = duration() => Duration::from_secs(1);
        /// Good answers in a row that make a server healthy again, 1 to 10^6.
        healthy: u32 = count(1, MAX_IN_A_ROW) => 2;
        /// Bad answers in a row that make it unhealthy, 1 to 10^6.
        unhealthy: u32 = count(1, MAX_IN_A_ROW) => 3;
    }
}

/// Reads `health` of an upstream with this protocol and these servers, as far as they are known.
pub(super) fn read(
    value: &ConfigValue<'_>,
    protocol: Option<Protocol>,
    backend: Option<&Backend>,
) -> Option<HealthCheck> {
    is_table(value)?;
    let mut table = value.table("`health`")?;
    let kind = table.value(&HEALTH.kind);
    let probe = if table.is_uncertain(HEALTH.kind.name) {
        table.skip(&["path", "method", "statuses", "headers", "host", "service"]);
        None
    } else {
        probe(&mut table, kind, protocol)
    };
    let port = table.get(&HEALTH.port);
    if let Some(span) = table.given(HEALTH.port.name)
        && let Some(Backend::Servers(servers)) = backend
        && let Some(socket) = servers.iter().find(|server| server.unix_socket.is_some())
    {
        let message = format!("`port` has no effect on the Unix socket {}", quoted(&socket.authority));
        table.diagnostics().fault(span, message, "leave it out, or make the socket an upstream of its own");
    }
    let interval = table.value(&HEALTH.interval);
    let timeout = table.value(&HEALTH.timeout);
    let healthy = table.value(&HEALTH.healthy);
    let unhealthy = table.value(&HEALTH.unhealthy);
    table.finish();
    Some(HealthCheck { probe: probe?, port, interval, timeout, healthy, unhealthy })
}

/// Reports what is written in place of the table, with the table that is meant.
fn is_table(value: &ConfigValue<'_>) -> Option<()> {
    let path = value.written().filter(|text| path(text).is_ok() && !text.contains(['"', '$']));
    let help = match (value.written(), value.written_boolean()) {
        (Some(_), _) => format!("write `health = {{ path = \"{}\" }}`", path.unwrap_or("/healthz")),
        (_, Some(true)) => "write `health = { path = \"/healthz\" }` with a path of the servers".to_owned(),
        (_, Some(false)) => "leave it out: servers are not asked without `health`".to_owned(),
        _ => return Some(()),
    };
    value.mismatch("a table", help)
}

/// What is asked, by the keys that go with the type.
fn probe(table: &mut ConfigTable<'_>, kind: CheckType, protocol: Option<Protocol>) -> Option<Probe> {
    let is_of_http = kind == CheckType::Http;
    for key in ["path", "method", "statuses"].into_iter().filter(|_| !is_of_http) {
        misplaced(table, key, kind);
    }
    for key in ["headers", "host"].into_iter().filter(|_| kind == CheckType::Tcp) {
        misplaced(table, key, kind);
    }
    if kind != CheckType::Grpc {
        misplaced(table, "service", kind);
    }
    match kind {
        CheckType::Tcp => Some(Probe::Tcp),
        CheckType::Http => {
            let place = table.given_value(HEALTH.path.name);
            let path = table.require(&HEALTH.path, |value| value.text()?.parse("a path", path));
            advise_grpc(table, place, path.as_deref());
            let method =
                table.or(&HEALTH.method, Method::GET, |value| value.text()?.parse("a method", method));
            let default = StatusSet::of_classes(2..=3);
            let statuses = table.or(&HEALTH.statuses, default, |value| statuses(&value, 200));
            let (host, headers) = (host_of(table), headers_of(table, of_request));
            Some(Probe::Http(Box::new(HttpProbe { method, path: path?, host, headers, statuses })))
        }
        CheckType::Grpc => {
            if protocol == Some(Protocol::Http1) {
                let span = table.given_value(HEALTH.kind.name).unwrap_or(table.span());
                let help = "add `protocol = \"http2\"` to the upstream";
                table.diagnostics().fault(span, "gRPC checks need an upstream that speaks HTTP/2", help);
            }
            let service = table.optional(&HEALTH.service, |value| value.text()?.parse("a service", service));
            let (host, headers) = (host_of(table), headers_of(table, of_call));
            let service = service.unwrap_or_default();
            Some(Probe::Grpc(Box::new(GrpcProbe { service, host, headers })))
        }
    }
}

/// A key that says nothing about a check of this type.
fn misplaced(table: &mut ConfigTable<'_>, key: &'static str, kind: CheckType) {
    let help = match (key, kind) {
        ("path", CheckType::Grpc) => {
            "leave it out: gRPC servers are asked at `/grpc.health.v1.Health/Check`; `service` names a service"
        }
        ("service", _) => "leave it out, or write `type = \"grpc\"`",
        _ => "leave it out, or write another `type`",
    };
    if let Some(span) = table.given(key) {
        let message = format!("`{key}` has no effect with `type = \"{}\"`", kind.as_str());
        table.diagnostics().fault(span, message, help);
    }
    table.skip(&[key]);
}

fn host_of(table: &mut ConfigTable<'_>) -> Option<HeaderValue> {
    table.optional(&HEALTH.host, |value| value.text()?.parse("a host", host))
}

fn headers_of(table: &mut ConfigTable<'_>, rule: headers::HeaderRule) -> Vec<(HeaderName, HeaderValue)> {
    let fields = table
        .optional(&HEALTH.headers, |value| headers::fields_with(&value, rule, headers::field_value))
        .unwrap_or_default();
    let secret = |(name, mut value): (HeaderName, HeaderValue)| {
        value.set_sensitive(true);
        (name, value)
    };
    fields.into_iter().map(secret).collect()
}

/// For headers of a check.
fn of_request(name: &HeaderName) -> Option<&'static str> {
    if name == header::HOST {
        return Some("use `host` beside `headers`");
    }
    if name == header::EXPECT {
        return Some("leave it out: a check has no body");
    }
    headers::framing_or_host(name)
}

/// For the metadata of a gRPC check.
fn of_call(name: &HeaderName) -> Option<&'static str> {
    if name == header::CONTENT_TYPE || name.as_str().starts_with("grpc-") {
        return Some("leave it out: tollgate sets it");
    }
    of_request(name)
}

/// Warns of a `GET` of the path at which gRPC servers have their health service: they report it as an error.
fn advise_grpc(table: &ConfigTable<'_>, place: Option<SourceSpan>, path: Option<&str>) {
    if path.is_some_and(|path| path.starts_with(GRPC_HEALTH)) {
        let message = "a check of this type is not a gRPC call: the gRPC health service does not answer it";
        let help = "write `type = \"grpc\"` in place of `path`";
        table.diagnostics().warn(place.unwrap_or(table.span()), message, help);
    }
}

fn method(text: &str) -> Result<Method, SyntaxError> {
    let upper = text.to_ascii_uppercase();
    let is_possible = !["CONNECT", "TRACE"].contains(&upper.as_str());
    let parsed = Method::from_bytes(text.as_bytes()).ok().filter(|_| is_possible);
    parsed.filter(|_| upper == text).ok_or_else(|| {
        let help = match Method::from_bytes(upper.as_bytes()) {
            Ok(upper) if is_possible => format!("methods are upper case: {}", quoted(upper.as_str())),
            _ => "write a method such as `GET`, `HEAD` or `OPTIONS`".to_owned(),
        };
        SyntaxError::new(format!("{} cannot be the method of a health check", quoted(text)), help)
    })
}

fn path(text: &str) -> Result<Box<str>, SyntaxError> {
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

fn service(text: &str) -> Result<Box<str>, SyntaxError> {
    let visible = text.bytes().all(|byte| byte.is_ascii_graphic());
    if !text.is_empty() && visible && text.len() <= MAX_SERVICE {
        return Ok(text.into());
    }
    let message = format!("{} is not the name of a gRPC service", quoted(text));
    Err(SyntaxError::new(message, format!("write up to {MAX_SERVICE} bytes, such as `helloworld.Greeter`")))
}
