//! Counts over time: in steps that grow with the span, and by day and hour.

use std::collections::BTreeMap;

use crate::limit::units::{Micros, Timestamp};

/// The maximum number of steps.
const MAX_STEPS: usize = 2_048;
const HOUR: u64 = 3_600 * 1_000_000;

/// Requests and refusals in steps of equal length. The length doubles when there are too many steps.
#[derive(Clone, Debug)]
pub struct Timeline {
    /// The number of the first step since 1970.
    first: u64,
    step: Micros,
    counts: Vec<StepCount>,
}

/// The counts of one step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepCount {
    /// Requests.
    pub requests: u64,
    /// Those of them that were refused.
    pub refused: u64,
}

impl Default for Timeline {
    fn default() -> Self {
        Self { first: 0, step: Micros::SECOND, counts: Vec::new() }
    }
}

impl StepCount {
    fn add(&mut self, other: Self) {
        self.requests += other.requests;
        self.refused += other.refused;
    }
}

impl Timeline {
    /// Counts a request.
    pub fn count(&mut self, time: Timestamp, refused: bool) {
        if self.counts.is_empty() {
            self.first = time.0 / self.step.0;
        }
        let one = StepCount { requests: 1, refused: u64::from(refused) };
        loop {
            // A request before the first one, which waited for a place, counts with the first.
            let at = (time.0 / self.step.0).saturating_sub(self.first);
            match usize::try_from(at) {
                Ok(at) if at < MAX_STEPS => {
                    if self.counts.len() <= at {
                        self.counts.resize(at + 1, StepCount::default());
                    }
                    if let Some(count) = self.counts.get_mut(at) {
                        count.add(one);
                    }
                    return;
                }
                _ => self.double(),
            }
        }
    }

    /// The length of a step.
    pub fn step(&self) -> Micros {
        self.step
    }

    /// When the first step begins.
    pub fn begin(&self) -> Timestamp {
        Timestamp(self.first.saturating_mul(self.step.0))
    }

    /// The steps.
    pub fn counts(&self) -> &[StepCount] {
        &self.counts
    }

    /// The same in at most `columns` columns of equal length: how many steps each has, and its counts.
    pub fn columns(&self, columns: usize) -> (usize, Vec<StepCount>) {
        let each = self.counts.len().div_ceil(columns.max(1)).max(1);
        let sum = |steps: &[StepCount]| {
            let mut sum = StepCount::default();
            steps.iter().for_each(|step| sum.add(*step));
            sum
        };
        (each, self.counts.chunks(each).map(sum).collect())
    }

    fn double(&mut self) {
        let odd = self.first % 2;
        self.first /= 2;
        self.step = Micros(self.step.0 * 2);
        let mut merged = vec![StepCount::default(); self.counts.len() / 2 + 1];
        for (at, count) in (odd..).zip(&self.counts) {
            if let Some(step) = usize::try_from(at / 2).ok().and_then(|at| merged.get_mut(at)) {
                step.add(*count);
            }
        }
        self.counts = merged;
    }
}

/// Requests and refusals by day and hour, in UTC.
#[derive(Clone, Debug, Default)]
pub struct Calendar {
    days: BTreeMap<u64, [StepCount; 24]>,
}

impl Calendar {
    /// Counts a request.
    pub fn count(&mut self, time: Timestamp, refused: bool) {
        let hour = time.0 / HOUR;
        let day = self.days.entry(hour / 24).or_default();
        if let Some(count) = usize::try_from(hour % 24).ok().and_then(|hour| day.get_mut(hour)) {
            count.add(StepCount { requests: 1, refused: u64::from(refused) });
        }
    }

    /// The days in order, each as days since 1970, with the counts of its hours.
    pub fn days(&self) -> impl Iterator<Item = (u64, &[StepCount; 24])> {
        self.days.iter().map(|(day, hours)| (*day, hours))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// No request is lost, and each is in the step of its time, however the steps grow.
        #[test]
        fn each_request_is_in_the_step_of_its_time(
            start in 0..4_000_000_000_000_000_u64,
            gaps in prop::collection::vec(0..3_000_000_000_u64, 1..100),
        ) {
            let (mut timeline, mut now, mut times) = (Timeline::default(), start, Vec::new());
            for gap in gaps {
                now += gap;
                times.push(now);
                timeline.count(Timestamp(now), now % 3 == 0);
            }
            prop_assert!(timeline.counts().len() <= MAX_STEPS);
            for (at, count) in timeline.counts().iter().enumerate() {
                let begin = timeline.begin().0 + at as u64 * timeline.step().0;
                let inside = |time: &&u64| (begin..begin + timeline.step().0).contains(*time);
                prop_assert_eq!(count.requests, times.iter().filter(inside).count() as u64);
                let refused = times.iter().filter(inside).filter(|time| **time % 3 == 0).count() as u64;
                prop_assert_eq!(count.refused, refused);
            }
        }
    }
}
