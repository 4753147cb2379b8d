//! The last descriptors of the process: clients leave them to connections to backends, reloads, logs and the admin listener.

use std::os::fd::{AsFd, AsRawFd, RawFd};

use rustix::process::{Resource, getrlimit};

/// Descriptors that clients' connections leave free; of a small bound, a quarter.
const SPARED: u64 = 64;

/// Where the spared descriptors begin. The kernel gives out the lowest number that is free: if that is a high one, all below
/// are taken, and nothing needs counting.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reserve(RawFd);

impl Reserve {
    /// Under the bound on open files that holds now.
    pub(crate) fn of_process() -> Self {
        let most = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        Self::under(most)
    }

    fn under(most: u64) -> Self {
        Self(RawFd::try_from(most - SPARED.min(most / 4)).unwrap_or(RawFd::MAX))
    }

    /// Whether the next descriptor would be one of them. Costs two system calls, as it takes one and gives it back.
    pub(crate) fn is_next(self, any: impl AsFd) -> bool {
        rustix::io::dup(any).map_or(true, |next| next.as_raw_fd() >= self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sixty_four_are_spared_or_a_quarter() {
        assert_eq!(Reserve::under(20_000).0, 19_936);
        assert_eq!(Reserve::under(256).0, 192);
        assert_eq!(Reserve::under(100).0, 75);
        assert_eq!(Reserve::under(0).0, 0);
        assert_eq!(Reserve::under(u64::MAX).0, RawFd::MAX);
    }

    #[test]
    fn the_next_descriptor_is_looked_at_and_given_back() {
        let any = std::io::stderr();
        assert!(Reserve(0).is_next(&any));
        assert!(!Reserve(RawFd::MAX).is_next(&any));
    }
}
