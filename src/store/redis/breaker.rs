//! When a server is asked no more, and when it is tried again. Pure: it counts, others wait.
//!
//! Closed → open after 5 failed calls in a row, or at once when no connection can be made. Open → closed when a try succeeds, which is
//! a new connection with all its greetings; a request is never the try.

use std::time::Duration;

use super::backoff::Backoff;

/// So many calls in a row may fail.
const MOST_FAILURES: u32 = 5;

/// Counts failures, and says how long to rest.
#[derive(Debug, Default)]
pub(super) struct Breaker {
    failures: u32,
    open: bool,
    backoff: Backoff,
}

impl Breaker {
    /// Whether the server is not to be asked.
    pub(super) fn is_open(&self) -> bool {
        self.open
    }

    /// A call was answered in time: the server is well.
    pub(super) fn answered(&mut self) {
        self.failures = 0;
        self.backoff.reset();
    }

    /// A call failed. True if this opens the breaker.
    pub(super) fn failed(&mut self) -> bool {
        self.failures = self.failures.saturating_add(1);
        self.failures >= MOST_FAILURES && self.open()
    }

    /// There is no connection to be had. True if this opens the breaker.
    pub(super) fn open(&mut self) -> bool {
        !std::mem::replace(&mut self.open, true)
    }

    /// A try succeeded. True if this closes the breaker. The rests begin anew only after an answer: a server that takes connections and then
    /// refuses every call is not asked at full pace.
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

    /// What happens, in letters: `a`nswered, `f`ailed, no connection (`n`), a try succeeds (`s`), and `r`est; what follows of it: `O`pens,
    /// `C`loses, the rest in ms, `.` nothing.
    fn play(events: &str) -> String {
        let mut breaker = Breaker::default();
        let mut told = Vec::new();
        for event in events.chars() {
            told.push(match event {
                'a' => (breaker.answered(), ".").1.to_owned(),
                'f' if breaker.failed() => "O".to_owned(),
                'n' if breaker.open() => "O".to_owned(),
                's' if breaker.close() => "C".to_owned(),
                'r' => breaker.rest(500).as_millis().to_string(),
                _ => ".".to_owned(),
            });
        }
        assert_eq!(
            breaker.is_open(),
            told.iter().filter(|it| *it == "O").count() > told.iter().filter(|it| *it == "C").count()
        );
        told.join(" ")
    }

    #[test]
    fn it_opens_and_closes_as_promised() {
        for (events, told) in [
            ("ffff", ". . . ."),
            ("fffff", ". . . . O"),
            ("ffffafffff", ". . . . . . . . . O"),
            ("ffffffff", ". . . . O . . ."),
            ("n", "O"),
            ("nn", "O ."),
            ("nsffff", "O C . . . ."),
            ("nsfffff", "O C . . . . O"),
            ("s", "."),
            // Rests double from try to try, also over a recovery that nothing came of, and begin anew after an answer.
            ("nrrrrrr", "O 100 200 400 800 1500 1500"),
            ("nrrsnr", "O 100 200 C O 400"),
            ("nrrsanr", "O 100 200 C . O 100"),
        ] {
            assert_eq!(play(events), told, "{events}");
        }
    }
}
