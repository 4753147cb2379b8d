//! Calls of others who ask for decisions.

use super::WorkerMetrics;
use super::family::{Groups, families};
use crate::counter::Counter;
use crate::labels::labels;
use crate::plan::Plan;

families! {
    from (plan: &Plan, calls: &Groups<'_, CallCounters, 1>)

    Counter tollgate_decision_calls_total{protocol, result} "Calls that ask for a decision, by how they ask."
        only_if(plan.decisions.is_some())
        = by(calls, DecisionResult::ALL.map(DecisionResult::as_str), |call| &call.results);
}

labels! {
    /// How others ask: the `protocol` of `tollgate_decision_calls_total`.
    pub enum DecisionProtocol {
        /// Envoy's rate limit service.
        Grpc = "grpc",
        /// `/check/forwarded`.
        Forwarded = "forwarded",
        /// `/check/original`.
        Original = "original",
        /// `/check/envoy`.
        Envoy = "envoy",
        /// `/v1/decide`, where each of a list counts.
        Decide = "decide",
    }
}

labels! {
    /// What a call was answered: the `result` of `tollgate_decision_calls_total`.
    pub enum DecisionResult {
        /// The request may pass.
        Allowed = "allowed",
        /// It may not.
        Refused = "refused",
        /// The call was malformed, or its caller may not ask.
        Error = "error",
    }
}

/// The counters of calls of a protocol.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct CallCounters {
    results: [Counter; DecisionResult::ALL.len()],
}

impl WorkerMetrics {
    /// Counts a call that asks for a decision.
    pub fn decision_call(&self, protocol: DecisionProtocol, result: DecisionResult) {
        self.series.calls.at(protocol as usize).results[result as usize].add(1);
    }
}
