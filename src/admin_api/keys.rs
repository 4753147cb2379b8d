//! `GET limits/{limit}/keys`, and `GET` and the changes of one key.

use serde::{Deserialize, Serialize};

use super::overrides::OverrideReport;

/// The number by which the keys with most are chosen: `by`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeyOrder {
    /// Refused requests.
    #[default]
    Refused,
    /// Admitted requests.
    Admitted,
    /// All requests.
    Requests,
    /// Units of settled requests.
    Units,
}

impl KeyOrder {
    /// All of them, the default first.
    pub const ALL: [Self; 4] = [Self::Refused, Self::Admitted, Self::Requests, Self::Units];

    /// The value of `by`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Admitted => "admitted",
            Self::Requests => "requests",
            Self::Units => "units",
        }
    }
}

/// The keys of a limit with the most requests.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct KeyList {
    /// The limit's name.
    pub limit: String,
    /// `enforce` or `shadow`.
    pub mode: String,
    /// Seconds that the counts cover.
    pub span: u64,
    /// Requests of all keys.
    pub requests: u64,
    /// Of these: admitted, at once or delayed.
    pub admitted: u64,
    /// Of these: refused.
    pub refused: u64,
    /// By so many a count of a key may be too high.
    pub error: u64,
    /// The keys that each worker counts exactly.
    pub followed: usize,
    /// The keys with most first, and then banned keys.
    pub keys: Vec<KeyReport>,
    /// Of a limit with `share_by`: those with the most requests.
    pub shares: Vec<ShareReport>,
}

/// A key of `share_by`, and its recent requests.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ShareReport {
    /// The values of its parts, masked where they may be secrets; `None`: not known any more.
    pub key: Option<Vec<String>>,
    /// Its requests.
    pub requests: u64,
    /// Of these: admitted, at once or delayed.
    pub admitted: u64,
    /// Of these: refused.
    pub refused: u64,
    /// Its part of the requests of all keys, from 0 to 1.
    pub demand: f64,
    /// Its part of the admitted requests of all keys, from 0 to 1.
    pub share: f64,
}

/// A key of a limit, and its recent requests.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct KeyReport {
    /// `id:` and 32 hexadecimal digits.
    pub id: String,
    /// The values of its parts, masked where they may be secrets; `None`: not known any more.
    pub key: Option<Vec<String>>,
    /// Its requests.
    pub requests: u64,
    /// Of these: admitted, at once or delayed.
    pub admitted: u64,
    /// Of these: refused.
    pub refused: u64,
    /// The units of its admitted requests, of a limit whose costs are settled.
    pub units: Option<u64>,
    /// The time of its last request.
    pub last: Option<f64>,
    /// The end of its ban.
    pub banned_until: Option<f64>,
    /// The ban refuses nothing.
    pub ban_in_shadow: Option<bool>,
    /// The tier of its consumer.
    pub tier: Option<String>,
    /// Its numbers in place of the limit's, and those of its tier.
    #[serde(rename = "override", default, skip_serializing_if = "Option::is_none")]
    pub overridden: Option<OverrideReport>,
}

/// One key: `GET`, and the response to every change.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct KeyState {
    /// The limit's name.
    pub limit: String,
    /// `enforce` or `shadow`.
    pub mode: String,
    /// The algorithm's name in the file.
    pub algorithm: String,
    /// `id:` and 32 hexadecimal digits.
    pub id: String,
    /// The values of its parts.
    pub key: Option<Vec<String>>,
    /// The tier of its consumer.
    pub tier: Option<String>,
    /// Its numbers in place of the limit's, and those of its tier.
    #[serde(rename = "override", default, skip_serializing_if = "Option::is_none")]
    pub overridden: Option<OverrideReport>,
    /// What a request of one unit would get: `admitted`, `delayed`, `refused` or `banned`.
    pub verdict: String,
    /// One for each policy.
    pub policies: Vec<PolicyAllowance>,
    /// The end of its ban.
    pub banned_until: Option<f64>,
    /// The cause of its ban.
    pub ban_cause: Option<String>,
    /// The ban refuses nothing.
    pub ban_in_shadow: Option<bool>,
    /// Its recent requests; `None`: it is not followed, like the next three.
    pub requests: Option<u64>,
    /// Of these: admitted, at once or delayed.
    pub admitted: Option<u64>,
    /// Of these: refused.
    pub refused: Option<u64>,
    /// The units of its admitted requests, of a limit whose costs are settled.
    pub units: Option<u64>,
    /// Only in the response to a change: whether anything changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changed: Option<bool>,
    /// Only in the response to `grant`: the units given back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub granted: Option<u64>,
    /// Only in the response to `charge`: the units charged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub charged: Option<u32>,
    /// Only in the response to `charge`: the charge was made before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repeated: Option<bool>,
}

/// The allowance of a key under one policy, in units.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PolicyAllowance {
    /// In short form: `10/s`.
    pub policy: String,
    /// The whole allowance.
    pub quota: u64,
    /// The units in use.
    pub used: u64,
    /// The units that remain.
    pub remaining: u64,
    /// Milliseconds until the next request is admitted; `None`: never, or unknown.
    pub next_ms: Option<u64>,
    /// Milliseconds until the whole allowance is there; `None`: never, or unknown.
    pub full_ms: Option<u64>,
}

/// `POST grant` and `POST charge` of a key.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct UnitsRequest {
    /// How many are given back, or charged.
    #[cfg_attr(test, schemars(range(min = 1, max = crate::limit::units::Cost::MAX)))]
    pub units: u32,
}
