//! `GET refusals`.

use serde::{Deserialize, Serialize};

/// Samples of recently refused and failed requests.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RefusalList {
    /// When the process began to serve: numbers of another process mean other samples.
    pub started: f64,
    /// The number of the newest sample: `since` of the next request.
    pub seq: u64,
    /// Samples after `since` that were replaced by newer ones.
    pub skipped: u64,
    /// The oldest first.
    pub refusals: Vec<RefusalReport>,
}

/// A refused or failed request.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RefusalReport {
    /// Its number.
    pub seq: u64,
    /// When its head was complete.
    pub time: f64,
    /// As sent; `None` if no longer known, like the next two.
    pub method: Option<String>,
    /// As routed.
    pub host: Option<String>,
    /// Without its query.
    pub path: Option<String>,
    /// The route's name.
    pub route: Option<String>,
    /// The response's status.
    pub status: u16,
    /// The client as identified.
    pub client: Option<String>,
    /// The limit that refused; `None`: no limit did.
    pub limit: Option<String>,
    /// The key that was over the limit.
    pub id: Option<String>,
    /// The values of its parts.
    pub key: Option<Vec<String>>,
    /// The request's cost for that limit.
    pub cost: Option<u32>,
    /// Seconds; `None`: waiting does not help.
    pub retry_after: Option<u64>,
    /// The server that failed it, as `UPSTREAM/HOST:PORT`; `None`: a limit refused it, or it reached no server.
    pub server: Option<String>,
    /// The reason, as text.
    pub reason: String,
}
