//! `GET limits/{limit}/usage`. Times are in RFC 3339, as invoices have them.

use serde::{Deserialize, Serialize};

/// Who used how much of a limit in a window.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct UsageList {
    /// The limit's name.
    pub limit: String,
    /// The rate whose windows these are: `100000/month`.
    pub policy: String,
    /// The window.
    pub window: UsageWindowSpan,
    /// The begins of all windows that can be asked for, the newest first.
    pub windows: Vec<String>,
    /// When the limit began to keep usage.
    pub since: String,
    /// From this moment on, units of the window may be missing; `None`: none are.
    pub incomplete_since: Option<String>,
    /// The sums of all consumers, also of those that are not listed.
    pub total: UsageSums,
    /// By units, the most first, then by name.
    pub consumers: Vec<ConsumerUsage>,
}

/// Begin and end of a window.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct UsageWindowSpan {
    /// Its first moment.
    pub begin: String,
    /// The first moment of the next window.
    pub end: String,
}

/// Sums of a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct UsageSums {
    /// Units that were charged, less those that were given back.
    pub units: i64,
    /// Requests that were charged.
    pub requests: u64,
}

/// The usage of one consumer in a window.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ConsumerUsage {
    /// Its name; `None`: requests without a consumer, or the consumers that have no row of their own.
    pub consumer: Option<String>,
    /// The consumers that have no row of their own.
    pub other: bool,
    /// Its tier, if the limit has it.
    pub tier: Option<String>,
    /// Units that it was charged, less those that it was given back.
    pub units: i64,
    /// Its requests that were charged.
    pub requests: u64,
    /// Its units for the window; `None`: not bounded, or not known.
    pub quota: Option<u64>,
    /// `units` as a share of `quota`.
    pub share: Option<f64>,
    /// When its quota is used up, if it goes on as until now; `None`: not in this window.
    pub exhausted_at: Option<String>,
}
