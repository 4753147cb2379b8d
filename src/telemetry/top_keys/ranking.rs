//! Merges several sketches: those of all workers, and of the present and the last five minutes.

use std::cmp::Reverse;
use std::collections::HashMap;

use super::{Sketch, Tally};
use crate::admin_api::keys::KeyOrder;
use crate::limit::units::{Fingerprint, Timestamp};

/// The merged sketches.
#[derive(Clone, Debug, Default)]
pub struct Ranking {
    top_keys: HashMap<Fingerprint, TopKey>,
    /// The sum of the sketches' errors. A sketch that does not track a key may have missed as many of its requests as
    /// the sketch's error; the count of a tracked key is too high by no more than that. So errors add up, and the sum
    /// is at most all requests ÷ the keys that each sketch tracks.
    pub error: u64,
    /// All requests.
    pub total: Tally,
}

/// A key tracked by at least one sketch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopKey {
    /// The key.
    pub key_hash: Fingerprint,
    /// Never too low, and too high by no more than [`Ranking::error`].
    pub requests: u64,
    /// Never too high, and too low by no more than [`Ranking::error`].
    pub admitted: u64,
    /// Likewise.
    pub refused: u64,
    /// The time of its last request.
    pub last: Timestamp,
    /// The units of its settled requests; never too high.
    pub units: u64,
}

impl Ranking {
    /// Merges sketches that counted different requests.
    pub fn of(sketches: &[Sketch]) -> Self {
        let error = sketches.iter().map(|sketch| u64::from(sketch.error)).sum();
        let mut ranking = Self { error, ..Self::default() };
        for sketch in sketches {
            ranking.total.admitted += sketch.total.admitted;
            ranking.total.refused += sketch.total.refused;
            for count in &sketch.counts {
                let key_hash = count.key_hash;
                let last = Timestamp(0);
                let fresh = TopKey { key_hash, requests: error, admitted: 0, refused: 0, last, units: 0 };
                let top_key = ranking.top_keys.entry(key_hash).or_insert(fresh);
                // Requests that this sketch may have missed are in `error` already.
                top_key.requests += u64::from(count.requests().saturating_sub(sketch.error));
                top_key.admitted += u64::from(count.admitted);
                top_key.refused += u64::from(count.refused);
                top_key.last = top_key.last.max(count.last);
                top_key.units += count.units;
            }
        }
        ranking
    }

    /// The first `max` keys.
    pub fn top(&self, max: usize, by: KeyOrder) -> Vec<TopKey> {
        let mut top_keys: Vec<TopKey> = self.top_keys.values().copied().collect();
        let weight = |top_key: &TopKey| match by {
            KeyOrder::Refused => (top_key.refused, top_key.requests),
            KeyOrder::Admitted => (top_key.admitted, top_key.requests),
            KeyOrder::Requests => (top_key.requests, top_key.refused),
            KeyOrder::Units => (top_key.units, top_key.requests),
        };
        let rank = |top_key: &TopKey| (Reverse(weight(top_key)), top_key.key_hash);
        if max < top_keys.len() {
            top_keys.select_nth_unstable_by_key(max, rank);
            top_keys.truncate(max);
        }
        top_keys.sort_unstable_by_key(rank);
        top_keys
    }

    /// One key, if it is tracked.
    pub fn top_key(&self, key_hash: Fingerprint) -> Option<TopKey> {
        self.top_keys.get(&key_hash).copied()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::tests::{counted, key_hash};
    use super::super::{FOLLOWED, TopKeys};
    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20))]
        #[test]
        fn errors_add_up(
            steps in proptest::collection::vec((0_usize..4, 0_usize..3, any::<u64>()), 1..30_000),
        ) {
            let mut parts = vec![Vec::new(); 4];
            for (part, kind, random) in &steps {
                parts[*part].push([random % 10, random % 3_000, *random][*kind]);
            }
            let (top_keys, truths): (Vec<TopKeys>, Vec<_>) = parts.iter().map(|part| counted(part)).unzip();
            let sketches: Vec<Sketch> = top_keys.iter().map(TopKeys::sketch).collect();
            let ranking = Ranking::of(&sketches);
            prop_assert!(ranking.error <= (steps.len() / FOLLOWED) as u64);
            prop_assert_eq!(ranking.total.admitted + ranking.total.refused, steps.len() as u64);
            let mut truth: HashMap<Fingerprint, (u64, u64)> = HashMap::new();
            for (key_hash, (all, refused)) in truths.into_iter().flatten() {
                let sum = truth.entry(key_hash).or_default();
                *sum = (sum.0 + u64::from(all), sum.1 + u64::from(refused));
            }
            for (key_hash, (all, refused)) in truth {
                let Some(top_key) = ranking.top_key(key_hash) else {
                    prop_assert!(all <= ranking.error);
                    continue;
                };
                prop_assert!(all <= top_key.requests && top_key.requests <= all + ranking.error);
                prop_assert!(top_key.refused <= refused && refused <= top_key.refused + ranking.error);
                let admitted = all - refused;
                prop_assert!(top_key.admitted <= admitted && admitted <= top_key.admitted + ranking.error);
            }
            for by in KeyOrder::ALL {
                let (ten, all) = (ranking.top(10, by), ranking.top(usize::MAX, by));
                prop_assert_eq!(&ten[..], &all[..ten.len()]);
            }
        }
    }

    #[test]
    fn few_keys_are_exact_over_several_sketches() {
        let parts = [vec![1, 2, 2, 3], vec![2, 3, 4]];
        let sketches = parts.map(|part| counted(&part).0.sketch());
        let ranking = Ranking::of(&sketches);
        let top = ranking.top(2, KeyOrder::Requests);
        assert_eq!((ranking.error, top.len()), (0, 2));
        assert_eq!((top[0].key_hash, top[0].requests), (key_hash(2), 3));
        assert_eq!((top[1].key_hash, top[1].requests), (key_hash(3), 2));
        assert_eq!(ranking.top_key(key_hash(9)), None);
    }
}
