//! The circuit breaker of a server: when calls stop, when the connection is tried again, and the delay before
//! that. Pure: it only counts, its callers wait.
//!
//! Closed → open after 5 failed calls in a row, or at once when no connection can be made. Open → closed when an
//! attempt succeeds: a new connection with its whole handshake, never a request.
//!
//! Calls that time out at the same time are evidence of one silence, not of several: one of them counts, and the next
//! one when as much time has passed again. So a burst of calls does not open the breaker for a server that stalls for a
//! moment on a busy machine; a lone call does not wait longer for that.

use std::time::Duration;

use tokio::time::Instant;

/// The number of failed calls in a row that opens the breaker.
const MAX_FAILURES: u32 = 5;
/// Timeouts at least this far apart are two failures, however long the timeout of a call.
const LONGEST_SILENCE: Duration = Duration::from_millis(100);

/// Counts failures, and computes the delay before the next attempt.
#[derive(Debug, Default)]
pub(super) struct Breaker {
    failures: u32,
    /// When the last silence was counted.
    silent: Option<Instant>,
    open: bool,
    backoff: Backoff,
}

impl Breaker {
    /// Whether the server must not be called.
    pub(super) fn is_open(&self) -> bool {
        self.open
    }

    /// A call was answered in time: the failures are reset.
    pub(super) fn answered(&mut self) {
        self.failures = 0;
        self.backoff.reset();
    }

    /// A call failed. True if this opens the breaker.
    pub(super) fn failed(&mut self) -> bool {
        self.failures = self.failures.saturating_add(1);
        self.failures >= MAX_FAILURES && self.open()
    }

    /// A call was not answered within `timeout`. True if this opens the breaker.
    pub(super) fn timed_out(&mut self, now: Instant, timeout: Duration) -> bool {
        let silence = timeout.min(LONGEST_SILENCE);
        if self.failures > 0 && self.silent.is_some_and(|last| now < last + silence) {
            return false;
        }
        self.silent = Some(now);
        self.failed()
    }

    /// No connection can be made. True if this opens the breaker.
    pub(super) fn open(&mut self) -> bool {
        !std::mem::replace(&mut self.open, true)
    }

    /// A connection attempt succeeded. True if this closes the breaker. The delays are reset only after a reply: a
    /// server that accepts connections and then refuses every call is not tried at full pace.
    pub(super) fn close(&mut self) -> bool {
        self.failures = 0;
        std::mem::replace(&mut self.open, false)
    }

    /// From the beginning of the last try to the beginning of the next.
    pub(super) fn rest(&mut self, chance: u64) -> Duration {
        self.backoff.next(chance)
    }
}

/// The first delay, ± a quarter.
const FIRST: Duration = Duration::from_millis(100);
/// The longest delay, ± a quarter: with it an attempt begins at least every 2 s.
const LONGEST: Duration = Duration::from_millis(1_500);

/// The delay between connection attempts: doubling delays, with jitter so that workers do not reconnect in step. Pure:
/// the caller passes the random number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Backoff {
    tries: u32,
}

impl Backoff {
    /// From the beginning of the last attempt to the beginning of the next: 100 ms, then twice as long each time up to
    /// 1.5 s; ± a quarter, by `chance`.
    pub(super) fn next(&mut self, chance: u64) -> Duration {
        let rest = FIRST.saturating_mul(1 << self.tries.min(16)).min(LONGEST);
        self.tries = self.tries.saturating_add(1);
        // 0 to 1000 thousandths of a half, on top of three quarters.
        let thousandths = u32::try_from(chance % 1_001).unwrap_or(0);
        rest * 3 / 4 + rest * thousandths / 2_000
    }

    /// An attempt succeeded: the next delay is the first again.
    pub(super) fn reset(&mut self) {
        self.tries = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plays events given as letters: `a`nswered, `f`ailed, `t`imed out after 20 ms, no connection (`n`), an attempt
    /// `s`ucceeds, 20 ms `g`o by, and `r`est. Returns the effects: `O`pens, `C`loses, the delay in ms, `.` nothing.
    fn play(events: &str) -> String {
        let (mut breaker, mut now) = (Breaker::default(), crate::clock::now());
        let timeout = Duration::from_millis(20);
        let mut log = Vec::new();
        for event in events.chars() {
            log.push(match event {
                'a' => (breaker.answered(), ".").1.to_owned(),
                'f' if breaker.failed() => "O".to_owned(),
                't' if breaker.timed_out(now, timeout) => "O".to_owned(),
                'g' => {
                    now += timeout;
                    ".".to_owned()
                }
                'n' if breaker.open() => "O".to_owned(),
                's' if breaker.close() => "C".to_owned(),
                'r' => breaker.rest(500).as_millis().to_string(),
                _ => ".".to_owned(),
            });
        }
        assert_eq!(
            breaker.is_open(),
            log.iter().filter(|it| *it == "O").count() > log.iter().filter(|it| *it == "C").count()
        );
        log.join(" ")
    }

    #[test]
    fn it_opens_and_closes_as_promised() {
        for (events, log) in [
            ("ffff", ". . . ."),
            ("fffff", ". . . . O"),
            ("ffffafffff", ". . . . . . . . . O"),
            ("ffffffff", ". . . . O . . ."),
            // Calls that time out together are one silence.
            ("tttttttt", ". . . . . . . ."),
            ("tgtgtgtgt", ". . . . . . . . O"),
            ("ttgttgttgttgt", ". . . . . . . . . . . . O"),
            ("tgtgtgtgattttt", ". . . . . . . . . . . . . ."),
            ("tffff", ". . . . O"),
            ("n", "O"),
            ("nn", "O ."),
            ("nsffff", "O C . . . ."),
            ("nsfffff", "O C . . . . O"),
            ("s", "."),
            // Delays double from attempt to attempt, also across a connection without replies, and are reset after a
            // reply.
            ("nrrrrrr", "O 100 200 400 800 1500 1500"),
            ("nrrsnr", "O 100 200 C O 400"),
            ("nrrsanr", "O 100 200 C . O 100"),
        ] {
            assert_eq!(play(events), log, "{events}");
        }
    }

    #[test]
    fn rests_double_and_stay_below_two_seconds() {
        let rests = |chance| {
            let mut backoff = Backoff::default();
            [(); 7].map(|()| backoff.next(chance).as_millis())
        };
        assert_eq!(rests(0), [75, 150, 300, 600, 1_125, 1_125, 1_125]);
        assert_eq!(rests(500), [100, 200, 400, 800, 1_500, 1_500, 1_500]);
        assert_eq!(rests(1_000), [125, 250, 500, 1_000, 1_875, 1_875, 1_875]);
        let mut backoff = Backoff { tries: u32::MAX };
        assert!(backoff.next(u64::MAX) < Duration::from_secs(2));
        backoff.reset();
        assert_eq!(backoff.next(500), FIRST);
    }
}
