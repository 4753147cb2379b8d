//! `GET fleet`.

use serde::{Deserialize, Serialize};

/// The gateways that share the store; without a shared store, this one.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FleetReport {
    /// The time of the response.
    pub time: f64,
    /// The store is shared.
    pub shared: bool,
    /// By address.
    pub gateways: Vec<GatewayReport>,
}

/// A gateway.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct GatewayReport {
    /// Random: another one for each process.
    pub id: String,
    /// `host:port` of its first listener.
    pub address: String,
    /// The version of the program.
    pub version: String,
    /// A hash of the content of its configuration file.
    pub file_hash: String,
    /// When it began to serve, by its clock.
    pub since: f64,
    /// When the store heard of it last, by the store's clock.
    pub last_seen: f64,
    /// Units that it has taken in advance and not spent.
    pub leased_units: u64,
    /// By how many milliseconds its clock is ahead of the store's.
    pub clock_ahead_ms: i64,
    /// It has ended without a word, or cannot reach the store.
    pub gone: bool,
    /// It is the one that responds.
    pub this: bool,
}
