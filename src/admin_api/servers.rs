//! The servers of upstreams: in `GET samples`, and `POST` and `DELETE` of a server's `drain`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A server of an upstream, and its responses in the last minute.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ServerReport {
    /// `HOST:PORT`, or the path of a Unix socket.
    pub server: String,
    /// Whether it gets requests.
    pub up: bool,
    /// Why it is down, as one word.
    pub why: Option<String>,
    /// The same as a sentence.
    pub reason: Option<String>,
    /// It gets no new requests, since an operator said so.
    pub drained: bool,
    /// Requests that wait for its response.
    pub in_flight: u64,
    /// The median until the response head, in milliseconds.
    pub p50_ms: Option<f64>,
    /// The 99th percentile of the same.
    pub p99_ms: Option<f64>,
    /// Its responses by the class of their status: `2xx`.
    pub minute: BTreeMap<String, u64>,
    /// Attempts that were made again at another server.
    pub retries: u64,
}

/// A server after `drain`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DrainReport {
    /// The upstream's name.
    pub upstream: String,
    /// `HOST:PORT`, or the path of a Unix socket.
    pub server: String,
    /// It gets no new requests.
    pub drained: bool,
    /// It was not so before.
    pub changed: bool,
}
