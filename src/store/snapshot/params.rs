//! The parameters of an algorithm as data, for files that outlive the process.

use serde::{Deserialize, Serialize};

use crate::limit::calendar::CalendarWindows;
use crate::limit::fixed_window::EqualWindows;
use crate::limit::units::{Cost, Micros, Rate};
use crate::limit::{Algorithm, Align};

/// A rate: a count of units, and a period in microseconds.
type RateParams = (u32, u64);

/// The parameters of an algorithm.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::store) enum AlgorithmParams {
    /// A token bucket: its rate, and its burst.
    TokenBucket(RateParams, u32),
    /// GCRA: its rate, and its burst.
    Gcra(RateParams, u32),
    /// A leaky bucket: its rate, its queue, and the longest wait in microseconds.
    LeakyBucket(RateParams, u32, u64),
    /// A fixed window that is aligned to the clock.
    FixedWindow(RateParams),
    /// A fixed window from the first request of a key.
    FirstRequestWindow(RateParams),
    /// A window of a calendar, by its name.
    CalendarWindow(RateParams, String),
    /// A sliding window.
    SlidingWindow(RateParams),
    /// A sliding log: its rate, its spacing in microseconds, and whether it counts refused attempts.
    SlidingLog(RateParams, Option<u64>, bool),
    /// A concurrency limit: its maximum, its queue, and the longest wait in microseconds. It has no stored states.
    Concurrency(u32, u32, u64),
    /// A ban: the refusals, the microseconds within which they count, and the microseconds of successive bans.
    Ban(u32, u64, Vec<u64>),
    /// Units of a shared counter in advance, and for how many microseconds. Such units do not outlive the process.
    Lease(u64),
}

impl AlgorithmParams {
    /// The parameters of an algorithm.
    pub(in crate::store) fn of(algorithm: &Algorithm) -> Self {
        let rate = |rate: Rate| (rate.count(), rate.period().0);
        match algorithm {
            Algorithm::TokenBucket(own) => Self::TokenBucket(rate(own.rate), own.burst.units()),
            Algorithm::Gcra(own) => Self::Gcra(rate(own.rate), own.burst.units()),
            Algorithm::LeakyBucket(own) => {
                Self::LeakyBucket(rate(own.rate), own.queue.units(), own.max_wait.0)
            }
            Algorithm::FixedWindow(own) => match own.windows {
                EqualWindows::Clock => Self::FixedWindow(rate(own.rate)),
                EqualWindows::FirstRequest => Self::FirstRequestWindow(rate(own.rate)),
            },
            Algorithm::CalendarWindow(own) => {
                Self::CalendarWindow(rate(own.rate), own.windows.name().to_owned())
            }
            Algorithm::SlidingWindow(own) => Self::SlidingWindow(rate(own.rate)),
            Algorithm::SlidingLog(own) => {
                Self::SlidingLog(rate(own.rate), own.spacing.map(|spacing| spacing.0), own.count_denied)
            }
            Algorithm::Ban(own) => {
                Self::Ban(own.after, own.within.0, own.spans().iter().map(|span| span.0).collect())
            }
            Algorithm::Lease(own) => Self::Lease(own.duration().0),
            Algorithm::Concurrency(own) => Self::Concurrency(
                own.max().units(),
                u32::try_from(own.queue()).unwrap_or(u32::MAX),
                own.max_wait().0,
            ),
        }
    }

    /// The algorithm with these parameters. `None`: it has none of its own ranges, or `calendar` knows no such windows.
    pub(in crate::store) fn algorithm(
        &self,
        calendar: impl FnOnce(&str) -> Option<CalendarWindows>,
    ) -> Option<Algorithm> {
        let rate = |&(count, period): &RateParams| Rate::new(count, Micros(period));
        Some(match self {
            Self::TokenBucket(own, burst) => Algorithm::token_bucket(rate(own)?, Cost::new(*burst)?),
            Self::Gcra(own, burst) => Algorithm::gcra(rate(own)?, Cost::new(*burst)?),
            Self::LeakyBucket(own, queue, max_wait) => {
                Algorithm::leaky_bucket(rate(own)?, Cost::new(*queue)?, Micros(*max_wait))
            }
            Self::FixedWindow(own) => Algorithm::fixed_window(rate(own)?, Align::Clock),
            Self::FirstRequestWindow(own) => Algorithm::fixed_window(rate(own)?, Align::FirstRequest),
            Self::CalendarWindow(own, name) => {
                Algorithm::fixed_window(rate(own)?, Align::Calendar(calendar(name)?))
            }
            Self::SlidingWindow(own) => Algorithm::sliding_window(rate(own)?),
            Self::SlidingLog(own, spacing, count_denied) => {
                Algorithm::sliding_log(rate(own)?, spacing.map(Micros), *count_denied)
            }
            Self::Concurrency(max, queue, max_wait) => {
                Algorithm::concurrency(Cost::new(*max)?, *queue, Micros(*max_wait))
            }
            Self::Lease(period) => Algorithm::lease(Micros(*period))?,
            Self::Ban(after, within, spans) => {
                let spans: Vec<Micros> = spans.iter().copied().map(Micros).collect();
                Algorithm::ban(*after, Micros(*within), &spans)?
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_algorithm_is_made_of_its_parameters() {
        let rate = Rate::new(7, Micros(3_000)).unwrap();
        let (burst, span) = (Cost::new(9).unwrap(), Micros(5_000_000));
        let all = [
            Algorithm::token_bucket(rate, burst),
            Algorithm::gcra(rate, burst),
            Algorithm::leaky_bucket(rate, burst, span),
            Algorithm::fixed_window(rate, Align::Clock),
            Algorithm::fixed_window(rate, Align::FirstRequest),
            Algorithm::sliding_window(rate),
            Algorithm::sliding_log(rate, None, true),
            Algorithm::sliding_log(rate, Some(span), false),
            Algorithm::concurrency(burst, 3, span),
            Algorithm::ban(3, span, &[span, Micros(9_000_000)]).unwrap(),
            Algorithm::lease(span).unwrap(),
        ];
        for algorithm in all {
            let params = AlgorithmParams::of(&algorithm);
            let text = serde_json::to_string(&params).unwrap();
            let read: AlgorithmParams = serde_json::from_str(&text).unwrap();
            assert_eq!(read.algorithm(|_| None), Some(algorithm), "{text}");
        }
    }

    #[test]
    fn parameters_that_no_algorithm_has_make_none() {
        for text in [
            r#"{"TokenBucket":[[0,1000],1]}"#,
            r#"{"TokenBucket":[[1,1],1]}"#,
            r#"{"Gcra":[[1,1000],0]}"#,
            r#"{"CalendarWindow":[[1,1000],"month@Nowhere"]}"#,
            r#"{"Ban":[0,1,[1]]}"#,
            r#"{"Ban":[1,1,[]]}"#,
        ] {
            let params: AlgorithmParams = serde_json::from_str(text).unwrap();
            assert_eq!(params.algorithm(|_| None), None, "{text}");
        }
    }
}
