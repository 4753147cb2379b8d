//! A proposed limit with its reasons, and notes on what the requests cannot tell.

use serde::Serialize;

use super::candidate::{Candidate, SuggestedAlgorithm};
use super::group::GroupStudy;
use super::outliers::{CLEAR_RATIO, Gap, max_outliers};
use super::report::{self, GapReport, OutlierReport, RefusalCounts, WindowReport, shown};
use super::windows::{WINDOW_COUNT, WINDOWS};

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
    /// The proposal without keys that are far above the others, but too many to be outliers; `None`: there are none.
    pub without_crowd: Option<Box<Proposal>>,
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
            notes: notes(group, candidate, refused, verification.is_some()),
            verification,
            without_crowd: None,
        }
    }

    /// The same with the proposal without a crowd.
    pub(super) fn beside(self, without_crowd: Option<Self>) -> Self {
        Self { without_crowd: without_crowd.map(Box::new), ..self }
    }
}

/// Fewer keys do not show how keys differ.
const FEW_KEYS: usize = 100;

/// The notes on a candidate that refuses `refused` targets.
fn notes(group: &GroupStudy, candidate: &Candidate, refused: usize, is_verified: bool) -> Vec<String> {
    let mut notes = Vec::new();
    if group.traffic.requests == 0 {
        notes.push("There were no requests: no limit is proposed.".to_owned());
        return notes;
    }
    let keys = group.ordinary.len() + group.outliers.len();
    if keys < FEW_KEYS {
        notes.push(format!("Only {keys} {} seen: the peaks of other keys may be higher.", were(keys, "key")));
    }
    if group.judged < WINDOW_COUNT
        && let Some(first) = WINDOWS.get(group.judged)
    {
        notes.push(format!(
            "The requests span too short a time to judge windows of {} and more.",
            first.described()
        ));
    }
    if group.traffic.has_whole_seconds() {
        notes.push(
            "The times are whole seconds: peaks in 1 s include requests of the next second.".to_owned(),
        );
    }
    match &group.crowd {
        Some(gap) => notes.push(on_crowd(gap, keys)),
        None if group.outliers.is_empty() => {
            notes.push(
                "The peaks have no gap: no key is an outlier. The limit is above all peaks.".to_owned(),
            );
        }
        None => {}
    }
    notes.extend(on_outliers(group, candidate, refused, is_verified));
    for name in &group.shared_names {
        notes.push(format!(
            "{} may be many users behind one address: its bursts are those of one user, its sums over hours those of many. It is \
             counted as ordinary.",
            shown(name)
        ));
    }
    if group.options.algorithm == SuggestedAlgorithm::LeakyBucket && !candidate.rates.is_empty() {
        notes.push("A leaky bucket delays requests before it refuses any, ordinary ones too.".to_owned());
    }
    notes
}

fn on_outliers(group: &GroupStudy, candidate: &Candidate, refused: usize, is_verified: bool) -> Vec<String> {
    let mut notes = Vec::new();
    if group.outliers.is_empty() {
        return notes;
    }
    if group.targets > 0 && candidate.head_room + 0.005 < group.options.head_room {
        notes.push(format!(
            "The gap is narrow: the limit is {:.2} times the peak of ordinary keys instead of {} times.",
            candidate.head_room, group.options.head_room
        ));
    }
    match group.outliers.iter().filter(|key| key.is_denied).count() {
        0 => {}
        denied => {
            let verb = if denied == 1 { "outlier" } else { "outliers" };
            notes.push(format!(
                "{denied} {verb} got no answer but 401 and 403: such keys are set apart however many they are."
            ));
        }
    }
    if refused < group.targets {
        let certainty = if is_verified { "" } else { " for certain" };
        notes.push(format!("Only {refused} of {} outliers would be refused{certainty}.", group.targets));
    }
    let others = group.outliers.len() - group.targets;
    if others > 0 {
        let verb = if others == 1 { "outlier is" } else { "outliers are" };
        notes.push(format!(
            "{others} {verb} less than {CLEAR_RATIO} times above ordinary keys: the limit need not refuse them."
        ));
    }
    notes.push(
        "One address may have many users (NAT, a company, a mobile network): look at the outliers before enforcing."
            .to_owned(),
    );
    notes
}

/// The note on keys that are too many to be outliers.
fn on_crowd(gap: &Gap, keys: usize) -> String {
    let window = WINDOWS.get(gap.window).map_or_else(String::new, |window| window.described());
    let max = max_outliers(keys);
    let share = if max * 10 <= keys { "a tenth" } else { "a third" };
    format!(
        "{} of {keys} keys are far above the others: at least {} in {window}, and the others at most {}. Outliers are at most \
         {share} of the keys, here {max}: so these keys count as ordinary, and the limit is above them. The limit without them \
         stands below.",
        gap.keys, gap.above, gap.below
    )
}

/// `1 key was`, `2 keys were` without the number.
fn were(count: usize, noun: &str) -> String {
    if count == 1 { format!("{noun} was") } else { format!("{noun}s were") }
}
