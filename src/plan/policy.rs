//! The identities of policies, across reloads and processes, and their names in responses.

use std::hash::Hasher;
use std::sync::Arc;

use siphasher::sip128::{Hasher128 as _, SipHasher24};

use super::Policy;
use crate::http1::head_writer::HeaderPair;
use crate::limit::Algorithm;
use crate::limit::calendar::{CalendarUnit, CalendarWindows};
use crate::limit::units::Micros;
use crate::route::key::Key;
use crate::store::redis::key;
use crate::store::{OnError, ParamsId, SharedKeyInfo};

/// The largest integer of a structured field (RFC 9651 §3.3.1).
const MAX_FIELD_INTEGER: u64 = 999_999_999_999_999;

impl Policy {
    /// A policy with this name in responses, and with counters of its own or of another policy: see [`counters`].
    pub fn new(
        name: Arc<str>,
        algorithm: Algorithm,
        (shared_key, params): (SharedKeyInfo, ParamsId),
    ) -> Self {
        Self {
            standard: standard(&name, &algorithm),
            legacy: legacy(&algorithm),
            name,
            shared_key,
            params,
            algorithm,
        }
    }
}

/// One policy for every rate of the limit `name`, each with its text in the file.
pub fn policies(name: &str, key: &Key, on_error: OnError, rates: Vec<(String, Algorithm)>) -> Vec<Policy> {
    let indices = (0..).take(rates.len()).collect();
    with_indices((name, key, on_error), rates, indices)
}

/// The same of a tier. A rate with the period of one of the limit's `own` counts in the counters of that one, which are
/// converted when a consumer changes its tier. A rate with another period has counters of its own, which all tiers with that
/// period share, and which stay while a consumer is on another tier.
pub fn policies_of_tier(
    of: (&str, &Key, OnError),
    rates: Vec<(String, Algorithm)>,
    own: &[(String, Algorithm)],
) -> Vec<Policy> {
    let mut indices: Vec<u64> = Vec::with_capacity(rates.len());
    for (at, (_, algorithm)) in rates.iter().enumerate() {
        let window = CounterWindow::of(algorithm);
        let here = own.get(at).filter(|(_, other)| CounterWindow::of(other) == window).map(|_| at as u64);
        let elsewhere = (0..).zip(own).filter(|(_, (_, other))| CounterWindow::of(other) == window);
        let candidates = here.into_iter().chain(elsewhere.map(|(index, _)| index)).chain(window.indices());
        // There are more candidates than rates.
        indices.extend(candidates.into_iter().find(|index| !indices.contains(index)));
    }
    with_indices(of, rates, indices)
}

fn with_indices(
    (name, key, on_error): (&str, &Key, OnError),
    rates: Vec<(String, Algorithm)>,
    indices: Vec<u64>,
) -> Vec<Policy> {
    let is_alone = rates.len() == 1;
    let policy = |(index, (rate, algorithm)): (u64, (String, Algorithm))| {
        let policy_name = if is_alone { name.to_owned() } else { format!("{name}:{rate}") };
        let counters = counters(name, &algorithm, key, index, on_error);
        Policy::new(policy_name.into(), algorithm, counters)
    };
    indices.into_iter().zip(rates).map(policy).collect()
}

/// What rates have in common that count in one counter.
#[derive(Clone, Copy, PartialEq)]
struct CounterWindow {
    period: Micros,
    unit: Option<CalendarUnit>,
}

impl CounterWindow {
    fn of(algorithm: &Algorithm) -> Self {
        let period = algorithm.rate().map_or(Micros(0), |rate| rate.period());
        Self { period, unit: algorithm.calendar().map(CalendarWindows::unit) }
    }

    /// The indices of counters with this window, above those of a limit's rates: the period, which is at least a
    /// millisecond and at most 366 days, has 45 bits.
    fn indices(self) -> impl Iterator<Item = u64> {
        let unit: u64 = match self.unit {
            None => 0,
            Some(CalendarUnit::Day) => 1,
            Some(CalendarUnit::Week) => 2,
            Some(CalendarUnit::WeekFromSunday) => 3,
            Some(CalendarUnit::Month(_)) => 4,
            Some(CalendarUnit::Year) => 5,
        };
        (0..=u64::from(u8::MAX)).map(move |number| unit << 56 | number << 48 | self.period.0)
    }
}

/// The data of an algorithm of the limit `name` for the stores. `index` tells the limit's rates apart.
pub fn counters(
    name: &str,
    algorithm: &Algorithm,
    key: &Key,
    index: u64,
    on_error: OnError,
) -> (SharedKeyInfo, ParamsId) {
    let identity = identity(name, algorithm, key, index);
    let shared_key = SharedKeyInfo {
        name: key::policy(name, algorithm, identity).into(),
        identity,
        on_error,
        settles: false,
        stays_in_process: false,
        lease: None,
    };
    (shared_key, ParamsId::of_policy(algorithm, identity))
}

/// A hash of the settings that a reload must not change for the counters to stay: everything but the parameters. The
/// hash's key is fixed, so that every process computes the same.
fn identity(limit: &str, algorithm: &Algorithm, key: &Key, index: u64) -> u128 {
    let mut hasher = SipHasher24::new_with_keys(0, 0);
    let mut add = |text: &str| {
        hasher.write(&(text.len() as u64).to_le_bytes());
        hasher.write(text.as_bytes());
    };
    add(limit);
    add(algorithm.name());
    for part in &key.parts {
        add(&part.to_string());
    }
    hasher.write(&index.to_le_bytes());
    hasher.finish128().as_u128()
}

/// The members of the standard headers. A concurrency limit has no window. Names have only characters that need no escape: others are errors, so that the result
/// is never used.
fn standard(name: &str, algorithm: &Algorithm) -> HeaderPair {
    let window = match algorithm.window().seconds_rounded_up().min(MAX_FIELD_INTEGER) {
        // The length of a calendar's window is known when it is told.
        _ if algorithm.calendar().is_some() => String::new(),
        0 => String::new(),
        window => format!(";w={window}"),
    };
    let quota = algorithm.quota();
    let values = [format!("\"{name}\";q={quota}{window}"), format!("\"{name}\";r=")];
    HeaderPair::new(["ratelimit-policy", "ratelimit"], values.each_ref().map(String::as_str))
}

/// The same in the older form that most clients know.
fn legacy(algorithm: &Algorithm) -> HeaderPair {
    let quota = algorithm.quota().to_string();
    HeaderPair::new(["x-ratelimit-limit", "x-ratelimit-remaining"], [&quota, ""])
}
