//! The access log: workers hand records over a bounded queue to a thread that writes them; when it is full they are dropped and counted.

use std::net::IpAddr;
use std::sync::Arc;

use http::{Method, StatusCode, Version};

use crate::limit::units::{Micros, Timestamp};

/// One answered request.
#[derive(Clone, Debug)]
pub struct Record {
    /// When its head had come.
    pub time: Timestamp,
    /// The method as sent.
    pub method: Method,
    /// The protocol version.
    pub version: Version,
    /// The host as routed; empty if there was none.
    pub host: Box<str>,
    /// Path and query as sent.
    pub path: Box<str>,
    /// The matched route's name.
    pub route: Option<Arc<str>>,
    /// The answer's status.
    pub status: StatusCode,
    /// Request body bytes that came.
    pub bytes_in: u64,
    /// Response body bytes that went.
    pub bytes_out: u64,
    /// Head of the request to end of the response.
    pub duration: Micros,
    /// `NAME/HOST:PORT` of the server that answered last.
    pub upstream: Option<Box<str>>,
    /// Until its response head.
    pub upstream_duration: Option<Micros>,
    /// The client as identified.
    pub client: IpAddr,
    /// `x-request-id`.
    pub request_id: Box<str>,
    /// The limit that decided: the one that refused, or the tightest.
    pub limit: Option<Arc<str>>,
    /// What it said: the decision's label in metrics.
    pub decision: Option<&'static str>,
    /// What remains there.
    pub remaining: Option<u64>,
    /// What the request cost there.
    pub cost: Option<u32>,
    /// Why tollgate itself answered, in one word: `connect`, `timeout`, …
    pub error: Option<&'static str>,
    /// `referer` and `user-agent`, for the combined format.
    pub referer: Option<Box<[u8]>>,
    /// See `referer`.
    pub user_agent: Option<Box<[u8]>>,
}

/// The workers' end of the queue. Cheap to clone.
#[derive(Clone, Debug)]
pub struct AccessLogger {}

impl AccessLogger {
    /// Whether records are wanted at all: without, workers make none.
    pub fn enabled(&self) -> bool {
        false
    }

    /// Hands a record over; never blocks.
    pub fn record(&self, _record: Record) {}
}
