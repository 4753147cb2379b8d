//! `GET limits`.

use serde::{Deserialize, Serialize};

/// All limits.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LimitList {
    /// The time of the response.
    pub time: f64,
    /// The error of the numbers of refused keys, as a share.
    pub keys_error: f64,
    /// In the order of the file.
    pub limits: Vec<LimitReport>,
}

/// A limit, and its recent verdicts.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LimitReport {
    /// Its name.
    pub name: String,
    /// `enforce` or `shadow`.
    pub mode: String,
    /// The share of keys for which it refuses, if not all.
    pub trial: Option<f64>,
    /// The algorithm's name in the file.
    pub algorithm: String,
    /// The parts of the key.
    pub key: Vec<String>,
    /// In short form: `10/s`.
    pub policies: Vec<String>,
    /// The policies of each tier.
    pub tiers: Vec<TierReport>,
    /// The routes that use it, also for wrong credentials.
    pub routes: Vec<String>,
    /// What it counts in place of requests.
    pub failures: Option<String>,
    /// The verdicts of the last minute.
    pub minute: VerdictReport,
    /// The verdicts of the last hour.
    pub hour: VerdictReport,
    /// Keys that are banned.
    pub bans: u64,
    /// Keys that would be banned, in shadow.
    pub shadow_bans: u64,
    /// The rule of its bans, as a sentence.
    pub ban: Option<String>,
    /// The keys in memory; `None`: the limit has no share of its own.
    pub keys: Option<u64>,
    /// The bound of that share.
    pub max_keys: Option<u64>,
    /// How long a gateway has units in advance, in seconds; `None`: the store decides each request.
    pub lease: Option<f64>,
    /// Costs are settled after responses.
    pub settles: bool,
    /// It keeps the usage of consumers.
    pub usage: bool,
    /// The places of a concurrency limit.
    pub in_flight: Option<PlacesInUse>,
}

/// A tier of a limit.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TierReport {
    /// Its name.
    pub name: String,
    /// In short form: `10/s`.
    pub policies: Vec<String>,
}

/// The verdicts of a limit in a span of time.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct VerdictReport {
    /// At once.
    pub admitted: u64,
    /// After a delay.
    pub delayed: u64,
    /// Those in shadow included.
    pub refused: u64,
    /// Of the refused: those that were only counted.
    pub in_shadow: u64,
    /// An estimate of the keys that were refused.
    pub refused_keys: u64,
}

/// The places of a concurrency limit in this process.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PlacesInUse {
    /// Requests in flight.
    pub held: u64,
    /// Requests in the queue.
    pub waiting: u64,
    /// What was found as the maximum of all its keys together; `None`: it is written, or nothing is found yet.
    pub found_max: Option<u64>,
}

impl LimitReport {
    /// Whether it only counts what it would refuse.
    pub fn is_shadow(&self) -> bool {
        self.mode == "shadow"
    }

    /// The share of keys for which it refuses, if not all.
    pub fn partial_trial(&self) -> Option<f64> {
        self.trial.filter(|share| *share < 1.0)
    }

    /// `enforce`, `shadow`, or `trial 5 %`.
    pub fn mode_words(&self) -> String {
        match self.partial_trial() {
            Some(share) if !self.is_shadow() => format!("trial {} %", (share * 1e6).round() / 1e4),
            _ => self.mode.clone(),
        }
    }
}

impl VerdictReport {
    /// The refusals that clients saw.
    pub fn enforced(&self) -> u64 {
        self.refused.saturating_sub(self.in_shadow)
    }
}
