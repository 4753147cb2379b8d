//! The Lua twins: their text, and the numbers that they are handed.
//!
//! Beside each algorithm's file stands its twin, which decides the same in a script of Redis: whole numbers in doubles, pure
//! functions, no call of Redis. Rust works out what takes wider numbers (the meter of a rate) and hands over the results.

use super::meter::Meter;
use super::units::{Cost, Rate};
use super::{Algorithm, Align};

/// What stands above all modules: constants and functions that all share.
pub const SHARED: &str = include_str!("verdict.lua");

/// The modules: their names, and the text of a function's body that returns them.
pub const MODULES: [(&str, &str); 8] = [
    ("meter", include_str!("meter.lua")),
    ("token_bucket", include_str!("token_bucket.lua")),
    ("gcra", include_str!("gcra.lua")),
    ("leaky_bucket", include_str!("leaky_bucket.lua")),
    ("fixed_window", include_str!("fixed_window.lua")),
    ("sliding_window", include_str!("sliding_window.lua")),
    ("sliding_log", include_str!("sliding_log.lua")),
    ("grant", include_str!("grant.lua")),
];

/// An algorithm as its twin knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Twin {
    /// One of [`MODULES`].
    pub module: &'static str,
    /// What the module's function `limit` is given, all below 2^53; the last may be of no use to it.
    pub numbers: [u64; 5],
}

impl Algorithm {
    /// This algorithm's twin.
    pub fn twin(&self) -> Twin {
        match self {
            Self::TokenBucket(limit) => bucket("token_bucket", &limit.meter, limit.capacity, limit.burst),
            Self::Gcra(limit) => bucket("gcra", &limit.meter, limit.tolerance, limit.burst),
            Self::LeakyBucket(limit) => bucket("leaky_bucket", &limit.meter, limit.limit, limit.queue),
            Self::FixedWindow(limit) => {
                let from_first_request = limit.align == Align::FirstRequest;
                counter("fixed_window", limit.rate, [from_first_request.into(), 0])
            }
            Self::SlidingWindow(limit) => counter("sliding_window", limit.rate, [0, 0]),
            Self::SlidingLog(limit) => {
                let spacing = limit.spacing.unwrap_or_default();
                counter("sliding_log", limit.rate, [spacing.0, limit.count_denied.into()])
            }
        }
    }
}

fn bucket(module: &'static str, meter: &Meter, full: u64, units: Cost) -> Twin {
    let [unit, drain, step] = meter.numbers();
    Twin { module, numbers: [unit, drain, step, full, units.units().into()] }
}

fn counter(module: &'static str, rate: Rate, [third, fourth]: [u64; 2]) -> Twin {
    Twin { module, numbers: [rate.period().0, rate.count().into(), third, fourth, 0] }
}
