//! The responses of the admin API that `tollgate top` reads (docs/api.md). A missing field has its default.

use serde::Deserialize;

/// `GET status`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct StatusReport {
    pub(super) time: f64,
    pub(super) version: String,
    pub(super) started: f64,
    pub(super) workers: u64,
    pub(super) life: String,
    pub(super) config: LoadedFile,
    pub(super) last_reload: Option<ReloadReport>,
    pub(super) store: StoreReport,
    pub(super) bans: u64,
    pub(super) shadow_bans: u64,
    pub(super) problems: Vec<ProblemReport>,
}

/// The configuration in force.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct LoadedFile {
    pub(super) file: String,
    pub(super) version: String,
    pub(super) loaded: f64,
}

/// The last reload.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ReloadReport {
    pub(super) result: String,
    pub(super) detail: Option<String>,
}

/// The store of counters.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct StoreReport {
    pub(super) backend: String,
    pub(super) up: bool,
    pub(super) max_keys: Option<u64>,
}

/// A problem of an upstream.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ProblemReport {
    pub(super) severity: String,
    pub(super) text: String,
}

/// `GET limits`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct LimitList {
    pub(super) limits: Vec<LimitReport>,
}

/// A limit, and its decisions of late.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct LimitReport {
    pub(super) name: String,
    pub(super) mode: String,
    pub(super) trial: Option<f64>,
    pub(super) algorithm: String,
    pub(super) key: Vec<String>,
    pub(super) policies: Vec<String>,
    pub(super) minute: DecisionCounts,
    pub(super) hour: DecisionCounts,
    /// What it counts in place of requests.
    pub(super) failures: Option<String>,
    pub(super) bans: u64,
    pub(super) settles: bool,
    pub(super) in_flight: Option<PlacesInUse>,
}

impl LimitReport {
    /// Whether it only counts what it would refuse.
    pub(super) fn is_shadow(&self) -> bool {
        self.mode == "shadow"
    }

    /// The share of keys for which it refuses, if not all.
    pub(super) fn partial_trial(&self) -> Option<f64> {
        self.trial.filter(|share| *share < 1.0)
    }

    /// `enforce`, `shadow`, or `trial 5 %`.
    pub(super) fn mode_words(&self) -> String {
        match self.partial_trial() {
            Some(share) if !self.is_shadow() => format!("trial {} %", (share * 1e6).round() / 1e4),
            _ => self.mode.clone(),
        }
    }
}

/// The decisions of a limit in a span of time.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct DecisionCounts {
    pub(super) admitted: u64,
    pub(super) delayed: u64,
    pub(super) refused: u64,
    /// Of the refused: those that were only counted.
    pub(super) in_shadow: u64,
    pub(super) refused_keys: u64,
}

impl DecisionCounts {
    /// The refusals that clients saw.
    pub(super) fn enforced(&self) -> u64 {
        self.refused.saturating_sub(self.in_shadow)
    }
}

/// The places of a concurrency limit.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct PlacesInUse {
    pub(super) held: u64,
    pub(super) waiting: u64,
}

/// `GET limits/{limit}/keys`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct KeyList {
    pub(super) limit: String,
    pub(super) mode: String,
    pub(super) span: f64,
    pub(super) refused: u64,
    pub(super) error: u64,
    pub(super) keys: Vec<KeyReport>,
}

/// A key of a limit, and its requests of late.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct KeyReport {
    pub(super) id: String,
    pub(super) key: Option<Vec<String>>,
    pub(super) requests: u64,
    pub(super) admitted: u64,
    pub(super) refused: u64,
    pub(super) units: Option<u64>,
    pub(super) banned_until: Option<f64>,
    pub(super) ban_in_shadow: Option<bool>,
    pub(super) tier: Option<String>,
}

/// `GET limits/{limit}/keys/{key}`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct KeyState {
    pub(super) limit: String,
    pub(super) mode: String,
    pub(super) algorithm: String,
    pub(super) id: String,
    pub(super) key: Option<Vec<String>>,
    pub(super) tier: Option<String>,
    pub(super) verdict: String,
    pub(super) policies: Vec<PolicyAllowance>,
    pub(super) banned_until: Option<f64>,
    pub(super) ban_cause: Option<String>,
    pub(super) ban_in_shadow: Option<bool>,
    pub(super) requests: Option<u64>,
    pub(super) admitted: Option<u64>,
    pub(super) refused: Option<u64>,
    pub(super) units: Option<u64>,
    /// Only in the response to a change.
    pub(super) changed: Option<bool>,
}

/// The allowance of a key under one policy, in units.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct PolicyAllowance {
    pub(super) policy: String,
    pub(super) quota: u64,
    pub(super) used: u64,
    pub(super) remaining: u64,
    pub(super) next_ms: Option<u64>,
    pub(super) full_ms: Option<u64>,
}

/// `GET bans`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct BanList {
    pub(super) total: u64,
    pub(super) bans: Vec<BanReport>,
}

/// A ban in force.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct BanReport {
    pub(super) limit: String,
    pub(super) id: String,
    pub(super) key: Option<Vec<String>>,
    pub(super) banned_until: f64,
    pub(super) cause: String,
    /// It refuses nothing.
    pub(super) in_shadow: bool,
}

/// `GET refusals`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct RefusalList {
    pub(super) started: f64,
    pub(super) seq: u64,
    pub(super) skipped: u64,
    pub(super) refusals: Vec<RefusalReport>,
}

/// A refused or failed request.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct RefusalReport {
    pub(super) seq: u64,
    pub(super) time: f64,
    pub(super) method: Option<String>,
    pub(super) host: Option<String>,
    pub(super) path: Option<String>,
    pub(super) route: Option<String>,
    pub(super) status: u64,
    pub(super) client: String,
    pub(super) limit: Option<String>,
    pub(super) id: Option<String>,
    pub(super) key: Option<Vec<String>>,
    pub(super) reason: String,
}

/// `GET routes`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct RouteList {
    pub(super) routes: Vec<RouteReport>,
}

/// A route of the configuration.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct RouteReport {
    pub(super) name: String,
    pub(super) hosts: Vec<String>,
    pub(super) path: String,
    pub(super) methods: Vec<String>,
    pub(super) upstream: Option<String>,
    pub(super) answer: Option<u64>,
    pub(super) limits: Vec<RouteLimitName>,
}

/// A limit of a route.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct RouteLimitName {
    pub(super) name: String,
}

/// A server of an upstream.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ServerReport {
    pub(super) server: String,
    pub(super) up: bool,
    pub(super) why: Option<String>,
    pub(super) reason: Option<String>,
}

/// Problem details (RFC 9457).
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ProblemDetails {
    pub(super) detail: String,
}
