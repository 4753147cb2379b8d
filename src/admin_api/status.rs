//! `GET status`.

use serde::{Deserialize, Serialize};

/// The state of the process.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct StatusReport {
    /// The time of the response.
    pub time: f64,
    /// The version of the program.
    pub version: String,
    /// When the process began to serve.
    pub started: f64,
    /// The number of worker threads.
    pub workers: usize,
    /// `serving` or `draining`.
    pub life: String,
    /// The configuration in force.
    pub config: LoadedFile,
    /// The last reload, if there was one.
    pub last_reload: Option<ReloadReport>,
    /// The store of counters.
    pub store: StoreReport,
    /// Keys that are banned.
    pub bans: u64,
    /// Keys that would be banned, of limits in shadow.
    pub shadow_bans: u64,
    /// The certificates of `[[server.tls]]`, in the order of the file.
    pub certificates: Vec<CertificateReport>,
    /// What is wrong with upstreams and the fleet, the worst first.
    pub problems: Vec<ProblemReport>,
}

/// The configuration in force.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LoadedFile {
    /// Its path.
    pub file: String,
    /// A hash of its content.
    pub version: String,
    /// When it was loaded.
    pub loaded: f64,
}

/// The last reload.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ReloadReport {
    /// When it ended.
    pub time: f64,
    /// `success` or `failure`.
    pub result: String,
    /// The first error.
    pub detail: Option<String>,
}

/// The store of counters.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct StoreReport {
    /// `memory` or `redis`.
    pub backend: String,
    /// Whether it can be asked.
    pub up: bool,
    /// The most keys in memory; `None`: the store is shared.
    pub max_keys: Option<u64>,
}

/// A certificate that clients are shown.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CertificateReport {
    /// The DNS names that it is for.
    pub names: Vec<String>,
    /// `file`, `acme` or `self-signed`.
    pub source: String,
    /// When it expires.
    pub expires: Option<f64>,
    /// When the next one is ordered; `None`: it is from a file.
    pub next_attempt: Option<f64>,
    /// Why the last order failed; `None`: it did not.
    pub last_error: Option<String>,
}

/// A problem of an upstream, or of the fleet.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ProblemReport {
    /// `warn`: some requests are affected; `bad`: an outage.
    pub severity: String,
    /// Its kind, as one word.
    pub kind: String,
    /// The upstream's name; empty: of the fleet.
    pub upstream: String,
    /// A sentence.
    pub text: String,
}
