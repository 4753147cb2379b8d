//! `PUT limits/{limit}/keys/{key}/override`, and what the API tells of overrides.

use serde::{Deserialize, Serialize};

/// Other numbers for one key.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct OverrideRequest {
    /// The rate, or one for each rate of the limit, each with one of its periods: `200/min`.
    pub rate: RateTexts,
    /// The burst of a bucket; `None`: that of the limit.
    #[serde(default)]
    pub burst: Option<u32>,
    /// Its end; `None`: until it is taken back.
    #[serde(default)]
    pub until: Option<EndTime>,
}

/// One rate, or several.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(untagged)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub enum RateTexts {
    /// Of a limit with one rate.
    One(String),
    /// One for each rate of the limit.
    Several(Vec<String>),
}

/// A moment by the wall clock.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(untagged)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub enum EndTime {
    /// Seconds since 1970 UTC.
    Seconds(f64),
    /// As in RFC 3339: `2026-12-31T23:59:59Z`.
    Text(String),
}

/// The override of a key that holds now.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct OverrideReport {
    /// One for each rate of the limit.
    pub rate: Vec<String>,
    /// The burst of a bucket; `None`: that of the limit.
    pub burst: Option<u32>,
    /// Its end; `None`: until it is taken back.
    pub until: Option<f64>,
    /// It outlives this process.
    pub persistent: bool,
}
