//! The least time that is still to come at each place of a file.

use crate::limit::units::Timestamp;

/// Lines of a block. A line waits at least until its block has been read.
const BLOCK: u64 = 256;

/// The least time in each block of lines; after [`Self::finish`], in it and all blocks behind it.
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

    /// The least time of all lines behind this one; the largest of all if none of them has a time.
    pub(super) fn behind(&self, line: u64) -> Timestamp {
        self.blocks.get(index_of(line + 1)).copied().unwrap_or(NONE)
    }
}

/// The block of a line, whose number begins at 1.
fn index_of(line: u64) -> usize {
    usize::try_from(line.saturating_sub(1) / BLOCK).unwrap_or(usize::MAX - 1)
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
        assert_eq!(least.behind(0), Timestamp(40));
        assert_eq!(least.behind(255), Timestamp(40));
        assert_eq!(least.behind(256), Timestamp(45));
        assert_eq!(least.behind(512), Timestamp(55));
        assert_eq!(least.behind(768), NONE);
    }
}
