//! A proposed limit with its reasons.

use serde::Serialize;

use super::candidate::Candidate;
use super::group::GroupStudy;
use super::notes;
use super::report::{self, GapReport, OutlierReport, RefusalCounts, WindowReport};

/// A proposed limit for one group, with its reasons.
#[derive(Clone, Debug, Serialize)]
pub struct Proposal {
    /// The name of the algorithm.
    pub algorithm: &'static str,
    /// The rates, all of which have to admit. Empty: there were no requests, and nothing is proposed.
    pub rates: Vec<ProposedRate>,
    /// The factor between the kept peak of ordinary keys and the rates, before rounding.
    pub head_room: f64,
    /// The factor that was asked for.
    pub asked_head_room: f64,
    /// The share of ordinary keys to be admitted that was asked for.
    pub keep: f64,
    /// The number of keys.
    pub keys: usize,
    /// The number of requests.
    pub requests: u64,
    /// Whether some request costs more than one unit.
    pub has_costs: bool,
    /// The seconds from the first request to the last one.
    pub span: f64,
    /// The windows that the requests can judge.
    pub windows: Vec<WindowReport>,
    /// The gaps that separate outliers.
    pub gaps: Vec<GapReport>,
    /// The keys beyond the gaps: those to be refused first, then those with the most units.
    pub outliers: Vec<OutlierReport>,
    /// What the second pass found; `None`: there was none.
    pub verification: Option<RefusalCounts>,
    /// What the requests cannot tell, in sentences.
    pub notes: Vec<String>,
}

/// A rate of a proposed limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ProposedRate {
    /// As in the config file: `300/min`.
    pub rate: String,
    /// The units per period; also the burst or the queue.
    pub count: u32,
    /// The period as in the config file: `min`.
    pub period: &'static str,
}

impl Proposal {
    /// The proposal with the candidate at an index, which refuses `refused` targets.
    pub(super) fn new(
        group: &GroupStudy,
        at: usize,
        verification: Option<RefusalCounts>,
        refused: usize,
    ) -> Self {
        let none = Candidate { rates: Vec::new(), head_room: group.options.head_room, admits_all: true };
        let candidate = group.candidates.get(at).unwrap_or(&none);
        let rates = candidate.rates.iter().map(|rate| ProposedRate {
            rate: format!("{}/{}", rate.count, rate.span().name),
            count: rate.count,
            period: rate.span().name,
        });
        Self {
            algorithm: group.options.algorithm.as_str(),
            rates: rates.collect(),
            head_room: candidate.head_room,
            asked_head_room: group.options.head_room,
            keep: group.options.keep,
            keys: group.ordinary.len() + group.outliers.len(),
            requests: group.traffic.requests,
            has_costs: group.traffic.has_costs(),
            span: report::seconds(group.traffic.span()),
            windows: report::windows(group, candidate),
            gaps: group.gaps.iter().map(report::gap).collect(),
            outliers: report::outliers(group),
            notes: notes::notes(group, candidate, refused, verification.is_some()),
            verification,
        }
    }
}
