//! The backends: connections to them, kept per worker, and the exchange of one request for one response.
//!
//! For example, a GET goes to the server that the balancer chooses (`balance`), on a connection that was kept from an
//! earlier request ([`pool`]). The server has closed it in the meantime, so the request is sent again on a new one. A
//! server that fails several times in a row is left out for a while ([`server_state`]), and a request that is idempotent
//! is sent to another one, within the retry budget ([`retry`]).

// A dropped error once allowed request smuggling, so no error is dropped silently.
#![warn(clippy::let_underscore_must_use)]

mod balance;
mod breaker;
mod cause;
mod connect;
pub mod connection_limit;
mod dns;
pub mod exchange;
mod failure;
pub mod health;
mod http2;
mod in_flight;
mod outlier_log;
pub mod pool;
mod pools;
pub mod private;
pub mod proxy_protocol;
pub mod retry;
pub mod server_registry;
pub mod server_state;

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use smallvec::SmallVec;
use tokio::time::Instant;

use crate::boxed_cold::boxed_cold;
use crate::clock::{self, Deadline};
use crate::http1::response::ResponseHead;
use crate::plan::{Affinity, Balance, Endpoint, Upstream};
use balance::{Balancer, SlowStart, WHOLE};
use breaker::BreakerPermit;
use cause::{AbortReason, Cause};
use exchange::{BodyFailed, Exchange, RequestBody, UpstreamRequest};
use pool::{EndpointPool, InFlight, Timeouts, UpstreamConnection};
use private::OwnConnections;
use retry::RetryBudget;
use server_registry::ServerStates;
use server_state::{FailedAttempt, ServerState};

pub use failure::{Failed, Failure, RetryReason};
pub use pools::Pools;

/// An upstream's name and `host:port`.
type UpstreamServer = (Arc<str>, Arc<str>);

/// How often a request is sent again that no server has processed: it was refused, or nothing of it was sent.
const MAX_REFUSALS: u32 = 20;
/// Refusals after which the request is sent again at once.
const PROMPT_REFUSALS: u32 = 2;
/// The longest pause after a further refusal, in milliseconds.
const MAX_PAUSE: u64 = 100;

/// A request whose kept connection was stale is sent once more, even if it has one attempt only.
const WITH_STALE: u32 = 2;

/// The indices of servers that failed a request, in order. More than these few are rarely tried.
type Tried = SmallVec<[usize; 4]>;

/// The servers of one upstream, as one worker sees them.
#[derive(Debug)]
pub struct UpstreamClient {
    /// The upstream's settings.
    pub upstream: Arc<Upstream>,
    pools: Vec<Rc<EndpointPool>>,
    server_states: ServerStates,
    balancer: RefCell<Balancer>,
    budget: RefCell<RetryBudget>,
    /// Failed attempts not reported yet.
    failed_attempts: Cell<FailedAttempts>,
    /// Retries not reported yet: the index of the server that failed, and the reason.
    retries: RefCell<Vec<(usize, RetryReason)>>,
}

/// Attempts that failed since they were counted last.
#[derive(Clone, Copy, Debug, Default)]
pub struct FailedAttempts {
    /// Their number.
    pub count: u32,
    /// The attempts, those with a response too, that were not retried since the retry budget is used up.
    pub over_budget: u32,
}

impl UpstreamClient {
    fn new(
        upstream: Arc<Upstream>,
        pool_of: impl FnMut(&Endpoint) -> Rc<EndpointPool>,
        server_states: ServerStates,
        workers: usize,
    ) -> Self {
        let endpoints = upstream.endpoints();
        let pools = endpoints.iter().map(pool_of).collect::<Vec<_>>();
        if !server_states.are_observed() {
            let servers = pools.iter().zip(server_states.iter());
            servers.for_each(|(pool, server)| server.add_worker(pool.in_flight()));
        }
        Self {
            pools,
            server_states,
            balancer: RefCell::new(Balancer::new(&upstream.balance, endpoints)),
            budget: RefCell::new(RetryBudget::new(upstream.retry.budget_permille, workers)),
            failed_attempts: Cell::default(),
            retries: RefCell::default(),
            upstream,
        }
    }

    /// The failed attempts since the last call. Excluded are attempts on a kept connection that had been closed in the
    /// meantime, and failures caused by the client.
    pub fn take_failed_attempts(&self) -> FailedAttempts {
        self.failed_attempts.take()
    }

    /// The retries since the last call: the index of the server that failed, and the reason. A request sent again
    /// since its kept connection had been closed in the meantime is not a retry. Empty, and without an allocation, on the
    /// hot path.
    pub fn take_retries(&self) -> Vec<(usize, RetryReason)> {
        self.retries.take()
    }

    /// Sends a request and waits for the response head, with retries by the upstream's rule. A retry goes to another
    /// server, and only if no byte was written, or if the method is idempotent, the request body was not begun and no
    /// byte of a response was received. With `retry.on`, a small body is kept for a retry, and some responses and silence
    /// lead to one, too.
    ///
    /// A kept-alive connection that the server closed in the meantime is not a failure of the server: the request is sent
    /// once more, on a new connection to the same server. That counts as an attempt, so that no request is sent more
    /// often than the rule says. `timeout` runs from the moment the request is sent completely; `now` is the present
    /// time.
    pub async fn send<'r, U: RequestBody>(
        &self,
        mut request: UpstreamRequest<'r, U>,
        mut now: Instant,
        timeout: Duration,
        timer: &mut Deadline,
    ) -> Result<(Exchange<'r, U>, ResponseHead), Failed> {
        self.budget.borrow_mut().request(now);
        // A request that cannot be retried is sent on a connection that was checked just now.
        let mut careful = !(request.idempotent && request.body.is_done());
        if let Err(BodyFailed) = request.body.take_ready(request.message) {
            return Err(Failed::untried(Failure::Upload));
        }
        let permit = self.permit(now)?;
        let keeps_body = self.upstream.retry.keeps_bodies();
        let mut tried = Tried::new();
        let own = request.own.kept.index(&self.pools).filter(|index| self.accepts(*index));
        let named = request.affinity.server.filter(|index| self.is_available(*index, now));
        let index = own.or(named).or_else(|| self.choose(request.affinity, &tried, now));
        let mut index = index.ok_or_else(|| Failed::untried(Failure::NoneHealthy))?;
        // A byte has `reached` a server in any attempt.
        let (mut fresh, mut was_stale, mut attempts, mut refusals, mut reached) = (None, false, 0, 0, false);
        loop {
            attempts += 1;
            let (pool, affinity, begun) = (&self.pools[index], request.affinity, now);
            let failed = |failure, reached| Failed { reached, ..Failed::at(pool, failure, attempts) };
            let connection = match self.connection(index, careful, fresh, timeout, request.own).await {
                Ok(connection) => connection,
                Err(Failure::Full) => return Err(failed(Failure::Full, reached)),
                Err(failure) => {
                    now = clock::now();
                    self.report_failure(index, failure, begun, now, &permit);
                    let other = self.retry_server(&mut tried, index, attempts, affinity, now);
                    let other = other.ok_or_else(|| failed(failure, reached))?;
                    self.note_retry(index, RetryReason::Failed(failure));
                    (index, fresh, careful) = (other, None, true);
                    continue;
                }
            };
            now = if connection.reused { now } else { clock::now() };
            let mut exchange = Exchange::new(request, connection, index, attempts, keeps_body, now);
            let failure = match poll_fn(|context| exchange.poll_head(context, timeout, timer)).await {
                Ok(head) => {
                    self.report_status(index, head.status, begun, &permit);
                    let Some(other) = self.retry_status(&exchange, head.status, &mut tried, affinity) else {
                        return Ok((exchange, head));
                    };
                    request = exchange.into_repeated(&head, self.upstream.idle_timeout);
                    (index, fresh, careful, now, reached) = (other, None, true, clock::now(), true);
                    continue;
                }
                Err(failure) => failure,
            };
            now = clock::now();
            self.report_unanswered(&exchange, failure, begun, now, &permit);
            reached |= exchange.has_reached();
            if exchange.ending().is_refusal() {
                let back = boxed_cold(|| self.take_back(exchange, failure, reached, &mut refusals));
                (request, index) = back.await?;
                // No attempt: the server has not processed the request.
                (now, careful, attempts) = (clock::now(), true, attempts - 1);
                continue;
            }
            let may_be_stale = !was_stale && attempts < self.upstream.retry.attempts.max(WITH_STALE);
            let stale = may_be_stale && exchange.is_stale();
            let late = failure == Failure::Timeout && self.upstream.retry.timeout;
            let broken = late || matches!(failure, Failure::Reset | Failure::Tls);
            let unspent = if broken { exchange.into_retryable() } else { None };
            request = unspent.ok_or_else(|| failed(failure, reached))?;
            if !stale {
                let other = self.retry_server(&mut tried, index, attempts, affinity, now);
                let next = other.ok_or_else(|| failed(failure, reached))?;
                self.note_retry(index, RetryReason::Failed(failure));
                index = next;
            }
            // Other kept connections may have been closed, too.
            (fresh, careful, was_stale) = (stale.then_some(now), true, was_stale || stale);
        }
    }

    /// The server for the next attempt: one that was not tried and is available; else one that was not tried and is
    /// healthy, though ejected; else a healthy one other than the last tried. A drained one is never chosen.
    fn choose(&self, affinity: Affinity, tried: &[usize], now: Instant) -> Option<usize> {
        if let ([_], []) = (&*self.pools, tried) {
            // The only server is never ejected.
            return self.server_states.get(0).filter(|server| server.accepts()).map(|_| 0);
        }
        let slow_start = self.upstream.slow_start.map(|span| SlowStart { now, span });
        let share = |index| {
            slow_start.map_or(WHOLE, |slow| self.server_states.get(index).map_or(WHOLE, |it| slow.share(it)))
        };
        let mut balancer = self.balancer.borrow_mut();
        let mut next = |allowed: &dyn Fn(usize, &ServerState) -> bool| {
            let allowed = |index| self.server_states.get(index).is_some_and(|server| allowed(index, server));
            balancer.next(affinity.hash, &self.server_states, allowed, share)
        };
        next(&|index, server| !tried.contains(&index) && server.is_available(now))
            .or_else(|| next(&|index, server| !tried.contains(&index) && server.accepts()))
            .or_else(|| next(&|index, server| tried.last() != Some(&index) && server.accepts()))
    }

    fn is_available(&self, index: usize, now: Instant) -> bool {
        self.server_states.get(index).is_some_and(|server| server.is_available(now))
    }

    fn accepts(&self, index: usize) -> bool {
        self.server_states.get(index).is_some_and(|server| server.accepts())
    }

    /// A request that its server has refused without processing it, and the server to send it to again.
    async fn take_back<'r, U: RequestBody>(
        &self,
        exchange: Exchange<'r, U>,
        failure: Failure,
        reached: bool,
        refusals: &mut u32,
    ) -> Result<(UpstreamRequest<'r, U>, usize), Failed> {
        let (index, is_busy) = (exchange.index(), exchange.ending() == AbortReason::Busy);
        let attempts = exchange.attempts();
        let failed = |failure| Failed { reached, ..Failed::at(&self.pools[index], failure, attempts) };
        *refusals += 1;
        if *refusals > MAX_REFUSALS {
            return Err(failed(Failure::Full));
        }
        let failed = failed(failure);
        let request = exchange.into_retryable().ok_or(failed)?;
        pause_after_refusal(*refusals).await;
        let other = if is_busy { self.choose(request.affinity, &[index], clock::now()) } else { None };
        Ok((request, other.unwrap_or(index)))
    }

    /// Records that an attempt that began at `begun` got no response.
    fn report_unanswered<U: RequestBody>(
        &self,
        exchange: &Exchange<'_, U>,
        failure: Failure,
        begun: Instant,
        now: Instant,
        permit: &Option<BreakerPermit>,
    ) {
        if failure == Failure::Timeout && exchange.is_unheard() {
            // A path may swallow the bytes of kept connections while new ones work: those not used since are closed.
            self.pools[exchange.index()].expire(begun + self.upstream.idle_timeout);
        }
        if exchange.is_server_failure(failure) {
            self.report_failure(exchange.index(), failure, begun, now, permit);
        }
    }

    /// Records that the server failed an attempt that began at `begun`.
    fn report_failure(
        &self,
        index: usize,
        failure: Failure,
        begun: Instant,
        now: Instant,
        permit: &Option<BreakerPermit>,
    ) {
        let FailedAttempts { count, over_budget } = self.failed_attempts.get();
        self.failed_attempts.set(FailedAttempts { count: count + 1, over_budget });
        let cause = Cause::of(failure, self.pools[index].connect_error());
        let attempt = FailedAttempt { begun, ended: now, cause, status: None };
        self.server_states.failed(index, attempt, self.upstream.down_after(), self.upstream.eject);
        self.count_attempt(permit, true);
    }

    /// Records a response to an attempt that began at `begun`: a success, unless its status is a failure.
    fn report_status(
        &self,
        index: usize,
        status: StatusCode,
        begun: Instant,
        permit: &Option<BreakerPermit>,
    ) {
        let rule = self.upstream.eject.filter(|rule| rule.statuses.contains(status));
        if rule.is_some() {
            let ended = clock::now();
            let attempt = FailedAttempt { begun, ended, cause: Cause::Status, status: Some(status) };
            self.server_states.failed(index, attempt, self.upstream.down_after(), rule);
        } else {
            self.server_states.answered(index, begun);
        }
        self.count_attempt(permit, status.is_server_error());
    }

    /// The permission of the circuit breaker, if there is one.
    fn permit(&self, now: Instant) -> Result<Option<BreakerPermit>, Failed> {
        let (Some(breaker), Some(rule)) = (self.server_states.breaker(), self.upstream.breaker) else {
            return Ok(None);
        };
        breaker.permit(now, rule).map(Some).map_err(|rest| {
            let seconds = rest.as_secs() + u64::from(rest.subsec_nanos() > 0);
            Failed { retry_after: Some(seconds.max(1)), ..Failed::untried(Failure::BreakerOpen) }
        })
    }

    /// Counts an attempt at the circuit breaker, if there is one.
    #[inline]
    fn count_attempt(&self, permit: &Option<BreakerPermit>, failed: bool) {
        if let (Some(breaker), Some(permit), Some(rule)) =
            (self.server_states.breaker(), permit, self.upstream.breaker)
        {
            breaker.record(permit, failed, clock::now(), rule);
        }
    }

    /// Records that the server failed, and that another attempt follows.
    #[cold]
    fn note_retry(&self, index: usize, reason: RetryReason) {
        self.retries.borrow_mut().push((index, reason));
    }

    /// A kept connection to the server at this index, preferably the client's own, or a new one. `fresh`: one that is
    /// opened after this moment.
    async fn connection(
        &self,
        index: usize,
        careful: bool,
        fresh: Option<Instant>,
        response_timeout: Duration,
        OwnConnections { kept: own, proxy_header, .. }: OwnConnections<'_>,
    ) -> Result<UpstreamConnection, Failure> {
        let pool = &self.pools[index];
        let counted = self.upstream.balance == Balance::LeastRequests && !self.server_states.are_observed();
        let in_flight = InFlight::begin(pool, self.server_states.get(index).filter(|_| counted));
        let shared = || if proxy_header.is_none() { pool.idle_connection(careful) } else { None };
        let kept = if fresh.is_some() { None } else { own.take(pool, proxy_header).or_else(shared) };
        let mut connection = match kept {
            Some(kept) => kept,
            // Boxed: otherwise the whole state of the wait for a connection would be moved with each request.
            None => {
                let timeouts =
                    Timeouts { connect: self.upstream.connect_timeout, response: response_timeout };
                boxed_cold(|| pool.connection(fresh, proxy_header, timeouts)).await?
            }
        };
        connection.in_flight = Some(in_flight);
        Ok(connection)
    }

    /// The index of the server for another attempt after a response, if its status and the request allow that.
    #[inline]
    fn retry_status<U: RequestBody>(
        &self,
        exchange: &Exchange<'_, U>,
        status: StatusCode,
        tried: &mut Tried,
        affinity: Affinity,
    ) -> Option<usize> {
        if !self.upstream.retry.statuses.contains(status) || !exchange.is_repeatable() {
            return None;
        }
        let other =
            self.retry_server(tried, exchange.index(), exchange.attempts(), affinity, clock::now())?;
        self.note_retry(exchange.index(), RetryReason::Status);
        Some(other)
    }

    /// The index of the server for another attempt after this many: another server, within the maximum of attempts and
    /// the retry budget.
    fn retry_server(
        &self,
        tried: &mut Tried,
        failed: usize,
        attempts: u32,
        affinity: Affinity,
        now: Instant,
    ) -> Option<usize> {
        tried.push(failed);
        if self.pools.len() < 2 || attempts >= self.upstream.retry.attempts {
            return None;
        }
        let other = self.choose(affinity, tried, now)?;
        let may_retry = self.budget.borrow_mut().spend(now);
        if !may_retry {
            let FailedAttempts { count, over_budget } = self.failed_attempts.get();
            self.failed_attempts.set(FailedAttempts { count, over_budget: over_budget + 1 });
        }
        may_retry.then_some(other)
    }
}

/// Waits before a refused request is sent again.
async fn pause_after_refusal(refusals: u32) {
    if let Some(more) = refusals.checked_sub(PROMPT_REFUSALS + 1) {
        let milliseconds = 1_u64.checked_shl(more).unwrap_or(MAX_PAUSE).min(MAX_PAUSE);
        tokio::time::sleep(Duration::from_millis(milliseconds)).await;
    }
}
