//! Overrides: other numbers for single keys of limits, which operators set while the gateway runs.
//!
//! A request first checks whether there are any, and then locks one shard of a map for a look-up. They outlive a reload for
//! as long as the limit's counters do.

use std::collections::HashMap;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};

use dashmap::DashMap;
use foldhash::fast::RandomState;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::Unreachable;
use crate::limit::units::{Fingerprint, Micros};
use crate::limit::wall_clock::WallTime;

/// One key of one limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct KeyOfLimit {
    /// The [`SharedKeyInfo::identity`](super::SharedKeyInfo::identity) of the limit's first policy.
    pub limit: u128,
    /// The owner of the key; see [`Charge::key_hash`](super::Charge::key_hash).
    pub key_hash: u128,
}

impl KeyOfLimit {
    /// The key with this hash of the limit with this identity.
    pub const fn new(limit: u128, key_hash: Fingerprint) -> Self {
        Self { limit, key_hash: key_hash.0 }
    }
}

/// Other numbers of a limit.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct OverrideNumbers {
    /// The rates in place of the limit's own, with the periods that those had. None in a file of an earlier version.
    #[serde(default)]
    pub rates: Vec<OverrideRate>,
    /// The burst of all its buckets. `None`: theirs.
    pub burst: Option<u32>,
}

/// A rate of an override.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct OverrideRate {
    /// Units in each period; at least 1.
    pub count: u32,
    /// In µs; at least 1.
    pub period: u64,
}

impl OverrideNumbers {
    /// The count in place of that of a rate with this period: of the rate with the same one, or as many as the rate with
    /// the longest period allows in this time, rounded up. `None`: there are no rates.
    pub fn count_in(&self, period: Micros) -> Option<u32> {
        let same = self.rates.iter().find(|rate| rate.period == period.0);
        let rate = same.or_else(|| self.rates.iter().max_by_key(|rate| rate.period))?;
        let count = u128::from(rate.count) * u128::from(period.0);
        Some(u32::try_from(count.div_ceil(u128::from(rate.period.max(1)))).unwrap_or(u32::MAX))
    }
}

/// The override of a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyOverride {
    /// What counts in place of the limit's numbers, and those of any tier.
    pub numbers: OverrideNumbers,
    /// Its end, in µs since 1970. `None`: until it is taken back.
    pub until: Option<u64>,
    /// The text of the key, if it was given. For lists only: requests never read it.
    pub label: Option<String>,
}

impl KeyOverride {
    /// Whether it holds at this moment.
    pub fn holds(&self, now: WallTime) -> bool {
        self.until.is_none_or(|until| now.0 < until)
    }
}

/// Why an override was not set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OverrideFault {
    /// The shared store, which keeps the overrides, is unavailable.
    #[error(transparent)]
    Unreachable(#[from] Unreachable),
    /// There are [`Overrides::MAX`] already.
    #[error("there are {} overrides, and there can be no more", Overrides::MAX)]
    TooMany,
}

/// All overrides that this process knows.
#[derive(Debug, Default)]
pub struct Overrides {
    /// Whether there are any.
    any: AtomicBool,
    /// Keys are keyed hashes already, so a fast hash spreads them.
    by_key: DashMap<KeyOfLimit, KeyOverride, RandomState>,
    /// Held during every change.
    change: Mutex<()>,
}

impl Overrides {
    /// The maximum number of overrides.
    pub const MAX: usize = 10_000;

    /// A table without overrides, where they do not matter.
    pub fn none() -> &'static Self {
        static NONE: LazyLock<Overrides> = LazyLock::new(Overrides::default);
        &NONE
    }

    /// Whether there are none.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        !self.any.load(Ordering::Relaxed)
    }

    /// The override of a key that holds at this moment.
    #[cold]
    pub fn find(&self, key: KeyOfLimit, now: WallTime) -> Option<KeyOverride> {
        self.by_key.get(&key).filter(|found| found.holds(now)).map(|found| found.clone())
    }

    /// Sets the override of a key, in place of an earlier one. Those that have ended make room.
    ///
    /// # Errors
    ///
    /// There are too many.
    pub fn set(&self, key: KeyOfLimit, set: KeyOverride, now: WallTime) -> Result<(), OverrideFault> {
        let _change = self.change.lock();
        if !self.by_key.contains_key(&key) && self.by_key.len() >= Self::MAX {
            self.by_key.retain(|_, other| other.holds(now));
            if self.by_key.len() >= Self::MAX {
                return Err(OverrideFault::TooMany);
            }
        }
        self.by_key.insert(key, set);
        self.any.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Takes the override of a key back. Returns whether there was one that held.
    pub fn remove(&self, key: KeyOfLimit, now: WallTime) -> bool {
        let _change = self.change.lock();
        let removed = self.by_key.remove(&key);
        self.any.store(!self.by_key.is_empty(), Ordering::Relaxed);
        removed.is_some_and(|(_, removed)| removed.holds(now))
    }

    /// All that hold at this moment. Unordered.
    pub fn all(&self, now: WallTime) -> Vec<(KeyOfLimit, KeyOverride)> {
        let all = self.by_key.iter().filter(|entry| entry.holds(now));
        all.map(|entry| (*entry.key(), entry.value().clone())).collect()
    }

    /// These are all that a shared store has. Texts of keys that this process knows stay.
    pub fn replace(&self, all: Vec<(KeyOfLimit, KeyOverride)>, now: WallTime) {
        let _change = self.change.lock();
        let labels: HashMap<_, _> = self.by_key.iter().map(|one| (*one.key(), one.label.clone())).collect();
        self.by_key.clear();
        for (key, set) in all.into_iter().filter(|(_, set)| set.holds(now)).take(Self::MAX) {
            let label = labels.get(&key).cloned().flatten();
            self.by_key.insert(key, KeyOverride { label, ..set });
        }
        self.any.store(!self.by_key.is_empty(), Ordering::Relaxed);
    }

    /// There are none any more: another store has others.
    pub fn clear(&self) {
        self.replace(Vec::new(), WallTime(0));
    }

    /// Takes those of another process.
    pub fn restore(&self, saved: Vec<(KeyOfLimit, KeyOverride)>, now: WallTime) {
        for (key, set) in saved.into_iter().filter(|(_, set)| set.holds(now)) {
            // A process has no more than another one.
            let _ = self.set(key, set, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: WallTime = WallTime(1_000);

    fn key(number: u128) -> KeyOfLimit {
        KeyOfLimit::new(7, Fingerprint(number))
    }

    fn until(until: Option<u64>) -> KeyOverride {
        let rates = vec![OverrideRate { count: 5, period: 1_000_000 }];
        let numbers = OverrideNumbers { rates, burst: None };
        KeyOverride { numbers, until, label: None }
    }

    #[test]
    fn an_override_holds_until_its_end() {
        let overrides = Overrides::default();
        assert!(overrides.is_empty());
        overrides.set(key(1), until(Some(2_000)), NOW).unwrap();
        overrides.set(key(2), until(None), NOW).unwrap();
        let holds = |number, now| overrides.find(key(number), WallTime(now)).is_some();
        assert_eq!(
            [holds(1, 1_999), holds(1, 2_000), holds(2, u64::MAX), holds(3, 0)],
            [true, false, true, false]
        );
        assert_eq!((overrides.all(NOW).len(), overrides.all(WallTime(2_000)).len()), (2, 1));
        assert!(!overrides.remove(key(1), WallTime(2_000)), "it has ended");
        assert!(overrides.remove(key(2), NOW) && !overrides.remove(key(2), NOW) && overrides.is_empty());
    }

    #[test]
    fn there_are_so_many_and_those_that_have_ended_make_room() {
        let overrides = Overrides::default();
        for number in 0..Overrides::MAX as u128 {
            overrides.set(key(number), until((number < 5).then_some(2_000)), NOW).unwrap();
        }
        assert_eq!(overrides.set(key(u128::MAX), until(None), NOW), Err(OverrideFault::TooMany));
        assert_eq!(overrides.set(key(9), until(None), NOW), Ok(()), "in place of another");
        assert_eq!(overrides.set(key(u128::MAX), until(None), WallTime(2_000)), Ok(()));
        assert_eq!(overrides.all(NOW).len(), Overrides::MAX - 4);
        let other = Overrides::default();
        other.restore(overrides.all(NOW), NOW);
        assert_eq!(other.all(NOW).len(), Overrides::MAX - 4);
    }

    #[test]
    fn a_rate_of_another_period_keeps_its_speed() {
        let numbers = |rates: &[(u32, u64)]| {
            let rates = rates.iter().map(|&(count, period)| OverrideRate { count, period });
            OverrideNumbers { rates: rates.collect(), burst: None }
        };
        let two = numbers(&[(20, 1), (200, 60)]);
        assert_eq!(
            [1, 60, 3_600].map(|period| two.count_in(Micros(period))),
            [Some(20), Some(200), Some(12_000)]
        );
        assert_eq!(two.count_in(Micros(7)), Some(24), "23.3 by the rate of the longest period");
        assert_eq!(numbers(&[(1, 60)]).count_in(Micros(1)), Some(1));
        assert_eq!(numbers(&[(u32::MAX, 1)]).count_in(Micros(u64::MAX)), Some(u32::MAX));
        assert_eq!(numbers(&[(1, 0)]).count_in(Micros(5)), Some(5));
        assert_eq!(numbers(&[]).count_in(Micros(5)), None);
    }
}
