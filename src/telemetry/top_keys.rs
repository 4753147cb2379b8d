//! Top keys: the keys with the most requests, in constant memory, by a Space-Saving sketch.
//!
//! A. Metwally, D. Agrawal, A. El Abbadi: "Efficient Computation of Frequent and Top-k Elements in Data Streams" (ICDT
//! 2005). As many keys as there is room for are counted. A further key replaces the key with the least count and
//! inherits that count, as the most requests that it may have had before. So no count is ever too low, and none is too
//! high by more than the least count, which is at most the requests ÷ the keys. The numbers of admitted and refused
//! requests start at zero instead, and may be too low by as much.
//!
//! The paper keeps keys of one count in linked buckets, which each request changes. Here a request only counts; the
//! order is corrected when a key has to be replaced. Each correction is for at least one request since the last, so a
//! request costs O(1), and O(log keys) with the corrections.

mod ranking;

use std::cmp::Reverse;
use std::collections::binary_heap::PeekMut;
use std::collections::{BinaryHeap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};

use crate::limit::units::{Fingerprint, Timestamp};
pub use ranking::{Ranking, TopKey};

/// The number of keys tracked at once.
pub const FOLLOWED: usize = 1_000;

/// The top keys of one limit. About 200 bytes a key, and its label.
#[derive(Debug, Default)]
pub struct TopKeys {
    /// The index of a key in `keys`. Fingerprints are spread evenly, so half of one suffices.
    indices: HashMap<u64, u32, BuildHasherDefault<AsItIs>>,
    keys: Vec<CountedKey>,
    /// The requests of each key, or fewer, and its index: created when a key has to be replaced for the first time.
    order: BinaryHeap<Reverse<(u32, u32)>>,
    total: Tally,
}

/// The number of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Those admitted, at once or delayed.
    pub admitted: u64,
    /// Those refused.
    pub refused: u64,
}

/// One key. It does not get more than 4 billion requests in the lifetime of a sketch.
#[derive(Debug, Default)]
struct CountedKey {
    count: KeyCount,
    label: String,
}

/// A snapshot of a sketch, to be merged with others.
#[derive(Clone, Debug, Default)]
pub struct Sketch {
    /// The tracked keys.
    pub counts: Vec<KeyCount>,
    /// The most requests that an untracked key may have had.
    pub error: u32,
    /// All requests.
    pub total: Tally,
}

/// The counts of one key in a sketch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyCount {
    /// The key.
    pub key_hash: Fingerprint,
    /// Never too high.
    pub admitted: u32,
    /// Never too high.
    pub refused: u32,
    /// How much too low both may be, together: the most requests that it may have had before it was tracked.
    pub error: u32,
    /// The time of its last request.
    pub last: Timestamp,
    /// The units that its settled requests cost in the end, since it has been tracked.
    pub units: u64,
}

impl TopKeys {
    /// Counts a request of this key. `label` writes the key's text, for a key that was not tracked; the buffer is
    /// empty.
    #[inline]
    pub fn count(
        &mut self,
        key_hash: Fingerprint,
        refused: bool,
        now: Timestamp,
        label: impl FnOnce(&mut String),
    ) {
        self.total.count(refused);
        match self.indices.get(&half(key_hash)).and_then(|index| self.keys.get_mut(*index as usize)) {
            Some(key) => key.count.add(refused, now),
            None => self.follow(key_hash, refused, now, label),
        }
    }

    /// Adds the units of a settled request, which was counted before. Returns whether the key is tracked.
    pub fn add_units(&mut self, key_hash: Fingerprint, units: u32) -> bool {
        let key = self.indices.get(&half(key_hash)).and_then(|index| self.keys.get_mut(*index as usize));
        let is_tracked = key.is_some();
        if let Some(key) = key {
            key.count.units += u64::from(units);
        }
        is_tracked
    }

    /// Counts a request without a key.
    pub fn count_unkeyed(&mut self, refused: bool) {
        self.total.count(refused);
    }

    /// Begins to track a key.
    #[inline(never)]
    fn follow(
        &mut self,
        key_hash: Fingerprint,
        refused: bool,
        now: Timestamp,
        label: impl FnOnce(&mut String),
    ) {
        let index = if self.keys.len() < FOLLOWED {
            self.keys.push(CountedKey::default());
            self.keys.len() - 1
        } else {
            self.min_index()
        };
        let Some(key) = self.keys.get_mut(index) else { return };
        let before = key.count.requests();
        if before > 0 {
            self.indices.remove(&half(key.count.key_hash));
        }
        key.count = KeyCount { key_hash, error: before, ..KeyCount::default() };
        key.label.clear();
        label(&mut key.label);
        key.count.add(refused, now);
        self.indices.insert(half(key_hash), u32::try_from(index).unwrap_or(u32::MAX));
    }

    /// The index of the key with the fewest requests.
    fn min_index(&mut self) -> usize {
        if self.order.is_empty() {
            let ranks = (0..).zip(&self.keys).map(|(index, key)| Reverse((key.count.requests(), index)));
            self.order = ranks.collect();
        }
        while let Some(mut top) = self.order.peek_mut() {
            let Reverse((known, index)) = *top;
            let now = self.keys.get(index as usize).map_or(0, |key| key.count.requests());
            if now == known {
                return index as usize;
            }
            *top = Reverse((now, index));
            // Moves it to its position.
            drop::<PeekMut<'_, _>>(top);
        }
        0
    }

    /// Removes all keys.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// A snapshot.
    pub fn sketch(&self) -> Sketch {
        let full = self.keys.len() >= FOLLOWED;
        let min = self.keys.iter().map(|key| key.count.requests()).min().filter(|_| full);
        let counts = self.keys.iter().map(|key| key.count).collect();
        Sketch { counts, error: min.unwrap_or(0), total: self.total }
    }

    /// The text of a key, if it is tracked.
    pub fn label(&self, key_hash: Fingerprint) -> Option<&str> {
        let index = self.indices.get(&half(key_hash))?;
        self.keys.get(*index as usize).map(|key| &*key.label)
    }
}

impl Tally {
    #[inline]
    fn count(&mut self, refused: bool) {
        self.refused += u64::from(refused);
        self.admitted += u64::from(!refused);
    }
}

impl KeyCount {
    /// Never too low.
    pub fn requests(&self) -> u32 {
        self.error + self.admitted + self.refused
    }

    #[inline]
    fn add(&mut self, refused: bool, now: Timestamp) {
        self.refused += u32::from(refused);
        self.admitted += u32::from(!refused);
        self.last = now;
    }
}

/// 64 of the 128 bits.
pub(super) fn half(key_hash: Fingerprint) -> u64 {
    u64::try_from(key_hash.0 >> 64).unwrap_or(0)
}

/// Passes a hash through: the value is a hash already, under a secret key.
#[derive(Debug, Default)]
struct AsItIs(u64);

impl Hasher for AsItIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        // Not used: keys are `u64`.
        bytes.iter().for_each(|byte| self.0 = self.0.rotate_left(8) ^ u64::from(*byte));
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    /// A key spread like a fingerprint.
    pub(super) fn key_hash(number: u64) -> Fingerprint {
        let spread = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Fingerprint(u128::from(spread) << 64 | u128::from(number))
    }

    /// Counts requests of these keys; every third is refused. Returns the true counts: all, refused.
    pub(super) fn counted(numbers: &[u64]) -> (TopKeys, HashMap<Fingerprint, (u32, u32)>) {
        let (mut top_keys, mut truth) = (TopKeys::default(), HashMap::<_, (u32, u32)>::new());
        for (at, number) in (1..).zip(numbers) {
            let refused = at % 3 == 0;
            top_keys.count(key_hash(*number), refused, Timestamp(at), |label| {
                assert!(label.is_empty());
                label.push_str(&number.to_string());
            });
            let (all, no) = truth.entry(key_hash(*number)).or_default();
            (*all, *no) = (*all + 1, *no + u32::from(refused));
        }
        (top_keys, truth)
    }

    fn check(top_keys: &TopKeys, truth: &HashMap<Fingerprint, (u32, u32)>, asked: usize) {
        let sketch = top_keys.sketch();
        assert!(sketch.counts.len() <= FOLLOWED);
        assert!(sketch.error as usize <= asked / FOLLOWED, "{} of {asked}", sketch.error);
        assert_eq!(sketch.total.admitted + sketch.total.refused, asked as u64);
        for count in &sketch.counts {
            let (all, refused) = truth[&count.key_hash];
            assert!(all <= count.requests() && count.requests() <= all + sketch.error);
            assert!(count.refused <= refused && refused <= count.refused + sketch.error);
            assert!(count.admitted <= all - refused && all - refused <= count.admitted + sketch.error);
            assert!(count.error <= sketch.error);
            let number = u64::try_from(count.key_hash.0 & u128::from(u64::MAX)).unwrap();
            assert_eq!(top_keys.label(count.key_hash), Some(&*number.to_string()), "its own label");
        }
        let followed: HashMap<_, _> = sketch.counts.iter().map(|count| (count.key_hash, count)).collect();
        assert_eq!(followed.len(), sketch.counts.len(), "each key is followed once");
        for (key_hash, (all, _)) in truth {
            assert!(*all <= sketch.error || followed.contains_key(key_hash), "a heavy hitter is missed");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]
        #[test]
        fn no_count_is_too_low_and_none_too_high_by_more_than_the_error(
            steps in proptest::collection::vec((0_usize..4, any::<u64>()), 1..20_000),
        ) {
            // Keys of four kinds: few with very many requests, some, many, and keys with one request.
            let number = |(kind, random): &(usize, u64)| [random % 10, random % 500, random % 5_000, *random][*kind];
            let numbers: Vec<u64> = steps.iter().map(number).collect();
            let (top_keys, truth) = counted(&numbers);
            check(&top_keys, &truth, numbers.len());
        }
    }

    #[test]
    fn up_to_so_many_keys_are_counted_exactly() {
        let numbers: Vec<u64> = (0..FOLLOWED as u64 * 5).map(|step| step % FOLLOWED as u64).collect();
        let (top_keys, truth) = counted(&numbers);
        let sketch = top_keys.sketch();
        assert_eq!(
            (sketch.counts.len(), sketch.error.min(4)),
            (FOLLOWED, 4),
            "full, so the minimum is reported"
        );
        for count in sketch.counts {
            assert_eq!((count.requests(), count.refused), truth[&count.key_hash]);
            assert_eq!(count.error, 0);
        }
    }

    #[test]
    fn a_flood_of_new_keys_hides_no_heavy_one_and_takes_no_memory() {
        let numbers: Vec<u64> =
            (0..200_000).map(|step| if step % 10 == 0 { step / 10 % 7 } else { 1_000_000 + step }).collect();
        let (top_keys, truth) = counted(&numbers);
        check(&top_keys, &truth, numbers.len());
        assert!((0..7).all(|heavy| top_keys.label(key_hash(heavy)).is_some()));
        assert!(top_keys.indices.capacity() <= 4 * FOLLOWED && top_keys.keys.capacity() <= 2 * FOLLOWED);
        assert_eq!(top_keys.order.len(), FOLLOWED);
    }

    #[test]
    fn requests_without_a_key_count_in_the_total() {
        let (mut top_keys, _) = counted(&[1]);
        top_keys.count_unkeyed(true);
        assert_eq!(top_keys.sketch().total, Tally { admitted: 1, refused: 1 });
        top_keys.clear();
        assert_eq!(top_keys.sketch().total, Tally::default());
        assert_eq!(top_keys.label(key_hash(1)), None);
    }
}
