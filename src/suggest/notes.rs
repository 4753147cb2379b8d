//! What the requests cannot tell.

use super::candidate::{Candidate, SuggestedAlgorithm};
use super::group::GroupStudy;
use super::outliers::CLEAR_RATIO;
use super::report::shown;
use super::windows::{WINDOW_COUNT, WINDOWS};

/// Fewer keys do not show how keys differ.
const FEW_KEYS: usize = 100;

/// The notes on a candidate that refuses `refused` targets.
pub(super) fn notes(
    group: &GroupStudy,
    candidate: &Candidate,
    refused: usize,
    is_verified: bool,
) -> Vec<String> {
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
    if group.outliers.is_empty() {
        notes.push("The peaks have no gap: no key is an outlier. The limit is above all peaks.".to_owned());
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

/// `1 key was`, `2 keys were` without the number.
fn were(count: usize, noun: &str) -> String {
    if count == 1 { format!("{noun} was") } else { format!("{noun}s were") }
}
