//! Counters that one thread writes and any thread may read.

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};

use http::StatusCode;

use super::DecisionLabel;
use crate::limit::units::Micros;

/// The upper bounds of a histogram's buckets with their `le` labels: half a millisecond to half a minute.
pub(super) const BOUNDS: [(Micros, &str); 15] = [
    (Micros(500), "0.0005"),
    (Micros(1_000), "0.001"),
    (Micros(2_500), "0.0025"),
    (Micros(5_000), "0.005"),
    (Micros(10_000), "0.01"),
    (Micros(25_000), "0.025"),
    (Micros(50_000), "0.05"),
    (Micros(100_000), "0.1"),
    (Micros(250_000), "0.25"),
    (Micros(500_000), "0.5"),
    (Micros(1_000_000), "1"),
    (Micros(2_500_000), "2.5"),
    (Micros(5_000_000), "5"),
    (Micros(10_000_000), "10"),
    (Micros(30_000_000), "30"),
];

/// A number that only grows.
#[derive(Debug, Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    /// Only one thread may call this: it loads and stores, and would lose what another adds in between.
    pub(super) fn add(&self, amount: u64) {
        self.0.store(self.get().wrapping_add(amount), Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What a route answered. Aligned, like the others below, so that no two workers' counters share a cache line.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct Answers {
    pub(super) codes: Codes,
    pub(super) duration: Histogram,
}

/// What a limit said on a route.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct Decisions([Counter; DecisionLabel::ALL.len()]);

impl Decisions {
    pub(super) fn of(&self, decision: DecisionLabel) -> &Counter {
        // The enum's discriminants count from 0, in the order of `ALL`.
        &self.0[decision as usize]
    }
}

/// Connections to a listener.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct Connections {
    pub(super) opened: Counter,
    pub(super) closed: Counter,
}

impl Connections {
    pub(super) fn open(&self) -> u64 {
        // `closed` first: a connection that opens and closes in between then counts as open, not as minus one.
        let closed = self.closed.get();
        self.opened.get().saturating_sub(closed)
    }
}

/// How long something took.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct Histogram {
    /// One for each of [`BOUNDS`] and one for what is longer; not cumulated.
    buckets: [Counter; BOUNDS.len() + 1],
    sum: Counter,
}

impl Histogram {
    pub(super) fn record(&self, duration: Micros) {
        let bucket = BOUNDS.partition_point(|(bound, _)| *bound < duration);
        self.buckets[bucket].add(1);
        self.sum.add(duration.0);
    }
}

/// Several workers' histograms together.
#[derive(Debug, Default)]
pub(super) struct HistogramTotal {
    pub(super) buckets: [u64; BOUNDS.len() + 1],
    pub(super) sum: Micros,
}

impl HistogramTotal {
    pub(super) fn add(&mut self, part: &Histogram) {
        for (total, bucket) in self.buckets.iter_mut().zip(&part.buckets) {
            *total += bucket.get();
        }
        self.sum.0 = self.sum.0.wrapping_add(part.sum.get());
    }
}

/// A counter for each status code that occurs. Most routes see two or three, so they stand in a short list that is
/// searched from the front and grows by another list; 900 codes exist, so it ends.
#[derive(Debug, Default)]
pub(super) struct Codes {
    slots: [CodeSlot; 5],
    more: OnceLock<Box<Self>>,
}

#[derive(Debug, Default)]
struct CodeSlot {
    /// 0 while it is free.
    code: AtomicU16,
    count: Counter,
}

impl Codes {
    /// Only one thread may call this; see [`Counter::add`].
    pub(super) fn count(&self, status: StatusCode) {
        let mut list = self;
        loop {
            for slot in &list.slots {
                let code = slot.code.load(Ordering::Relaxed);
                if code == 0 {
                    slot.code.store(status.as_u16(), Ordering::Relaxed);
                }
                if code == 0 || code == status.as_u16() {
                    return slot.count.add(1);
                }
            }
            list = list.more.get_or_init(Box::default);
        }
    }

    pub(super) fn add_to(&self, totals: &mut BTreeMap<u16, u64>) {
        let mut next = Some(self);
        while let Some(list) = next {
            for slot in &list.slots {
                let (code, count) = (slot.code.load(Ordering::Relaxed), slot.count.get());
                if code != 0 {
                    *totals.entry(code).or_default() += count;
                }
            }
            next = list.more.get().map(Box::as_ref);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_its_own_count() {
        let codes = Codes::default();
        for code in 100..1000 {
            for _ in 0..code % 3 + 1 {
                codes.count(StatusCode::from_u16(code).unwrap());
            }
        }
        let mut totals = BTreeMap::new();
        codes.add_to(&mut totals);
        assert_eq!(totals.len(), 900);
        assert!(totals.iter().all(|(code, count)| *count == u64::from(code % 3 + 1)));
    }

    #[test]
    fn a_duration_falls_into_the_bucket_whose_bound_it_does_not_pass() {
        let histogram = Histogram::default();
        for micros in [0, 500, 501, 30_000_000, 30_000_001] {
            histogram.record(Micros(micros));
        }
        let mut total = HistogramTotal::default();
        total.add(&histogram);
        assert_eq!((total.buckets[0], total.buckets[1]), (2, 1));
        assert_eq!((total.buckets[14], total.buckets[15]), (1, 1));
        assert_eq!(total.sum, Micros(60_001_002));
    }

    #[test]
    fn a_decision_counts_under_its_own_label() {
        let decisions = Decisions::default();
        for label in DecisionLabel::ALL {
            assert_eq!(decisions.of(label).get(), 0, "{label:?}");
            decisions.of(label).add(1);
        }
    }
}
