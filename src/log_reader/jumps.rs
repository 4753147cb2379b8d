//! Jumps of the time from line to line.

use crate::limit::units::{Micros, Timestamp};

/// A line that is this much earlier than one before it: requests take a while, but mostly less.
const BACK: Micros = Micros(3_600 * 1_000_000);
/// A line that is this much later than all before it counts only if the line behind it confirms it.
const AHEAD: Micros = Micros(86_400 * 1_000_000);

/// The latest time of a file, without lines that are alone in the future.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LatestTime {
    latest: Option<Timestamp>,
    /// The time of the last line, if it was far ahead.
    ahead: Option<Timestamp>,
}

/// What a line is after those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TimeStep {
    /// Not earlier than any before it.
    Onward,
    /// Earlier than another before it.
    Earlier,
    /// Much earlier: the clock was set, or files were joined.
    JumpBack,
    /// The line before it was alone in the future.
    AfterOutlier,
}

impl LatestTime {
    /// The latest time so far.
    pub(super) const fn latest(self) -> Option<Timestamp> {
        self.latest
    }

    /// Takes the time of the next line. `end` returns when its request ended: a long one is no jump.
    pub(super) fn note(&mut self, time: Timestamp, end: impl FnOnce() -> Option<Timestamp>) -> TimeStep {
        let Some(latest) = self.latest else {
            self.latest = Some(time);
            return TimeStep::Onward;
        };
        let ahead = self.ahead.take();
        if time.since(latest) > AHEAD {
            if ahead.is_some_and(|ahead| time.since(ahead) <= AHEAD && ahead.since(time) <= AHEAD) {
                self.latest = Some(time.max(ahead.unwrap_or(time)));
            } else {
                self.ahead = Some(time);
            }
            return TimeStep::Onward;
        }
        let is_back = |time| latest.since(time) > BACK;
        let is_jump = is_back(time) && end().is_none_or(is_back);
        self.latest = Some(if is_jump { time } else { time.max(latest) });
        match () {
            () if ahead.is_some() => TimeStep::AfterOutlier,
            () if is_jump => TimeStep::JumpBack,
            () if time < latest => TimeStep::Earlier,
            () => TimeStep::Onward,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(seconds: &[u64]) -> (Vec<TimeStep>, Option<u64>) {
        let mut latest = LatestTime::default();
        let times = seconds.iter().map(|seconds| Timestamp(seconds * 1_000_000));
        let steps = times.map(|time| latest.note(time, || None)).collect();
        (steps, latest.latest().map(|time| time.0 / 1_000_000))
    }

    #[test]
    fn steps_are_told_apart() {
        use TimeStep::{AfterOutlier, Earlier, JumpBack, Onward};
        assert_eq!(
            steps(&[9_000, 8_000, 9_000, 10_000]),
            (vec![Onward, Earlier, Onward, Onward], Some(10_000))
        );
        assert_eq!(steps(&[9_000, 5_000, 5_001]), (vec![Onward, JumpBack, Onward], Some(5_001)));
        assert_eq!(steps(&[9_000, 999_000, 9_001]), (vec![Onward, Onward, AfterOutlier], Some(9_001)));
        assert_eq!(steps(&[9_000, 999_000, 999_001]), (vec![Onward; 3], Some(999_001)));
    }

    #[test]
    fn a_long_request_is_no_jump() {
        let mut latest = LatestTime::default();
        let end = Timestamp(9_000_000_000);
        assert_eq!(latest.note(end, || None), TimeStep::Onward);
        assert_eq!(latest.note(Timestamp(1), || Some(end)), TimeStep::Earlier);
        assert_eq!(latest.latest(), Some(end));
    }
}
