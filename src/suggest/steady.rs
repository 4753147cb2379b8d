//! Keys with even traffic over hours and days: crawlers, monitors, scrapers.
//!
//! Polite ones may fill the gap between people and a scraper. So the even ones are compared with the others alone: if one
//! is clearly beyond these, those in between are left out of the ordinary keys, too.

use super::outliers::{CLEAR_RATIO, Gap, MIN_PEAK, Separation, max_outliers};
use super::peaks::{KeySummary, largest_peaks};
use super::windows::WINDOW_COUNT;

/// The indices of the windows of 1 h, 6 h and 1 day.
const LONG: [usize; 3] = [4, 5, 6];
/// Even traffic has more units in 6 h than this many peaks of 1 h,
const MIN_HOURS: u32 = 5;
/// and more in 1 day than this many peaks of 6 h.
const MIN_QUARTERS: u32 = 3;

/// Whether the traffic of a key is as even over hours and days as that of a program.
fn is_steady(key: &KeySummary, judged: usize) -> bool {
    let [hour, hours, day] = LONG;
    let is_more = |window: usize, count: u32, part: usize| {
        judged <= window || key.peak(window) > key.peak(part).saturating_mul(count)
    };
    is_more(hours, MIN_HOURS, hour) && is_more(day, MIN_QUARTERS, hours)
}

/// Adds the even keys beyond all other ordinary ones to the outliers, if one of them is clearly beyond these and they are
/// few. Returns whether it added some.
pub(super) fn add_outliers(keys: &[KeySummary], judged: usize, found: &mut Separation) -> bool {
    if judged <= LONG[1] {
        return false;
    }
    let is_left = |at: &usize| found.is_outlier.get(*at) == Some(&false);
    let left = (0..keys.len()).filter(is_left).filter_map(|at| Some((at, keys.get(at)?)));
    let (steady, others): (Vec<_>, Vec<_>) = left.partition(|(_, key)| is_steady(key, judged));
    let others: Vec<_> = others.into_iter().map(|(_, key)| *key).collect();
    let max = largest_peaks(&others, 1).map(|peaks| peaks.first().copied().unwrap_or(0));
    let beyond: Vec<_> =
        steady.into_iter().filter(|(_, key)| exceeds(key, &max, judged, 1.0).is_some()).collect();
    let outliers = found.is_outlier.iter().filter(|is_outlier| **is_outlier).count();
    let clear = |(_, key): &(usize, &KeySummary)| Some((exceeds(key, &max, judged, CLEAR_RATIO)?, key.peaks));
    let clear: Vec<_> = beyond.iter().filter_map(clear).collect();
    let first = clear.iter().min_by_key(|(window, peaks)| peaks.get(*window));
    let Some((window, peaks)) = first.filter(|_| outliers + beyond.len() <= max_outliers(keys.len())) else {
        return false;
    };
    let of = |peaks: &[u32; WINDOW_COUNT]| peaks.get(*window).copied().unwrap_or(0);
    found.gaps.push(Gap { window: *window, below: of(&max), above: of(peaks), keys: clear.len() });
    for (at, _) in beyond {
        found.is_outlier.get_mut(at).into_iter().for_each(|is_outlier| *is_outlier = true);
    }
    true
}

/// The window in which a peak is the largest multiple of the largest one of the others, if it is more than 1 and at least
/// `ratio`.
fn exceeds(key: &KeySummary, max: &[u32; WINDOW_COUNT], judged: usize, ratio: f64) -> Option<usize> {
    let peaks = key.peaks.iter().zip(max).take(judged).enumerate();
    let beyond = peaks.filter(|(_, (peak, max))| peak > max && **peak >= MIN_PEAK);
    let ratios = beyond.map(|(window, (peak, max))| (window, f64::from(*peak) / f64::from((*max).max(1))));
    let largest = ratios.max_by(|(_, one), (_, other)| one.total_cmp(other));
    largest.filter(|(_, largest)| *largest >= ratio).map(|(window, _)| window)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suggest::outliers;

    const PERSON: [u32; WINDOW_COUNT] = [20, 60, 120, 300, 400, 800, 1_000];

    fn added(extra: &[[u32; WINDOW_COUNT]]) -> (bool, Vec<bool>) {
        let peaks = extra.iter().copied().chain([PERSON; 60]);
        let keys: Vec<_> =
            peaks.map(|peaks| KeySummary { key: 0, units: 0, is_denied: false, peaks }).collect();
        let mut found = outliers::separate(&keys, WINDOW_COUNT, &[]);
        let is_added = add_outliers(&keys, WINDOW_COUNT, &mut found);
        (is_added, found.is_outlier[..extra.len()].to_vec())
    }

    #[test]
    fn a_polite_crawler_hides_no_scraper() {
        let even = |hour: u32| [1, 1, hour / 60, hour / 6, hour, hour * 6, hour * 24];
        let (crawler, scraper) = (even(75), even(130));
        assert_eq!(added(&[crawler, scraper]), (true, vec![true, true]));
        assert_eq!(added(&[crawler]), (false, vec![false]), "alone it is ordinary");
        assert_eq!(added(&[even(10), crawler, scraper]), (true, vec![false, true, true]));
    }
}
