//! Whether a server is fit to be chosen: what its answers to requests and to health checks say. One for the whole process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::time::Instant;

use crate::gateway::Eject;

/// A server is never ejected for longer, unless the file's own `for` is longer.
const LONGEST: Duration = Duration::from_secs(300);

/// What is known of one server.
///
/// Every request reads it and hardly any writes to it, so that the workers' copies of the cache line stay valid. What one
/// worker writes another sees a moment later, which is soon enough.
#[derive(Debug)]
pub struct Fitness {
    /// What `until` counts from.
    epoch: Instant,
    /// As the health checks say; true where there are none.
    healthy: AtomicBool,
    /// Failures since the last answer.
    failures: AtomicU32,
    /// Ejections since the last answer.
    ejected: AtomicU32,
    /// When the last ejection ends, in microseconds; 0 = it never was ejected.
    until: AtomicU64,
    /// Ejections ever.
    ejections: AtomicU64,
    /// Requests under way; counted only where the balance asks for it.
    in_flight: AtomicU32,
}

impl Fitness {
    /// A server of which nothing is known is fit. `epoch` is any moment not after those of later calls.
    pub fn new(epoch: Instant) -> Self {
        Self {
            epoch,
            healthy: AtomicBool::new(true),
            failures: AtomicU32::new(0),
            ejected: AtomicU32::new(0),
            until: AtomicU64::new(0),
            ejections: AtomicU64::new(0),
            in_flight: AtomicU32::new(0),
        }
    }

    /// Whether it is to be chosen: healthy and not ejected.
    pub fn is_fit(&self, now: Instant) -> bool {
        self.is_healthy() && !self.is_ejected(now)
    }

    /// What the health checks say.
    pub fn is_healthy(&self) -> bool {
        self.healthy.load(Relaxed)
    }

    /// Whether failures keep it from being chosen.
    pub fn is_ejected(&self, now: Instant) -> bool {
        let until = self.until.load(Relaxed);
        until > 0 && self.micros(now) < until
    }

    /// How often it was ejected.
    pub fn ejections(&self) -> u64 {
        self.ejections.load(Relaxed)
    }

    /// Requests under way, as far as they are counted.
    pub(super) fn in_flight(&self) -> u32 {
        self.in_flight.load(Relaxed)
    }

    pub(super) fn set_healthy(&self, healthy: bool) {
        self.healthy.store(healthy, Relaxed);
    }

    /// It answered an attempt that began at `begun`: its failures are forgotten.
    pub(super) fn answered(&self, begun: Instant) {
        let trusted = self.failures.load(Relaxed) == 0 && self.ejected.load(Relaxed) == 0;
        if !trusted && self.is_news(begun) {
            self.failures.store(0, Relaxed);
            self.ejected.store(0, Relaxed);
        }
    }

    /// It failed an attempt that began at `begun`. Whether it is to be ejected: after so many failures in a row, or
    /// after the first since it came back.
    pub(super) fn failed(&self, begun: Instant, rule: Eject) -> bool {
        self.is_news(begun)
            && (self.failures.fetch_add(1, Relaxed).saturating_add(1) >= rule.failures
                || self.ejected.load(Relaxed) > 0)
    }

    /// Ejects it: for the rule's span, and for twice as long each time that it fails on its return.
    pub(super) fn eject(&self, now: Instant, rule: Eject) {
        let times = self.ejected.fetch_add(1, Relaxed).min(31);
        let span = rule.span.saturating_mul(1 << times).min(LONGEST.max(rule.span));
        self.until.store(self.micros(now + span), Relaxed);
        self.failures.store(0, Relaxed);
        self.ejections.fetch_add(1, Relaxed);
    }

    /// What began before the last ejection was over says nothing of the server that came back.
    fn is_news(&self, begun: Instant) -> bool {
        self.micros(begun) >= self.until.load(Relaxed)
    }

    fn micros(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.epoch).as_micros()).unwrap_or(u64::MAX)
    }
}

/// A request under way at a server, counted as long as this lives.
#[derive(Debug)]
pub(super) struct InFlight(Arc<Fitness>);

impl InFlight {
    pub(super) fn at(server: &Arc<Fitness>) -> Self {
        server.in_flight.fetch_add(1, Relaxed);
        Self(Arc::clone(server))
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: Eject = Eject { failures: 3, span: Duration::from_secs(10) };

    fn fresh() -> (Fitness, impl Fn(u64) -> Instant) {
        let epoch = crate::clock::deadline::now();
        (Fitness::new(epoch), move |seconds| epoch + Duration::from_secs(seconds))
    }

    fn fail(fitness: &Fitness, at: Instant) -> bool {
        let due = fitness.failed(at, RULE);
        if due {
            fitness.eject(at, RULE);
        }
        due
    }

    #[test]
    fn only_failures_in_a_row_count() {
        let (fitness, at) = fresh();
        for second in 0..20 {
            assert!(!fail(&fitness, at(second)) && !fail(&fitness, at(second)), "two are too few");
            fitness.answered(at(second));
        }
        assert!(!fail(&fitness, at(20)) && !fail(&fitness, at(20)) && fail(&fitness, at(20)));
        assert!(fitness.is_ejected(at(29)) && !fitness.is_fit(at(29)) && fitness.is_healthy());
        assert!(fitness.is_fit(at(30)));
        assert_eq!(fitness.ejections(), 1);
    }

    #[test]
    fn the_back_off_doubles_up_to_five_minutes_until_it_answers() {
        let (fitness, at) = fresh();
        let (mut now, mut spans) = (0, Vec::new());
        (0..2).for_each(|_| assert!(!fail(&fitness, at(now))));
        for _ in 0..8 {
            assert!(fail(&fitness, at(now)), "the first failure after its return is enough");
            let back = (now..).find(|second| fitness.is_fit(at(*second))).unwrap();
            spans.push(back - now);
            now = back;
        }
        assert_eq!(spans, [10, 20, 40, 80, 160, 300, 300, 300]);
        fitness.answered(at(now));
        assert!(!fail(&fitness, at(now)), "it is trusted again");
    }

    #[test]
    fn what_began_before_its_return_says_nothing() {
        let (fitness, at) = fresh();
        (0..3).for_each(|_| _ = fail(&fitness, at(5)));
        assert!((0..9).all(|_| !fail(&fitness, at(6)) && !fail(&fitness, at(14))));
        assert!(fitness.is_fit(at(15)), "failures while it is away do not keep it away");
        fitness.answered(at(14));
        assert!(fail(&fitness, at(15)), "an old answer does not make it trusted");
        assert!(fitness.is_ejected(at(34)) && fitness.is_fit(at(35)));
    }

    #[test]
    fn a_span_beyond_five_minutes_stays_as_it_is() {
        let (fitness, at) = fresh();
        let rule = Eject { failures: 1, span: Duration::from_secs(1_000) };
        for begin in [0, 1_000, 2_000] {
            assert!(fitness.failed(at(begin), rule));
            fitness.eject(at(begin), rule);
            assert!(fitness.is_ejected(at(begin + 999)) && !fitness.is_ejected(at(begin + 1_000)));
        }
    }
}
