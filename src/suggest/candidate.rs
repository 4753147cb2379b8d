//! Limits that may be proposed.

use super::round::round;
use super::windows::{PeakWindow, WINDOWS};
use crate::labels::labels;
use crate::limit::units::{Cost, Rate};
use crate::limit::{Algorithm, Align};

labels! {
    /// An algorithm that can be proposed.
    pub enum SuggestedAlgorithm {
        /// `rate` and an equal burst.
        TokenBucket = "token-bucket",
        /// `rate` and an equal burst.
        Gcra = "gcra",
        /// `rate` and a queue that holds as much.
        LeakyBucket = "leaky-bucket",
        /// `rate` in windows of the clock.
        FixedWindow = "fixed-window",
        /// `rate` in two weighted windows.
        SlidingWindow = "sliding-window",
        /// `rate` in any window.
        SlidingLog = "sliding-log",
    }
}

/// One rate of a candidate: a number of units per window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct CandidateRate {
    /// The index of the window.
    pub(super) window: usize,
    /// The units per window; also the burst or the queue.
    pub(super) count: u32,
}

/// A limit that may be proposed: all of its rates have to admit.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Candidate {
    /// With ascending windows.
    pub(super) rates: Vec<CandidateRate>,
    /// The factor above the peak of ordinary keys, before rounding.
    pub(super) head_room: f64,
    /// Whether no rate is below the peak of an ordinary key.
    pub(super) admits_all: bool,
}

impl CandidateRate {
    /// The rate for a peak of ordinary keys: `head_room` times `peak`, rounded, and at least `min`.
    pub(super) fn above(window: usize, peak: u32, min: u32, head_room: f64) -> Self {
        let value = (head_room * f64::from(peak)).max(f64::from(min));
        Self { window, count: round(value, min.max(1)) }
    }

    /// The window.
    pub(super) fn span(self) -> PeakWindow {
        WINDOWS.get(self.window).copied().unwrap_or(WINDOWS[0])
    }

    /// The rate with its parameters in the core.
    pub(super) fn algorithm(self, algorithm: SuggestedAlgorithm) -> Option<Algorithm> {
        let span = self.span().span();
        let (rate, count) = (Rate::new(self.count, span)?, Cost::new(self.count)?);
        Some(match algorithm {
            SuggestedAlgorithm::TokenBucket => Algorithm::token_bucket(rate, count),
            SuggestedAlgorithm::Gcra => Algorithm::gcra(rate, count),
            SuggestedAlgorithm::LeakyBucket => Algorithm::leaky_bucket(rate, count, span),
            SuggestedAlgorithm::FixedWindow => Algorithm::fixed_window(rate, Align::Clock),
            SuggestedAlgorithm::SlidingWindow => Algorithm::sliding_window(rate),
            SuggestedAlgorithm::SlidingLog => Algorithm::sliding_log(rate, None, false),
        })
    }

    /// The units that are refused for certain of a key with `units` in some window of length `span`, however they are
    /// spread. More than 0: the key is refused.
    ///
    /// In a span d, a bucket admits `count` × (1 + d/P); windows aligned to a clock cut it into at most d/P + 1 of them; a
    /// sliding log admits `count` in each of ⌈d/P⌉ periods.
    pub(super) fn refused_units(self, algorithm: SuggestedAlgorithm, span: PeakWindow, units: u32) -> f64 {
        let periods = span.seconds() / self.span().seconds();
        let admitted = match algorithm {
            SuggestedAlgorithm::SlidingLog => periods.ceil(),
            SuggestedAlgorithm::LeakyBucket => 1.0 + periods + 1.0 / f64::from(self.count),
            SuggestedAlgorithm::FixedWindow | SuggestedAlgorithm::SlidingWindow => 1.0 + periods.ceil(),
            SuggestedAlgorithm::TokenBucket | SuggestedAlgorithm::Gcra => 1.0 + periods,
        };
        f64::from(units) - admitted * f64::from(self.count)
    }

    /// Whether a key with this peak in the rate's window is admitted for certain. The estimate of a sliding window may be
    /// twice the units of any window.
    pub(super) fn admits(self, algorithm: SuggestedAlgorithm, peak: u32) -> bool {
        match algorithm {
            SuggestedAlgorithm::SlidingWindow => u64::from(peak) * 2 <= self.count.into(),
            _ => peak <= self.count,
        }
    }
}
