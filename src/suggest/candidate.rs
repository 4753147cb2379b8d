//! Limits that may be proposed, and the choice among them.

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

/// Rounds as a person would: the roundest number near `value` that is at least `min`, at most a tenth away from `value`
/// (below 10: less than 1 above it). `min` is at most `value`.
fn round(value: f64, min: u32) -> u32 {
    if value < 10.0 {
        return whole(value).max(min);
    }
    let step = step(value);
    let nearest = (value / step).round() * step;
    let rounded = if nearest < f64::from(min) { (value / step).ceil() * step } else { nearest };
    whole(rounded)
}

/// The distance of round numbers near `value`: 1 below 20, 5 below 50, 10 below 200, 50 below 500, …
fn step(value: f64) -> f64 {
    let mut scale = 1.0;
    while value / scale >= 100.0 {
        scale *= 10.0;
    }
    match value / scale {
        low if low < 20.0 => scale,
        middle if middle < 50.0 => 5.0 * scale,
        _ => 10.0 * scale,
    }
}

/// A count that a limit may have: 1 to 10^9.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is clamped to the range")]
fn whole(value: f64) -> u32 {
    value.ceil().clamp(1.0, f64::from(crate::limit::units::Cost::MAX)) as u32
}

/// The share of the most refused requests that is as good as all of them.
const NEARLY_ALL: f64 = 0.97;

/// The requests of targets that a candidate refuses.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct TargetRefusals {
    /// The number of targets of which a request is refused.
    pub(super) keys: usize,
    /// The number of refused requests of targets; in the first pass a lower bound in units.
    pub(super) requests: f64,
}

/// The index of the best candidate, by the outcome of each.
///
/// The first rule is the number of refused targets, the second that no rate is below a peak of an ordinary key, the third
/// the head room. Of the candidates that are equal in these, those that refuse nearly as many requests as the best one
/// are left. Of these the one with the fewest rates is chosen, then the one with the shortest windows: its `retry-after` is
/// the shortest.
pub(super) fn best(candidates: &[Candidate], outcomes: &[TargetRefusals]) -> Option<usize> {
    let mut left: Vec<_> = candidates.iter().zip(outcomes).enumerate().collect();
    let keys = left.iter().map(|(_, (_, outcome))| outcome.keys).max()?;
    left.retain(|(_, (_, outcome))| outcome.keys == keys);
    let safest = |candidate: &Candidate| (candidate.admits_all, candidate.head_room);
    let safety = left.iter().map(|(_, (candidate, _))| safest(candidate));
    let safety = safety.max_by(|one, other| one.0.cmp(&other.0).then(one.1.total_cmp(&other.1)))?;
    left.retain(|(_, (candidate, _))| safest(candidate) == safety);
    let requests = left.iter().map(|(_, (_, outcome))| outcome.requests).fold(0.0, f64::max);
    left.retain(|(_, (_, outcome))| outcome.requests >= NEARLY_ALL * requests);
    let windows =
        |candidate: &Candidate| candidate.rates.iter().rev().map(|rate| rate.window).collect::<Vec<_>>();
    left.into_iter()
        .min_by_key(|(_, (candidate, _))| (candidate.rates.len(), windows(candidate)))
        .map(|(at, _)| at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_round_and_never_below_the_minimum() {
        for (value, min, rounded) in [
            (1.5, 1, 2),
            (7.2, 7, 8),
            (13.4, 12, 13),
            (33.0, 22, 35),
            (31.0, 31, 35),
            (151.0, 100, 150),
            (163.0, 163, 170),
            (1_512.0, 1_008, 1_500),
            (8_640.0, 5_760, 9_000),
            (0.0, 0, 1),
            (1e30, 1, 1_000_000_000),
        ] {
            assert_eq!(round(value, min), rounded, "{value}");
        }
    }

    fn candidate(windows: &[usize], head_room: f64, admits_all: bool) -> Candidate {
        let rates = windows.iter().map(|window| CandidateRate { window: *window, count: 1 }).collect();
        Candidate { rates, head_room, admits_all }
    }

    #[test]
    fn targets_come_first_then_safety_then_requests_then_fewer_and_shorter_windows() {
        let candidates = [
            (candidate(&[3], 2.0, true), 3, 900.0),
            (candidate(&[0], 1.5, true), 4, 100.0),
            (candidate(&[1, 2], 1.5, true), 4, 1_000.0),
            (candidate(&[5], 1.5, true), 4, 990.0),
            (candidate(&[4], 1.5, true), 4, 980.0),
            (candidate(&[4], 1.2, true), 4, 2_000.0),
            (candidate(&[2], 2.0, false), 4, 2_000.0),
        ];
        let (candidates, outcomes): (Vec<_>, Vec<_>) = candidates
            .into_iter()
            .map(|(candidate, keys, requests)| (candidate, TargetRefusals { keys, requests }))
            .unzip();
        assert_eq!(best(&candidates, &outcomes), Some(4));
        assert_eq!(best(&candidates[..4], &outcomes), Some(3));
        assert_eq!(best(&candidates[..3], &outcomes), Some(2));
        assert_eq!(best(&[], &[]), None);
    }
}
