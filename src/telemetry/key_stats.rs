//! Key statistics of one limit: the top keys of recent minutes, and the number of refused keys. Each worker has its
//! own, on its own thread: no lock, no atomics.

use crate::limit::units::{Fingerprint, Timestamp};
use crate::telemetry::history::seconds;
use crate::telemetry::hyperloglog::{HyperLogLog, HyperLogLogUnion};
use crate::telemetry::top_keys::{Sketch, TopKeys, half};

/// Seconds counted by one sketch. All workers begin the next one together, at a multiple of this since 1970.
const GENERATION: u64 = 300;
/// Slots of a second, and of a minute.
const SLOTS: usize = 60;

/// The key statistics of one limit.
#[derive(Debug, Default)]
pub struct KeyStats {
    /// The generation that `present` counts, since 1970.
    generation: u64,
    present: TopKeys,
    /// The previous generation.
    last: TopKeys,
    /// Created at the limit's first refusal.
    refused: Option<Box<RefusedKeys>>,
}

/// Distinct refused keys.
#[derive(Debug, Default)]
struct RefusedKeys {
    /// The key and the second inserted last: a refused key is often refused again at once.
    last: (u64, u64),
    seconds: Slots,
    minutes: Slots,
}

/// The last 60 slots of equal length.
#[derive(Debug)]
struct Slots([Slot; SLOTS]);

#[derive(Debug, Default)]
struct Slot {
    /// The number of the slot, since 1970.
    at: u64,
    keys: HyperLogLog,
}

impl KeyStats {
    /// Counts a request of this key that the limit admitted or refused; see [`TopKeys::count`].
    #[inline]
    pub fn note(
        &mut self,
        key_hash: Fingerprint,
        refused: bool,
        now: Timestamp,
        label: impl FnOnce(&mut String),
    ) {
        self.turn_to(now);
        self.present.count(key_hash, refused, now, label);
        if refused {
            self.refused.get_or_insert_default().insert(half(key_hash), seconds(now));
        }
    }

    /// Counts the units of a settled request of this key. The request was counted when it was admitted, maybe in the
    /// generation before.
    pub fn settled(&mut self, key_hash: Fingerprint, units: u32, now: Timestamp) {
        self.turn_to(now);
        let _ = self.present.add_units(key_hash, units) || self.last.add_units(key_hash, units);
    }

    /// Counts a refused request without a key.
    pub fn note_unkeyed(&mut self, now: Timestamp) {
        self.turn_to(now);
        self.present.count_unkeyed(true);
    }

    /// A request that began earlier than others is counted in their generation.
    #[inline]
    fn turn_to(&mut self, now: Timestamp) {
        // As a product: a division costs more than everything else here.
        if now.0 >= (self.generation + 1) * GENERATION * 1_000_000 {
            self.begin(seconds(now) / GENERATION);
        }
    }

    #[cold]
    fn begin(&mut self, generation: u64) {
        self.last = std::mem::take(&mut self.present);
        if generation > self.generation + 1 {
            self.last.clear();
        }
        self.generation = generation;
    }

    /// The sketches of the present and the last generation.
    pub fn sketches(&mut self, now: Timestamp) -> [Sketch; 2] {
        self.turn_to(now);
        [self.present.sketch(), self.last.sketch()]
    }

    /// The text of a key, if it is tracked.
    pub fn label(&self, key_hash: Fingerprint) -> Option<&str> {
        self.present.label(key_hash).or_else(|| self.last.label(key_hash))
    }

    /// The keys refused in the last 60 whole seconds, and in the last 60 minutes, including the present one so far.
    /// `None`: the limit never refused.
    pub fn refused_keys(&self, now: Timestamp) -> Option<[HyperLogLogUnion; 2]> {
        let RefusedKeys { seconds: of_seconds, minutes, .. } = self.refused.as_deref()?;
        let second = seconds(now);
        let minute = of_seconds.union(second.saturating_sub(SLOTS as u64)..second);
        let next = second / 60 + 1;
        Some([minute, minutes.union(next.saturating_sub(SLOTS as u64)..next)])
    }
}

/// The beginning of the last generation's counts, in seconds since 1970.
pub fn generations_begin(now: Timestamp) -> u64 {
    (seconds(now) / GENERATION).saturating_sub(1) * GENERATION
}

impl RefusedKeys {
    fn insert(&mut self, hash: u64, second: u64) {
        if self.last == (hash, second) {
            return;
        }
        self.last = (hash, second);
        self.seconds.insert(hash, second);
        self.minutes.insert(hash, second / 60);
    }
}

impl Slots {
    fn insert(&mut self, hash: u64, span: u64) {
        // Below `SLOTS`.
        let slot = &mut self.0[usize::try_from(span % SLOTS as u64).unwrap_or(0)];
        if slot.at < span {
            slot.at = span;
            slot.keys.clear();
        }
        slot.keys.insert(hash);
    }

    fn union(&self, spans: std::ops::Range<u64>) -> HyperLogLogUnion {
        let mut union = HyperLogLogUnion::default();
        self.0.iter().filter(|slot| spans.contains(&slot.at)).for_each(|slot| union.add(&slot.keys));
        union
    }
}

impl Default for Slots {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Slot::default()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key_hash(number: u64) -> Fingerprint {
        Fingerprint(u128::from(number.wrapping_mul(0x9e37_79b9_7f4a_7c15)) << 64)
    }

    fn at(second: u64) -> Timestamp {
        Timestamp((600_000_000 + second) * 1_000_000)
    }

    fn refused(key_stats: &KeyStats, second: u64) -> [u64; 2] {
        key_stats.refused_keys(at(second)).map_or([0, 0], |both| both.map(|union| union.count()))
    }

    #[test]
    fn keys_that_were_refused_count_for_a_minute_and_an_hour() {
        let mut key_stats = KeyStats::default();
        key_stats.note(key_hash(1), false, at(0), |_| {});
        assert_eq!(refused(&key_stats, 1), [0, 0]);
        for second in 0..90 {
            key_stats.note(key_hash(second / 10), true, at(second), |_| {});
            key_stats.note(key_hash(7), true, at(second), |_| {});
        }
        assert_eq!(refused(&key_stats, 90), [6, 9], "those of the last 60 seconds: 3 to 8");
        assert_eq!(refused(&key_stats, 149), [2, 9]);
        assert_eq!(refused(&key_stats, 150), [0, 9]);
        assert_eq!(refused(&key_stats, 3_599), [0, 9]);
        assert_eq!(refused(&key_stats, 3_600), [0, 3], "the first minute is over");
        assert_eq!(refused(&key_stats, 3_660), [0, 0]);
    }

    #[test]
    fn units_belong_to_the_generation_that_tracks_the_key() {
        let mut key_stats = KeyStats::default();
        let units = |key_stats: &mut KeyStats, second| {
            let sum = |sketch: Sketch| sketch.counts.iter().map(|count| count.units).sum::<u64>();
            key_stats.sketches(at(second)).map(sum)
        };
        key_stats.settled(key_hash(1), 5, at(0));
        assert_eq!(units(&mut key_stats, 0), [0, 0], "the key is not tracked");
        key_stats.note(key_hash(1), false, at(1), |_| {});
        key_stats.settled(key_hash(1), 2_000, at(2));
        key_stats.settled(key_hash(1), 30, at(300));
        assert_eq!(units(&mut key_stats, 300), [0, 2_030]);
        key_stats.note(key_hash(1), false, at(301), |_| {});
        key_stats.settled(key_hash(1), u32::MAX, at(302));
        assert_eq!(units(&mut key_stats, 302), [u64::from(u32::MAX), 2_030]);
        key_stats.settled(key_hash(1), 1, at(900));
        assert_eq!(units(&mut key_stats, 900), [0, 0], "both generations are over");
    }

    #[test]
    fn counts_are_of_the_present_and_the_last_generation() {
        let mut key_stats = KeyStats::default();
        let total = |key_stats: &mut KeyStats, second| {
            key_stats.sketches(at(second)).map(|sketch| sketch.total.admitted + sketch.total.refused)
        };
        for second in 0..450 {
            key_stats.note(key_hash(second % 3), false, at(second), |label| label.push('a'));
        }
        key_stats.note_unkeyed(at(450));
        assert_eq!(total(&mut key_stats, 450), [151, 300]);
        assert_eq!(key_stats.label(key_hash(2)), Some("a"));
        assert_eq!(generations_begin(at(450)), seconds(at(0)));
        assert_eq!(total(&mut key_stats, 600), [0, 151]);
        assert_eq!(key_stats.label(key_hash(2)), Some("a"));
        assert_eq!(total(&mut key_stats, 900), [0, 0]);
        assert_eq!(key_stats.label(key_hash(2)), None);
        for second in [1_000, 2_000] {
            key_stats.note(key_hash(1), true, at(second), |_| {});
        }
        assert_eq!(total(&mut key_stats, 2_000), [1, 0], "the generation between had no key");
    }
}
