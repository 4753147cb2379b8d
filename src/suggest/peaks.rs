//! The first pass: the peaks of every key, and what is known of a group after it.

use std::hash::BuildHasher as _;

use foldhash::HashMap;
use foldhash::fast::FixedState;
use hashbrown::HashTable;

use super::history::RequestHistory;
use super::windows::{self, WINDOW_COUNT, WindowPeaks};
use crate::limit::units::{Micros, Timestamp};

/// Keys with fewer units in all are never outliers, so that their names are not needed.
pub(super) const MIN_NAMED: u64 = 8;

/// The peaks of all keys in each group. A group is a route, or all routes together.
pub struct Peaks {
    groups: Vec<GroupPeaks>,
}

/// The peaks of the keys of one group.
#[derive(Default)]
pub(super) struct GroupPeaks {
    /// Indices into `keys` by the hash of the key.
    pub(super) index: HashTable<u32>,
    pub(super) keys: Vec<KeyHistory>,
    /// Names of the keys that have [`MIN_NAMED`] units.
    pub(super) names: HashMap<u64, String>,
    pub(super) traffic: GroupTraffic,
}

/// The requests of one key.
pub(super) struct KeyHistory {
    pub(super) key: u64,
    first: Timestamp,
    units: u64,
    /// Whether all of its responses have been 401 or 403; `None`: no status is known.
    is_denied: Option<bool>,
    history: RequestHistory,
}

/// What all requests of a group have in common.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct GroupTraffic {
    pub(super) requests: u64,
    first: Timestamp,
    last: Timestamp,
    has_fractions: bool,
    has_costs: bool,
}

impl GroupTraffic {
    /// From the first request to the last one.
    pub(super) fn span(self) -> Micros {
        self.last.since(self.first)
    }

    /// Whether all times are whole seconds.
    pub(super) fn has_whole_seconds(self) -> bool {
        self.requests > 1 && !self.has_fractions
    }

    /// Whether some request costs more than one unit.
    pub(super) fn has_costs(self) -> bool {
        self.has_costs
    }

    fn add(&mut self, time: Timestamp, cost: u32) {
        self.first = if self.requests == 0 { time } else { self.first.min(time) };
        self.last = self.last.max(time);
        self.has_fractions |= !time.0.is_multiple_of(Micros::SECOND.0);
        self.has_costs |= cost > 1;
        self.requests += 1;
    }
}

impl Peaks {
    /// Peaks of `groups` groups.
    pub fn new(groups: usize) -> Self {
        Self { groups: (0..groups).map(|_| GroupPeaks::default()).collect() }
    }

    /// Adds a request of `cost` units. Requests come in the order of time; a time before that of the key's last request
    /// is replaced by it. `key` is a hash of the key. `name` makes the key's name: it is called at most once a key, and
    /// only for keys that may be outliers. A request of an unknown group or without cost is dropped.
    pub fn add(&mut self, group: usize, key: u64, time: Timestamp, cost: u32, name: impl FnOnce() -> String) {
        self.add_answered(group, key, (time, cost, None), name);
    }

    /// As [`Self::add`], of a request at a time, with a cost and the status of its response, if that is known.
    pub fn add_answered(
        &mut self,
        group: usize,
        key: u64,
        request: (Timestamp, u32, Option<u16>),
        name: impl FnOnce() -> String,
    ) {
        if let Some(group) = self.groups.get_mut(group).filter(|_| request.1 > 0) {
            group.add(key, request, name);
        }
    }

    pub(super) fn into_groups(self) -> Vec<GroupPeaks> {
        self.groups
    }
}

impl GroupPeaks {
    fn add(
        &mut self,
        key: u64,
        (time, cost, status): (Timestamp, u32, Option<u16>),
        name: impl FnOnce() -> String,
    ) {
        self.traffic.add(time, cost);
        let Some(own) = self.key(key, time) else { return };
        if let Some(status) = status {
            own.is_denied = Some(own.is_denied.unwrap_or(true) && matches!(status, 401 | 403));
        }
        let was_named = own.units >= MIN_NAMED;
        own.units = own.units.saturating_add(cost.into());
        own.history.add(own.first, time, cost);
        if !was_named && own.units >= MIN_NAMED {
            self.names.insert(key, name());
        }
    }

    /// The history of a key. `None` beyond 2^32 keys.
    fn key(&mut self, key: u64, time: Timestamp) -> Option<&mut KeyHistory> {
        let keys = &mut self.keys;
        let of = |index: &u32| keys.get(usize::try_from(*index).unwrap_or(usize::MAX)).map(|own| own.key);
        let found = self.index.find(hash(key), |index| of(index) == Some(key)).copied();
        let index = match found {
            Some(index) => index,
            None => {
                let index = u32::try_from(keys.len()).ok()?;
                self.index.insert_unique(hash(key), index, |index| hash(of(index).unwrap_or(0)));
                let history = RequestHistory::default();
                keys.push(KeyHistory { key, first: time, units: 0, is_denied: None, history });
                index
            }
        };
        self.keys.get_mut(usize::try_from(index).ok()?)
    }
}

impl Default for Peaks {
    fn default() -> Self {
        Self::new(1)
    }
}

impl KeyHistory {
    /// All units, up to 2^32 - 1.
    pub(super) fn units(&self) -> u32 {
        u32::try_from(self.units).unwrap_or(u32::MAX)
    }

    pub(super) fn peaks(&self) -> WindowPeaks {
        self.history.peaks()
    }
}

/// A key is a hash already, but perhaps one with equal bits in some places.
fn hash(key: u64) -> u64 {
    FixedState::default().hash_one(key)
}

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
    /// Whether all of its responses were 401 or 403.
    pub(super) is_denied: bool,
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
        let summary = |own: KeyHistory| KeySummary {
            key: own.key,
            units: own.units(),
            is_denied: own.is_denied == Some(true),
            peaks: own.peaks(),
        };
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
