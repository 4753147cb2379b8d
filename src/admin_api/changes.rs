//! Changes of the whole process, and what a token without the right to read gets for a charge.

use serde::{Deserialize, Serialize};

/// `POST reload` that loaded the file.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ReloadSuccess {
    /// `success`.
    pub result: String,
    /// A hash of the file's content.
    pub version: String,
    /// The file, or a file that it names, differs from the one before.
    pub changed: bool,
    /// Warnings of the file.
    pub warnings: Vec<String>,
    /// Bans of limits that are gone.
    pub ended_bans: Vec<EndedBansReport>,
}

/// The bans of a limit that ended with a reload.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct EndedBansReport {
    /// The limit's name.
    pub limit: String,
    /// The number of its banned keys.
    pub bans: usize,
    /// They refused nothing.
    pub in_shadow: bool,
}

/// `POST reload` of a file with faults: the one before stays in force.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ReloadFailure {
    /// `failure`.
    pub result: String,
    /// The first faults.
    pub faults: Vec<String>,
}

/// `POST drain`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ShutdownReport {
    /// `draining`.
    pub life: String,
    /// It was not so before.
    pub changed: bool,
}

/// `POST charge` by a token without the right to read.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ChargeReport {
    /// The limit's name.
    pub limit: String,
    /// `id:` and 32 hexadecimal digits.
    pub id: String,
    /// The units charged.
    pub charged: u32,
    /// The charge was made before, with this idempotency key.
    pub repeated: bool,
    /// The counter changed.
    pub changed: bool,
}

/// An error: problem details (RFC 9457).
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ProblemDetails {
    /// `about:blank`: the status says it all.
    #[serde(rename = "type")]
    pub kind: String,
    /// The reason phrase of the status.
    pub title: String,
    /// The status.
    pub status: u16,
    /// The reason, as a sentence.
    pub detail: String,
}
