//! The state of a server: its health, its ejections and its failures. One for the whole process.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::Duration;

use http::StatusCode;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::cause::Cause;
use super::in_flight::WorkerInFlight;
use crate::labels::labels;
use crate::plan::Eject;

/// The maximum ejection, unless the config file's own `for` is longer.
const LONGEST: Duration = Duration::from_secs(300);
/// Enough good health checks to count as up without an answer to a request.
const VOUCHED: u32 = u32::MAX;

/// The state of one server.
///
/// Every request reads it and few write to it, so that the workers' copies of the cache line stay valid. A write by one
/// worker is visible to others a moment later, which is soon enough.
#[derive(Debug)]
pub struct ServerState {
    /// The start of the time that `until` is measured in.
    epoch: Instant,
    /// The result of the health checks; true without health checks.
    healthy: AtomicBool,
    /// An operator has drained it: it gets no new requests.
    drained: AtomicBool,
    /// Failures since the last answer, counted up to the number at which the server counts as down.
    failures: AtomicU32,
    /// The cause of the last failed attempt; see [`Cause::code`].
    cause: AtomicU8,
    /// Ejections since the last answer.
    ejected: AtomicU32,
    /// The status of the last response that was a failure.
    status: AtomicU16,
    /// When the last ejection ends, in microseconds; 0: the server was never ejected.
    until: AtomicU64,
    /// When the last ejection may end early, if its health checks are good: after the rule's own span.
    earliest: AtomicU64,
    /// When it passed its health checks again, or was undrained, in microseconds; 0: never.
    recovered: AtomicU64,
    /// All ejections.
    ejections: AtomicU64,
    /// Good health checks in a row, since its last failure and its last ejection; [`VOUCHED`] once they are enough.
    good_checks: AtomicU32,
    /// Requests in flight; counted only where the load balancing needs it.
    in_flight: AtomicU32,
    /// Each worker's requests in flight.
    workers: Mutex<Vec<Weak<WorkerInFlight>>>,
    /// The program log has reported the server as down. Only the control thread reads and writes this.
    reported_down: AtomicBool,
    /// The fault that the last health check found. Only the control thread writes this, and only on a change.
    ill: Mutex<Option<Box<str>>>,
}

labels! {
    /// Why a server counts as down: the `why` of the admin API.
    pub enum DownReason {
        /// It fails its health checks.
        Unhealthy = "unhealthy",
        /// It is ejected for its failures.
        Ejected = "ejected",
        /// It failed too often in a row and has not answered since. It still gets requests, since no other server is left,
        /// or its ejection is over.
        Failing = "failing",
        /// The circuit breaker of its upstream is open.
        Breaker = "breaker",
    }
}

/// An attempt without an answer from the server, or with a status that is a failure.
#[derive(Clone, Copy, Debug)]
pub(super) struct FailedAttempt {
    pub(super) begun: Instant,
    pub(super) ended: Instant,
    pub(super) cause: Cause,
    /// The status that was a failure.
    pub(super) status: Option<StatusCode>,
}

impl ServerState {
    /// A server without known failures is available. `epoch` is any moment not after those of later calls.
    pub fn new(epoch: Instant) -> Self {
        Self {
            epoch,
            healthy: AtomicBool::new(true),
            drained: AtomicBool::new(false),
            failures: AtomicU32::new(0),
            cause: AtomicU8::new(Cause::Unknown.code()),
            ejected: AtomicU32::new(0),
            status: AtomicU16::new(0),
            until: AtomicU64::new(0),
            earliest: AtomicU64::new(0),
            recovered: AtomicU64::new(0),
            ejections: AtomicU64::new(0),
            good_checks: AtomicU32::new(0),
            in_flight: AtomicU32::new(0),
            workers: Mutex::default(),
            reported_down: AtomicBool::new(false),
            ill: Mutex::default(),
        }
    }

    /// Why the server counts as down; `None`: it is up. `down_after` is
    /// [`Upstream::down_after`](crate::plan::Upstream).
    pub fn down(&self, now: Instant, down_after: u32) -> Option<DownReason> {
        match () {
            () if !self.is_healthy() => Some(DownReason::Unhealthy),
            () if self.is_ejected(now) => Some(DownReason::Ejected),
            () if self.is_failing(down_after) => Some(DownReason::Failing),
            () => None,
        }
    }

    /// The fault of the server, as text.
    pub fn reason(&self, down: DownReason) -> String {
        match down {
            DownReason::Unhealthy => {
                self.ill.lock().as_deref().unwrap_or("it failed its health check").to_owned()
            }
            DownReason::Ejected | DownReason::Failing | DownReason::Breaker => self.cause(),
        }
    }

    /// The cause of the last failed attempt: `connection refused`, `it answered 503`.
    pub(super) fn cause(&self) -> String {
        match Cause::from_code(self.cause.load(Relaxed)) {
            Cause::Status => format!("it answered {}", self.status.load(Relaxed)),
            cause => cause.as_str().to_owned(),
        }
    }

    /// How long the server is back after an ejection or failed health checks; `None`: it was never away.
    pub(super) fn back_for(&self, now: Instant) -> Option<Duration> {
        let since = self.until.load(Relaxed).max(self.recovered.load(Relaxed));
        (since > 0).then(|| Duration::from_micros(self.micros(now).saturating_sub(since)))
    }

    /// Whether the server failed too often in a row, or was ejected, and has not answered since, neither requests nor enough
    /// health checks.
    pub(super) fn is_failing(&self, down_after: u32) -> bool {
        let has_failed = self.ejected.load(Relaxed) > 0 || self.failures.load(Relaxed) >= down_after;
        has_failed && self.good_checks.load(Relaxed) != VOUCHED
    }

    /// Whether the program log has reported the server as down.
    pub(super) fn is_reported_down(&self) -> bool {
        self.reported_down.load(Relaxed)
    }

    pub(super) fn set_reported_down(&self, reported: bool) {
        self.reported_down.store(reported, Relaxed);
    }

    /// Whether the server may be chosen: it accepts requests, and is not ejected.
    pub fn is_available(&self, now: Instant) -> bool {
        self.accepts() && !self.is_ejected(now)
    }

    /// Whether the server may be chosen where no other is left: healthy and not drained.
    pub(super) fn accepts(&self) -> bool {
        self.is_healthy() && !self.is_drained()
    }

    /// Whether an operator has drained the server.
    pub fn is_drained(&self) -> bool {
        self.drained.load(Relaxed)
    }

    /// Drains the server: it gets no new requests until this is undone. Returns whether that is a change. A server that is
    /// undrained begins slowly, as one that is back.
    pub fn set_drained(&self, drained: bool, now: Instant) -> bool {
        let is_change = self.drained.swap(drained, Relaxed) != drained;
        if is_change && !drained {
            self.set_recovered(now);
        }
        is_change
    }

    /// The server begins slowly from now on, as one that is back.
    pub(super) fn set_recovered(&self, now: Instant) {
        self.recovered.store(self.micros(now).max(1), Relaxed);
    }

    /// The result of the health checks.
    pub fn is_healthy(&self) -> bool {
        self.healthy.load(Relaxed)
    }

    /// Whether the server is ejected for its failures.
    pub fn is_ejected(&self, now: Instant) -> bool {
        let until = self.until.load(Relaxed);
        until > 0 && self.micros(now) < until
    }

    /// How often it was ejected.
    pub fn ejections(&self) -> u64 {
        self.ejections.load(Relaxed)
    }

    /// Requests in flight of all workers together, where the load balancing needs them.
    pub(super) fn in_flight(&self) -> u32 {
        self.in_flight.load(Relaxed)
    }

    pub(super) fn request_begins(&self) {
        self.in_flight.fetch_add(1, Relaxed);
    }

    pub(super) fn request_ends(&self) {
        self.in_flight.fetch_sub(1, Relaxed);
    }

    /// Counts the requests of a worker's pool among those of the server. Takes a lock: called when a plan is adopted.
    pub(super) fn add_worker(&self, worker: &Arc<WorkerInFlight>) {
        let mut workers = self.workers.lock();
        workers.retain(|known| known.strong_count() > 0);
        if !workers.iter().any(|known| std::ptr::eq(known.as_ptr(), Arc::as_ptr(worker))) {
            workers.push(Arc::downgrade(worker));
        }
    }

    /// Requests in flight: they wait for a connection or a response, or their response is being relayed. Upgraded
    /// connections are among them.
    pub fn requests_in_flight(&self) -> u64 {
        self.workers.lock().iter().filter_map(Weak::upgrade).map(|worker| worker.count()).sum()
    }

    /// Records that the server fails its health checks, with this fault.
    pub(super) fn set_unhealthy(&self, fault: String) {
        *self.ill.lock() = Some(fault.into());
        self.healthy.store(false, Relaxed);
    }

    /// Records that the server passes its health checks, or has none any more. A server that failed them and passes them
    /// again has returned: that ends an ejection, too.
    pub(super) fn set_healthy(&self, now: Instant) {
        if !self.healthy.swap(true, Relaxed) {
            let now = self.micros(now).max(1);
            self.recovered.store(now, Relaxed);
            self.until.fetch_min(now, Relaxed);
            self.ejected.store(0, Relaxed);
            self.failures.store(0, Relaxed);
        }
        *self.ill.lock() = None;
    }

    /// Records a good health check: an ejection that lasts longer than the rule's own span ends. After `needed` of them in a
    /// row without a failure, the server counts as up. Its next failure counts as if it had not: good health checks do
    /// not prove that requests fare well.
    pub(super) fn passed_check(&self, now: Instant, needed: u32) {
        let now = self.micros(now);
        if self.until.load(Relaxed) > now && now >= self.earliest.load(Relaxed) {
            self.until.store(now, Relaxed);
        }
        let good = self.good_checks.load(Relaxed);
        if good != VOUCHED && now >= self.until.load(Relaxed) {
            self.good_checks.store(if good + 1 >= needed { VOUCHED } else { good + 1 }, Relaxed);
        }
    }

    /// Records a failed health check.
    pub(super) fn failed_check(&self) {
        self.good_checks.store(0, Relaxed);
    }

    /// Records that the server answered an attempt that began at `begun`: its failures are reset.
    pub(super) fn answered(&self, begun: Instant) {
        let trusted = self.failures.load(Relaxed) == 0 && self.ejected.load(Relaxed) == 0;
        if !trusted && self.is_newer(begun) {
            self.failures.store(0, Relaxed);
            self.ejected.store(0, Relaxed);
        }
    }

    /// Records a failed attempt. Returns whether the server is to be ejected: after `down_after` failures in a row, or
    /// after the first one since its return.
    pub(super) fn failed(&self, attempt: FailedAttempt, down_after: u32) -> bool {
        if !self.is_newer(attempt.begun) {
            return false;
        }
        let code = attempt.cause.code();
        if self.cause.load(Relaxed) != code {
            self.cause.store(code, Relaxed);
        }
        if let Some(status) = attempt.status.map(|status| status.as_u16())
            && self.status.load(Relaxed) != status
        {
            self.status.store(status, Relaxed);
        }
        // The state of a server that is down anyway is not written: all workers read this cache line.
        if self.good_checks.load(Relaxed) > 0 {
            self.good_checks.store(0, Relaxed);
        }
        let failures = self.failures.load(Relaxed);
        failures >= down_after
            || self.failures.fetch_add(1, Relaxed).saturating_add(1) >= down_after
            || self.ejected.load(Relaxed) > 0
    }

    /// Ejects the server: for the rule's span, and for twice as long each time that it fails on its return.
    pub(super) fn eject(&self, now: Instant, rule: Eject) {
        let times = self.ejected.fetch_add(1, Relaxed).min(31);
        let span = rule.span.saturating_mul(1 << times).min(LONGEST.max(rule.span));
        self.earliest.store(self.micros(now + rule.span), Relaxed);
        self.until.store(self.micros(now + span), Relaxed);
        self.failures.store(0, Relaxed);
        self.ejections.fetch_add(1, Relaxed);
    }

    /// Whether the attempt began after the last ejection. An older attempt is not evidence about the server after its
    /// return.
    fn is_newer(&self, begun: Instant) -> bool {
        self.micros(begun) >= self.until.load(Relaxed)
    }

    fn micros(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.epoch).as_micros()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::StatusSet;

    const RULE: Eject = Eject { failures: 3, span: Duration::from_secs(10), statuses: StatusSet::NONE };

    fn fresh() -> (ServerState, impl Fn(u64) -> Instant) {
        let epoch = crate::clock::now();
        (ServerState::new(epoch), move |seconds| epoch + Duration::from_secs(seconds))
    }

    fn failure(at: Instant) -> FailedAttempt {
        FailedAttempt { begun: at, ended: at, cause: Cause::Refused, status: None }
    }

    fn fail(state: &ServerState, at: Instant) -> bool {
        let due = state.failed(failure(at), RULE.failures);
        if due {
            state.eject(at, RULE);
        }
        due
    }

    #[test]
    fn only_failures_in_a_row_count() {
        let (state, at) = fresh();
        for second in 0..20 {
            assert!(!fail(&state, at(second)) && !fail(&state, at(second)), "two are too few");
            state.answered(at(second));
        }
        assert!(!fail(&state, at(20)) && !fail(&state, at(20)) && fail(&state, at(20)));
        assert!(state.is_ejected(at(29)) && !state.is_available(at(29)) && state.is_healthy());
        assert!(state.is_available(at(30)));
        assert_eq!(state.ejections(), 1);
    }

    #[test]
    fn down_after_failures_in_a_row_until_an_answer() {
        let (state, at) = fresh();
        let down = |second| state.down(at(second), RULE.failures);
        (0..2).for_each(|_| _ = state.failed(failure(at(0)), RULE.failures));
        assert_eq!(down(0), None, "two are too few");
        // The only server is never ejected.
        (0..9).for_each(|_| assert!(state.failed(failure(at(1)), RULE.failures)));
        assert_eq!(down(1_000), Some(DownReason::Failing), "time alone changes nothing");
        assert_eq!(state.reason(DownReason::Failing), "connection refused");
        assert!(state.is_available(at(1)), "it still gets requests");
        state.answered(at(1_000));
        assert_eq!(down(1_000), None);
    }

    #[test]
    fn an_ejected_server_is_down_until_it_answers() {
        let (state, at) = fresh();
        (0..3).for_each(|_| _ = fail(&state, at(0)));
        assert_eq!(state.down(at(9), RULE.failures), Some(DownReason::Ejected));
        assert_eq!(
            state.down(at(10), RULE.failures),
            Some(DownReason::Failing),
            "it is tried, and has not answered"
        );
        state.answered(at(11));
        assert_eq!(state.down(at(11), RULE.failures), None);
        state.set_unhealthy("it answered 500".to_owned());
        assert_eq!(state.down(at(11), RULE.failures), Some(DownReason::Unhealthy));
        assert_eq!(state.reason(DownReason::Unhealthy), "it answered 500");
        state.set_healthy(at(11));
        assert_eq!(state.down(at(11), RULE.failures), None);
    }

    #[test]
    fn passing_the_health_checks_again_ends_an_ejection() {
        let (state, at) = fresh();
        (0..3).for_each(|_| _ = fail(&state, at(0)));
        // It passes them all the time: that proves nothing about the failures.
        state.set_healthy(at(1));
        assert_eq!(state.down(at(1), RULE.failures), Some(DownReason::Ejected));
        state.set_unhealthy("it answered 500".to_owned());
        state.set_healthy(at(4));
        assert_eq!(state.down(at(4), RULE.failures), None);
        assert_eq!(state.back_for(at(6)), Some(Duration::from_secs(2)));
        assert!(!fail(&state, at(5)), "it is trusted again");
    }

    /// A server without traffic answers no request after a short outage.
    #[test]
    fn enough_good_health_checks_after_the_last_failure_say_that_it_is_up() {
        let (state, at) = fresh();
        let down = |second| state.down(at(second), RULE.failures);
        // Without ejection.
        (0..5).for_each(|_| _ = state.failed(failure(at(0)), RULE.failures));
        state.passed_check(at(1), 2);
        state.failed(failure(at(2)), RULE.failures);
        state.passed_check(at(3), 2);
        state.failed_check();
        state.passed_check(at(4), 2);
        assert_eq!(down(4), Some(DownReason::Failing), "never two in a row");
        state.passed_check(at(5), 2);
        assert_eq!(down(5), None);
        assert!(state.failed(failure(at(6)), RULE.failures), "requests still fail");
        assert_eq!(down(6), Some(DownReason::Failing));
        // What it passes while it is ejected says nothing.
        state.eject(at(7), RULE);
        (8..17).for_each(|second| state.passed_check(at(second), 2));
        assert_eq!(down(16), Some(DownReason::Ejected));
        state.passed_check(at(17), 2);
        assert_eq!(down(17), Some(DownReason::Failing));
        state.passed_check(at(18), 2);
        assert_eq!(down(18), None);
        assert!(fail(&state, at(19)), "the first failure after its return is enough");
    }

    #[test]
    fn good_health_checks_keep_the_back_off_short() {
        let (state, at) = fresh();
        let (mut now, mut spans) = (0, Vec::new());
        (0..2).for_each(|_| assert!(!fail(&state, at(now))));
        for _ in 0..4 {
            assert!(fail(&state, at(now)));
            let back = (now..).find(|second| {
                state.passed_check(at(*second), 2);
                state.is_available(at(*second))
            });
            spans.push(back.unwrap() - now);
            now = back.unwrap();
        }
        assert_eq!(spans, [10, 10, 10, 10]);
    }

    #[test]
    fn the_back_off_doubles_up_to_five_minutes_until_it_answers() {
        let (state, at) = fresh();
        let (mut now, mut spans) = (0, Vec::new());
        (0..2).for_each(|_| assert!(!fail(&state, at(now))));
        for _ in 0..8 {
            assert!(fail(&state, at(now)), "the first failure after its return is enough");
            let back = (now..).find(|second| state.is_available(at(*second))).unwrap();
            spans.push(back - now);
            now = back;
        }
        assert_eq!(spans, [10, 20, 40, 80, 160, 300, 300, 300]);
        state.answered(at(now));
        assert!(!fail(&state, at(now)), "it is trusted again");
    }

    #[test]
    fn what_began_before_its_return_says_nothing() {
        let (state, at) = fresh();
        (0..3).for_each(|_| _ = fail(&state, at(5)));
        assert!((0..9).all(|_| !fail(&state, at(6)) && !fail(&state, at(14))));
        assert!(state.is_available(at(15)), "failures while it is away do not keep it away");
        state.answered(at(14));
        assert!(fail(&state, at(15)), "an old answer does not make it trusted");
        assert!(state.is_ejected(at(34)) && state.is_available(at(35)));
    }

    #[test]
    fn a_span_beyond_five_minutes_stays_as_it_is() {
        let (state, at) = fresh();
        let rule = Eject { failures: 1, span: Duration::from_secs(1_000), statuses: StatusSet::NONE };
        for begin in [0, 1_000, 2_000] {
            assert!(state.failed(failure(at(begin)), rule.failures));
            state.eject(at(begin), rule);
            assert!(state.is_ejected(at(begin + 999)) && !state.is_ejected(at(begin + 1_000)));
        }
    }
}
