//! The requests of one key: a list of times while there are few, sums of parts of the windows afterwards.

use smallvec::SmallVec;

use super::windows::{PeakWindow, WINDOW_COUNT, WINDOWS, WindowPeaks};
use crate::limit::units::Timestamp;

/// The number of times in a list.
const MAX_LISTED: usize = 256;
/// The parts of a sum: one more than a window has, so that the sum is never below the sliding peak. One bit each of a
/// `u64`.
const SLOTS: u64 = 64;
/// As a length.
const SLOT_COUNT: usize = 64;
/// Microseconds in a tick of a list.
const TICK: u64 = 1_000;

/// Units of entries. `None`: one each. The box keeps a key without them small.
#[allow(clippy::box_collection, reason = "most keys have none, and there may be millions of keys")]
type EntryUnits = Option<Box<Vec<u32>>>;

/// The requests of one key in the order of time.
pub(super) enum RequestHistory {
    /// Milliseconds since the key's first request.
    Listed {
        /// The time of each request; requests of one millisecond share an entry.
        ticks: SmallVec<[u32; 6]>,
        /// The units of each entry.
        units: EntryUnits,
    },
    /// Sums for each window.
    Summed(Box<[PartSums; WINDOW_COUNT]>),
}

impl Default for RequestHistory {
    fn default() -> Self {
        Self::Listed { ticks: SmallVec::new(), units: None }
    }
}

impl RequestHistory {
    /// Adds `cost` units at `time`. `first` is the time of the key's first request. A time before the key's last
    /// request is replaced by that of the last one.
    pub(super) fn add(&mut self, first: Timestamp, time: Timestamp, cost: u32) {
        if let Self::Listed { ticks, units } = self {
            let tick = u32::try_from(time.since(first).0 / TICK).ok();
            match tick.filter(|_| ticks.len() < MAX_LISTED) {
                Some(tick) => return list(ticks, units, tick, cost),
                None => *self = Self::Summed(sums(first, ticks, units.as_deref())),
            }
        }
        if let Self::Summed(sums) = self {
            for (sum, window) in sums.iter_mut().zip(WINDOWS) {
                sum.add(time.0 / part_of(window), cost);
            }
        }
    }

    /// The greatest number of units in any window of each length, both ends included; of a long history in a window
    /// that is up to a 62nd longer.
    pub(super) fn peaks(&self) -> WindowPeaks {
        match self {
            Self::Listed { ticks, units } => {
                WINDOWS.map(|window| listed_peak(ticks, units.as_deref(), window.span().0 / TICK))
            }
            Self::Summed(sums) => sums.each_ref().map(|sum| narrow(sum.peak)),
        }
    }
}

/// The length of a part of a window.
const fn part_of(window: PeakWindow) -> u64 {
    window.span().0.div_ceil(SLOTS - 1)
}

/// Adds an entry to a list.
fn list(ticks: &mut SmallVec<[u32; 6]>, units: &mut EntryUnits, tick: u32, cost: u32) {
    let tick = ticks.last().map_or(tick, |last| tick.max(*last));
    let shares_entry = ticks.last() == Some(&tick);
    if units.is_none() && (shares_entry || cost != 1) {
        *units = Some(Box::new(vec![1; ticks.len()]));
    }
    let Some(units) = units else { return ticks.push(tick) };
    match units.last_mut().filter(|_| shares_entry) {
        Some(last) => *last = last.saturating_add(cost),
        None => {
            ticks.push(tick);
            units.push(cost);
        }
    }
}

/// The sums of a list that is full.
fn sums(first: Timestamp, ticks: &[u32], units: Option<&Vec<u32>>) -> Box<[PartSums; WINDOW_COUNT]> {
    let mut sums = Box::new([const { PartSums::new() }; WINDOW_COUNT]);
    for (sum, window) in sums.iter_mut().zip(WINDOWS) {
        let part = part_of(window);
        for (tick, units) in entries(ticks, units) {
            sum.add((first.0 + u64::from(tick) * TICK) / part, units);
        }
    }
    sums
}

fn entries(ticks: &[u32], units: Option<&Vec<u32>>) -> impl Iterator<Item = (u32, u32)> {
    let units = units.into_iter().flatten().copied().chain(std::iter::repeat(1));
    ticks.iter().copied().zip(units)
}

/// The greatest sum over `window` ticks.
fn listed_peak(ticks: &[u32], units: Option<&Vec<u32>>, window: u64) -> u32 {
    let (mut sum, mut peak) = (0_u64, 0);
    let mut oldest = entries(ticks, units).peekable();
    for (tick, units_now) in entries(ticks, units) {
        sum += u64::from(units_now);
        while let Some((_, units)) = oldest.next_if(|(old, _)| u64::from(tick - old) > window) {
            sum -= u64::from(units);
        }
        peak = sum.max(peak);
    }
    narrow(peak)
}

fn narrow(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// The units in the last [`SLOTS`] parts of a window, and the greatest sum so far.
pub(super) struct PartSums {
    parts: [u32; SLOT_COUNT],
    /// A bit for each part that has units.
    used: u64,
    /// The number of the newest part since 1970.
    newest: u64,
    sum: u64,
    peak: u64,
}

impl PartSums {
    const fn new() -> Self {
        Self { parts: [0; SLOT_COUNT], used: 0, newest: 0, sum: 0, peak: 0 }
    }

    fn add(&mut self, part: u64, units: u32) {
        let passed = part.saturating_sub(self.newest);
        self.expire(passed);
        self.newest += passed;
        let slot = self.newest % SLOTS;
        let part = self.part(slot);
        let before = *part;
        *part = before.saturating_add(units);
        let added = *part - before;
        self.used |= 1 << slot;
        self.sum += u64::from(added);
        self.peak = self.peak.max(self.sum);
    }

    /// Empties the oldest `passed` parts, which become the newest.
    fn expire(&mut self, passed: u64) {
        let oldest = u32::try_from((self.newest + 1) % SLOTS).unwrap_or(0);
        let expired = if passed < SLOTS { ((1_u64 << passed) - 1).rotate_left(oldest) } else { u64::MAX };
        let mut left = self.used & expired;
        self.used &= !expired;
        while left != 0 {
            let units = std::mem::take(self.part(left.trailing_zeros().into()));
            self.sum -= u64::from(units);
            left &= left - 1;
        }
    }

    #[allow(clippy::cast_possible_truncation, clippy::indexing_slicing, reason = "the remainder is an index")]
    fn part(&mut self, slot: u64) -> &mut u32 {
        &mut self.parts[(slot % SLOTS) as usize]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The greatest sum in windows of `span` µs, both ends included, by comparing all pairs.
    fn brute(requests: &[(u64, u32)], span: u64) -> u64 {
        let from =
            |start: u64| requests.iter().filter(move |(time, _)| (start..=start + span).contains(time));
        let sums = requests.iter().map(|(start, _)| from(*start).map(|(_, units)| u64::from(*units)).sum());
        sums.max().unwrap_or(0)
    }

    fn requests() -> impl Strategy<Value = Vec<(u64, u32)>> {
        let gap = prop_oneof![0..2_000_u64, 0..2_000_000_u64, 0..4_000_000_000_u64];
        let cost = prop_oneof![9 => Just(1_u32), 1 => 1..50_u32];
        prop::collection::vec((gap, cost), 1..400).prop_map(|gaps| {
            let mut time = 1_700_000_000_000_000;
            gaps.into_iter()
                .map(|(gap, cost)| {
                    time += gap;
                    (time, cost)
                })
                .collect()
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn peaks_are_those_of_brute_force(requests in requests()) {
            let mut history = RequestHistory::default();
            let first = Timestamp(requests[0].0);
            for (time, cost) in &requests {
                history.add(first, Timestamp(*time), *cost);
            }
            let is_listed = matches!(history, RequestHistory::Listed { .. });
            for (peak, window) in history.peaks().into_iter().zip(WINDOWS) {
                let span = window.span().0;
                let longer = if is_listed { span + TICK } else { span + span / 62 + TICK };
                prop_assert!(u64::from(peak) >= brute(&requests, span), "{}: {peak}", window.name);
                prop_assert!(u64::from(peak) <= brute(&requests, longer), "{}: {peak}", window.name);
            }
        }
    }

    #[test]
    fn years_apart_and_backwards_times_are_counted() {
        let mut history = RequestHistory::default();
        let day = 86_400_000_000;
        for time in [0, 400 * day, 400 * day + 5, 399 * day, 900 * day] {
            history.add(Timestamp(0), Timestamp(time), 1);
        }
        assert_eq!(history.peaks(), [3; WINDOW_COUNT]);
    }
}
