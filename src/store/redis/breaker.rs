//! The circuit breaker of a server: when calls stop, and when the connection is tried again. Pure: it only counts, its
//! callers wait.
//!
//! Closed → open after 5 failed calls in a row, or at once when no connection can be made. Open → closed when an
//! attempt succeeds: a new connection with its whole handshake, never a request.
//!
//! Calls that time out at the same time are evidence of one silence, not of several: one of them counts, and the next
//! one when as much time has passed again. So a burst of calls does not open the breaker for a server that stalls for a
//! moment on a busy machine; a lone call does not wait longer for that.

use std::time::Duration;

use tokio::time::Instant;

use super::backoff::Backoff;

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

#[cfg(test)]
mod tests {
    use super::*;

    /// Plays events given as letters: `a`nswered, `f`ailed, `t`imed out after 20 ms, no connection (`n`), an attempt
    /// `s`ucceeds, 20 ms `g`o by, and `r`est. Returns the effects: `O`pens, `C`loses, the delay in ms, `.` nothing.
    fn play(events: &str) -> String {
        let (mut breaker, mut now) = (Breaker::default(), crate::clock::deadline::now());
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
}
