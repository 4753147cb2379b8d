//! A group of requests, with its outliers and candidates.

use super::candidate::{Candidate, CandidateRate, best};
use super::cover::{self, OrdinaryPeaks};
use super::outliers::{CLEAR_RATIO, Gap};
use super::peaks::{GroupSummary, GroupTraffic, KeySummary};
use super::{SuggestOptions, shared_address, steady};

/// A group with its candidates.
pub(super) struct GroupStudy {
    pub(super) options: SuggestOptions,
    pub(super) ordinary: Vec<KeySummary>,
    /// The targets first, then those with the most units.
    pub(super) outliers: Vec<KeySummary>,
    /// The number of targets: outliers that the limit has to refuse. The others are near an address with many users, or
    /// are polite crawlers.
    pub(super) targets: usize,
    pub(super) outlier_names: Vec<String>,
    /// Names of ordinary keys that look like many users behind one address.
    pub(super) shared_names: Vec<String>,
    pub(super) gaps: Vec<Gap>,
    pub(super) peaks: OrdinaryPeaks,
    /// The best first; none for a group without requests.
    pub(super) candidates: Vec<Candidate>,
    /// The number of windows that the requests can judge.
    pub(super) judged: usize,
    pub(super) traffic: GroupTraffic,
}

impl GroupStudy {
    pub(super) fn new(summary: GroupSummary, options: SuggestOptions) -> Self {
        let GroupSummary { mut keys, mut names, traffic, judged } = summary;
        let (mut separation, shared) = shared_address::separate(&keys, judged);
        let has_steady = steady::add_outliers(&keys, judged, &mut separation);
        let mut name = |key: u64| names.remove(&key).unwrap_or_else(|| format!("#{key:016x}"));
        let shared_names = shared.iter().filter_map(|at| keys.get(*at)).map(|key| name(key.key)).collect();
        let flagged = keys.iter().zip(&separation.is_outlier);
        let mut outliers: Vec<_> =
            flagged.filter(|(_, is_outlier)| **is_outlier).map(|(key, _)| *key).collect();
        let mut flags = separation.is_outlier.iter();
        keys.retain(|_| flags.next() == Some(&false));
        let ordinary = keys;
        let peaks = OrdinaryPeaks::new(&ordinary, options.keep);
        let has_near = has_steady || !shared.is_empty();
        let is_near = |key: &KeySummary| has_near && peaks.ratio(key, judged).1 < CLEAR_RATIO;
        outliers.sort_by_cached_key(|key| (is_near(key), std::cmp::Reverse(key.units)));
        let targets = outliers.iter().filter(|key| !is_near(key)).count();
        let outlier_names = outliers.iter().map(|key| name(key.key)).collect();
        let candidates = match ordinary.is_empty() {
            true => Vec::new(),
            false => cover::candidates(&peaks, outliers.get(..targets).unwrap_or_default(), judged, &options),
        };
        let gaps = separation.gaps;
        Self {
            options,
            ordinary,
            outliers,
            targets,
            outlier_names,
            shared_names,
            gaps,
            peaks,
            candidates,
            judged,
            traffic,
        }
    }

    /// The lowest rate of all candidates in each window.
    pub(super) fn lowest_rates(&self) -> Vec<CandidateRate> {
        let mut rates: Vec<_> =
            self.candidates.iter().flat_map(|candidate| candidate.rates.clone()).collect();
        rates.sort_unstable_by_key(|rate| (rate.window, rate.count));
        rates.dedup_by_key(|rate| rate.window);
        rates
    }

    /// The outliers that the limit has to refuse.
    pub(super) fn targets(&self) -> &[KeySummary] {
        self.outliers.get(..self.targets).unwrap_or_default()
    }

    /// The index of the best candidate by bounds alone, and the number of targets that it refuses for certain.
    pub(super) fn best_by_bounds(&self) -> Option<(usize, usize)> {
        let refused =
            |candidate: &Candidate| cover::refused(candidate, self.options.algorithm, self.targets());
        let outcomes: Vec<_> = self.candidates.iter().map(refused).collect();
        let best = best(&self.candidates, &outcomes)?;
        Some((best, outcomes.get(best)?.keys))
    }
}
