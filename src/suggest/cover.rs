//! Candidates: the windows whose rates refuse most requests of the targets, with several head rooms.
//!
//! Targets are the outliers that a limit has to refuse.

use super::SuggestOptions;
use super::candidate::{Candidate, CandidateRate, SuggestedAlgorithm, TargetRefusals, best};
use super::peaks::{KeySummary, largest_peaks};
use super::windows::{WINDOW_COUNT, WINDOWS};

/// The number of steps from the head room asked for down to none.
const STEPS: i32 = 5;
/// The windows of a limit for a group without outliers: 1 min and 1 h.
const USUAL: [usize; 2] = [2, 4];

/// The peaks that a limit has to admit.
pub(super) struct OrdinaryPeaks {
    /// The largest ones in each window, largest first.
    largest: [Vec<u32>; WINDOW_COUNT],
    /// The number of keys that may be refused.
    pub(super) refusable: usize,
}

impl OrdinaryPeaks {
    /// Of these keys, the share `keep` has to be admitted.
    pub(super) fn new(keys: &[KeySummary], keep: f64) -> Self {
        let refusable = refusable(keys.len(), keep);
        Self { largest: largest_peaks(keys, refusable + 1), refusable }
    }

    /// The largest peak in a window.
    pub(super) fn max(&self, window: usize) -> u32 {
        self.at(window, 0)
    }

    /// The largest peak in a window of the keys that have to be admitted, if each of `rates` rates refuses its share of
    /// the others.
    pub(super) fn kept(&self, window: usize, rates: usize) -> u32 {
        self.at(window, self.refusable / rates.max(1))
    }

    /// The window in which the peak of a key is the greatest multiple of the ordinary one, the longest of equals, and this
    /// multiple.
    pub(super) fn ratio(&self, key: &KeySummary, judged: usize) -> (usize, f64) {
        let ratio = |window: usize| f64::from(key.peak(window)) / f64::from(self.max(window).max(1));
        let ratios = (0..judged).map(|window| (window, ratio(window)));
        ratios.max_by(|(_, one), (_, other)| one.total_cmp(other)).unwrap_or((0, 0.0))
    }

    fn at(&self, window: usize, rank: usize) -> u32 {
        let peaks = self.largest.get(window);
        peaks.and_then(|peaks| peaks.get(rank).or(peaks.last())).copied().unwrap_or(0)
    }
}

/// The number of `keys` that are more than the share `keep`, rounded down.
#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a share"
)]
fn refusable(keys: usize, keep: f64) -> usize {
    ((1.0 - keep.clamp(0.0, 1.0)) * keys as f64 + 1e-6).floor() as usize
}

/// Candidates: for each head room those with the windows that refuse most by the bounds of the first pass. Without targets
/// one candidate with the usual windows.
pub(super) fn candidates(
    ordinary: &OrdinaryPeaks,
    targets: &[KeySummary],
    judged: usize,
    options: &SuggestOptions,
) -> Vec<Candidate> {
    if targets.is_empty() {
        return vec![candidate(ordinary, &usual(judged), options.head_room.max(1.0), true)];
    }
    let mut candidates: Vec<Candidate> = Vec::new();
    let kinds: &[bool] = if ordinary.refusable > 0 { &[true, false] } else { &[true] };
    for admits_all in kinds {
        for head_room in head_rooms(options) {
            let build = |windows: &[usize]| candidate(ordinary, windows, head_room, *admits_all);
            for candidate in shortlist(targets, judged, options.algorithm, &build) {
                if candidates.iter().all(|other| other.rates != candidate.rates) {
                    candidates.push(candidate);
                }
            }
        }
    }
    candidates
}

/// A candidate with a rate for each of these windows.
fn candidate(ordinary: &OrdinaryPeaks, windows: &[usize], head_room: f64, admits_all: bool) -> Candidate {
    let rate = |window: &usize| {
        let kept = ordinary.kept(*window, windows.len());
        let min = if admits_all { ordinary.max(*window) } else { kept };
        CandidateRate::above(*window, kept, min, head_room)
    };
    Candidate { rates: windows.iter().map(rate).collect(), head_room, admits_all }
}

/// The windows of a limit for a group without targets.
fn usual(judged: usize) -> Vec<usize> {
    let usual: Vec<_> = USUAL.into_iter().filter(|window| *window < judged).collect();
    if usual.is_empty() { vec![judged.saturating_sub(1)] } else { usual }
}

/// The candidates of one head room: the best one with a single rate, the best one with up to two rates, and if these
/// miss a target, one with as many rates as needed.
fn shortlist(
    targets: &[KeySummary],
    judged: usize,
    algorithm: SuggestedAlgorithm,
    build: &dyn Fn(&[usize]) -> Candidate,
) -> Vec<Candidate> {
    let refused = |candidate: &Candidate| refused(candidate, algorithm, targets);
    let mut all: Vec<_> = (0..judged).map(|window| build(&[window])).collect();
    let single = best(&all, &all.iter().map(refused).collect::<Vec<_>>());
    all.extend((0..judged).flat_map(|one| (one + 1..judged).map(move |other| build(&[one, other]))));
    let outcomes: Vec<_> = all.iter().map(refused).collect();
    let of_two = best(&all, &outcomes);
    let is_cover = |at: &usize| outcomes.get(*at).is_some_and(|outcome| outcome.keys == targets.len());
    let mut short: Vec<_> =
        [of_two, single].into_iter().flatten().filter_map(|at| all.get(at).cloned()).collect();
    if !of_two.as_ref().is_some_and(is_cover) {
        let singles = all.get(..judged).unwrap_or_default();
        short.push(build(&cover(targets, singles, algorithm)));
    }
    short
}

/// What a candidate refuses of the targets for certain.
pub(super) fn refused(
    candidate: &Candidate,
    algorithm: SuggestedAlgorithm,
    targets: &[KeySummary],
) -> TargetRefusals {
    let mut refused = TargetRefusals::default();
    for key in targets {
        let units = refused_units(candidate, algorithm, key);
        if units > 0.0 {
            refused.keys += 1;
            refused.requests += units;
        }
    }
    refused
}

/// The units of a key that the rate with the most refusals refuses for certain.
fn refused_units(candidate: &Candidate, algorithm: SuggestedAlgorithm, key: &KeySummary) -> f64 {
    let peaks = || WINDOWS.iter().zip(key.peaks);
    let refused = candidate
        .rates
        .iter()
        .flat_map(|rate| peaks().map(move |(window, units)| rate.refused_units(algorithm, *window, units)));
    refused.fold(0.0, f64::max)
}

/// The factors above the ordinary peak, the greatest first. The estimate of a sliding window is up to twice a peak.
fn head_rooms(options: &SuggestOptions) -> Vec<f64> {
    let asked = options.head_room.max(1.0);
    let step = |at: i32, of: i32, max: f64| max.powf(f64::from(of - at) / f64::from(of));
    match options.algorithm {
        SuggestedAlgorithm::SlidingWindow => {
            (0..=2 * STEPS).map(|at| step(at, 2 * STEPS, 2.0 * asked)).collect()
        }
        _ => (0..=STEPS).map(|at| step(at, STEPS, asked)).collect(),
    }
}

/// Chooses windows until each target is refused in one of them, if it is in any: each time the one that refuses most of
/// the others, the shortest of equals, since it refuses soonest. For each of the other targets the window that shows it
/// best is added. `singles` has a candidate with one rate for each window.
fn cover(targets: &[KeySummary], singles: &[Candidate], algorithm: SuggestedAlgorithm) -> Vec<usize> {
    let (mut windows, mut missed) = (Vec::new(), targets.to_vec());
    let refuses = |single: &Candidate, key: &KeySummary| refused_units(single, algorithm, key) > 0.0;
    while !missed.is_empty() {
        let count = |single: &Candidate| missed.iter().filter(|key| refuses(single, key)).count();
        let counts = singles.iter().enumerate().rev().map(|(window, single)| (count(single), window, single));
        let Some((_, window, single)) =
            counts.max_by_key(|(count, ..)| *count).filter(|(count, ..)| *count > 0)
        else {
            break;
        };
        missed.retain(|key| !refuses(single, key));
        windows.push(window);
    }
    windows.extend(missed.iter().filter_map(|key| clearest(singles, key)));
    windows.sort_unstable();
    windows.dedup();
    windows
}

/// The window in which the peak of a key is the greatest multiple of the rate; of equals the longest.
fn clearest(singles: &[Candidate], key: &KeySummary) -> Option<usize> {
    let rates = singles.iter().filter_map(|single| single.rates.first());
    let ratios = rates.map(|rate| (rate.window, f64::from(key.peak(rate.window)) / f64::from(rate.count)));
    ratios.max_by(|(_, one), (_, other)| one.total_cmp(other)).map(|(window, _)| window)
}
