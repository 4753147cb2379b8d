//! What the first pass knows of a group.

use foldhash::HashMap;

use super::peaks::{GroupPeaks, GroupTraffic, KeyHistory};
use super::windows::{self, WINDOW_COUNT, WindowPeaks};

/// The keys of a group with their peaks.
pub(super) struct GroupSummary {
    pub(super) keys: Vec<KeySummary>,
    pub(super) names: HashMap<u64, String>,
    pub(super) traffic: GroupTraffic,
    /// The number of windows that the requests can judge.
    pub(super) judged: usize,
}

/// The peaks of one key.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeySummary {
    pub(super) key: u64,
    /// All units, up to 2^32 - 1.
    pub(super) units: u32,
    pub(super) peaks: WindowPeaks,
}

impl KeySummary {
    /// The peak in the window with this index.
    pub(super) fn peak(&self, window: usize) -> u32 {
        self.peaks.get(window).copied().unwrap_or(0)
    }
}

impl GroupSummary {
    pub(super) fn new(group: GroupPeaks) -> Self {
        let GroupPeaks { index, keys, names, traffic } = group;
        drop(index);
        let summary = |own: KeyHistory| KeySummary { key: own.key, units: own.units(), peaks: own.peaks() };
        let keys = keys.into_iter().map(summary).collect();
        Self { keys, names, traffic, judged: windows::judged(traffic.span()) }
    }
}

/// The largest peaks of the keys in each window, largest first: at most `count` in each.
pub(super) fn largest_peaks(keys: &[KeySummary], count: usize) -> [Vec<u32>; WINDOW_COUNT] {
    std::array::from_fn(|window| {
        let mut peaks: Vec<u32> = keys.iter().map(|key| key.peak(window)).collect();
        if count < peaks.len() {
            peaks.select_nth_unstable_by(count, |one, other| other.cmp(one));
            peaks.truncate(count);
        }
        peaks.sort_unstable_by(|one, other| other.cmp(one));
        peaks
    })
}
