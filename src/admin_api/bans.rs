//! `GET bans`, and the body of a `POST` of a key's `ban`.

use serde::{Deserialize, Serialize};

/// The bans that end first, also those in shadow.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct BanList {
    /// The time of the response.
    pub time: f64,
    /// The number of all bans.
    pub total: u64,
    /// The first of them.
    pub bans: Vec<BanReport>,
}

/// A ban in force.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct BanReport {
    /// The limit's name.
    pub limit: String,
    /// `enforce` or `shadow`.
    pub mode: String,
    /// `id:` and 32 hexadecimal digits.
    pub id: String,
    /// The values of the key's parts, if they are known.
    pub key: Option<Vec<String>>,
    /// Its end.
    pub banned_until: f64,
    /// Why it began.
    pub cause: String,
    /// It refuses nothing.
    pub in_shadow: bool,
}

/// `POST ban` of a key.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct BanRequest {
    /// How long, `1s` to `366day`: a whole number with `ms`, `s`, `min`, `h` or `day`.
    #[serde(rename = "for")]
    pub span: String,
}
