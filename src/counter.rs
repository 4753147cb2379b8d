//! Counters that one thread writes and any thread may read: no locked instruction, no cache line moved between writers.
//!
//! For example, each worker adds its refusals to a counter of its own, and a scrape adds up what it reads from all of them.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::limit::units::Micros;

/// The maximum number of bounds of a histogram.
const MAX_BOUNDS: usize = 18;
/// The maximum number of bounds that divide these.
const MAX_FINE_BOUNDS: usize = 182;
/// The first of them, in microseconds.
const FIRST_FINE_BOUND: u64 = 10;

/// The buckets of a histogram.
pub trait Scale {
    /// Their upper bounds in microseconds, ascending, at most 18. One more bucket counts longer durations.
    const BOUNDS: &'static [u64];
    /// The bounds that divide these buckets.
    const FINE: &'static FineBounds;
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
    const FINE: &'static FineBounds = &FineBounds::dividing(Self::BOUNDS);
}

/// For calls to a shared store, which is near: 50 µs to a second.
#[derive(Clone, Copy, Debug, Default)]
pub struct CallTime;

impl Scale for CallTime {
    const BOUNDS: &'static [u64] =
        &[50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 20_000, 50_000, 100_000, 250_000, 1_000_000];
    const FINE: &'static FineBounds = &FineBounds::dividing(Self::BOUNDS);
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

/// A histogram of durations, in the buckets that are published. Aligned, so that no two workers' counters share a cache
/// line.
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

/// A histogram of durations whose percentiles are told within 5 %. Its buckets are those of [`FineBounds`], so each one
/// is within one of the published buckets, and it costs as many additions as [`Histogram`].
#[derive(Debug)]
#[repr(align(64))]
pub struct FineHistogram<S> {
    /// One for each of the fine bounds and one for longer durations; not cumulated.
    buckets: [Counter; MAX_FINE_BOUNDS + 1],
    sum: Counter,
    scale: PhantomData<S>,
}

impl<S> Default for FineHistogram<S> {
    fn default() -> Self {
        let buckets = std::array::from_fn(|_| Counter::default());
        Self { buckets, sum: Counter::default(), scale: PhantomData }
    }
}

impl<S: Scale> FineHistogram<S> {
    /// Only one thread may call this; see [`Counter::add`].
    pub fn record(&self, duration: Micros) {
        self.buckets[S::FINE.bucket(duration.0)].add(1);
        self.sum.add(duration.0);
    }
}

/// Bounds of buckets so narrow that a bucket's value is within 5 % of each duration in it.
///
/// They divide the buckets of a scale. From 10 µs on, a bound is at most 1.1 times the one before it; below, there is one
/// bucket. The value of the bucket with durations from `a` to `b` is 2ab / (a + b), rounded, which differs from each of
/// them by at most (b - a) / (b + a) of the duration: by 4.8 %.
#[derive(Debug)]
pub struct FineBounds {
    /// Ascending; those after `count` are unused.
    bounds: [u64; MAX_FINE_BOUNDS],
    count: usize,
    /// By the number of binary digits of a duration: the first bucket that it may be in. The next number has the last one.
    first: [u8; u64::BITS as usize + 2],
}

impl FineBounds {
    /// Divides the buckets between these bounds, in microseconds.
    ///
    /// # Panics
    ///
    /// At compile time, if there are more than 182 bounds.
    const fn dividing(published: &[u64]) -> Self {
        let mut fine =
            Self { bounds: [u64::MAX; MAX_FINE_BOUNDS], count: 0, first: [0; u64::BITS as usize + 2] };
        let (mut bound, mut next) = (FIRST_FINE_BOUND, 0);
        while next < published.len() {
            if bound >= published[next] {
                bound = published[next];
                next += 1;
            }
            fine.bounds[fine.count] = bound;
            fine.count += 1;
            bound += if bound < 20 { 1 } else { bound / 10 };
        }
        let mut digits = 1;
        while digits < fine.first.len() {
            let mut index = fine.first[digits - 1];
            // The least duration with so many binary digits.
            let least = 1_u128 << (digits - 1);
            while (index as usize) < fine.count && (fine.bounds[index as usize] as u128) < least {
                index += 1;
            }
            fine.first[digits] = index;
            digits += 1;
        }
        fine
    }

    /// The index of the bucket of a duration in microseconds: the number of bounds below it.
    fn bucket(&self, duration: u64) -> usize {
        let digits = (u64::BITS - duration.leading_zeros()) as usize;
        let [first, last] = [self.first[digits], self.first[digits + 1]].map(usize::from);
        first + self.bounds[first..last].partition_point(|bound| *bound < duration)
    }

    fn used(&self) -> &[u64] {
        &self.bounds[..self.count]
    }

    /// The duration, in microseconds, that stands for those in the bucket of this index.
    fn value(&self, bucket: usize) -> u64 {
        let bounds = self.used();
        match (bucket.checked_sub(1).and_then(|before| bounds.get(before)), bounds.get(bucket)) {
            (Some(below), Some(upper)) => {
                let lower = below + 1;
                (2 * lower * upper + (lower + upper) / 2) / (lower + upper)
            }
            (None, upper) => upper.map_or(0, |upper| upper / 2),
            (Some(last), None) => *last,
        }
    }
}

/// Several workers' histograms together, in the buckets that are published.
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

    /// Adds one worker's fine buckets to those that they divide.
    pub fn add_fine(&mut self, part: &FineHistogram<S>) {
        let longer = [u64::MAX];
        let mut index = 0;
        for (bound, bucket) in S::FINE.used().iter().chain(&longer).zip(&part.buckets) {
            index += usize::from(S::BOUNDS.get(index).is_some_and(|published| published < bound));
            self.buckets[index] += bucket.get();
        }
        self.sum.0 = self.sum.0.wrapping_add(part.sum.get());
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

/// The fine buckets of several workers' histograms together, or of a span of time.
#[derive(Clone, Debug)]
pub struct FineTotal<S> {
    /// Empty until there is a duration.
    buckets: Vec<u64>,
    scale: PhantomData<S>,
}

impl<S> Default for FineTotal<S> {
    fn default() -> Self {
        Self { buckets: Vec::new(), scale: PhantomData }
    }
}

impl<S: Scale> FineTotal<S> {
    /// Of these histograms together.
    pub fn of<'h>(parts: impl IntoIterator<Item = &'h FineHistogram<S>>) -> Self
    where
        S: 'h,
    {
        let mut total = Self::default();
        parts.into_iter().for_each(|part| total.add(part));
        total
    }

    /// Adds one worker's.
    pub fn add(&mut self, part: &FineHistogram<S>) {
        self.add_counts(part.buckets[..=S::FINE.count].iter().map(Counter::get));
    }

    /// Adds another total.
    pub fn merge(&mut self, other: &Self) {
        self.add_counts(other.buckets.iter().copied());
    }

    fn add_counts(&mut self, counts: impl ExactSizeIterator<Item = u64>) {
        if self.buckets.len() < counts.len() {
            self.buckets.resize(counts.len(), 0);
        }
        self.buckets.iter_mut().zip(counts).for_each(|(total, count)| *total += count);
    }

    /// The counts since this was `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let before = earlier.buckets.iter().copied().chain(std::iter::repeat(0));
        let buckets = self.buckets.iter().zip(before).map(|(count, before)| count.saturating_sub(before));
        Self { buckets: buckets.collect(), scale: PhantomData }
    }

    /// The number of durations.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// The duration that this many thousandths do not exceed, within 5 % of it; below 10 µs, within 5 µs. Beyond the last
    /// bound, that bound is returned. `None` without durations.
    pub fn quantile(&self, thousandths: u64) -> Option<Micros> {
        let rank = (self.count() * thousandths).div_ceil(1_000).max(1);
        let mut below = 0;
        let bucket = self.buckets.iter().position(|amount| {
            below += amount;
            below >= rank
        });
        bucket.map(|bucket| Micros(S::FINE.value(bucket)))
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

    fn total<S: Scale + Default>(
        durations: impl IntoIterator<Item = u64>,
    ) -> (FineTotal<S>, HistogramTotal<S>) {
        let histogram = FineHistogram::<S>::default();
        durations.into_iter().for_each(|micros| histogram.record(Micros(micros)));
        let (mut fine, mut published) = (FineTotal::default(), HistogramTotal::default());
        fine.add(&histogram);
        published.add_fine(&histogram);
        (fine, published)
    }

    #[test]
    fn a_quantile_is_within_a_twentieth() {
        let mut micros = 1;
        while micros < 60_000_000 {
            for duration in [micros, micros + 1] {
                let shown = total::<RequestTime>([duration]).0.quantile(500).unwrap().0;
                let off = shown.abs_diff(duration);
                assert!(
                    off * 20 <= duration || duration <= 10 && off <= 5,
                    "{duration} µs is told as {shown}"
                );
            }
            micros += 1 + micros / 100;
        }
        for duration in [11, 99, 1_234, 999_999] {
            let shown = total::<CallTime>([duration]).0.quantile(990).unwrap().0;
            assert!(shown.abs_diff(duration) * 20 <= duration, "{duration} µs is told as {shown}");
        }
        assert_eq!(total::<RequestTime>([60_000_001, u64::MAX]).0.quantile(500), Some(Micros(60_000_000)));
    }

    #[test]
    fn quantiles_are_of_the_durations_since_an_earlier_total() {
        let (none, _) = total::<RequestTime>([]);
        assert_eq!((none.quantile(500), FineTotal::<RequestTime>::default().quantile(500)), (None, None));
        let (first, _) = total::<RequestTime>((1..=100).map(|number| number * 1_000));
        for (thousandths, expected) in [(500, 50_000_u64), (990, 99_000), (1, 1_000), (1_000, 100_000)] {
            let shown = first.quantile(thousandths).unwrap().0;
            assert!(shown.abs_diff(expected) * 20 <= expected, "{expected} is told as {shown}");
        }
        let (mut both, _) = total::<RequestTime>([100_000_000]);
        both.merge(&first);
        let since = both.since(&first);
        assert_eq!((both.count(), since.count()), (101, 1));
        assert_eq!(since.quantile(1).map(|shown| shown.0), RequestTime::BOUNDS.last().copied());
    }

    #[test]
    fn fine_buckets_are_published_as_the_coarse_ones_would_be() {
        let near = |bound: &u64| [bound - 1, *bound, bound + 1];
        let durations: Vec<u64> =
            RequestTime::BOUNDS.iter().flat_map(near).chain([0, 1, 77, 123_456, 99_999_999]).collect();
        let (fine, published) = total::<RequestTime>(durations.iter().copied());
        assert_eq!(fine.count(), durations.len() as u64);
        assert_eq!(published.sum(), Micros(durations.iter().sum()));
        assert_eq!(published.buckets().collect::<Vec<_>>(), counted::<RequestTime>(&durations));
    }

    #[test]
    fn bounds_ascend() {
        for bounds in [RequestTime::BOUNDS, CallTime::BOUNDS] {
            assert!(bounds.is_sorted_by(|one, next| one < next));
        }
        for (fine, published) in
            [(RequestTime::FINE, RequestTime::BOUNDS), (CallTime::FINE, CallTime::BOUNDS)]
        {
            let bounds = fine.used();
            assert!(bounds.is_sorted_by(|one, next| one < next));
            assert!(published.iter().all(|bound| bounds.contains(bound)));
        }
    }
}
