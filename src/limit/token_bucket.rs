//! The token bucket: up to `burst` at once, refilled evenly at `rate`.
//!
//! The state is the *used* part, draining at the rate, and not the remaining one: so that an empty state is a full
//! bucket.
//!
//! Bound: in any period t at most `burst` + t × rate units are admitted, less units given back in it.

use super::bucket::{Bucket, Metered};
use super::limiter::Names;
use super::meter::{Level, Meter};
use super::units::{Cost, Rate, Timestamp};
use super::{Algorithm, Verdict, Wait};

/// The parameters of a token bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TokenBucket {
    pub(crate) rate: Rate,
    pub(crate) burst: Cost,
    meter: Meter,
    capacity: u64,
}

impl Algorithm {
    /// Up to `burst` at once, refilled evenly at `rate`.
    pub fn token_bucket(rate: Rate, burst: Cost) -> Self {
        let meter = Meter::counting(rate, burst);
        Self::TokenBucket(TokenBucket { rate, burst, meter, capacity: meter.ticks(burst.units().into()) })
    }
}

impl Metered for TokenBucket {
    const NAMES: Names = Names {
        name: "token-bucket",
        letter: 't',
        quota: "burst",
        module: ("token_bucket", include_str!("token_bucket.lua")),
    };

    #[inline(always)]
    fn bucket(&self) -> Bucket {
        Bucket { rate: self.rate, quota: self.burst, meter: self.meter, full: self.capacity }
    }

    #[inline(always)]
    fn verdict(&self, used: Level, now: Timestamp, cost: Cost) -> Verdict {
        if cost > self.burst {
            return Verdict::Deny(Wait::Never);
        }
        let max = self.capacity - self.meter.ticks(cost.units().into());
        if used.ticks() <= max {
            Verdict::Allow
        } else {
            Verdict::Deny(Wait::After(self.meter.falls_to(used, max).since(now)))
        }
    }
}
