//! `[trace]`.

use std::sync::Arc;

use http::uri::PathAndQuery;
use http::{HeaderName, header};

use super::keys::{ANY, Schema, keys, share};
use super::report::quoted;
use super::table::ConfigTable;
use super::text::SyntaxError;
use super::value::ConfigValue;
use super::{headers, service_url};
use crate::plan::log::Sample;
use crate::plan::{Endpoint, Trace};

keys! {
    /// Traces of requests, told to a collector by OTLP over HTTP. Without this table nothing is traced.
    pub(super) TRACE: TraceKeys = "[trace]" {
        /// The collector, such as "http://127.0.0.1:4318"; /v1/traces is added where there is no path. https://
        /// trusts the system's authorities.
        otlp = Schema::Text, required "\"http://127.0.0.1:4318\"";
        /// The share of requests that begin a trace here, of those that belong to none, 0 to 1.
        sample: f64 = share() => 0.01;
        /// The service.name of the spans, 1 to 256 bytes. Default "tollgate".
        service_name = Schema::Text;
        /// Fields that each export carries, such as authorization = "Bearer ${TOKEN}".
        headers = Schema::Map(ANY, &Schema::Text, &Schema::Text);
    }
}

/// The default path of a collector.
const DEFAULT_PATH: PathAndQuery = PathAndQuery::from_static("/v1/traces");
/// Bytes of `service_name`.
const MAX_NAME: usize = 256;
/// The form of a collector's URL.
const HELP: &str = "write `http://HOST:PORT` or `https://HOST:PORT`, such as `http://127.0.0.1:4318`";
/// The usual port of collectors for gRPC.
const GRPC_PORT: u16 = 4_317;

/// Reads `[trace]`. `None` if it has faults.
pub(super) fn read(mut table: ConfigTable<'_>) -> Option<Trace> {
    let collector = table.require(&TRACE.otlp, |value| collector(&value));
    let sample = Sample::new(table.value(&TRACE.sample));
    let service_name = table
        .optional(&TRACE.service_name, |value| value.text()?.parse("the name of a service", service_name));
    let headers = table
        .optional(&TRACE.headers, |value| headers::fields_with(&value, objection, headers::field_value))
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
    let url =
        value.text()?.parse("the URL of a collector", |text| service_url::parse(text, "collector", HELP))?;
    let path = url.path.clone().unwrap_or(DEFAULT_PATH);
    let server = &url.server;
    if server.port == GRPC_PORT {
        value.diagnostics().warn(
            value.span(),
            "4317 is where collectors speak gRPC, as a rule; tollgate speaks OTLP over HTTP",
            "the port for that is 4318",
        );
    }
    Some((url.trusted(value)?, path))
}

fn service_name(text: &str) -> Result<Arc<str>, SyntaxError> {
    let is_plain = !text.is_empty() && text.len() <= MAX_NAME && !text.chars().any(char::is_control);
    is_plain.then(|| Arc::from(text)).ok_or_else(|| {
        let help = format!("use 1 to {MAX_NAME} bytes without control characters");
        SyntaxError::new(format!("{} cannot be the name of a service", quoted(text)), help)
    })
}

/// Headers that an export has already.
fn objection(name: &HeaderName) -> Option<&'static str> {
    if [header::HOST, header::CONTENT_TYPE, header::CONTENT_ENCODING].contains(name) {
        return Some("leave it out: tollgate sets it");
    }
    headers::framing(name)
}
