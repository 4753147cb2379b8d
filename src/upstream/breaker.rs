//! The circuit breaker of an upstream: it is open while too many attempts fail, and requests are answered at once.
//!
//! ```text
//!            too many attempts of the last 10 s failed
//!   closed ───────────────────────────────────────────▶ open: 503 for `for`
//!      ▲                                                  │ over
//!      │  an answer     ┌───────────────┐                 ▼
//!      └────────────────│   half-open   │◀────────────────┘
//!                       │ one request   │── a failure ──▶ open again
//!                       └───────────────┘
//! ```
//! All workers share it. Its words are atomics, and a race of two workers at most counts one attempt in the wrong second.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::time::Instant;

use crate::plan::BreakerRule;

/// The seconds over which attempts are counted.
const SECONDS: usize = 10;
/// Bits of a count of attempts of one second.
const COUNT_BITS: u32 = 20;
const MAX_COUNT: u64 = (1 << COUNT_BITS) - 1;
/// A trial is alone for the span of the rule, or for this time if that is longer. Then another may follow: a client that
/// sends its request slowly, or a response that is long in coming, must not keep the breaker open.
const MIN_TRIAL: Duration = Duration::from_secs(5);

/// The circuit breaker of one upstream.
#[derive(Debug)]
pub(super) struct UpstreamBreaker {
    /// The start of the times.
    epoch: Instant,
    seconds: [CountedSecond; SECONDS],
    /// When it may be tried again, in microseconds; 0: it is closed.
    open_until: AtomicU64,
    /// While a trial is under way: until when no other follows it, in microseconds. Else 0.
    trial_until: AtomicU64,
    /// How often it has opened.
    openings: AtomicU64,
    /// What opened it: failed attempts, and all attempts.
    cause: [AtomicU64; 2],
    /// The program log has reported it as open, and this number of openings. Only the control thread uses these.
    reported_open: AtomicBool,
    reported_openings: AtomicU64,
}

/// The attempts of one second: its number, attempts, failures.
#[derive(Debug, Default)]
struct CountedSecond(AtomicU64);

/// The permission for a request. A trial ends when this is dropped.
#[derive(Debug)]
pub(super) struct BreakerPermit {
    /// `None`: the breaker is closed.
    trial: Option<BreakerTrial>,
}

/// A request that tries an upstream.
#[derive(Debug)]
struct BreakerTrial {
    breaker: Arc<UpstreamBreaker>,
    /// Until when it is alone.
    until: u64,
}

impl UpstreamBreaker {
    /// A closed breaker. `epoch` is any moment not after those of later calls.
    pub(super) fn new(epoch: Instant) -> Self {
        Self {
            epoch,
            seconds: Default::default(),
            open_until: AtomicU64::new(0),
            trial_until: AtomicU64::new(0),
            openings: AtomicU64::new(0),
            cause: Default::default(),
            reported_open: AtomicBool::new(false),
            reported_openings: AtomicU64::new(0),
        }
    }

    /// The permission for a request at `now`.
    ///
    /// # Errors
    ///
    /// It is open, for this long, or another request is its trial, and is alone.
    pub(super) fn permit(
        self: &Arc<Self>,
        now: Instant,
        rule: BreakerRule,
    ) -> Result<BreakerPermit, Duration> {
        let until = self.open_until.load(Relaxed);
        if until == 0 {
            return Ok(BreakerPermit { trial: None });
        }
        let present = self.micros(now);
        let rest = until.saturating_sub(present);
        let on_trial = self.trial_until.load(Relaxed);
        let until = self.micros(now + rule.span.max(MIN_TRIAL));
        let is_taken = || self.trial_until.compare_exchange(on_trial, until, Relaxed, Relaxed).is_err();
        if rest > 0 || on_trial > present || is_taken() {
            return Err(Duration::from_micros(rest));
        }
        Ok(BreakerPermit { trial: Some(BreakerTrial { breaker: Arc::clone(self), until }) })
    }

    /// Counts an attempt of a request with this permit.
    pub(super) fn record(&self, permit: &BreakerPermit, failed: bool, now: Instant, rule: BreakerRule) {
        if self.is_open() {
            // A retry within the trial may answer after a failure.
            match &permit.trial {
                Some(_) if failed => self.open(now, rule),
                Some(_) => self.close(),
                None => {}
            }
            return;
        }
        let second = self.micros(now) / 1_000_000;
        let place = usize::try_from(second).unwrap_or(0) % SECONDS;
        self.seconds[place].count(second, failed);
        if failed {
            let (attempts, failures) = self.sums(second);
            let is_due = attempts >= u64::from(rule.requests)
                && failures * 1_000 >= attempts * u64::from(rule.failures_permille);
            if is_due {
                self.cause[0].store(failures, Relaxed);
                self.cause[1].store(attempts, Relaxed);
                self.openings.fetch_add(1, Relaxed);
                self.open(now, rule);
            }
        }
    }

    /// Whether it is open or half-open.
    pub(super) fn is_open(&self) -> bool {
        self.open_until.load(Relaxed) > 0
    }

    /// What opened it: `48 of 96 attempts failed`.
    pub(super) fn reason(&self) -> String {
        let [failures, attempts] = self.cause.each_ref().map(|count| count.load(Relaxed));
        format!("{failures} of {attempts} attempts in {SECONDS} s failed")
    }

    /// How often it has opened.
    pub(super) fn openings(&self) -> u64 {
        self.openings.load(Relaxed)
    }

    /// Whether the program log has reported it as open.
    pub(super) fn is_reported_open(&self) -> bool {
        self.reported_open.load(Relaxed)
    }

    /// Whether it has opened since the last [`Self::report_opening`].
    pub(super) fn has_opened_since_report(&self) -> bool {
        self.openings() > self.reported_openings.load(Relaxed)
    }

    /// The program log has reported all openings so far.
    pub(super) fn report_opening(&self) {
        self.reported_openings.store(self.openings(), Relaxed);
        self.reported_open.store(true, Relaxed);
    }

    /// The program log has reported that it is closed.
    pub(super) fn report_closing(&self) {
        self.reported_open.store(false, Relaxed);
    }

    fn open(&self, now: Instant, rule: BreakerRule) {
        self.open_until.store(self.micros(now + rule.span).max(1), Relaxed);
        self.seconds.iter().for_each(|second| second.0.store(0, Relaxed));
    }

    /// Closes it: the upstream answers.
    fn close(&self) {
        self.open_until.store(0, Relaxed);
    }

    /// Attempts and failures of the last ten seconds, `now` being the last one.
    fn sums(&self, now: u64) -> (u64, u64) {
        let counts = self.seconds.iter().map(CountedSecond::counts);
        let lately = counts.filter(|(second, ..)| second + SECONDS as u64 > now && *second <= now);
        lately.fold((0, 0), |sum, (_, attempts, failures)| (sum.0 + attempts, sum.1 + failures))
    }

    fn micros(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.epoch).as_micros()).unwrap_or(u64::MAX)
    }
}

impl CountedSecond {
    fn count(&self, now: u64, failed: bool) {
        let counted = |word: u64| {
            let (second, attempts, failures) = Self::parts(word);
            let (attempts, failures) = if second == now { (attempts, failures) } else { (0, 0) };
            Some(Self::word(now, attempts + 1, failures + u64::from(failed)))
        };
        // It never fails: the closure always has a value.
        self.0.fetch_update(Relaxed, Relaxed, counted).ok();
    }

    fn counts(&self) -> (u64, u64, u64) {
        Self::parts(self.0.load(Relaxed))
    }

    fn word(second: u64, attempts: u64, failures: u64) -> u64 {
        second << (2 * COUNT_BITS) | attempts.min(MAX_COUNT) << COUNT_BITS | failures.min(MAX_COUNT)
    }

    fn parts(word: u64) -> (u64, u64, u64) {
        (word >> (2 * COUNT_BITS), word >> COUNT_BITS & MAX_COUNT, word & MAX_COUNT)
    }
}

impl Drop for BreakerPermit {
    /// The next request may be the trial, unless this one has closed the breaker, or another is the trial by now.
    fn drop(&mut self) {
        if let Some(BreakerTrial { breaker, until }) = &self.trial {
            breaker.trial_until.compare_exchange(*until, 0, Relaxed, Relaxed).ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: BreakerRule =
        BreakerRule { failures_permille: 500, requests: 20, span: Duration::from_secs(10) };

    fn fresh() -> (Arc<UpstreamBreaker>, impl Fn(u64) -> Instant) {
        let epoch = crate::clock::now();
        (Arc::new(UpstreamBreaker::new(epoch)), move |millis| epoch + Duration::from_millis(millis))
    }

    fn attempt(breaker: &Arc<UpstreamBreaker>, failed: bool, now: Instant) -> Result<(), Duration> {
        let permit = breaker.permit(now, RULE)?;
        breaker.record(&permit, failed, now, RULE);
        Ok(())
    }

    #[test]
    fn it_opens_at_its_share_of_enough_attempts() {
        let (breaker, at) = fresh();
        for number in 0..19 {
            assert_eq!(attempt(&breaker, true, at(number)), Ok(()), "19 are too few");
        }
        assert!(!breaker.is_open());
        assert_eq!(attempt(&breaker, true, at(20)), Ok(()));
        assert!(breaker.is_open());
        assert_eq!(attempt(&breaker, true, at(1_020)), Err(Duration::from_secs(9)));
        assert_eq!(
            (breaker.openings(), breaker.reason()),
            (1, "20 of 20 attempts in 10 s failed".to_owned())
        );
        let (breaker, at) = fresh();
        for number in 0..1_000 {
            // 499 of a thousand.
            assert_eq!(attempt(&breaker, number % 2 == 1 && number != 1, at(number)), Ok(()), "{number}");
        }
        assert!(!breaker.is_open());
    }

    #[test]
    fn old_attempts_do_not_count() {
        let (breaker, at) = fresh();
        (0..19).for_each(|_| assert_eq!(attempt(&breaker, true, at(0)), Ok(())));
        (0..19).for_each(|_| assert_eq!(attempt(&breaker, true, at(10_000)), Ok(())));
        assert!(!breaker.is_open());
        assert_eq!(attempt(&breaker, true, at(19_999)), Ok(()));
        assert!(breaker.is_open());
    }

    #[test]
    fn one_request_at_a_time_is_the_trial() {
        let (breaker, at) = fresh();
        (0..20).for_each(|_| assert_eq!(attempt(&breaker, true, at(0)), Ok(())));
        let trial = breaker.permit(at(10_000), RULE).unwrap();
        assert_eq!(breaker.permit(at(10_000), RULE).err(), Some(Duration::ZERO));
        breaker.record(&trial, true, at(10_500), RULE);
        drop(trial);
        assert_eq!(breaker.permit(at(20_000), RULE).err(), Some(Duration::from_millis(500)), "open again");
        // The client of a trial leaves: the next request is the trial.
        drop(breaker.permit(at(20_500), RULE).unwrap());
        let trial = breaker.permit(at(20_500), RULE).unwrap();
        breaker.record(&trial, false, at(20_600), RULE);
        assert!(!breaker.is_open());
        drop(trial);
        (0..19).for_each(|_| assert_eq!(attempt(&breaker, true, at(20_700)), Ok(()), "counted afresh"));
        assert_eq!((breaker.openings(), breaker.is_open()), (1, false));
    }

    /// The body of its request comes slowly, or its response does.
    #[test]
    fn a_trial_without_an_answer_keeps_others_from_trying_for_no_longer_than_the_span() {
        let (breaker, at) = fresh();
        (0..20).for_each(|_| assert_eq!(attempt(&breaker, true, at(0)), Ok(())));
        let slow = breaker.permit(at(10_000), RULE).unwrap();
        assert_eq!(breaker.permit(at(19_999), RULE).err(), Some(Duration::ZERO));
        let second = breaker.permit(at(20_000), RULE).unwrap();
        // The end of the first one does not end the second.
        drop(slow);
        assert_eq!(breaker.permit(at(29_999), RULE).err(), Some(Duration::ZERO));
        let third = breaker.permit(at(30_000), RULE).unwrap();
        breaker.record(&second, false, at(30_001), RULE);
        assert!(!breaker.is_open());
        // By now it is one failure of many attempts.
        breaker.record(&third, true, at(30_002), RULE);
        assert!(!breaker.is_open());
        let short = BreakerRule { span: Duration::from_millis(1), ..RULE };
        (0..20).for_each(|_| breaker.record(&third, true, at(40_000), short));
        let _trial = breaker.permit(at(40_001), short).unwrap();
        assert_eq!(breaker.permit(at(45_000), short).err(), Some(Duration::ZERO), "five seconds at least");
        assert!(breaker.permit(at(45_001), short).is_ok());
    }

    /// Attempts that began before it opened neither close it nor open it again.
    #[test]
    fn late_answers_change_nothing() {
        let (breaker, at) = fresh();
        let late: Vec<_> = (0..50).map(|_| breaker.permit(at(0), RULE).unwrap()).collect();
        (0..20).for_each(|_| assert_eq!(attempt(&breaker, true, at(1)), Ok(())));
        for (number, permit) in late.iter().enumerate() {
            breaker.record(permit, number % 2 == 0, at(2), RULE);
        }
        assert_eq!((breaker.is_open(), breaker.openings()), (true, 1));
        assert_eq!(breaker.permit(at(10_000), RULE).err(), Some(Duration::from_millis(1)));
    }
}
