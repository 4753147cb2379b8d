//! The record of a request, in parts.

use std::net::{IpAddr, Ipv4Addr};

use http::{Method, StatusCode, Version};

use super::captured_headers::CapturedHeaders;
use crate::limit::units::Micros;
use crate::limit::wall_clock::WallTime;
use crate::telemetry::metrics::{DecisionLabel, SettledUnits};
use crate::telemetry::trace::context::TraceId;

/// The record of one completed request. Empty or `None`: unknown, or not applicable. Its texts are strings so that an
/// unlogged record can be reused with their memory.
#[derive(Clone, Debug)]
pub struct Record {
    /// When the request head was complete.
    pub time: WallTime,
    /// From the request head to the end of the response.
    pub duration: Micros,
    /// The client as identified.
    pub client: IpAddr,
    /// `x-request-id`.
    pub request_id: String,
    /// The trace that the request belongs to, if requests are traced.
    pub trace_id: Option<TraceId>,
    /// The matched route's name.
    pub route: String,
    /// What the client sent.
    pub request: RecordedRequest,
    /// What the client was sent.
    pub response: RecordedResponse,
    /// The backend that responded.
    pub upstream: RecordedUpstream,
    /// The consumer that its credential named.
    pub consumer: RecordedConsumer,
    /// What the limits decided.
    pub decision: RecordedDecision,
    /// The headers without a field of their own that the log names, of request and response.
    pub headers: CapturedHeaders,
}

/// The request as the client sent it.
#[derive(Clone, Debug, Default)]
pub struct RecordedRequest {
    /// The method as sent.
    pub method: Method,
    /// The protocol version.
    pub version: Version,
    /// The host as routed.
    pub host: String,
    /// Path and query as sent.
    pub path: String,
    /// Body bytes received.
    pub bytes_in: u64,
    /// `referer`, if the log names it.
    pub referer: Vec<u8>,
    /// `user-agent`, if the log names it.
    pub user_agent: Vec<u8>,
}

/// The response as the client got it.
#[derive(Clone, Copy, Debug, Default)]
pub struct RecordedResponse {
    /// Its status.
    pub status: StatusCode,
    /// Body bytes sent.
    pub bytes_out: u64,
    /// Why tollgate itself responded, as one word: `connect`, `timeout`, …
    pub error: Option<&'static str>,
}

/// The last server that was asked.
#[derive(Clone, Debug, Default)]
pub struct RecordedUpstream {
    /// `NAME/HOST:PORT`.
    pub server: String,
    /// The time until its response head.
    pub duration: Option<Micros>,
}

/// A consumer of the file.
#[derive(Clone, Debug, Default)]
pub struct RecordedConsumer {
    /// Its name.
    pub name: String,
    /// Its tier.
    pub tier: String,
}

/// The decision of the limits.
#[derive(Clone, Debug, Default)]
pub struct RecordedDecision {
    /// The limit that decided: the one that refused, or the binding one.
    pub limit: String,
    /// Its decision.
    pub label: Option<DecisionLabel>,
    /// The remaining units of that limit.
    pub remaining: Option<u64>,
    /// The request's cost for that limit.
    pub cost: Option<u32>,
    /// The units reserved and settled, if the cost was settled after the response.
    pub settled: Option<SettledUnits>,
    /// The masked key of that limit, in the form of [`Key::write_label`](crate::route::key::Key::write_label), if the log
    /// names it.
    pub key: String,
    /// The limits in shadow that would have refused the request, joined by commas.
    pub shadow: String,
}

impl Default for Record {
    /// An empty `GET`, answered with 200.
    fn default() -> Self {
        Self {
            time: WallTime(0),
            duration: Micros(0),
            client: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            request_id: String::new(),
            trace_id: None,
            route: String::new(),
            request: RecordedRequest::default(),
            response: RecordedResponse::default(),
            upstream: RecordedUpstream::default(),
            consumer: RecordedConsumer::default(),
            decision: RecordedDecision::default(),
            headers: CapturedHeaders::default(),
        }
    }
}

impl Record {
    /// A default record with the memory of this one's texts.
    #[must_use]
    pub fn emptied(self) -> Self {
        let Self { request_id, route, request, upstream, consumer, decision, mut headers, .. } = self;
        let RecordedRequest { host, path, referer, user_agent, .. } = request;
        let RecordedDecision { limit, key, shadow, .. } = decision;
        headers.clear();
        Self {
            request_id: emptied(request_id),
            route: emptied(route),
            request: RecordedRequest {
                host: emptied(host),
                path: emptied(path),
                referer: emptied_bytes(referer),
                user_agent: emptied_bytes(user_agent),
                ..RecordedRequest::default()
            },
            upstream: RecordedUpstream { server: emptied(upstream.server), duration: None },
            consumer: RecordedConsumer { name: emptied(consumer.name), tier: emptied(consumer.tier) },
            decision: RecordedDecision {
                limit: emptied(limit),
                key: emptied(key),
                shadow: emptied(shadow),
                ..RecordedDecision::default()
            },
            headers,
            ..Self::default()
        }
    }

    /// Whether the request is logged even if only a sample is: a limit's decision other than "allowed", also in shadow, a
    /// response of tollgate itself or a truncated one, or a 5xx.
    pub fn is_notable(&self) -> bool {
        let Self { decision, response, .. } = self;
        let let_through = matches!(decision.label, None | Some(DecisionLabel::Allowed));
        !let_through
            || response.error.is_some()
            || response.status.is_server_error()
            || !decision.shadow.is_empty()
    }
}

fn emptied(mut text: String) -> String {
    text.clear();
    text
}

fn emptied_bytes(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.clear();
    bytes
}
