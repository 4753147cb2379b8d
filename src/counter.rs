//! Counters that one thread writes and any thread may read: no locked instruction, no cache line moved between writers.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::limit::units::Micros;

/// The maximum number of bounds of a histogram.
const MAX_BOUNDS: usize = 18;

/// The buckets of a histogram.
pub trait Scale {
    /// Their upper bounds in microseconds, ascending, at most 18. One more bucket counts longer durations.
    const BOUNDS: &'static [u64];
}

/// For requests, and for upstreams' responses: 100 µs to a minute.
///
/// The first bound is near the duration of a refusal, tens of microseconds, like the responses of a server nearby:
/// bounds below a millisecond show whether the gateway became slower. The last is twice the default `timeout` of a
/// route (30 s): requests that timed out took a little longer, and are between 30 and 60 s, where a quantile
/// distinguishes them from those that just completed.
#[derive(Clone, Copy, Debug, Default)]
pub struct RequestTime;

impl Scale for RequestTime {
    const BOUNDS: &'static [u64] = &[
        100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000,
        2_500_000, 5_000_000, 10_000_000, 30_000_000, 60_000_000,
    ];
}

/// For calls to a shared store, which is near: 50 µs to a second.
#[derive(Clone, Copy, Debug, Default)]
pub struct CallTime;

impl Scale for CallTime {
    const BOUNDS: &'static [u64] =
        &[50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 20_000, 50_000, 100_000, 250_000, 1_000_000];
}

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Only one thread may call this: it loads and stores, and would lose a concurrent addition.
    pub fn add(&self, amount: u64) {
        self.0.store(self.get().wrapping_add(amount), Ordering::Relaxed);
    }

    /// The present value.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A histogram of durations. Aligned, so that no two workers' counters share a cache line.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct Histogram<S> {
    /// One for each of the scale's bounds and one for longer durations; not cumulated.
    buckets: [Counter; MAX_BOUNDS + 1],
    sum: Counter,
    scale: PhantomData<S>,
}

impl<S: Scale> Histogram<S> {
    /// Only one thread may call this; see [`Counter::add`].
    pub fn record(&self, duration: Micros) {
        const { assert!(S::BOUNDS.len() <= MAX_BOUNDS) };
        let bucket = S::BOUNDS.partition_point(|bound| *bound < duration.0);
        self.buckets[bucket].add(1);
        self.sum.add(duration.0);
    }
}

/// Several workers' histograms together.
#[derive(Clone, Debug, Default)]
pub struct HistogramTotal<S> {
    buckets: [u64; MAX_BOUNDS + 1],
    sum: Micros,
    scale: PhantomData<S>,
}

impl<S: Scale> HistogramTotal<S> {
    /// Adds one worker's.
    pub fn add(&mut self, part: &Histogram<S>) {
        for (total, bucket) in self.buckets.iter_mut().zip(&part.buckets) {
            *total += bucket.get();
        }
        self.sum.0 = self.sum.0.wrapping_add(part.sum.get());
    }

    /// Adds another total.
    pub fn merge(&mut self, other: &Self) {
        for (total, bucket) in self.buckets.iter_mut().zip(other.buckets) {
            *total += bucket;
        }
        self.sum.0 = self.sum.0.wrapping_add(other.sum.0);
    }

    /// The counts since this was `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut since = Self { buckets: self.buckets, sum: self.sum, scale: PhantomData };
        for (bucket, before) in since.buckets.iter_mut().zip(earlier.buckets) {
            *bucket = bucket.saturating_sub(before);
        }
        since.sum.0 = since.sum.0.saturating_sub(earlier.sum.0);
        since
    }

    /// The number of durations.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// The duration that this many thousandths do not exceed: between the bounds of its bucket, assuming an even
    /// distribution within it. Beyond the last bound, that bound is returned. `None` without durations.
    pub fn quantile(&self, thousandths: u64) -> Option<Micros> {
        let count = self.count();
        let rank = (count * thousandths).div_ceil(1_000).max(1);
        let (mut below, mut lower) = (0, 0);
        for (&upper, amount) in S::BOUNDS.iter().zip(self.buckets) {
            if below + amount >= rank {
                let share = u128::from(upper - lower) * u128::from(rank - below) / u128::from(amount);
                return (count > 0).then(|| Micros(lower + u64::try_from(share).unwrap_or(0)));
            }
            (below, lower) = (below + amount, upper);
        }
        (count > 0).then_some(Micros(lower))
    }

    /// Each bucket's `le` label, its bound in seconds, and its count, not cumulated; the last is `+Inf`.
    pub fn buckets(&self) -> impl Iterator<Item = (String, u64)> {
        let label = |bound: &u64| Duration::from_micros(*bound).as_secs_f64().to_string();
        S::BOUNDS.iter().map(label).chain(["+Inf".to_owned()]).zip(self.buckets)
    }

    /// The sum of all durations.
    pub fn sum(&self) -> Micros {
        self.sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted<S: Scale + Default>(durations: &[u64]) -> Vec<(String, u64)> {
        let histogram = Histogram::<S>::default();
        durations.iter().for_each(|micros| histogram.record(Micros(*micros)));
        let mut total = HistogramTotal::default();
        total.add(&histogram);
        assert_eq!(total.sum(), Micros(durations.iter().sum()));
        total.buckets().collect()
    }

    #[test]
    fn a_duration_falls_into_the_bucket_whose_bound_it_does_not_pass() {
        let requests = counted::<RequestTime>(&[0, 100, 101, 30_000_001, 60_000_000, 60_000_001]);
        let is = |bucket: &(String, u64), label, count| assert_eq!(*bucket, (String::from(label), count));
        is(&requests[0], "0.0001", 2);
        is(&requests[1], "0.00025", 1);
        is(&requests[17], "60", 2);
        is(&requests[18], "+Inf", 1);
        let calls = counted::<CallTime>(&[50, 51, 20_000, 1_000_000, 1_000_001]);
        is(&calls[0], "0.00005", 1);
        is(&calls[1], "0.0001", 1);
        is(&calls[8], "0.02", 1);
        is(&calls[12], "1", 1);
        is(&calls[13], "+Inf", 1);
    }

    #[test]
    fn a_quantile_lies_between_the_bounds_of_its_bucket() {
        let histogram = Histogram::<RequestTime>::default();
        let total = |histogram| {
            let mut total = HistogramTotal::default();
            total.add(histogram);
            total
        };
        assert_eq!(total(&histogram).quantile(500), None);
        (0..4).for_each(|_| histogram.record(Micros(2_000)));
        let first = total(&histogram);
        assert_eq!(first.quantile(500), Some(Micros(1_750)), "the second of four between 1 and 2.5 ms");
        assert_eq!(first.quantile(990), Some(Micros(2_500)));
        histogram.record(Micros(100_000_000));
        let since = total(&histogram).since(&first);
        assert_eq!((since.count(), since.sum()), (1, Micros(100_000_000)));
        assert_eq!(since.quantile(1).map(|shown| shown.0), RequestTime::BOUNDS.last().copied());
    }

    #[test]
    fn bounds_ascend() {
        for bounds in [RequestTime::BOUNDS, CallTime::BOUNDS] {
            assert!(bounds.is_sorted_by(|one, next| one < next));
        }
    }
}
