//! The backends: connections to them, kept per worker, and the exchange of one request for one response.

pub mod balance;
pub mod connection;
pub mod echo;
pub mod pool;
pub mod retry;
pub mod upload;

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use http::{Method, Request, Response};
use hyper::body::Incoming;

use crate::clock::deadline::{Deadline, now};
use crate::gateway::{Backend, Endpoint, Upstream};
use balance::RoundRobin;
use connection::{Connection, Lease};
use pool::EndpointPool;
use retry::Budget;
use upload::{Upload, UploadState};

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
    /// What it sent is not HTTP/1.1.
    Protocol,
    /// The request's body broke off: not the backend's fault.
    Upload,
}

/// A response head, and the connection that its body comes from.
#[derive(Debug)]
pub struct Exchange {
    /// The head, and the body to come.
    pub response: Response<Incoming>,
    /// Returns the connection to the pool once the body is read.
    pub lease: Lease,
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
        let now = now();
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
    /// byte was written, or when the method is idempotent, the request has no body and no byte of an answer was seen.
    ///
    /// A kept-alive connection that the server closed in the meantime is no failure of the server: the request goes out
    /// on a fresh connection to the same one. `timeout` runs from the moment the request is sent whole.
    pub async fn send(
        &self,
        mut request: Request<Upload>,
        state: &UploadState,
        timeout: Duration,
        deadline: &mut Deadline,
    ) -> Result<Exchange, Failed> {
        self.budget.borrow_mut().request(now());
        // A body that was given to a connection is gone with it, so only requests without one can be sent again.
        let spare = (is_idempotent(request.method()) && request.body().is_empty()).then(|| head_of(&request));
        let mut place = self.turn.borrow_mut().next();
        let mut fresh = false;
        let mut attempt = 1;
        loop {
            let pool = &self.pools[place];
            let (connection, reused) = match self.connection(pool, &request, fresh).await {
                Ok(got) => got,
                Err(failure) => match self.retry_place(&mut attempt, place) {
                    Some(other) => {
                        place = other;
                        continue;
                    }
                    None => return Err(Failed { failure, authority: Arc::clone(pool.authority()) }),
                },
            };
            let sent = connection.exchange(request, state, timeout, deadline).await;
            let lost = match sent {
                Ok((response, lease)) => return Ok(Exchange { response, lease }),
                Err(lost) => lost,
            };
            let failure = lost.failure;
            let again = lost.unsent.map(|request| *request).or_else(|| {
                let safe = failure == Failure::Reset && lost.unanswered && state.is_untouched();
                spare.as_ref().filter(|_| safe).map(request_from)
            });
            let next = if reused { Some(place) } else { self.retry_place(&mut attempt, place) };
            let (Some(again), Some(next)) = (again, next) else {
                return Err(Failed { failure, authority: Arc::clone(pool.authority()) });
            };
            request = again;
            fresh = reused;
            place = next;
        }
    }

    /// A kept connection, or a new one.
    async fn connection(
        &self,
        pool: &Rc<EndpointPool>,
        request: &Request<Upload>,
        fresh: bool,
    ) -> Result<(Connection, bool), Failure> {
        // What cannot be sent twice is sent on a connection that was looked at just now.
        let careful = !is_idempotent(request.method()) || !request.body().is_empty();
        if !fresh && let Some(connection) = pool.take(careful) {
            return Ok((connection, true));
        }
        let connection = pool.connect(self.upstream.connect_timeout, self.upstream.idle_timeout).await?;
        Ok((connection, false))
    }

    /// Where another attempt may go: to another server, within the attempts and the budget.
    fn retry_place(&self, attempt: &mut u32, failed: usize) -> Option<usize> {
        if self.pools.len() < 2 || *attempt >= self.upstream.retry.attempts {
            return None;
        }
        let mut turn = self.turn.borrow_mut();
        let other = turn.next_but(failed)?;
        self.budget.borrow_mut().spend(now()).then(|| {
            *attempt += 1;
            other
        })
    }
}

/// RFC 9110 §9.2.2.
fn is_idempotent(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS | Method::PUT | Method::DELETE)
}

fn head_of(request: &Request<Upload>) -> Request<()> {
    let mut head = Request::new(());
    head.method_mut().clone_from(request.method());
    head.uri_mut().clone_from(request.uri());
    head.headers_mut().clone_from(request.headers());
    head
}

fn request_from(head: &Request<()>) -> Request<Upload> {
    head.clone().map(|()| Upload::empty())
}
