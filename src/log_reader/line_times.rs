//! The times of the lines of a file: the least one that is still to come at each place, and jumps from line to line.

use crate::limit::units::{Micros, Timestamp};

/// Lines of a block. A line waits at least until its block has been read.
const BLOCK: u64 = 256;

/// The least time in each block of lines; after [`Self::finish`], in it and all blocks after it.
#[derive(Clone, Debug, Default)]
pub(super) struct LeastTimes {
    blocks: Vec<Timestamp>,
}

const NONE: Timestamp = Timestamp(u64::MAX);

impl LeastTimes {
    /// Notes the time of a line. Lines are noted in their order; not each line has a time.
    pub(super) fn note(&mut self, line: u64, time: Timestamp) {
        let index = index_of(line);
        while self.blocks.len() <= index {
            self.blocks.push(NONE);
        }
        if let Some(block) = self.blocks.get_mut(index) {
            *block = time.min(*block);
        }
    }

    /// Ends the file.
    pub(super) fn finish(&mut self) {
        let mut least = NONE;
        for block in self.blocks.iter_mut().rev() {
            least = least.min(*block);
            *block = least;
        }
    }

    /// The least time of all lines after this one; the largest of all if none of them has a time.
    pub(super) fn after(&self, line: u64) -> Timestamp {
        self.blocks.get(index_of(line + 1)).copied().unwrap_or(NONE)
    }
}

/// The block of a line, whose number begins at 1.
fn index_of(line: u64) -> usize {
    usize::try_from(line.saturating_sub(1) / BLOCK).unwrap_or(usize::MAX - 1)
}

/// A line that is this much earlier than one before it: requests take a while, but mostly less.
const BACK: Micros = Micros(3_600 * 1_000_000);
/// A line that is this much later than all before it counts only if the line after it confirms it.
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

    /// Takes the time of the next line. `end` returns when its request ended: a long one is not a jump.
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

    #[test]
    fn the_least_time_to_come_is_that_of_the_rest() {
        let mut least = LeastTimes::default();
        for (line, time) in [(1, 50), (2, 40), (300, 45), (600, 60), (601, 55)] {
            least.note(line, Timestamp(time));
        }
        least.finish();
        assert_eq!(least.after(0), Timestamp(40));
        assert_eq!(least.after(255), Timestamp(40));
        assert_eq!(least.after(256), Timestamp(45));
        assert_eq!(least.after(512), Timestamp(55));
        assert_eq!(least.after(768), NONE);
    }

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
