//! A group of requests, with its outliers and candidates.

use super::candidate::{Candidate, CandidateRate, best};
use super::cover::{self, OrdinaryPeaks};
use super::outliers::{self, CLEAR_RATIO, Gap, MIN_PEAK, MIN_RATIO};
use super::peaks::{GroupSummary, GroupTraffic, KeySummary, MIN_NAMED};
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
    /// A clear gap below more keys than outliers may be. They count as ordinary.
    pub(super) crowd: Option<Gap>,
    /// The same group with these keys as outliers.
    pub(super) without_crowd: Option<Box<GroupStudy>>,
}

/// The keys of a group, separated by their peaks and by their responses.
struct Separated {
    /// For each key whether it is an outlier.
    is_outlier: Vec<bool>,
    gaps: Vec<Gap>,
    /// The indices of keys that look like many users behind one address.
    shared: Vec<usize>,
    has_steady: bool,
    /// The crowd, and the indices of its keys.
    crowd: Option<(Gap, Vec<usize>)>,
}

impl Separated {
    /// Keys that got only 401 and 403 are set apart before the peaks of the others are compared, unless they are more than
    /// half of all: they neither hide a gap nor count as outliers by number. Those of them that are no higher than the
    /// others stay ordinary.
    fn of(keys: &[KeySummary], judged: usize) -> Self {
        let is_named = |key: &KeySummary| key.is_denied && u64::from(key.units) >= MIN_NAMED;
        let denied = keys.iter().filter(|key| is_named(key)).count();
        if denied == 0 || denied > keys.len() / 2 {
            return Self::by_peaks(keys, judged);
        }
        let (apart, rest): (Vec<usize>, Vec<usize>) =
            (0..keys.len()).partition(|at| keys.get(*at).is_some_and(is_named));
        let of = |indices: &[usize]| -> Vec<KeySummary> {
            indices.iter().filter_map(|at| keys.get(*at)).copied().collect()
        };
        let (others, denied) = (of(&rest), of(&apart));
        let found = Self::by_peaks(&others, judged);
        let of_all = |indices: Vec<usize>| -> Vec<usize> {
            indices.into_iter().filter_map(|at| rest.get(at).copied()).collect()
        };
        let flagged = others.iter().zip(&found.is_outlier).filter(|(_, is_outlier)| !**is_outlier);
        let ordinary: Vec<_> = flagged.map(|(key, _)| *key).collect();
        let peaks = OrdinaryPeaks::new(&ordinary, 1.0);
        let is_beyond = |key: &KeySummary| {
            let (window, ratio) = peaks.ratio(key, judged);
            key.peak(window) >= MIN_PEAK && ratio >= MIN_RATIO
        };
        let beyond: Vec<_> = denied.iter().map(|key| !ordinary.is_empty() && is_beyond(key)).collect();
        let mut is_outlier = vec![false; keys.len()];
        let flags = rest.iter().zip(&found.is_outlier).chain(apart.iter().zip(&beyond));
        for (at, flag) in flags {
            is_outlier.get_mut(*at).into_iter().for_each(|own| *own = *flag);
        }
        let denied: Vec<_> =
            denied.iter().zip(&beyond).filter(|(_, is_beyond)| **is_beyond).map(|(key, _)| *key).collect();
        Self {
            is_outlier,
            gaps: gap_below(&denied, &peaks, judged).into_iter().chain(found.gaps).collect(),
            shared: of_all(found.shared),
            has_steady: found.has_steady,
            crowd: found.crowd.map(|(gap, keys)| (gap, of_all(keys))),
        }
    }

    fn by_peaks(keys: &[KeySummary], judged: usize) -> Self {
        let (mut separation, shared) = shared_address::separate(keys, judged);
        let has_steady = steady::add_outliers(keys, judged, &mut separation);
        let crowd = if separation.gaps.is_empty() { outliers::crowd(keys, judged) } else { None };
        Self { is_outlier: separation.is_outlier, gaps: separation.gaps, shared, has_steady, crowd }
    }
}

/// The window in which all of these keys are furthest above ordinary ones, if they are in any.
fn gap_below(keys: &[KeySummary], ordinary: &OrdinaryPeaks, judged: usize) -> Option<Gap> {
    let gaps = (0..judged).filter_map(|window| {
        let above = keys.iter().map(|key| key.peak(window)).min()?;
        Some(Gap { window, below: ordinary.max(window), above, keys: keys.len() })
    });
    let gaps = gaps.filter(|gap| gap.above >= MIN_PEAK && gap.ratio() >= MIN_RATIO);
    gaps.max_by(|one, other| one.ratio().total_cmp(&other.ratio()))
}

impl GroupStudy {
    pub(super) fn new(mut summary: GroupSummary, options: SuggestOptions) -> Self {
        let mut separated = Separated::of(&summary.keys, summary.judged);
        let crowd = separated.crowd.take();
        let without_crowd = crowd.as_ref().map(|(gap, crowd)| {
            let mut is_outlier = separated.is_outlier.clone();
            for at in crowd {
                is_outlier.get_mut(*at).into_iter().for_each(|flag| *flag = true);
            }
            let separated = Separated {
                is_outlier,
                gaps: vec![*gap],
                shared: Vec::new(),
                has_steady: false,
                crowd: None,
            };
            Box::new(Self::build(summary.keys.clone(), &summary, separated, options))
        });
        let study = Self::build(std::mem::take(&mut summary.keys), &summary, separated, options);
        Self { crowd: crowd.map(|(gap, _)| gap), without_crowd, ..study }
    }

    fn build(
        mut keys: Vec<KeySummary>,
        GroupSummary { names, traffic, judged, .. }: &GroupSummary,
        separated: Separated,
        options: SuggestOptions,
    ) -> Self {
        let (traffic, judged) = (*traffic, *judged);
        let name = |key: u64| names.get(&key).cloned().unwrap_or_else(|| format!("#{key:016x}"));
        let Separated { is_outlier, gaps, shared, has_steady, .. } = separated;
        let shared_names = shared.iter().filter_map(|at| keys.get(*at)).map(|key| name(key.key)).collect();
        let flagged = keys.iter().zip(&is_outlier);
        let mut outliers: Vec<_> =
            flagged.filter(|(_, is_outlier)| **is_outlier).map(|(key, _)| *key).collect();
        let mut flags = is_outlier.iter();
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
            crowd: None,
            without_crowd: None,
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
