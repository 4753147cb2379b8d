//! One worker: a thread with its own listeners, connections to backends and counters, and what it keeps for all its
//! connections.
//!
//! nginx calls it a worker process. Workers share the store and the plan, and nothing else on the path of a request. For
//! example, an idle client connection holds no buffer: it takes one from its worker's `buffer_pool` when a request
//! begins, and gives it back after the response.

pub(super) mod buffer_pool;
pub(super) mod connection_handle;
#[cfg(feature = "http3")]
pub(super) mod datagrams;
pub(super) mod fd_reserve;
pub(super) mod idle_list;
pub(super) mod listen;
pub(super) mod log_sampling;
pub(super) mod overriding_policies;
pub(super) mod read_bounds;
pub(super) mod refusal_template;
pub(super) mod tracer;
pub(super) mod worker_listeners;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::net::IpAddr;
use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arc_swap::{ArcSwap, Cache};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::auth::runtime::{AuthState, CredentialVerification};
use crate::limit::units::{Micros, Timestamp};
use crate::limit::wall_clock;
use crate::plan::auth::AuthIndex;
use crate::plan::{Limit, Plan, UpstreamIndex};
use crate::route::RouteRequest;
use crate::route::key::KeySecret;
use crate::route::mask::ShortIds;
use crate::shared::client_connections::ClientConnection;
use crate::shared::worker_commands::LimitKeys;
use crate::shared::{Life, Shared};
use crate::store::Counters;
use crate::telemetry::key_stats::KeyStats;
use crate::telemetry::metrics::WorkerMetrics;
use crate::upstream::{Pools, UpstreamClient};
use buffer_pool::BufferPool;
use connection_handle::ConnectionHandle;
use idle_list::IdleList;
use log_sampling::LogSampling;
use overriding_policies::OverridingPolicies;
use read_bounds::ReadBounds;
use refusal_template::RefusalTemplates;
use tracer::Tracer;

/// How long requests have records without an access log, after one failed: the next failures can then be reported with
/// their paths. A record costs about a twentieth of a request.
const TROUBLE: Micros = Micros(10 * Micros::SECOND.0);

/// How long a new connection has for its first byte, its TLS handshake included, once draining has begun. It was opened
/// before, and its client does not know of the drain.
const FIRST_BYTE: Duration = Duration::from_secs(2);

/// State shared by all connections of a worker. Lives on the worker's thread.
#[derive(Debug)]
pub(crate) struct Worker {
    index: usize,
    pub(crate) shared: Arc<Shared>,
    pub(super) life: watch::Receiver<Life>,
    draining: Cell<bool>,
    /// Draining has gone on for longer than the wait for new connections.
    late: Cell<bool>,
    drain: Notify,
    plan: RefCell<Rc<WorkerPlan>>,
    /// Detects a new plan without touching memory that the workers share.
    newest: RefCell<Cache<Arc<ArcSwap<Plan>>, Arc<Plan>>>,
    pub(super) pools: Pools,
    /// Copies of requests that are under way to mirrors.
    pub(super) mirrors_in_flight: Cell<usize>,
    /// When the program log last told of a mirror that gives no answer.
    pub(super) mirror_reported: Cell<Option<Instant>>,
    /// Client connections open now.
    pub(super) open: Cell<usize>,
    /// The same, without the rejected ones.
    pub(super) idle: Rc<IdleList<ConnectionHandle>>,
    /// Buffers not in use.
    pub(crate) spare: BufferPool,
    pub(crate) recorder: LogSampling,
    pub(crate) tracer: Tracer,
    date: Cell<Date>,
    /// When the last response was complete.
    pub(super) last_answer: Cell<Timestamp>,
    /// When a request without a record failed last.
    pub(super) troubled: Cell<Timestamp>,
    /// Connections accepted so far.
    pub(super) accepted: Cell<u64>,
    pub(super) closed: Notify,
    /// The last request id: 64 random bits of this worker, then a counter, in hexadecimal.
    request_id: RefCell<[u8; 32]>,
}

/// The active plan, with the worker's own state for it. Dereferences to the plan.
#[derive(Debug)]
pub(crate) struct WorkerPlan {
    plan: Arc<Plan>,
    /// Counts the worker's plans.
    pub(crate) number: u64,
    pub(crate) metrics: WorkerMetrics,
    /// Upstream clients, in the order of the plan's upstreams.
    pub(crate) upstream_clients: Vec<Rc<UpstreamClient>>,
    /// The clients of copies of requests, in the order of the plan's mirrors.
    mirror_clients: Vec<Rc<UpstreamClient>>,
    /// What the auths have learned, in the order of the plan's auths.
    auths: Box<[AuthState]>,
    pub(crate) counters: Rc<Counters>,
    /// The key statistics of each limit, in the order of the plan's limits.
    pub(crate) key_stats: Vec<Rc<RefCell<KeyStats>>>,
    /// The same of the keys of `share_by`.
    pub(crate) share_stats: Vec<Rc<RefCell<KeyStats>>>,
    /// Policies with numbers that other proxies send.
    pub(crate) overriding: RefCell<OverridingPolicies>,
    /// Keys the fingerprints of clients' keys.
    pub(crate) secret: KeySecret,
    /// Keys the short ids of masked values.
    pub(crate) short_ids: ShortIds,
    /// The texts of its usual refusals.
    pub(crate) refusal_templates: RefusalTemplates,
    pub(crate) read_bounds: Rc<ReadBounds>,
}

impl Worker {
    pub(super) fn new(index: usize, shared: Arc<Shared>) -> Self {
        let pools = Pools::default();
        let plan = WorkerPlan::new(index, &shared, &pools, shared.plan.load_full(), None);
        Self {
            index,
            life: shared.life.clone(),
            draining: Cell::new(false),
            late: Cell::new(false),
            drain: Notify::new(),
            plan: RefCell::new(Rc::new(plan)),
            newest: RefCell::new(Cache::new(Arc::clone(&shared.plan))),
            pools,
            mirrors_in_flight: Cell::new(0),
            mirror_reported: Cell::default(),
            open: Cell::new(0),
            idle: Rc::default(),
            spare: BufferPool::default(),
            recorder: LogSampling::new(),
            tracer: Tracer::new(),
            date: Cell::default(),
            last_answer: Cell::new(Timestamp(0)),
            troubled: Cell::new(Timestamp(0)),
            accepted: Cell::new(0),
            closed: Notify::new(),
            request_id: RefCell::new(first_request_id()),
            shared,
        }
    }

    /// The worker's number.
    pub(super) fn index(&self) -> usize {
        self.index
    }

    /// Whether requests without a record failed recently.
    pub(super) fn is_troubled(&self, now: Timestamp) -> bool {
        now.since(self.troubled.get()) < TROUBLE
    }

    /// The active plan. A request keeps the plan that it began with.
    pub(crate) fn plan(&self) -> Rc<WorkerPlan> {
        let mut newest = self.newest.borrow_mut();
        let newest = newest.load();
        let mut plan = self.plan.borrow_mut();
        if !Arc::ptr_eq(newest, &plan.plan) {
            let next =
                WorkerPlan::new(self.index, &self.shared, &self.pools, Arc::clone(newest), Some(&plan));
            *plan = Rc::new(next);
        }
        Rc::clone(&plan)
    }

    /// A request id that is unique in this process, and almost certainly among all.
    pub(crate) fn next_request_id(&self) -> [u8; 32] {
        // Incremented in place: of a copy, the compiler would keep each digit in a place of its own.
        let mut text = self.request_id.borrow_mut();
        // As digits, one of which changes as a rule: cheaper than to format a number.
        for digit in text.iter_mut().rev() {
            match digit {
                b'f' => *digit = b'0',
                b'9' => *digit = b'a',
                _ => *digit += 1,
            }
            if *digit != b'0' {
                break;
            }
        }
        *text
    }

    /// A number that spreads the ends of connections; it differs for each connection.
    pub(super) fn jitter(&self) -> u8 {
        // Steps of the golden ratio: neighbours are far apart, and all values are equally frequent.
        self.accepted.get().wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()[0]
    }

    /// The value of `date` at `now`; formatted once a second.
    pub(crate) fn date(&self, now: Timestamp) -> [u8; 29] {
        let date = self.date.get().at(now);
        self.date.set(date);
        date.text()
    }

    /// Whether draining has begun.
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.get()
    }

    /// Whether to stop waiting for the first request of a connection.
    pub(crate) fn is_late(&self) -> bool {
        self.late.get()
    }

    /// Ends when draining begins. A caller first checks [`Self::is_draining`].
    pub(crate) async fn drain_begins(&self) {
        self.drain.notified().await;
    }

    /// Closes the connection that has been idle longest. False if none of this worker's is idle.
    pub(super) fn make_room(&self) -> bool {
        self.idle.longest().inspect(|handle| handle.evict()).is_some()
    }

    /// A permit among the client's connections, if they are bounded; over the bound, the maximum number of connections.
    pub(super) fn admit_client(&self, peer: IpAddr) -> Result<Option<ClientConnection>, usize> {
        let plan = self.plan();
        let server = &plan.server;
        let Some(max) = server.max_connections_per_client.filter(|_| !server.client.trusts(peer)) else {
            return Ok(None);
        };
        let connection = self.shared.client_connections.admit(server.client.client(peer).network, max);
        connection.map(Some).ok_or(server.max_connections)
    }

    pub(super) async fn drained(&self) {
        let mut life = self.life.clone();
        #[expect(clippy::let_underscore_must_use, reason = "the sender lives as long as the process")]
        let _ = life.wait_for(|life| *life == Life::Draining).await;
        self.draining.set(true);
        self.drain.notify_waiters();
        self.plan().counters.leave_fleet().await;
        if tokio::time::timeout(FIRST_BYTE, self.all_closed()).await.is_err() {
            self.late.set(true);
            while self.make_room() {}
        }
        self.all_closed().await;
        let counters = Rc::clone(&self.plan().counters);
        counters.return_leases(self.shared.clock.now()).await;
        counters.all_settled().await;
    }

    async fn all_closed(&self) {
        while self.open.get() > 0 {
            self.closed.notified().await;
        }
    }
}

/// A limit with the statistics of its keys and of its shares.
type LimitStats<'a> = (&'a Limit, &'a Rc<RefCell<KeyStats>>, &'a Rc<RefCell<KeyStats>>);

impl WorkerPlan {
    /// Servers and counters that stay in place keep their connections.
    fn new(index: usize, shared: &Shared, pools: &Pools, plan: Arc<Plan>, last: Option<&Self>) -> Self {
        let metrics = shared.metrics.worker(index, &plan);
        let (registry, workers) = (&shared.server_registry, plan.server.workers);
        let upstream_clients = pools.adopt(&plan.upstreams, registry, workers);
        let mirror_clients = pools.adopt_mirrors(plan.mirrors(), registry, workers);
        // Keys have other fingerprints if the secret differs.
        let same_store = last.filter(|last| last.store.shared == plan.store.shared);
        let counters =
            same_store.map_or_else(|| Rc::new(shared.store.open(index)), |last| Rc::clone(&last.counters));
        let key_stats = same_store.map(Self::key_stats_by_name).unwrap_or_default();
        // Statistics of other keys, or of keys shown otherwise, are not carried over.
        let stays = |limit: &Limit| {
            let (last, key_stats, _) = key_stats.get(&*limit.name)?;
            (last.key == limit.key && last.reveal == limit.reveal).then(|| Rc::clone(key_stats))
        };
        let shares_stay = |limit: &Limit| {
            let (last, _, shares) = key_stats.get(&*limit.name)?;
            (last.share_by == limit.share_by && last.reveal == limit.reveal).then(|| Rc::clone(shares))
        };
        let share_stats = plan.limits.iter().map(|limit| shares_stay(limit).unwrap_or_default()).collect();
        let key_stats = plan.limits.iter().map(|limit| stays(limit).unwrap_or_default()).collect();
        let (secret, short_ids) = (shared.secret(&plan), shared.short_ids(&plan));
        let auths = shared.auth_states(&plan);
        let refusal_templates = RefusalTemplates::default();
        let read_bounds = Rc::new(ReadBounds::of(&plan.server));
        let number = last.map_or(0, |last| last.number + 1);
        Self {
            plan,
            number,
            metrics,
            upstream_clients,
            mirror_clients,
            auths,
            counters,
            key_stats,
            share_stats,
            overriding: RefCell::default(),
            secret,
            short_ids,
            refusal_templates,
            read_bounds,
        }
    }

    /// The client by which copies of requests go to an upstream.
    pub(super) fn mirror_client(&self, upstream: UpstreamIndex) -> Option<&Rc<UpstreamClient>> {
        let index = self.mirrors().iter().position(|(index, _)| *index == upstream)?;
        self.mirror_clients.get(index)
    }

    /// What an auth has learned.
    pub(crate) fn auth_state(&self, index: AuthIndex) -> &AuthState {
        &self.auths[index.0]
    }

    /// See [`Plan::verification`].
    pub(crate) fn verification(
        &self,
        index: AuthIndex,
        request: &RouteRequest<'_>,
        now: Timestamp,
    ) -> Option<CredentialVerification> {
        self.plan.verification((index, self.auth_state(index)), request, now)
    }

    fn key_stats_by_name(&self) -> HashMap<&str, LimitStats<'_>> {
        let each = self.limits.iter().zip(&self.key_stats).zip(&self.share_stats);
        each.map(|((limit, key_stats), shares)| (&*limit.name, (limit, key_stats, shares))).collect()
    }

    /// The statistics of these keys of the limit of this name.
    pub(crate) fn key_stats_of(&self, name: &str, keys: LimitKeys) -> Option<&Rc<RefCell<KeyStats>>> {
        let limit = self.limit_named(name)?;
        let of_limits = match keys {
            LimitKeys::Counted => &self.key_stats,
            LimitKeys::Shares => &self.share_stats,
        };
        of_limits.get(limit.0)
    }
}

impl Deref for WorkerPlan {
    type Target = Plan;

    fn deref(&self) -> &Plan {
        &self.plan
    }
}

fn first_request_id() -> [u8; 32] {
    let prefix = format!("{:016x}", fastrand::u64(..));
    let mut text = [b'0'; 32];
    text.iter_mut().zip(prefix.bytes()).for_each(|(digit, random)| *digit = random);
    text
}

/// A second, and its text (RFC 9110 §5.6.7).
#[derive(Clone, Copy, Debug)]
struct Date {
    second: u64,
    text: [u8; 29],
}

impl Default for Date {
    fn default() -> Self {
        Self::of(0)
    }
}

impl Date {
    /// The date of that moment: unchanged if it is in the same second.
    fn at(self, now: Timestamp) -> Self {
        let second = wall_clock::system().wall_time(now).seconds();
        if second == self.second { self } else { Self::of(second) }
    }

    fn text(&self) -> [u8; 29] {
        self.text
    }

    fn of(second: u64) -> Self {
        let text = httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + Duration::from_secs(second));
        // This format always has this length.
        Self { second, text: text.as_bytes().first_chunk().copied().unwrap_or([b'0'; 29]) }
    }
}
