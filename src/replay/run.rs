//! One log through one plan, and through another one to compare them.

use std::collections::HashMap;

use super::caller::LoggedConsumers;
use super::decided::{LimitResult, ReplaySink, ReplayVerdict, ReplayedRequest};
use super::statistics::ReplayStatistics;
use super::virtual_gateway::VirtualGateway;
use crate::log_reader::request::LoggedRequest;
use crate::plan::admission::RequestCharges;
use crate::plan::{LimitIndex, Plan};
use crate::route::RouteIndex;
use crate::store::memory::OutOfMemory;
use crate::telemetry::metrics::DecisionLabel;

/// A replay.
#[derive(Debug)]
pub struct Replay<'p> {
    candidate: ReplayedPlan<'p>,
    baseline: Option<Box<ReplayedPlan<'p>>>,
    comparison: PlanComparison,
}

/// A plan, its counters, and what it decided.
#[derive(Debug)]
struct ReplayedPlan<'p> {
    gateway: VirtualGateway<'p>,
    recorder: Recorder<'p>,
}

#[derive(Debug)]
struct Recorder<'p> {
    statistics: ReplayStatistics<'p>,
    /// The requests decided since they were last compared, each with the limit that refuses it.
    decided: Vec<(u64, Option<LimitIndex>)>,
    compared: bool,
}

/// Is given each decision of the plan.
pub type Watch<'w> = dyn FnMut(&LoggedRequest, &ReplayedRequest<'_>) + 'w;

struct WatchedRun<'a, 'p, 'w> {
    recorder: &'a mut Recorder<'p>,
    watch: &'a mut Watch<'w>,
}

/// The requests that one plan refuses and the other does not.
#[derive(Clone, Debug, Default)]
pub struct PlanComparison {
    /// Refused by the plan, and not by the one it is compared with.
    pub newly_refused: u64,
    /// Refused by the one it is compared with, and not by the plan.
    pub newly_admitted: u64,
    /// Those newly refused, by the limit of the plan that refuses them.
    pub refused_by: HashMap<LimitIndex, u64>,
    /// Those newly admitted, by the limit of the other plan that refuses them.
    pub admitted_from: HashMap<LimitIndex, u64>,
    /// Requests that one of the plans has not decided yet.
    pending: HashMap<u64, (Side, Option<LimitIndex>)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Candidate,
    Baseline,
}

impl<'p> Replay<'p> {
    /// A replay through `plan`, compared with another one if there is one. `logged` takes the consumers that
    /// only the log names, for each plan; `secret` is any random bytes.
    ///
    /// # Errors
    ///
    /// The system has no memory for the counters.
    pub fn new(
        plan: &'p Plan,
        against: Option<&'p Plan>,
        logged: &'p [LoggedConsumers; 2],
        secret: [u8; 16],
    ) -> Result<Self, OutOfMemory> {
        let [own, others] = logged;
        let compared = against.is_some();
        let baseline =
            against.map(|plan| ReplayedPlan::new(plan, others, secret, true).map(Box::new)).transpose()?;
        let candidate = ReplayedPlan::new(plan, own, secret, compared)?;
        Ok(Self { candidate, baseline, comparison: PlanComparison::default() })
    }

    /// Decides a request, which is not earlier than those before it. `watch` is given each decision.
    pub fn request(&mut self, request: &LoggedRequest, watch: &mut Watch<'_>) {
        let ReplayedPlan { gateway, recorder } = &mut self.candidate;
        gateway.request(request, &mut WatchedRun { recorder, watch });
        if let Some(baseline) = &mut self.baseline {
            let ReplayedPlan { gateway, recorder } = &mut **baseline;
            gateway.request(request, recorder);
            self.compare();
        }
    }

    /// The log has ended.
    pub fn finish(&mut self, watch: &mut Watch<'_>) {
        let ReplayedPlan { gateway, recorder } = &mut self.candidate;
        gateway.finish(&mut WatchedRun { recorder, watch });
        if let Some(baseline) = &mut self.baseline {
            let ReplayedPlan { gateway, recorder } = &mut **baseline;
            gateway.finish(recorder);
            self.compare();
        }
    }

    /// The sums.
    pub fn statistics(&self) -> &ReplayStatistics<'p> {
        &self.candidate.recorder.statistics
    }

    /// The sums of the plan that it is compared with, and the differences.
    pub fn compared(&self) -> Option<(&ReplayStatistics<'p>, &PlanComparison)> {
        self.baseline.as_ref().map(|baseline| (&baseline.recorder.statistics, &self.comparison))
    }

    /// Keys that were evicted because `max_keys` was reached.
    pub fn evictions(&self) -> u64 {
        self.candidate.gateway.evictions()
    }

    /// Requests whose consumer no auth has: they count as anonymous.
    pub fn unknown_consumers(&self) -> u64 {
        self.candidate.gateway.unknown_consumers()
    }

    /// Requests with an API key that no consumer has: they are refused.
    pub fn wrong_keys(&self) -> u64 {
        self.candidate.gateway.wrong_keys()
    }

    fn compare(&mut self) {
        let Some(baseline) = &mut self.baseline else { return };
        for (number, refused) in self.candidate.recorder.decided.drain(..) {
            self.comparison.add(number, Side::Candidate, refused);
        }
        for (number, refused) in baseline.recorder.decided.drain(..) {
            self.comparison.add(number, Side::Baseline, refused);
        }
    }
}

impl<'p> ReplayedPlan<'p> {
    fn new(
        plan: &'p Plan,
        logged: &'p LoggedConsumers,
        secret: [u8; 16],
        compared: bool,
    ) -> Result<Self, OutOfMemory> {
        let statistics = ReplayStatistics::new(plan);
        let recorder = Recorder { statistics, decided: Vec::new(), compared };
        Ok(Self { gateway: VirtualGateway::new(plan, logged, secret)?, recorder })
    }
}

impl PlanComparison {
    fn add(&mut self, number: u64, side: Side, refused: Option<LimitIndex>) {
        let Some((other, others)) = self.pending.remove(&number) else {
            self.pending.insert(number, (side, refused));
            return;
        };
        debug_assert_ne!(side, other, "each plan decides a request once");
        let (candidate, baseline) =
            if side == Side::Candidate { (refused, others) } else { (others, refused) };
        match (candidate, baseline) {
            (Some(limit), None) => {
                self.newly_refused += 1;
                *self.refused_by.entry(limit).or_default() += 1;
            }
            (None, Some(limit)) => {
                self.newly_admitted += 1;
                *self.admitted_from.entry(limit).or_default() += 1;
            }
            _ => {}
        }
    }
}

impl ReplaySink for WatchedRun<'_, '_, '_> {
    fn expect(&self, request: &LoggedRequest, route: RouteIndex, charges: &RequestCharges<'_>) {
        self.recorder.expect(request, route, charges);
    }

    fn decided(
        &mut self,
        request: &LoggedRequest,
        replayed: &ReplayedRequest<'_>,
        key: &dyn Fn(LimitIndex) -> String,
    ) {
        (self.watch)(request, replayed);
        self.recorder.decided(request, replayed, key);
    }
}

impl ReplaySink for Recorder<'_> {
    fn expect(&self, request: &LoggedRequest, route: RouteIndex, charges: &RequestCharges<'_>) {
        self.statistics.expect(request, route, charges);
    }

    fn decided(
        &mut self,
        request: &LoggedRequest,
        replayed: &ReplayedRequest<'_>,
        key: &dyn Fn(LimitIndex) -> String,
    ) {
        self.statistics.decided(request, replayed, key);
        if self.compared {
            let refused = replayed.verdict == ReplayVerdict::Refused;
            let refuses = |result: &&LimitResult| {
                matches!(result.label, DecisionLabel::Limited | DecisionLabel::Banned)
            };
            let by = || replayed.limits.iter().find(refuses);
            let limit = refused.then(|| by().map_or(LimitIndex(usize::MAX), |result| result.limit));
            self.decided.push((replayed.number, limit));
        }
    }
}
