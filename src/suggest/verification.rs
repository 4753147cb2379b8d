//! The second pass: the candidates decide the same requests by the core of [`limit`](crate::limit).

use foldhash::{HashMap, HashMapExt as _};

use super::candidate::{Candidate, TargetRefusals, best};
use super::group::GroupStudy;
use super::proposal::Proposal;
use super::report::RefusalCounts;
use super::windows::WINDOW_COUNT;
use crate::limit::units::{Cost, Timestamp};
use crate::limit::{Algorithm, State};

/// The second pass. Takes the same requests as [`Peaks`](super::Peaks), in the same order.
pub struct Verification {
    groups: Vec<GroupVerification>,
}

impl Verification {
    pub(super) fn new(groups: Vec<GroupStudy>) -> Self {
        Self { groups: groups.into_iter().map(GroupVerification::new).collect() }
    }

    /// Decides a request of `cost` units under every candidate of its group.
    pub fn add(&mut self, group: usize, key: u64, time: Timestamp, cost: u32) {
        if let (Some(group), Some(cost)) = (self.groups.get_mut(group), Cost::new(cost)) {
            group.add(key, time, cost);
        }
    }

    /// The proposals: of each group the best candidate of those that refuse no more ordinary keys than allowed.
    pub fn finish(self) -> Vec<Proposal> {
        self.groups.into_iter().map(GroupVerification::finish).collect()
    }
}

struct GroupVerification {
    study: GroupStudy,
    /// The rates of each candidate.
    limits: Vec<Vec<Algorithm>>,
    /// The keys that some candidate might refuse. It admits all others for certain.
    trials: HashMap<u64, KeyTrial>,
    /// The group without its crowd.
    without_crowd: Option<Box<GroupVerification>>,
}

/// The class of a key.
#[derive(Clone, Copy, Debug, PartialEq)]
enum KeyClass {
    Ordinary,
    /// Left out, but not to be refused.
    Outlier,
    /// To be refused.
    Target,
}

/// One key under all candidates.
struct KeyTrial {
    class: KeyClass,
    requests: u64,
    /// Of each rate of each candidate.
    states: Vec<Box<[State]>>,
    /// Refused requests by each candidate.
    refused: Vec<u64>,
}

impl KeyTrial {
    fn new(limits: &[Vec<Algorithm>], class: KeyClass) -> Self {
        let states = limits.iter().map(|rates| rates.iter().map(|_| State::default()).collect()).collect();
        Self { class, requests: 0, states, refused: vec![0; limits.len()] }
    }

    fn add(&mut self, limits: &[Vec<Algorithm>], time: Timestamp, cost: Cost) {
        self.requests += 1;
        let candidates = limits.iter().zip(&mut self.states).zip(&mut self.refused);
        for ((rates, states), refused) in candidates {
            if !admit(rates, states, time, cost) {
                *refused += 1;
            }
        }
    }
}

/// Decides one request: all rates are charged, or none.
pub(super) fn admit(rates: &[Algorithm], states: &mut [State], time: Timestamp, cost: Cost) -> bool {
    let is_refused =
        rates.iter().zip(states.iter()).any(|(rate, state)| rate.peek(state, time, cost).denies());
    if !is_refused {
        for (rate, state) in rates.iter().zip(states) {
            (*state, _) = rate.decide(std::mem::take(state), time, cost);
        }
    }
    !is_refused
}

impl GroupVerification {
    fn new(mut study: GroupStudy) -> Self {
        let without_crowd = study.without_crowd.take().map(|study| Box::new(Self::new(*study)));
        let algorithm = study.options.algorithm;
        let rates = |candidate: &Candidate| {
            candidate.rates.iter().filter_map(|rate| rate.algorithm(algorithm)).collect::<Vec<_>>()
        };
        let limits: Vec<_> = study.candidates.iter().map(rates).collect();
        let lowest = study.lowest_rates();
        let may_refuse = |peaks: &[u32; WINDOW_COUNT]| {
            lowest.iter().any(|rate| !rate.admits(algorithm, peaks.get(rate.window).copied().unwrap_or(0)))
        };
        let ordinary = study.ordinary.iter().filter(|key| may_refuse(&key.peaks));
        let ordinary = ordinary.map(|key| (key.key, KeyTrial::new(&limits, KeyClass::Ordinary)));
        let class = |at: usize| if at < study.targets { KeyClass::Target } else { KeyClass::Outlier };
        let outliers = study.outliers.iter().enumerate();
        let outliers = outliers.map(|(at, key)| (key.key, KeyTrial::new(&limits, class(at))));
        let mut trials = HashMap::new();
        trials.extend(ordinary.chain(outliers));
        Self { study, limits, trials, without_crowd }
    }

    fn add(&mut self, key: u64, time: Timestamp, cost: Cost) {
        if let Some(trial) = self.trials.get_mut(&key) {
            trial.add(&self.limits, time, cost);
        }
        if let Some(other) = &mut self.without_crowd {
            other.add(key, time, cost);
        }
    }

    fn finish(mut self) -> Proposal {
        let without_crowd = self.without_crowd.take().map(|other| other.finish());
        let candidates = 0..self.limits.len();
        let (counts, mut targets): (Vec<_>, Vec<_>) = candidates.map(|at| self.count(at)).unzip();
        let allowed = self.study.peaks.refusable;
        for (counts, targets) in counts.iter().zip(&mut targets) {
            if counts.ordinary_keys > allowed {
                *targets = TargetRefusals::default();
            }
        }
        let at = best(&self.study.candidates, &targets).unwrap_or(0);
        let refused = targets.get(at).map_or(0, |targets| targets.keys);
        Proposal::new(&self.study, at, counts.get(at).copied(), refused).beside(without_crowd)
    }

    /// The refusals of the candidate at an index.
    fn count(&self, at: usize) -> (RefusalCounts, TargetRefusals) {
        let (mut counts, mut targets) = (RefusalCounts::default(), TargetRefusals::default());
        for trial in self.trials.values() {
            let refused = trial.refused.get(at).copied().unwrap_or(0);
            let is_refused = usize::from(refused > 0);
            match trial.class {
                KeyClass::Ordinary => {
                    counts.ordinary_keys += is_refused;
                    counts.ordinary_requests += refused;
                }
                KeyClass::Outlier | KeyClass::Target => {
                    counts.outlier_keys += is_refused;
                    counts.outlier_requests += refused;
                    counts.outlier_requests_seen += trial.requests;
                }
            }
            if trial.class == KeyClass::Target {
                targets.keys += is_refused;
                #[allow(clippy::cast_precision_loss, reason = "a number of requests is below 2^53")]
                (targets.requests += refused as f64);
            }
        }
        (counts, targets)
    }
}
