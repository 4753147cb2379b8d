//! What a trace tells of one request: a span of the request itself, and one of its way to a backend and back.

use std::sync::Arc;

use http::StatusCode;

use super::context::{Context, SpanId};
use crate::limit::units::{Micros, Timestamp};
use crate::plan::trace::Trace;
use crate::telemetry::access_log::Record;

/// The longest text of a client's that a span keeps; bytes.
const MAX_TEXT: usize = 1 << 10;

/// One request that is traced.
#[derive(Clone, Debug)]
pub struct RequestSpan {
    /// What the plan that it began with says of traces: where it goes.
    pub trace: Arc<Trace>,
    /// The request's own span.
    pub context: Context,
    /// The span that it was sent by.
    pub parent: Option<SpanId>,
    /// `tracestate` as sent.
    pub state: String,
    /// `http` or `https`.
    pub scheme: &'static str,
    /// The path pattern of its route.
    pub pattern: String,
    /// How long it waited for its turn.
    pub delay: Option<Micros>,
    /// Its way to a backend, if it took one.
    pub forwarded: Option<Forwarded>,
    /// What the access log tells of it, its texts bounded and its path without the query.
    pub record: Record,
}

/// A request's way to a backend until the head of the answer, all attempts together.
#[derive(Clone, Debug)]
pub struct Forwarded {
    /// Its span.
    pub span: SpanId,
    /// The upstream's name.
    pub upstream: Arc<str>,
    /// The server that was tried last, if one is known.
    pub server: Option<ServerAddress>,
    /// The path that it saw.
    pub path: String,
    /// When the request was admitted, and had waited for its turn.
    pub since: Timestamp,
    /// When the answer's head came, or it was clear that none would.
    pub until: Timestamp,
    /// The answer's.
    pub status: Option<StatusCode>,
    /// How often it was sent, or a connection for it was tried; 0 where nobody counted.
    pub attempts: u32,
}

/// A backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerAddress {
    /// Host name or address, without brackets.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// `host:port` as in a URL.
    pub authority: Arc<str>,
    /// Whether TLS is spoken to it.
    pub secure: bool,
}

impl RequestSpan {
    /// How many spans it is when it is exported.
    pub fn count(&self) -> u64 {
        1 + u64::from(self.forwarded.is_some())
    }
}

/// As much of a client's text as a span keeps: the memory of the queue is bounded so.
pub fn bounded(text: &str) -> &str {
    let end = (0..=MAX_TEXT.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    text.get(..end).unwrap_or_default()
}

/// A path as sent, without its query, which may hold secrets.
pub fn without_query(path: &str) -> &str {
    bounded(path.split('?').next().unwrap_or_default())
}
