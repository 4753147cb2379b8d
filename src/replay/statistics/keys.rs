//! The keys of a limit: how many requests each had, and how many of them were refused.

use std::collections::HashMap;

use foldhash::fast::FixedState;

use crate::limit::units::Fingerprint;

/// Counts by key.
#[derive(Debug, Default)]
pub struct KeyCounts {
    counts: HashMap<u64, KeyRefusals, FixedState>,
    /// The texts of the keys that were refused.
    labels: HashMap<u64, Box<str>, FixedState>,
}

/// The counts of one key. They stop at 2^32 - 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyRefusals {
    /// Its requests.
    pub requests: u32,
    /// Those that were refused.
    pub refused: u32,
}

impl KeyCounts {
    /// Counts a request. `label` is the text of the key.
    pub fn count(&mut self, key_hash: Fingerprint, refused: bool, label: impl FnOnce() -> String) {
        let key = half(key_hash);
        let count = self.counts.entry(key).or_default();
        count.requests = count.requests.saturating_add(1);
        if refused {
            if count.refused == 0 {
                self.labels.insert(key, label().into_boxed_str());
            }
            count.refused = count.refused.saturating_add(1);
        }
    }

    /// Whether there was a request of this key.
    pub fn has(&self, key_hash: Fingerprint) -> bool {
        self.counts.contains_key(&half(key_hash))
    }

    /// The number of keys.
    pub fn len(&self) -> usize {
        self.counts.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    /// The number of keys that were refused.
    pub fn refused(&self) -> usize {
        self.labels.len()
    }

    /// The keys that were refused most often, with their counts; at most `most`.
    pub fn hit_hardest(&self, most: usize) -> Vec<(&str, KeyRefusals)> {
        let count = |key: &u64| self.counts.get(key).copied().unwrap_or_default();
        let mut keys: Vec<_> = self.labels.iter().map(|(key, label)| (&**label, count(key))).collect();
        keys.sort_unstable_by(|a, b| b.1.refused.cmp(&a.1.refused).then(a.0.cmp(b.0)));
        keys.truncate(most);
        keys
    }
}

/// Half of the hash tells millions of keys apart.
#[expect(clippy::cast_possible_truncation, reason = "the low half is meant")]
fn half(key_hash: Fingerprint) -> u64 {
    key_hash.0 as u64
}
