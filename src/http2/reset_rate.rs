//! The rate of streams that are reset for nothing.

use std::time::Duration;

use tokio::time::Instant;

/// The time over which they are counted.
const WINDOW: Duration = Duration::from_secs(10);

/// Counts resets of one connection over ten seconds.
#[derive(Clone, Copy, Debug)]
pub struct ResetRate {
    since: Instant,
    count: u32,
}

impl ResetRate {
    /// None so far.
    pub fn new(now: Instant) -> Self {
        Self { since: now, count: 0 }
    }

    /// Counts one at `now`.
    pub fn count(&mut self, now: Instant) {
        if now.saturating_duration_since(self.since) >= WINDOW {
            *self = Self::new(now);
        }
        self.count = self.count.saturating_add(1);
    }

    /// Whether there were more than `max` since the present ten seconds began.
    pub fn exceeds(&self, max: u32) -> bool {
        self.count > max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resets_are_forgotten_after_ten_seconds() {
        let start = crate::clock::now();
        let mut rate = ResetRate::new(start);
        (0..100).for_each(|_| rate.count(start));
        assert!(rate.exceeds(99) && !rate.exceeds(100));
        rate.count(start + WINDOW);
        assert!(rate.exceeds(0) && !rate.exceeds(1));
    }
}
