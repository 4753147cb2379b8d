//! The spans of one request: one of the request itself, and one of its exchange with a backend.

use std::sync::Arc;

use http::StatusCode;

use super::context::{Context, SpanId};
use crate::limit::units::Micros;
use crate::limit::wall_clock::WallTime;
use crate::plan::Trace;
use crate::telemetry::access_log::Record;

/// The maximum length of a client's text in a span; bytes.
const MAX_TEXT: usize = 1 << 10;

/// One traced request.
#[derive(Clone, Debug)]
pub struct RequestSpan {
    /// The `[trace]` section of the request's plan: the destination of the spans.
    pub trace: Arc<Trace>,
    /// The request's own span.
    pub context: Context,
    /// The parent span.
    pub parent: Option<SpanId>,
    /// `tracestate` as sent.
    pub state: String,
    /// `http` or `https`.
    pub scheme: &'static str,
    /// The path pattern of its route.
    pub pattern: String,
    /// How long a leaky bucket delayed the request.
    pub delay: Option<Micros>,
    /// The exchange with a backend, if the request was forwarded.
    pub forwarded: Option<Forwarded>,
    /// The access record, with bounded texts and the path without the query.
    pub record: Record,
}

/// A request's exchange with a backend until the response head, all attempts together.
#[derive(Clone, Debug)]
pub struct Forwarded {
    /// Its span.
    pub span: SpanId,
    /// The upstream's name.
    pub upstream: Arc<str>,
    /// The server that was tried last, if one is known.
    pub server: Option<ServerAddress>,
    /// The path sent to it.
    pub path: String,
    /// When the request was admitted, after any delay.
    pub since: WallTime,
    /// When the response head arrived, or the exchange failed.
    pub until: WallTime,
    /// The response's status.
    pub status: Option<StatusCode>,
    /// How often the request was sent, or a connection for it was attempted; 0 if not counted.
    pub attempts: u32,
}

/// A backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerAddress {
    /// Host name or address, without brackets; the path of a Unix socket.
    pub host: String,
    /// TCP port; 0 for a Unix socket.
    pub port: u16,
    /// `host:port` as in a URL.
    pub authority: Arc<str>,
    /// Whether the connection to it uses TLS.
    pub secure: bool,
}

impl RequestSpan {
    /// The number of spans when exported.
    pub fn count(&self) -> u64 {
        1 + u64::from(self.forwarded.is_some())
    }
}

/// A client's text, shortened to the maximum: this bounds the memory of the queue.
pub fn bounded(text: &str) -> &str {
    let end = (0..=MAX_TEXT.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    text.get(..end).unwrap_or_default()
}

/// A path as sent, without its query, which may hold secrets.
pub fn without_query(path: &str) -> &str {
    bounded(path.split('?').next().unwrap_or_default())
}
