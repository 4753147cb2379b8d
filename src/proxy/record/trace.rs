//! Writes what is known of a traced request to its spans.

use std::sync::Arc;

use http::{Method, StatusCode};

use super::request_context::RequestContext;
use crate::limit::units::{Micros, Timestamp};
use crate::limit::wall_clock;
use crate::plan::{Backend, UpstreamIndex};
use crate::proxy::worker::tracer::RequestTrace;
use crate::telemetry::access_log::{Record, RecordedRequest};
use crate::telemetry::trace::span::{Forwarded, RequestSpan, ServerAddress, bounded, without_query};

/// The longest method that a span keeps; bytes.
const MAX_METHOD: usize = 32;

impl RequestContext {
    /// The span to be exported, if there is one.
    fn span(&mut self) -> Option<&mut RequestSpan> {
        self.log.trace.as_mut()?.span.as_deref_mut()
    }

    /// Notes how long the request is delayed by a leaky bucket.
    pub(crate) fn trace_delay(&mut self, delay: Micros) {
        if let Some(span) = self.span() {
            span.delay = Some(delay);
        }
    }

    /// Notes that the request is forwarded to an upstream, with this target.
    pub(crate) fn trace_way(&mut self, upstream: UpstreamIndex, target: &str, since: Timestamp) {
        if !self.log.trace.as_ref().is_some_and(RequestTrace::is_recorded) {
            return;
        }
        let upstream = self.plan.upstream(upstream);
        // The built-in echo is not a backend.
        if upstream.backend == Backend::Echo {
            return;
        }
        let since = wall_clock::system().wall_time(since);
        let forwarded = Forwarded {
            span: self.worker.tracer.span_id(),
            upstream: Arc::clone(&upstream.name),
            server: None,
            path: without_query(target).to_owned(),
            since,
            until: since,
            status: None,
            attempts: 0,
        };
        if let Some(span) = self.span() {
            span.forwarded = Some(forwarded);
        }
    }

    /// Notes the server tried last, the number of attempts, the response's status and its time. Without a server, no
    /// attempt was made.
    pub(crate) fn trace_answer(
        &mut self,
        upstream: UpstreamIndex,
        authority: Option<&Arc<str>>,
        attempts: u32,
        status: Option<StatusCode>,
    ) {
        if !self.log.trace.as_ref().is_some_and(RequestTrace::is_recorded) {
            return;
        }
        let now = wall_clock::system().wall_time(self.worker.shared.clock.now());
        let endpoints = self.plan.upstream(upstream).endpoints();
        let server = endpoints.iter().find(|endpoint| Some(&endpoint.authority) == authority);
        let server = server.map(|endpoint| ServerAddress {
            host: endpoint.host.clone(),
            port: endpoint.port,
            authority: endpoint.host_field().into(),
            secure: endpoint.tls.is_some(),
        });
        let Some(span) = self.span() else { return };
        if server.is_none() {
            span.forwarded = None;
        }
        if let Some(way) = &mut span.forwarded {
            (way.server, way.attempts, way.status, way.until) = (server, attempts, status, now);
        }
    }

    /// Ends the spans and hands them to the exporter, with the data of the access record.
    pub(crate) fn end_trace(&mut self, record: &Record) {
        let Some(mut span) = self.log.trace.take().and_then(|traced| traced.span) else { return };
        span.record = kept(record);
        if let Some(route) = self.route {
            span.pattern = self.plan.route(route).conditions.path.to_string();
        }
        let end = record.time.plus(record.duration);
        if let Some(way) = &mut span.forwarded
            && way.server.is_none()
        {
            // The client left before a server was chosen.
            way.until = end;
        }
        self.worker.shared.spans.record(span);
    }
}

/// The part of a record that a span keeps; a record may be long.
fn kept(record: &Record) -> Record {
    let name = record.request.method.as_str().as_bytes();
    let method = name.get(..MAX_METHOD).and_then(|start| Method::from_bytes(start).ok());
    Record {
        request: RecordedRequest {
            method: method.unwrap_or_else(|| record.request.method.clone()),
            path: without_query(&record.request.path).to_owned(),
            host: bounded(&record.request.host).to_owned(),
            referer: Vec::new(),
            user_agent: Vec::new(),
            ..record.request
        },
        request_id: bounded(&record.request_id).to_owned(),
        ..record.clone()
    }
}
