//! The backends: connections to them, kept per worker, and the exchange of one request for one response.

pub mod balance;
pub mod exchange;
pub mod pool;
pub mod retry;

use std::cell::RefCell;
use std::collections::HashMap;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::clock::deadline::{self, Deadline};
use crate::gateway::{Backend, Endpoint, Upstream};
use crate::http1::response::ResponseHead;
use balance::RoundRobin;
use exchange::{Exchange, Request, Upload};
use pool::{Connection, EndpointPool};
use retry::Budget;

/// Why a backend gave no response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// No connection: refused, unreachable, or its name does not resolve.
    Connect,
    /// No connection within `connect_timeout`.
    ConnectTimeout,
    /// No response head within `timeout`.
    Timeout,
    /// It closed the connection before its response head was complete.
    Reset,
    /// What it sent is not HTTP/1, or has two readings.
    Protocol,
    /// The request's body broke off: not the backend's fault.
    Upload,
}

/// A failure, and which server it came from.
#[derive(Debug)]
pub struct Failed {
    /// Why.
    pub failure: Failure,
    /// `host:port` of the last server tried.
    pub authority: Arc<str>,
}

/// All pools of one worker, by server, so that connections outlive a reload.
#[derive(Debug, Default)]
pub struct Pools {
    endpoints: RefCell<HashMap<ServerName, Rc<EndpointPool>>>,
}

/// An upstream's name and `host:port`.
type ServerName = (Arc<str>, Arc<str>);

impl Pools {
    /// The runtime of every upstream of a plan, in order. Pools of servers that the plan no longer names are dropped.
    pub fn adopt(&self, upstreams: &[Arc<Upstream>], workers: usize) -> Vec<Rc<Servers>> {
        let mut old = self.endpoints.take();
        let mut kept = HashMap::new();
        let servers = upstreams
            .iter()
            .map(|upstream| {
                let pool_of = |endpoint: &Endpoint| {
                    let key = (Arc::clone(&upstream.name), Arc::clone(&endpoint.authority));
                    let fresh = || Rc::new(EndpointPool::new(endpoint));
                    let pool = old.remove(&key).or_else(|| kept.get(&key).cloned()).unwrap_or_else(fresh);
                    kept.insert(key, Rc::clone(&pool));
                    pool
                };
                Rc::new(Servers::new(Arc::clone(upstream), pool_of, workers))
            })
            .collect();
        self.endpoints.replace(kept);
        servers
    }

    /// Closes connections that were unused for too long. Called about once a second.
    pub fn expire(&self) {
        let now = deadline::now();
        self.endpoints.borrow().values().for_each(|pool| pool.expire(now));
    }
}

/// The servers of one upstream, as one worker sees them.
#[derive(Debug)]
pub struct Servers {
    /// The upstream's settings.
    pub upstream: Arc<Upstream>,
    pools: Vec<Rc<EndpointPool>>,
    turn: RefCell<RoundRobin>,
    budget: RefCell<Budget>,
}

impl Servers {
    fn new(
        upstream: Arc<Upstream>,
        pool_of: impl FnMut(&Endpoint) -> Rc<EndpointPool>,
        workers: usize,
    ) -> Self {
        let endpoints = match &upstream.backend {
            Backend::Servers(endpoints) => endpoints.as_slice(),
            Backend::Echo => &[],
        };
        Self {
            pools: endpoints.iter().map(pool_of).collect(),
            turn: RefCell::new(RoundRobin::new(endpoints.iter().map(|endpoint| endpoint.weight))),
            budget: RefCell::new(Budget::new(upstream.retry.budget_permille, workers)),
            upstream,
        }
    }

    /// Sends a request and waits for the response head, trying again by the upstream's rule: on another server when no
    /// byte was written, or when the method is idempotent, the request's body was not begun and no byte of an answer was
    /// seen.
    ///
    /// A kept-alive connection that the server closed in the meantime is no failure of the server: the request goes out
    /// on a fresh connection to the same one. `timeout` runs from the moment the request is sent whole; `now` is the
    /// present one.
    pub async fn send<'r, U: Upload>(
        &self,
        mut request: Request<'r, U>,
        mut now: Instant,
        timeout: Duration,
        timer: &mut Deadline,
    ) -> Result<(Exchange<'r, U>, ResponseHead), Failed> {
        self.budget.borrow_mut().request(now);
        // What cannot be sent twice is sent on a connection that was looked at just now.
        let careful = !(request.idempotent && request.body.is_done());
        request.body.take_ready(request.message);
        let mut place = self.turn.borrow_mut().next();
        let mut fresh = false;
        let mut attempt = 1;
        loop {
            let pool = &self.pools[place];
            let failed = |failure| Failed { failure, authority: Arc::clone(pool.authority()) };
            let connection = match self.connection(pool, careful, fresh).await {
                Ok(connection) => connection,
                Err(failure) => {
                    place = self.retry_place(&mut attempt, place).ok_or_else(|| failed(failure))?;
                    now = deadline::now();
                    continue;
                }
            };
            let reused = connection.reused;
            if !reused {
                now = deadline::now();
            }
            let mut exchange = Exchange::new(request, connection, now);
            let failure = match poll_fn(|context| exchange.poll_head(context, timeout, timer)).await {
                Ok(head) => return Ok((exchange, head)),
                Err(failure) => failure,
            };
            let unspent = if failure == Failure::Reset { exchange.into_unspent() } else { None };
            request = unspent.ok_or_else(|| failed(failure))?;
            request.answer.bytes.clear();
            if !reused {
                place = self.retry_place(&mut attempt, place).ok_or_else(|| failed(failure))?;
            }
            fresh = reused;
        }
    }

    /// A kept connection, or a new one.
    async fn connection(
        &self,
        pool: &Rc<EndpointPool>,
        careful: bool,
        fresh: bool,
    ) -> Result<Connection, Failure> {
        let kept = if fresh { None } else { pool.take(careful) };
        match kept {
            Some(connection) => Ok(connection),
            None => pool.connect(self.upstream.connect_timeout).await,
        }
    }

    /// Where another attempt may go: to another server, within the attempts and the budget.
    fn retry_place(&self, attempt: &mut u32, failed: usize) -> Option<usize> {
        if self.pools.len() < 2 || *attempt >= self.upstream.retry.attempts {
            return None;
        }
        let mut turn = self.turn.borrow_mut();
        let other = turn.next_but(failed)?;
        self.budget.borrow_mut().spend(deadline::now()).then(|| {
            *attempt += 1;
            other
        })
    }
}
