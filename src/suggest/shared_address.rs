//! Keys that look like many users behind one address: a company, a mobile network.
//!
//! Such a key has the bursts of one user, but the long sums of many, in the hours of people. It counts as ordinary, and
//! the others are separated as if it were absent.

use super::outliers::{self, CLEAR_RATIO, Separation};
use super::peaks::{KeySummary, largest_peaks};
use super::windows::WINDOW_COUNT;

/// The indices of the windows of bursts: 1 s to 1 min.
const BURSTS: std::ops::Range<usize> = 0..3;
/// The indices of the windows of 1 h, 6 h and 1 day.
const LONG: [usize; 3] = [4, 5, 6];
/// The largest sum of 6 h in peaks of 1 h: beyond it, the traffic is as even as a program's.
const MAX_HOURS: u32 = 5;
/// The largest sum of 1 day in peaks of 6 h.
const MAX_QUARTERS: u32 = 3;
/// The largest sum of 1 h in peaks of 1 min, where the bursts are those of 1 min.
const MAX_MINUTES: u32 = 12;
/// The smallest peak that is a burst.
const MIN_BURST: u32 = 5;
/// The largest number of such keys.
const MAX_SHARED: usize = 8;

/// Separates outliers. Also returns the indices of the keys with this shape, which are no outliers.
pub(super) fn separate(keys: &[KeySummary], judged: usize) -> (Separation, Vec<usize>) {
    let found = outliers::separate(keys, judged, &[]);
    let shared = candidates(keys, judged, &found.is_outlier);
    if shared.is_empty() {
        return (found, shared);
    }
    (outliers::separate(keys, judged, &shared), shared)
}

/// The indices of the outliers with this shape, those with the fewest units first.
fn candidates(keys: &[KeySummary], judged: usize, is_outlier: &[bool]) -> Vec<usize> {
    if !is_outlier.contains(&true) {
        return Vec::new();
    }
    let flags = || keys.iter().zip(is_outlier);
    let ordinary: Vec<_> = flags().filter(|(_, is_outlier)| !**is_outlier).map(|(key, _)| *key).collect();
    let max = largest_peaks(&ordinary, 1).map(|peaks| peaks.first().copied().unwrap_or(0));
    let shaped =
        flags().enumerate().filter(|(_, (key, is_outlier))| **is_outlier && is_shared(key, &max, judged));
    let mut shaped: Vec<_> = shaped.map(|(at, (key, _))| (key.peak(judged.saturating_sub(1)), at)).collect();
    shaped.sort_unstable();
    shaped.into_iter().take(MAX_SHARED).map(|(_, at)| at).collect()
}

/// Whether the bursts of a key are those of an ordinary key, and its traffic is not even over hours and days.
fn is_shared(key: &KeySummary, max: &[u32; WINDOW_COUNT], judged: usize) -> bool {
    let [hour, hours, day] = LONG;
    let of = |window: usize| max.get(window).copied().unwrap_or(0);
    let has_bursts = |(window, max_hour): (usize, Option<u32>)| {
        of(window) >= MIN_BURST
            && key.peak(window).saturating_mul(2) >= of(window)
            && max_hour.is_none_or(|count| key.peak(hour) <= key.peak(window).saturating_mul(count))
    };
    let within = |window: usize| f64::from(key.peak(window)) < CLEAR_RATIO * f64::from(of(window));
    let is_uneven = key.peak(hours) <= key.peak(hour).saturating_mul(MAX_HOURS)
        && (judged <= day || key.peak(day) <= key.peak(hours).saturating_mul(MAX_QUARTERS));
    let mut bursts = BURSTS.zip([None, None, Some(MAX_MINUTES)]);
    judged > hours && bursts.any(has_bursts) && is_uneven && BURSTS.into_iter().all(within)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERSON: [u32; WINDOW_COUNT] = [20, 60, 120, 300, 400, 800, 1_000];

    const SLOW_PERSON: [u32; WINDOW_COUNT] = [2, 3, 6, 17, 20, 27, 27];

    fn found(extra: &[[u32; WINDOW_COUNT]]) -> (Vec<bool>, Vec<usize>) {
        found_among(PERSON, extra)
    }

    fn found_among(person: [u32; WINDOW_COUNT], extra: &[[u32; WINDOW_COUNT]]) -> (Vec<bool>, Vec<usize>) {
        let keys: Vec<_> = extra
            .iter()
            .copied()
            .chain([person; 40])
            .map(|peaks| KeySummary { key: 0, units: 0, is_denied: false, peaks })
            .collect();
        let (separation, shared) = separate(&keys, WINDOW_COUNT);
        (separation.is_outlier[..extra.len()].to_vec(), shared)
    }

    #[test]
    fn an_office_is_ordinary_and_a_scraper_is_not() {
        let office = [22, 70, 150, 700, 1_500, 6_000, 9_000];
        let scraper = [1, 3, 18, 180, 1_080, 6_480, 25_920];
        let bot = [20, 60, 60, 60, 180, 1_080, 4_320];
        assert_eq!(found(&[office]), (vec![false], vec![0]));
        assert_eq!(found(&[scraper]), (vec![true], vec![]));
        assert_eq!(found(&[bot]), (vec![true], vec![]), "as many in every hour of the day");
        let clock = found_among(SLOW_PERSON, &[[1, 2, 5, 40, 240, 960, 960]]);
        assert_eq!(clock, (vec![true], vec![]), "as many in every minute of some hours");
        let office = found_among(SLOW_PERSON, &[[2, 4, 7, 22, 50, 130, 150]]);
        assert_eq!(office, (vec![false], vec![0]), "without bursts in 1 s");
    }

    #[test]
    fn the_others_are_separated_as_if_an_office_were_absent() {
        let office = [22, 70, 150, 700, 1_500, 6_000, 9_000];
        let scraper = [1, 2, 6, 60, 360, 2_160, 8_640];
        assert_eq!(found(&[office, scraper]), (vec![false, true], vec![0]));
    }
}
