//! The generic cell rate algorithm: evenly spaced at `rate`, `burst` tolerated.
//!
//! Source: ITU-T I.371, the virtual scheduling algorithm. A request may come before its theoretical arrival time by up
//! to the tolerance; each unit that passes moves that time on by period ÷ count. Here the tolerance counts the
//! request's own units too, so that `burst` is the number that pass at once. The state is how far the theoretical
//! arrival time lies ahead.
//!
//! Bound: that of a token bucket with the same numbers; the two admit the same requests.

use super::bucket::{Bucket, Metered};
use super::limiter::Names;
use super::meter::{Level, Meter};
use super::units::{Cost, Rate, Timestamp};
use super::{Algorithm, Verdict, Wait};

/// The parameters of a GCRA limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Gcra {
    pub(crate) rate: Rate,
    pub(crate) burst: Cost,
    meter: Meter,
    tolerance: u64,
}

impl Algorithm {
    /// Evenly spaced at `rate`, `burst` tolerated.
    pub fn gcra(rate: Rate, burst: Cost) -> Self {
        let meter = Meter::counting(rate, burst);
        Self::Gcra(Gcra { rate, burst, meter, tolerance: meter.ticks(burst.units().into()) })
    }
}

impl Metered for Gcra {
    const NAMES: Names =
        Names { name: "gcra", letter: 'g', quota: "burst", module: ("gcra", include_str!("gcra.lua")) };

    #[inline(always)]
    fn bucket(&self) -> Bucket {
        Bucket { rate: self.rate, quota: self.burst, meter: self.meter, full: self.tolerance }
    }

    #[inline(always)]
    fn verdict(&self, ahead: Level, now: Timestamp, cost: Cost) -> Verdict {
        if cost > self.burst {
            return Verdict::Deny(Wait::Never);
        }
        let early_by = self.tolerance - self.meter.ticks(cost.units().into());
        let conforms_at = self.meter.falls_to(ahead, early_by);
        // If the clock has run backwards, the state's own time counts.
        if conforms_at <= now.max(ahead.at()) {
            Verdict::Allow
        } else {
            Verdict::Deny(Wait::After(conforms_at.since(now)))
        }
    }
}
