//! What is measured in a run.

use tollgate::limit::units::{Micros, Timestamp};

use crate::scenario::Scenario;
use crate::traffic::START;

/// How far what was admitted of one key lies below the bound of the contract.
///
/// A window: no more than its count. A bucket: in any period t at most burst + (t + lease) × rate. So a level that grows
/// by one with each unit and falls at the rate is never above burst + lease × rate.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BoundMeter {
    at: u64,
    /// Units of the window; of a bucket, units × period in µs.
    level: u64,
}

impl BoundMeter {
    /// Counts a unit at `now`. Returns by how many units the bound is exceeded: not above zero.
    pub(crate) fn count(&mut self, scenario: &Scenario, now: Timestamp) -> f64 {
        let limit = &scenario.limit;
        let count = u64::from(limit.count);
        if limit.is_window {
            let window = now.0 / limit.period.0;
            self.level = if self.at == window { self.level + 1 } else { 1 };
            self.at = window;
            return self.level as f64 - count as f64;
        }
        let drained = now.0.saturating_sub(self.at).saturating_mul(count);
        self.level = self.level.saturating_sub(drained) + limit.period.0;
        self.at = now.0;
        let bound = count * limit.period.0 + count * scenario.mode.lease().0;
        (self.level as f64 - bound as f64) / limit.period.0 as f64
    }
}

/// Counts of waits: 16 classes for each doubling.
#[derive(Clone, Debug)]
pub(crate) struct Waits {
    classes: Vec<u64>,
}

impl Default for Waits {
    fn default() -> Self {
        Self { classes: vec![0; 16 * 40] }
    }
}

impl Waits {
    pub(crate) fn count(&mut self, wait: Micros) {
        let class = if wait.0 == 0 { 0.0 } else { 1.0 + (wait.0 as f64).log2() * 16.0 };
        let last = self.classes.len() - 1;
        self.classes[(class as usize).min(last)] += 1;
    }

    /// In ms.
    pub(crate) fn quantile(&self, part: f64) -> f64 {
        let mut rest = (self.classes.iter().sum::<u64>() as f64 * part).ceil();
        for (class, count) in self.classes.iter().enumerate() {
            rest -= *count as f64;
            if rest <= 0.0 {
                return if class == 0 { 0.0 } else { ((class as f64 - 0.5) / 16.0).exp2() / 1_000.0 };
            }
        }
        0.0
    }
}

/// Units in advance that were not spent yet, over time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HeldUnits {
    units: i64,
    since: u64,
    unit_seconds: f64,
}

impl HeldUnits {
    pub(crate) fn change(&mut self, units: i64, now: Timestamp, from: Timestamp) {
        let since = self.since.max(from.0);
        self.unit_seconds += self.units as f64 * now.0.saturating_sub(since) as f64 / 1e6;
        self.since = now.0.max(self.since);
        self.units += units;
    }
}

/// Calls to the store.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Calls {
    /// On one request.
    pub(crate) exact: u64,
    /// For units in advance.
    pub(crate) takes: u64,
    /// With units that come back.
    pub(crate) returns: u64,
}

/// The counts of a run.
#[derive(Debug)]
pub(crate) struct Measures {
    from: Timestamp,
    until: Timestamp,
    block: Micros,
    pub(crate) requests: u64,
    pub(crate) waited: u64,
    /// All waits, in µs.
    waited_for: u64,
    pub(crate) waits: Waits,
    pub(crate) calls: Calls,
    pub(crate) granted: u64,
    pub(crate) returned: u64,
    pub(crate) held: HeldUnits,
    pub(crate) max_excess: f64,
    /// Admitted, and what one counter would have admitted, by blocks.
    blocks: Vec<(u64, u64)>,
    /// The average of the keys that a gateway knows, at its highest.
    pub(crate) entries: f64,
}

impl Measures {
    pub(crate) fn new(scenario: &Scenario) -> Self {
        let from = START.plus(scenario.warm_up());
        let block = scenario.block();
        let blocks = scenario.seconds * 1_000_000 / block.0;
        Self {
            from,
            until: from.plus(Micros(scenario.seconds * 1_000_000)),
            block,
            requests: 0,
            waited: 0,
            waited_for: 0,
            waits: Waits::default(),
            calls: Calls::default(),
            granted: 0,
            returned: 0,
            held: HeldUnits::default(),
            max_excess: f64::NEG_INFINITY,
            blocks: vec![(0, 0); blocks as usize],
            entries: 0.0,
        }
    }

    pub(crate) fn until(&self) -> Timestamp {
        self.until
    }

    pub(crate) fn counts(&self, at: Timestamp) -> bool {
        (self.from..self.until).contains(&at)
    }

    /// Changes the units in advance that are not spent.
    pub(crate) fn hold(&mut self, units: i64, now: Timestamp) {
        self.held.change(units, now.min(self.until), self.from);
    }

    /// The counts of the block of this moment: admitted, and of one counter.
    pub(crate) fn block(&mut self, at: Timestamp) -> Option<&mut (u64, u64)> {
        let passed = at.0.checked_sub(self.from.0)?;
        self.blocks.get_mut(usize::try_from(passed / self.block.0).ok()?)
    }

    pub(crate) fn decided(&mut self, arrived: Timestamp, now: Timestamp) {
        if self.counts(arrived) {
            let wait = now.since(arrived);
            self.requests += 1;
            self.waited_for += wait.0;
            self.waited += u64::from(wait > Micros(0));
            self.waits.count(wait);
        }
    }

    /// The lowest share of a block, admitted ÷ one counter's.
    pub(crate) fn lowest_share(&self) -> f64 {
        let full = self.blocks.iter().filter(|(_, ideal)| *ideal > 0);
        full.map(|(admitted, ideal)| *admitted as f64 / *ideal as f64).fold(f64::INFINITY, f64::min)
    }

    /// How long a request waits for the store on average, in ms.
    pub(crate) fn mean_wait(&self) -> f64 {
        self.waited_for as f64 / self.requests.max(1) as f64 / 1_000.0
    }

    /// The units in advance that are not spent, on average.
    pub(crate) fn held_units(&self) -> f64 {
        self.held.unit_seconds / (self.until.since(self.from).0 as f64 / 1e6)
    }
}
