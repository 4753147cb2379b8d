//! The token bucket: up to `burst` at once, refilled evenly at `rate`.
//!
//! The state is what has been *used*, draining at the rate, and not what is left: so that an empty state is a full bucket.
//!
//! Bound: in any span of t no more than `burst` + t × rate units are admitted, less what was given back in it.

use super::bucket::{Bucket, Metered};
use super::limiter::Names;
use super::meter::Level;
use super::units::{Cost, Rate, Timestamp};
use super::{Algorithm, Verdict, Wait};

/// A token bucket's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TokenBucket(Bucket);

impl Algorithm {
    /// Up to `burst` at once, refilled evenly at `rate`.
    pub fn token_bucket(rate: Rate, burst: Cost) -> Self {
        Self::TokenBucket(TokenBucket(Bucket::of_burst(rate, burst)))
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
    fn bucket(&self) -> &Bucket {
        &self.0
    }

    #[inline(always)]
    fn verdict(&self, used: Level, now: Timestamp, cost: Cost) -> Verdict {
        let Bucket { quota: burst, meter, full: capacity, .. } = &self.0;
        if cost > *burst {
            return Verdict::Deny(Wait::Never);
        }
        let most = capacity - meter.ticks(cost.units().into());
        if used.ticks() <= most {
            Verdict::Allow
        } else {
            Verdict::Deny(Wait::After(meter.falls_to(used, most).since(now)))
        }
    }
}
