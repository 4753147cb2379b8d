//! Outliers: the keys beyond a gap in the distribution of peaks.
//!
//! In each window the peaks are sorted. A gap is a pair of neighbours with a large ratio; the keys above it are a small
//! minority. Three rules keep chance from making gaps:
//!
//! - The peak above a gap is at least [`MIN_PEAK`] units: 1 → 2 → 4 is not a gap.
//! - A ratio of at least [`CLEAR_RATIO`] is a gap. It is 3, less the resolution of the peaks.
//! - A smaller ratio, of at least [`MIN_RATIO`], is a gap only if the tail of the distribution below it makes it
//!   improbable. In a tail with the index 1/γ (Hill's estimate, from the keys below), the logarithm of the ratio between
//!   the j-th largest peak and the next one is exponential with mean γ/j (Rényi's representation): so a ratio r has the
//!   probability r^(-j/γ), which must be below [`MAX_CHANCE`].
//!
//! The largest gap of all windows is taken first, its upper keys are set aside, and the search starts again: abusers
//! differ in strength and in the window that shows them.
//!
//! Source: B. M. Hill, "A simple general approach to inference about the tail of a distribution", Annals of Statistics
//! 3(5), 1975.

use super::peaks::KeySummary;
use super::windows::WINDOW_COUNT;

/// The smallest peak above a gap, in units.
pub(super) const MIN_PEAK: u32 = 8;
/// A ratio that is a gap whatever the distribution.
pub(super) const CLEAR_RATIO: f64 = 2.75;
/// The smallest ratio of a gap.
pub(super) const MIN_RATIO: f64 = 2.0;
/// The largest probability of a gap below [`CLEAR_RATIO`].
const MAX_CHANCE: f64 = 0.002;
/// The number of keys below a gap that describe the tail.
const TAIL: std::ops::RangeInclusive<usize> = 5..=50;

/// A gap in the distribution of peaks in one window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Gap {
    /// The index of the window.
    pub(super) window: usize,
    /// The largest peak below the gap.
    pub(super) below: u32,
    /// The smallest peak above the gap.
    pub(super) above: u32,
    /// The number of keys above, without those of earlier gaps.
    pub(super) keys: usize,
}

impl Gap {
    pub(super) fn ratio(&self) -> f64 {
        f64::from(self.above) / f64::from(self.below.max(1))
    }
}

/// The keys of a group, separated.
pub(super) struct Separation {
    /// For each key whether it is an outlier.
    pub(super) is_outlier: Vec<bool>,
    /// The gaps, in the order in which they were found.
    pub(super) gaps: Vec<Gap>,
}

/// Separates outliers, by the first `judged` windows. The keys with the indices `absent` are left out: they are no outliers,
/// and no gap begins or ends at one of them.
pub(super) fn separate(keys: &[KeySummary], judged: usize, absent: &[usize]) -> Separation {
    let mut found = Separation { is_outlier: vec![false; keys.len()], gaps: Vec::new() };
    let max = max_outliers(keys.len());
    let ranks: Vec<Vec<usize>> =
        (0..judged.min(WINDOW_COUNT)).map(|window| ranked(keys, window, max, absent)).collect();
    let mut left = max;
    while left > 0 {
        let gaps = ranks.iter().enumerate().filter_map(|(window, ranked)| {
            let rest: Vec<usize> =
                ranked.iter().copied().filter(|at| found.is_outlier.get(*at) == Some(&false)).collect();
            let peaks: Vec<u32> =
                rest.iter().filter_map(|at| keys.get(*at)).map(|key| key.peak(window)).collect();
            largest_gap(window, &peaks, left).map(|gap| (gap, rest))
        });
        let Some((gap, rest)) = gaps.max_by(|(one, _), (other, _)| one.ratio().total_cmp(&other.ratio()))
        else {
            break;
        };
        for at in rest.into_iter().take(gap.keys) {
            if let Some(is_outlier) = found.is_outlier.get_mut(at) {
                *is_outlier = true;
            }
        }
        left -= gap.keys;
        found.gaps.push(gap);
    }
    found
}

/// The largest clear gap with more keys above it than outliers may be, but at most half of all.
pub(super) fn crowd(keys: &[KeySummary], judged: usize) -> Option<(Gap, Vec<usize>)> {
    let (min, max) = (max_outliers(keys.len()), keys.len() / 2);
    let gaps = (0..judged.min(WINDOW_COUNT)).filter_map(|window| {
        let ranked = ranked(keys, window, max, &[]);
        let peak = |at: &usize| keys.get(*at).map_or(0, |key| key.peak(window));
        let pairs = ranked.iter().zip(ranked.iter().skip(1)).enumerate().take(max);
        let gaps = pairs.map(|(at, (above, below))| Gap {
            window,
            below: peak(below),
            above: peak(above),
            keys: at + 1,
        });
        let is_clear = |gap: &Gap| gap.keys > min && gap.above >= MIN_PEAK && gap.ratio() >= CLEAR_RATIO;
        let gap = gaps.filter(is_clear).max_by(|one, other| one.ratio().total_cmp(&other.ratio()))?;
        Some((gap, ranked))
    });
    let (gap, mut ranked) = gaps.max_by(|(one, _), (other, _)| one.ratio().total_cmp(&other.ratio()))?;
    ranked.truncate(gap.keys);
    Some((gap, ranked))
}

/// The largest number of outliers among `keys` keys: a tenth of them; of few keys up to 6, if that is at most a third.
pub(super) fn max_outliers(keys: usize) -> usize {
    (keys / 10).max((keys / 3).min(6))
}

/// The indices of the keys with the largest peaks in a window, largest first, without `absent`: as many as may matter.
fn ranked(keys: &[KeySummary], window: usize, max: usize, absent: &[usize]) -> Vec<usize> {
    let count = 2 * max + TAIL.end() + 1;
    let peak = |at: &usize| std::cmp::Reverse(keys.get(*at).map_or(0, |key| key.peak(window)));
    let mut ranked: Vec<usize> = (0..keys.len()).filter(|at| !absent.contains(at)).collect();
    if count < ranked.len() {
        ranked.select_nth_unstable_by_key(count, peak);
        ranked.truncate(count);
    }
    ranked.sort_unstable_by_key(peak);
    ranked
}

/// The largest gap below one of the first `max` peaks, which are sorted, largest first.
fn largest_gap(window: usize, peaks: &[u32], max: usize) -> Option<Gap> {
    let pairs = peaks.iter().zip(peaks.iter().skip(1)).enumerate().take(max);
    let gaps = pairs.map(|(at, (above, below))| Gap { window, below: *below, above: *above, keys: at + 1 });
    let gaps = gaps.filter(|gap| gap.above >= MIN_PEAK && gap.ratio() >= MIN_RATIO);
    let gaps = gaps.filter(|gap| {
        let below = peaks.get(gap.keys..).unwrap_or_default();
        gap.ratio() >= CLEAR_RATIO || chance(gap, below).is_some_and(|chance| chance <= MAX_CHANCE)
    });
    gaps.max_by(|one, other| one.ratio().total_cmp(&other.ratio()))
}

/// The probability of a gap, by the tail below it. `None`: there are too few keys to tell.
fn chance(gap: &Gap, below: &[u32]) -> Option<f64> {
    let tail = below.get(..below.len().min(*TAIL.end())).filter(|tail| tail.len() >= *TAIL.start())?;
    let least = f64::from((*tail.last()?).max(1)).ln();
    #[allow(clippy::cast_precision_loss, reason = "the tail has few keys, and the keys above fit 2^32")]
    let (count, keys) = (tail.len() as f64 - 1.0, gap.keys as f64);
    let mean = tail.iter().map(|peak| f64::from((*peak).max(1)).ln() - least).sum::<f64>() / count;
    Some((-keys * gap.ratio().ln() / mean.max(0.05)).exp())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outliers(peaks: &[u32]) -> Vec<u32> {
        let keys: Vec<_> = peaks
            .iter()
            .map(|peak| KeySummary { key: 0, units: 0, is_denied: false, peaks: [*peak; WINDOW_COUNT] })
            .collect();
        let found = separate(&keys, 1, &[]);
        peaks
            .iter()
            .zip(found.is_outlier)
            .filter(|(_, is_outlier)| *is_outlier)
            .map(|(peak, _)| *peak)
            .collect()
    }

    #[test]
    fn gaps_of_tiny_counts_are_none() {
        assert_eq!(outliers(&[1, 1, 1, 1, 2, 2, 4]), [0; 0]);
        assert_eq!(outliers(&[]), [0; 0]);
        assert_eq!(outliers(&[50]), [0; 0]);
        assert_eq!(outliers(&[10, 100]), [0; 0], "one of two is no minority");
    }

    #[test]
    fn abusers_of_different_strength_are_found() {
        let mut peaks: Vec<u32> = (1..=100).map(|at| 10 + at % 13).collect();
        peaks.extend([70, 900, 40_000]);
        assert_eq!(outliers(&peaks), [70, 900, 40_000]);
    }

    #[test]
    fn a_factor_of_two_is_a_gap_only_beyond_a_thin_tail() {
        let thin: Vec<u32> = (0..100).map(|at| 100 + at % 20).chain([260]).collect();
        assert_eq!(outliers(&thin), [260]);
        let tail = [160, 250, 400, 640, 1_000, 1_600, 2_500];
        let heavy: Vec<u32> = (0..100).chain(tail).chain([5_500]).collect();
        assert_eq!(outliers(&heavy), [0; 0]);
    }

    #[test]
    fn the_upper_side_is_a_minority() {
        let half: Vec<u32> = (0..100).map(|at| if at % 2 == 0 { 10 } else { 1_000 }).collect();
        assert_eq!(outliers(&half), [0; 0]);
    }

    #[test]
    fn a_crowd_is_more_than_a_tenth_and_at_most_half() {
        let crowd = |above: u32| {
            let peaks = (0..200_u32).map(|at| if at < above { 1_000 } else { 10 + at % 7 });
            let keys: Vec<_> = peaks
                .map(|peak| KeySummary { key: 0, units: 0, is_denied: false, peaks: [peak; WINDOW_COUNT] })
                .collect();
            super::crowd(&keys, 1).map(|(gap, keys)| (gap.below, gap.above, gap.keys, keys.len()))
        };
        assert_eq!(
            [20, 21, 100, 101].map(crowd),
            [None, Some((16, 1_000, 21, 21)), Some((16, 1_000, 100, 100)), None]
        );
    }
}
