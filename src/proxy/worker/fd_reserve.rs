//! The last file descriptors of the process: client connections leave them to backend connections, reloads, logs and
//! the admin listener.

use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::process::{Resource, getrlimit};

/// Descriptors that client connections leave free; a quarter where the limit is small.
const SPARED: u64 = 64;

/// The noted value while the reserve is far: no number of connections is above it.
const NOT_SCARCE: usize = usize::MAX;

/// Where the reserve begins. The kernel gives out the lowest free number: a high number means that all below are in
/// use, and nothing needs counting.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DescriptorReserve {
    begins: RawFd,
    /// The descriptor that lies as far below the first reserved one as the reserve is large.
    nears: RawFd,
}

impl DescriptorReserve {
    /// The reserve under the present limit on open files.
    pub(crate) fn of_process() -> Self {
        let max = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        Self::under(max)
    }

    fn under(max: u64) -> Self {
        let spared = SPARED.min(max / 4);
        let number = |number| RawFd::try_from(number).unwrap_or(RawFd::MAX);
        Self { begins: number(max - spared), nears: number(max - 2 * spared) }
    }

    /// Notes in `scarce_above`, shared by all workers, whether the descriptor given to a connection is near the reserve
    /// while `open` connections are open. Costs no system call.
    pub(crate) fn note(self, given: &impl AsRawFd, open: usize, scarce_above: &AtomicUsize) {
        if given.as_raw_fd() >= self.nears {
            // A low number proves nothing: it is a hole among used ones. But once the number of connections has dropped
            // by `room`, that much room is free.
            let room = usize::try_from(self.begins - self.nears).unwrap_or(0);
            scarce_above.store(open.saturating_sub(room), Ordering::Relaxed);
        }
    }

    /// Whether the next descriptor may be a reserved one while `open` connections are open, by the noted value. Costs
    /// no system call.
    pub(crate) fn may_be_next(open: usize, scarce_above: &AtomicUsize) -> bool {
        let above = scarce_above.load(Ordering::Relaxed);
        let holds = open > above;
        if !holds && above != NOT_SCARCE {
            scarce_above.store(NOT_SCARCE, Ordering::Relaxed);
        }
        holds
    }

    /// Whether the next descriptor would be a reserved one. Costs two system calls, since it opens a descriptor and
    /// closes it.
    pub(crate) fn is_next(self, any: impl AsFd) -> bool {
        rustix::io::dup(any).map_or(true, |next| next.as_raw_fd() >= self.begins)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sixty_four_are_spared_or_a_quarter() {
        let begins = |max| DescriptorReserve::under(max).begins;
        assert_eq!(begins(20_000), 19_936);
        assert_eq!(begins(256), 192);
        assert_eq!(begins(100), 75);
        assert_eq!(begins(0), 0);
        assert_eq!(begins(u64::MAX), RawFd::MAX);
    }

    #[test]
    fn once_they_are_near_the_next_descriptor_is_looked_at_until_there_is_room() {
        let noted = AtomicUsize::new(NOT_SCARCE);
        for (max, nears, room) in [(20_000, 19_872, 64), (256, 128, 64), (100, 50, 25)] {
            let reserve = DescriptorReserve::under(max);
            reserve.note(&(nears - 1), 90, &noted);
            assert!(!DescriptorReserve::may_be_next(1_000_000, &noted), "{max}");
            reserve.note(&nears, 90, &noted);
            // A hole is not room.
            reserve.note(&5, 90, &noted);
            assert!(DescriptorReserve::may_be_next(90 - room + 1, &noted), "{max}");
            assert!(!DescriptorReserve::may_be_next(90 - room, &noted), "{max}");
            assert!(!DescriptorReserve::may_be_next(90, &noted), "{max}: it takes another to be near again");
        }
        DescriptorReserve::under(u64::MAX).note(&1_000_000, 1_000_000, &noted);
        assert!(!DescriptorReserve::may_be_next(1_000_000, &noted));
    }

    #[test]
    fn the_next_descriptor_is_looked_at_and_given_back() {
        let any = std::io::stderr();
        let begins = |begins| DescriptorReserve { begins, nears: 0 };
        assert!(begins(0).is_next(&any));
        assert!(!begins(RawFd::MAX).is_next(&any));
    }
}
