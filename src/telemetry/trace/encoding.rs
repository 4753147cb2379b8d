//! Encodes requests as an export message, by OpenTelemetry's semantic conventions for HTTP (stable, 1.23 and later).

use http::{Method, StatusCode, Version};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode as SpanStatus;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span as SpanMessage, Status};
use prost::Message as _;

use super::span::{Forwarded, RequestSpan};
use crate::limit::units::Micros;
use crate::limit::wall_clock::WallTime;
use crate::telemetry::access_log::Record;
use crate::telemetry::metrics::{DecisionLabel, SettledUnits};

/// The parent is known to be in another process (bits 8 and 9 of `flags`).
const REMOTE_PARENT: u32 = 0x300;
/// The parent is known to be in this process.
const LOCAL_PARENT: u32 = 0x100;

/// The body of an export.
pub(super) fn encode(spans: &[RequestSpan], service_name: &str) -> Vec<u8> {
    let mut resource = Attributes::default();
    resource.text("service.name", service_name);
    resource.text("service.version", env!("CARGO_PKG_VERSION"));
    let scope = InstrumentationScope {
        name: "tollgate".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..InstrumentationScope::default()
    };
    let of_request = |span| [Some(server(span)), client(span)].into_iter().flatten();
    let spans = spans.iter().flat_map(of_request).collect();
    let scope_spans = vec![ScopeSpans { scope: Some(scope), spans, ..ScopeSpans::default() }];
    let resource = Some(Resource { attributes: resource.0, ..Resource::default() });
    let resource_spans = vec![ResourceSpans { resource, scope_spans, ..ResourceSpans::default() }];
    ExportTraceServiceRequest { resource_spans }.encode_to_vec()
}

/// The span of the request itself.
fn server(span: &RequestSpan) -> SpanMessage {
    let record = &span.record;
    let mut attributes = Attributes::default();
    attributes.method(&record.request.method);
    attributes.text("url.scheme", span.scheme);
    attributes.some("url.path", &record.request.path);
    attributes.some("server.address", &record.request.host);
    attributes.text("client.address", record.client.to_string());
    attributes.text("network.protocol.version", version(record.request.version));
    attributes.some("http.route", &span.pattern);
    if record.response.error != Some("client_gone") || record.response.status.is_success() {
        // A client that left was sent no status.
        attributes.whole("http.response.status_code", record.response.status.as_u16());
    }
    attributes.some("tollgate.route", &record.route);
    attributes.some("tollgate.request_id", &record.request_id);
    attributes.limit(record, span.delay);
    let error = error(record);
    attributes.some("error.type", error.as_deref().unwrap_or_default());
    let failed = record.response.status.is_server_error()
        || record.response.error.is_some() && record.response.status.is_success();
    let parent = span.parent.map(|parent| parent.bytes().to_vec()).unwrap_or_default();
    SpanMessage {
        parent_span_id: parent,
        name: name(&record.request.method, &span.pattern),
        attributes: attributes.0,
        flags: u32::from(span.context.flags()) | REMOTE_PARENT,
        ..skeleton(
            span,
            SpanKind::Server,
            span.context.span.bytes(),
            (record.time, record.time.plus(record.duration)),
            failed,
        )
    }
}

/// The span of the request to the backend.
fn client(span: &RequestSpan) -> Option<SpanMessage> {
    let forwarded = span.forwarded.as_ref()?;
    let record = &span.record;
    let mut attributes = Attributes::default();
    attributes.method(&record.request.method);
    attributes.server(forwarded);
    attributes.text("tollgate.upstream", &*forwarded.upstream);
    if let Some(status) = forwarded.status {
        attributes.whole("http.response.status_code", status.as_u16());
    }
    if forwarded.attempts > 0 {
        attributes.whole("tollgate.attempts", forwarded.attempts);
    }
    if forwarded.attempts > 1 {
        attributes.whole("http.request.resend_count", forwarded.attempts - 1);
    }
    // For a client span, a 4xx is an error too.
    let refused = |status: StatusCode| status.is_client_error() || status.is_server_error();
    let error = match forwarded.status {
        Some(status) => refused(status).then(|| status.as_str().to_owned()),
        None => record.response.error.map(str::to_owned),
    };
    attributes.some("error.type", error.as_deref().unwrap_or_default());
    Some(SpanMessage {
        parent_span_id: span.context.span.bytes().to_vec(),
        name: name(&record.request.method, ""),
        attributes: attributes.0,
        flags: u32::from(span.context.flags()) | LOCAL_PARENT,
        ..skeleton(
            span,
            SpanKind::Client,
            forwarded.span.bytes(),
            (forwarded.since, forwarded.until),
            error.is_some(),
        )
    })
}

/// The part that both spans have in common.
fn skeleton(
    span: &RequestSpan,
    kind: SpanKind,
    id: [u8; 8],
    (since, until): (WallTime, WallTime),
    failed: bool,
) -> SpanMessage {
    let code = if failed { SpanStatus::Error } else { SpanStatus::Unset };
    SpanMessage {
        trace_id: span.context.trace.bytes().to_vec(),
        span_id: id.to_vec(),
        trace_state: span.state.clone(),
        kind: kind.into(),
        start_time_unix_nano: nanoseconds(since),
        end_time_unix_nano: nanoseconds(until.max(since)),
        status: Some(Status { message: String::new(), code: code.into() }),
        ..SpanMessage::default()
    }
}

/// Why the request failed: the gateway's own reason, or the backend's status.
fn error(record: &Record) -> Option<String> {
    let status =
        || record.response.status.is_server_error().then(|| record.response.status.as_str().to_owned());
    record.response.error.map(str::to_owned).or_else(status)
}

/// `GET /search/*`: a name with a cardinality bounded by the config file and the methods.
fn name(method: &Method, pattern: &str) -> String {
    let method = if is_usual(method) { method.as_str() } else { "HTTP" };
    if pattern.is_empty() { method.to_owned() } else { format!("{method} {pattern}") }
}

fn is_usual(method: &Method) -> bool {
    matches!(
        *method,
        Method::GET
            | Method::HEAD
            | Method::POST
            | Method::PUT
            | Method::DELETE
            | Method::CONNECT
            | Method::OPTIONS
            | Method::TRACE
            | Method::PATCH
    )
}

fn version(version: Version) -> &'static str {
    match version {
        Version::HTTP_10 => "1.0",
        Version::HTTP_2 => "2",
        Version::HTTP_3 => "3",
        _ => "1.1",
    }
}

fn nanoseconds(time: WallTime) -> u64 {
    time.0.saturating_mul(1_000)
}

/// Milliseconds, exact to the microsecond: below 2^53 a double holds the number.
#[expect(clippy::cast_precision_loss, reason = "spans lie below 2^53")]
fn milliseconds(span: Micros) -> f64 {
    span.0 as f64 / 1_000.0
}

#[derive(Default)]
struct Attributes(Vec<KeyValue>);

impl Attributes {
    fn put(&mut self, key: &str, value: Value) {
        let value = Some(AnyValue { value: Some(value) });
        self.0.push(KeyValue { key: key.to_owned(), value, ..KeyValue::default() });
    }

    fn text(&mut self, key: &str, value: impl Into<String>) {
        self.put(key, Value::StringValue(value.into()));
    }

    /// Unless it is empty.
    fn some(&mut self, key: &str, value: &str) {
        if !value.is_empty() {
            self.text(key, value);
        }
    }

    fn whole(&mut self, key: &str, value: impl TryInto<i64>) {
        self.put(key, Value::IntValue(value.try_into().unwrap_or(i64::MAX)));
    }

    /// An unknown method may be invented by a client, so it is not a value to group by.
    fn method(&mut self, method: &Method) {
        if is_usual(method) {
            return self.text("http.request.method", method.as_str());
        }
        self.text("http.request.method", "_OTHER");
        self.text("http.request.method_original", method.as_str());
    }

    /// The limits' decision.
    fn limit(&mut self, record: &Record, delay: Option<Micros>) {
        self.some("tollgate.limit", &record.decision.limit);
        self.some("tollgate.decision", record.decision.label.map_or("", DecisionLabel::as_str));
        if let Some(remaining) = record.decision.remaining {
            self.whole("tollgate.remaining", remaining);
        }
        if let Some(cost) = record.decision.cost {
            self.whole("tollgate.cost", cost);
        }
        if let Some(SettledUnits { reserved, units, result }) = record.decision.settled {
            self.whole("tollgate.reserved", reserved);
            self.whole("tollgate.settled", units);
            self.text("tollgate.settlement", result.as_str());
        }
        if let Some(delay) = delay {
            self.put("tollgate.delay_ms", Value::DoubleValue(milliseconds(delay)));
        }
    }

    /// The server, and the request to it.
    fn server(&mut self, forwarded: &Forwarded) {
        let Some(server) = &forwarded.server else { return };
        let scheme = if server.secure { "https" } else { "http" };
        self.text("server.address", &*server.host);
        // A Unix socket has none.
        if server.port > 0 {
            self.whole("server.port", server.port);
        }
        self.text("url.full", format!("{scheme}://{}{}", server.authority, forwarded.path));
    }
}
