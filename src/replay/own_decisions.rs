//! The comparison of a replay with the decisions that tollgate wrote into the log.

use crate::log_reader::request::{LinePlace, LoggedRequest};
use crate::telemetry::metrics::DecisionLabel;

use super::decided::{ReplayVerdict, ReplayedRequest};

/// The maximum number of differences that are kept.
const MAX_KEPT: usize = 10;

/// How the replay and the log's own decisions agree.
#[derive(Clone, Debug, Default)]
pub struct OwnDecisions {
    /// Requests with the same decision, limit and remaining units.
    pub same: u64,
    /// Requests with another one.
    pub different: u64,
    /// Requests that a shared store decided, or that ended before they were decided: they are not compared.
    pub not_comparable: u64,
    /// The first differences.
    pub first: Vec<Difference>,
}

/// A request that the replay decides otherwise than the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The line.
    pub place: LinePlace,
    /// The decision in the log: `limited by per-client`.
    pub logged: String,
    /// The decision of the replay.
    pub replayed: String,
}

impl OwnDecisions {
    /// Compares a request of tollgate's own log.
    pub(super) fn compare(&mut self, request: &LoggedRequest, replayed: &ReplayedRequest<'_>) {
        let Some(own) = &request.own else { return };
        // A client that left during a delay has no decision in the log.
        if own.decision == DecisionLabel::StoreError.as_str()
            || request.status == Some(499) && own.decision.is_empty()
        {
            self.not_comparable += 1;
            return;
        }
        let (limit, decision, remaining) = match &replayed.logged {
            Some(logged) => (logged.limit, logged.decision.as_str(), logged.remaining),
            None => ("", "", None),
        };
        let is_same_number = own.remaining.is_none() || own.remaining == remaining;
        if (own.limit.as_str(), own.decision.as_str()) == (limit, decision) && is_same_number {
            self.same += 1;
            return;
        }
        self.different += 1;
        if self.first.len() < MAX_KEPT {
            let replayed = match replayed.verdict {
                ReplayVerdict::Answered(status) => format!("answered with {}", status.as_u16()),
                _ => text(decision, limit, remaining),
            };
            let logged = text(&own.decision, &own.limit, own.remaining);
            self.first.push(Difference { place: request.place, logged, replayed });
        }
    }

    /// Whether the log has such decisions.
    pub fn is_empty(&self) -> bool {
        self.same + self.different + self.not_comparable == 0
    }
}

fn text(decision: &str, limit: &str, remaining: Option<u64>) -> String {
    match (decision, remaining) {
        ("", _) => "no limit decided".to_owned(),
        (decision, None) => format!("{decision} by {limit}"),
        (decision, Some(remaining)) => format!("{decision} by {limit}, {remaining} left"),
    }
}
