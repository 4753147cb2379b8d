//! The contract: the number of units that may be spent, by the store's clock at the moment of spending. It is computed
//! here without the code that is checked.

use tollgate::limit::Algorithm;
use tollgate::limit::units::Timestamp;

use super::scenario::Scenario;

/// What was spent. The default is nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Spent {
    /// Of a window: the units spent in the present one, and in the one before.
    windows: [u64; 2],
    /// Of a bucket: the level of one into which each unit falls when it is spent, in µs of the rate.
    level: u64,
    /// The units whose charge a failover has lost.
    lost: u64,
}

impl Spent {
    /// A unit is spent.
    pub(super) fn add(&mut self, scenario: &Scenario) {
        match scenario.algorithm {
            Algorithm::FixedWindow(_) | Algorithm::SlidingWindow(_) => self.windows[0] += 1,
            _ => self.level += unit(scenario),
        }
    }

    pub(super) fn lose(&mut self, units: u64) {
        self.lost += units;
    }

    pub(super) fn advance(&mut self, scenario: &Scenario, from: Timestamp, to: Timestamp) {
        let window = |time: Timestamp| time.0 / period(scenario);
        self.windows = match (scenario.algorithm, window(to) - window(from)) {
            (_, 0) => self.windows,
            (Algorithm::SlidingWindow(_), 1) => [0, self.windows[0]],
            _ => [0, 0],
        };
        self.level = self.level.saturating_sub(to.since(from).0);
    }

    /// Whether the contract holds: also with what a failover has lost.
    pub(super) fn is_allowed(&self, scenario: &Scenario, now: Timestamp) -> bool {
        self.is_at_most(scenario.algorithm.quota() + self.lost, scenario, now)
    }

    /// Whether no more was spent than if a failover had lost nothing.
    pub(super) fn is_as_without_failover(&self, scenario: &Scenario, now: Timestamp) -> bool {
        self.is_at_most(scenario.algorithm.quota(), scenario, now)
    }

    /// A bucket admits at most burst + rate × (t + lease) in any period t if all that is spent fits into one that is
    /// larger by rate × lease.
    fn is_at_most(&self, quota: u64, scenario: &Scenario, now: Timestamp) -> bool {
        match scenario.algorithm {
            Algorithm::FixedWindow(_) => self.windows[0] <= quota,
            Algorithm::SlidingWindow(_) => {
                let rest = period(scenario) - now.0 % period(scenario);
                self.windows[0] + (self.windows[1] * rest).div_ceil(period(scenario)) <= quota
            }
            _ => self.level <= quota * unit(scenario) + scenario.lease.duration().0,
        }
    }

    /// Whether a window's whole count was spent, or more than a bucket admits without leases.
    pub(super) fn is_much(&self, scenario: &Scenario) -> bool {
        let quota = scenario.algorithm.quota();
        match scenario.algorithm {
            Algorithm::FixedWindow(_) | Algorithm::SlidingWindow(_) => self.windows[0] == quota,
            _ => self.level > quota * unit(scenario),
        }
    }
}

fn period(scenario: &Scenario) -> u64 {
    scenario.algorithm.rate().expect("it has one").period().0
}

/// The µs in which a bucket refills by a unit: all have whole ones.
fn unit(scenario: &Scenario) -> u64 {
    period(scenario) / u64::from(scenario.algorithm.rate().expect("it has one").count())
}
