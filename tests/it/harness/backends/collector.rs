//! A collector that takes spans by OTLP over HTTP, and decodes them by the definitions of OpenTelemetry itself.

use std::collections::BTreeMap;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
pub(crate) use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use prost::Message as _;

use crate::harness::{Backend, eventually};

/// A running collector.
#[derive(Debug)]
pub(crate) struct Collector {
    backend: Backend,
}

/// A span as the collector was told of it. Names of spans are hexadecimal.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Told {
    pub(crate) service: String,
    pub(crate) trace: String,
    pub(crate) span: String,
    /// Empty if it has none.
    pub(crate) parent: String,
    pub(crate) state: String,
    pub(crate) name: String,
    pub(crate) kind: SpanKind,
    pub(crate) since: u64,
    pub(crate) until: u64,
    pub(crate) flags: u32,
    pub(crate) failed: bool,
    pub(crate) attributes: BTreeMap<String, String>,
}

impl Collector {
    /// Takes everything.
    pub(crate) fn start() -> Self {
        Self::of(Backend::answering(
            "HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\n\r\n",
        ))
    }

    /// What this backend was sent is what the collector was told.
    pub(crate) fn of(backend: Backend) -> Self {
        Self { backend }
    }

    /// What it was sent.
    pub(crate) fn backend(&self) -> &Backend {
        &self.backend
    }

    /// The `[trace]` that leads here, with further lines.
    pub(crate) fn section(&self, rest: &str) -> String {
        format!("[trace]\notlp = \"{}\"\n{rest}\n", self.backend.url())
    }

    /// All spans so far.
    pub(crate) fn told(&self) -> Vec<Told> {
        let bodies = self.backend.requests().into_iter().map(|request| request.body);
        bodies.filter(|body| !body.is_empty()).flat_map(|body| decode(&body)).collect()
    }

    /// Waits for at least this number of spans. Returns all.
    #[track_caller]
    pub(crate) fn wait(&self, count: usize) -> Vec<Told> {
        eventually(&format!("{count} spans"), || Some(self.told()).filter(|told| told.len() >= count))
    }

    /// Waits until there are exactly this number of spans, all different.
    #[track_caller]
    pub(crate) fn exactly(&self, count: usize) -> Vec<Told> {
        let told = self.wait(count);
        assert_eq!(told.len(), count, "{told:#?}");
        told
    }
}

impl Told {
    /// An attribute; empty if there is none.
    pub(crate) fn get(&self, name: &str) -> &str {
        self.attributes.get(name).map_or("", String::as_str)
    }

    /// As a `traceparent` names it, with these flags.
    pub(crate) fn traceparent(&self, flags: &str) -> String {
        format!("00-{}-{}-{flags}", self.trace, self.span)
    }
}

/// The only span of this kind.
#[track_caller]
pub(crate) fn only(told: &[Told], kind: SpanKind) -> &Told {
    let mut found = told.iter().filter(|span| span.kind == kind);
    let only = found.next().unwrap_or_else(|| panic!("no {kind:?} among {told:#?}"));
    assert!(found.next().is_none(), "two of {kind:?} among {told:#?}");
    only
}

fn decode(body: &[u8]) -> Vec<Told> {
    let request = ExportTraceServiceRequest::decode(body).expect("it is what OTLP says");
    let mut told = Vec::new();
    for resource in request.resource_spans {
        let attributes = texts(&resource.resource.expect("a resource").attributes);
        for scope in resource.scope_spans {
            assert_eq!(scope.scope.expect("a scope").name, "tollgate");
            for span in scope.spans {
                told.push(Told {
                    service: attributes["service.name"].clone(),
                    trace: hex(&span.trace_id),
                    span: hex(&span.span_id),
                    parent: hex(&span.parent_span_id),
                    kind: span.kind(),
                    failed: span.status.as_ref().is_some_and(|status| status.code() == StatusCode::Error),
                    attributes: texts(&span.attributes),
                    state: span.trace_state,
                    name: span.name,
                    since: span.start_time_unix_nano,
                    until: span.end_time_unix_nano,
                    flags: span.flags,
                });
            }
        }
    }
    told
}

fn texts(attributes: &[KeyValue]) -> BTreeMap<String, String> {
    let text = |value: &Value| match value {
        Value::StringValue(text) => text.clone(),
        Value::IntValue(number) => number.to_string(),
        Value::DoubleValue(number) => number.to_string(),
        other => panic!("{other:?} is new here"),
    };
    let value = |attribute: &KeyValue| Some(text(attribute.value.as_ref()?.value.as_ref()?));
    let texts: BTreeMap<_, _> = attributes
        .iter()
        .map(|attribute| (attribute.key.clone(), value(attribute).expect("a value")))
        .collect();
    assert_eq!(texts.len(), attributes.len(), "an attribute stands twice: {attributes:?}");
    texts
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
