//! One worker: a thread, its runtime, its connections.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener as StdListener};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use arc_swap::{ArcSwap, Cache};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::buffers::Spare;
use super::clerk;
use super::connection;
use super::date::Date;
use super::descriptors::Reserve;
use super::handshake;
use super::listen::Listeners;
use super::presence::Presence;
use super::proxied;
use super::recorder::Recorder;
use super::trace::Tracer;
use crate::aside::aside;
use crate::clock::deadline::now;
use crate::gateway::{Gateway, Limit};
use crate::limit::units::{Micros, Timestamp};
use crate::route::key::Secret;
use crate::route::mask::ShortIds;
use crate::shared::crowd::Place;
use crate::shared::{Life, Shared};
use crate::socket::Stream;
use crate::store::Counters;
use crate::telemetry::audience::Audience;
use crate::telemetry::metrics::{TurnedAway, WorkerMetrics};
use crate::upstream::{Pools, Servers};

/// How long accepting rests when the process is out of descriptors or memory.
const ACCEPT_REST: Duration = Duration::from_millis(50);
/// How often a worker says so at most.
const TELL_EVERY: Duration = Duration::from_secs(10);
/// Connections beyond `max_connections` that are told so; more are closed without a word.
const MOST_TOLD: usize = 256;
/// How often unused backend connections are looked through.
const EXPIRE_EVERY: Duration = Duration::from_secs(1);

/// How long requests have records though there is no access log, once one failed: so that the next that fail can be told with their
/// paths. A record costs about a twentieth of a request.
const TROUBLE: Micros = Micros(10 * Micros::SECOND.0);

/// How long a new connection has for its first byte, its TLS handshake included, once draining has begun. It was made
/// before, and its client knows of nothing.
const FIRST_BYTE: Duration = Duration::from_secs(2);

/// Runs one worker on the calling thread until it is drained. Builds its own single-threaded runtime. Calls `up` when it
/// takes connections.
pub fn run(worker: usize, listeners: Listeners, shared: Arc<Shared>, up: impl FnOnce()) -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default())?;
    runtime.block_on(async move {
        let worker = Rc::new(Worker::new(worker, shared));
        for (place, listener) in listeners {
            let listener = adopt(listener)?;
            // A reload does not change it.
            let tls = worker.plan().gateway.server.listen.get(place).is_some_and(|listener| listener.tls);
            tokio::task::spawn_local(accept(place, tls, listener, Rc::clone(&worker)));
        }
        tokio::task::spawn_local(expire(Rc::clone(&worker)));
        if let Some(inbox) = worker.shared.desks.inbox(worker.index) {
            tokio::task::spawn_local(clerk::serve(inbox, Rc::clone(&worker)));
        }
        if worker.index == 0 {
            tokio::task::spawn_local(clerk::keep_bans(Rc::clone(&worker)));
        }
        up();
        worker.drained().await;
        Ok(())
    })
}

fn adopt(listener: StdListener) -> io::Result<TcpListener> {
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}

/// What all connections of a worker share. Lives on its thread.
#[derive(Debug)]
pub(crate) struct Worker {
    index: usize,
    pub(crate) shared: Arc<Shared>,
    life: watch::Receiver<Life>,
    draining: Cell<bool>,
    /// Draining has gone on for longer than new connections are waited for.
    late: Cell<bool>,
    drain: Notify,
    plan: RefCell<Rc<Plan>>,
    /// Notices a new plan without touching what the workers share.
    newest: RefCell<Cache<Arc<ArcSwap<Gateway>>, Arc<Gateway>>>,
    pools: Pools,
    /// Clients' connections open now.
    open: Cell<usize>,
    /// The same, but those turned away, by the order in which they were accepted.
    present: RefCell<HashMap<u64, Rc<Presence>>>,
    /// Buffers that no connection needs now.
    pub(crate) spare: Spare,
    pub(crate) recorder: Recorder,
    pub(crate) tracer: Tracer,
    date: Cell<Date>,
    /// When the last answer was complete.
    pub(super) last_answer: Cell<Timestamp>,
    /// When a request failed last of which there was no record.
    pub(super) troubled: Cell<Timestamp>,
    /// Connections accepted so far.
    accepted: Cell<u64>,
    closed: Notify,
    /// The last request id: 64 random bits of this worker, then a counter, in hexadecimal.
    request_id: RefCell<[u8; 32]>,
}

/// The plan in force, with what a worker needs at hand to run it.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) metrics: WorkerMetrics,
    /// In the order of the plan's upstreams.
    pub(crate) servers: Vec<Rc<Servers>>,
    pub(crate) counters: Rc<Counters>,
    /// Who asks of each limit, in the order of the plan's.
    pub(crate) audiences: Vec<Rc<RefCell<Audience>>>,
    /// Keys the fingerprints of clients' keys.
    pub(crate) secret: Secret,
    /// Keys the short ids of masked values.
    pub(crate) short_ids: ShortIds,
}

impl Worker {
    pub(super) fn new(index: usize, shared: Arc<Shared>) -> Self {
        let pools = Pools::default();
        let plan = Plan::new(index, &shared, &pools, shared.gateway.load_full(), None);
        Self {
            index,
            life: shared.life.clone(),
            draining: Cell::new(false),
            late: Cell::new(false),
            drain: Notify::new(),
            plan: RefCell::new(Rc::new(plan)),
            newest: RefCell::new(Cache::new(Arc::clone(&shared.gateway))),
            pools,
            open: Cell::new(0),
            present: RefCell::default(),
            spare: Spare::default(),
            recorder: Recorder::new(),
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

    /// Its number among the workers.
    pub(super) fn index(&self) -> usize {
        self.index
    }

    /// Whether requests failed lately of which there was no record.
    pub(super) fn is_troubled(&self, now: Timestamp) -> bool {
        now.since(self.troubled.get()) < TROUBLE
    }

    /// The plan in force now. A request keeps the one it began with.
    pub(crate) fn plan(&self) -> Rc<Plan> {
        let mut newest = self.newest.borrow_mut();
        let newest = newest.load();
        let mut plan = self.plan.borrow_mut();
        if !Arc::ptr_eq(newest, &plan.gateway) {
            let next = Plan::new(self.index, &self.shared, &self.pools, Arc::clone(newest), Some(&plan));
            *plan = Rc::new(next);
        }
        Rc::clone(&plan)
    }

    /// A request id that no other request of this process, and hardly one of another, has.
    pub(crate) fn next_request_id(&self) -> [u8; 32] {
        // Counted where it stands: of a copy, the compiler would keep each digit in a place of its own.
        let mut text = self.request_id.borrow_mut();
        // In digits, of which one changes as a rule: cheaper than to write a number out.
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

    /// A number that spreads the ends of connections; each connection has another.
    pub(super) fn jitter(&self) -> u8 {
        // Neighbours are far apart, and all values are equally frequent: steps of the golden ratio.
        self.accepted.get().wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()[0]
    }

    /// The value of `date` at `now`; made once a second.
    pub(crate) fn date(&self, now: Timestamp) -> [u8; 29] {
        let date = self.date.get().at(now);
        self.date.set(date);
        date.text()
    }

    /// Whether draining has begun.
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.get()
    }

    /// Whether to wait no longer for the first request of a connection.
    pub(crate) fn is_late(&self) -> bool {
        self.late.get()
    }

    /// Ends when draining begins; who asks after that looks at [`Self::is_draining`] first.
    pub(crate) async fn drain_begins(&self) {
        self.drain.notified().await;
    }

    /// Closes the connection that is idle for longest. False if none of this worker's is.
    fn make_room(&self) -> bool {
        let present = self.present.borrow();
        let idle = present.values().filter_map(|presence| Some((presence.idle_since()?, presence)));
        let oldest = idle.min_by_key(|(since, _)| *since);
        oldest.inspect(|(_, presence)| presence.evict()).is_some()
    }

    /// A place among the client's connections, if they are bounded; over the bound, how many connections there may be in all.
    fn admit_client(&self, peer: IpAddr) -> Result<Option<Place>, usize> {
        let plan = self.plan();
        let server = &plan.gateway.server;
        let Some(most) = server.max_connections_per_client.filter(|_| !server.client.trusts(peer)) else {
            return Ok(None);
        };
        let place = self.shared.crowd.admit(server.client.client(peer).network, most);
        place.map(Some).ok_or(server.max_connections)
    }

    async fn drained(&self) {
        let mut life = self.life.clone();
        #[expect(clippy::let_underscore_must_use, reason = "the sender lives as long as the process")]
        let _ = life.wait_for(|life| *life == Life::Draining).await;
        self.draining.set(true);
        self.drain.notify_waiters();
        if tokio::time::timeout(FIRST_BYTE, self.all_closed()).await.is_err() {
            self.late.set(true);
            let present = self.present.borrow();
            present
                .values()
                .filter(|presence| presence.idle_since().is_some())
                .for_each(|silent| silent.evict());
        }
        self.all_closed().await;
    }

    async fn all_closed(&self) {
        while self.open.get() > 0 {
            self.closed.notified().await;
        }
    }
}

impl Plan {
    /// Counters that stay where they are stay open.
    fn new(index: usize, shared: &Shared, pools: &Pools, gateway: Arc<Gateway>, last: Option<&Self>) -> Self {
        let metrics = shared.metrics.worker(index, &gateway);
        let servers = pools.adopt(&gateway.upstreams, &shared.roster, gateway.server.workers);
        // Keys have other fingerprints where the secret is another.
        let same_store = last.filter(|last| last.gateway.store.shared == gateway.store.shared);
        let counters =
            same_store.map_or_else(|| Rc::new(shared.store.open(index)), |last| Rc::clone(&last.counters));
        let audiences = same_store.map(Self::audiences_by_name).unwrap_or_default();
        let stays = |limit: &Limit| {
            let (last, audience) = audiences.get(&*limit.name)?;
            // Those of other keys, or that are called otherwise, are other people.
            (last.key == limit.key && last.reveal == limit.reveal).then(|| Rc::clone(audience))
        };
        let audiences = gateway.limits.iter().map(|limit| stays(limit).unwrap_or_default()).collect();
        let (secret, short_ids) = (shared.secret(&gateway), shared.short_ids(&gateway));
        Self { gateway, metrics, servers, counters, audiences, secret, short_ids }
    }

    fn audiences_by_name(&self) -> HashMap<&str, (&Limit, &Rc<RefCell<Audience>>)> {
        let each = self.gateway.limits.iter().zip(&self.audiences);
        each.map(|(limit, audience)| (&*limit.name, (limit, audience))).collect()
    }

    /// Who asks of the limit of this name.
    pub(crate) fn audience_of(&self, name: &str) -> Option<&Rc<RefCell<Audience>>> {
        let place = self.gateway.limits.iter().position(|limit| *limit.name == *name)?;
        self.audiences.get(place)
    }
}

fn first_request_id() -> [u8; 32] {
    let prefix = format!("{:016x}", RandomState::new().build_hasher().finish());
    let mut text = [b'0'; 32];
    text.iter_mut().zip(prefix.bytes()).for_each(|(digit, random)| *digit = random);
    text
}

/// Takes connections until draining begins; the listener is closed then.
async fn accept(place: usize, tls: bool, listener: TcpListener, worker: Rc<Worker>) {
    let mut life = worker.life.clone();
    let reserve = Reserve::of_process();
    let mut last_told = None;
    loop {
        if reserve.is_next(&listener) {
            tell(&mut last_told, "nearly all files that may be open are: new connections wait");
            until_spared(reserve, &listener, &worker).await;
        }
        let accepted = tokio::select! {
            biased;
            _ = life.wait_for(|life| *life == Life::Draining) => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, peer)) => {
                #[expect(
                    clippy::let_underscore_must_use,
                    reason = "a socket that refuses works, but small answers wait for acknowledgements"
                )]
                let _ = stream.set_nodelay(true);
                admit(place, tls, stream, peer, &worker);
            }
            Err(error) if is_the_clients(&error) => {}
            Err(error) => {
                tell(&mut last_told, &format!("cannot accept connections; trying again: {error}"));
                tokio::time::sleep(ACCEPT_REST).await;
            }
        }
    }
}

/// A warning, unless there was one just now: who causes it may do so as often as they like.
fn tell(last: &mut Option<Instant>, what: &str) {
    let now = now();
    if last.is_none_or(|last| now - last >= TELL_EVERY) {
        *last = Some(now);
        tracing::warn!("{what}");
    }
}

/// Waits until a connection more leaves the spared descriptors alone. The one that is idle for longest makes room; where
/// none is, the next wait in the listener's queue.
async fn until_spared(reserve: Reserve, listener: &TcpListener, worker: &Worker) {
    while reserve.is_next(listener) && !worker.is_draining() {
        if worker.make_room() {
            tokio::task::yield_now().await;
        } else {
            tokio::time::sleep(ACCEPT_REST).await;
        }
    }
}

/// Serves a connection. Where there are too many, the one that is idle for longest makes room; where none is idle, the
/// new one is turned away: without a word where it would cost a handshake, or where many are told already.
fn admit(place: usize, tls: bool, stream: TcpStream, peer: SocketAddr, worker: &Rc<Worker>) {
    let plan = worker.plan();
    let (most, open) =
        (plan.gateway.server.max_connections, worker.shared.connections.load(Ordering::Relaxed));
    if open >= most && !worker.make_room() {
        plan.metrics.turned_away(place, TurnedAway::Crowd);
        if tls || open - most >= MOST_TOLD {
            return;
        }
        let open = Open::new(place, Rc::clone(worker), None);
        let worker = Rc::clone(worker);
        tokio::task::spawn_local(async move {
            connection::turn_away(stream, Presence::new(place), peer.ip(), worker).await;
            drop(open);
        });
    } else {
        let presence = Presence::new(place);
        let open = Open::new(place, Rc::clone(worker), Some(&presence));
        let worker = Rc::clone(worker);
        tokio::task::spawn_local(async move {
            welcome(tls, stream, presence, peer.ip(), worker).await;
            drop(open);
        });
    }
}

/// Finds out who it is, and serves it unless it has too many connections already.
async fn welcome(tls: bool, mut stream: TcpStream, presence: Rc<Presence>, peer: IpAddr, worker: Rc<Worker>) {
    let Some(peer) = proxied::peer(&presence, &mut stream, peer, &worker).await else { return };
    match worker.admit_client(peer) {
        // A connection without TLS needs no memory for a handshake.
        Ok(_crowded) if tls => aside(|| handshake::serve(stream, presence, peer, worker)).await,
        Ok(_crowded) => connection::serve(Stream::Plain(stream), presence, peer, worker).await,
        Err(most) => {
            worker.plan().metrics.turned_away(presence.listener(), TurnedAway::PerClient);
            // To be told costs a connection for a while: where those are scarce, or a handshake comes first, it is
            // closed at once.
            if !tls && worker.shared.connections.load(Ordering::Relaxed) < most / 2 {
                aside(|| connection::turn_away(stream, presence, peer, worker)).await;
            }
        }
    }
}

/// Errors that concern one connection: the client left before it was accepted.
fn is_the_clients(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted)
}

/// Counts a connection for as long as it is open, and lists it among those that can make room.
struct Open {
    place: usize,
    number: u64,
    worker: Rc<Worker>,
    plan: Rc<Plan>,
}

impl Open {
    fn new(place: usize, worker: Rc<Worker>, presence: Option<&Rc<Presence>>) -> Self {
        let plan = worker.plan();
        let number = worker.accepted.get();
        worker.accepted.set(number + 1);
        if let Some(presence) = presence {
            worker.present.borrow_mut().insert(number, Rc::clone(presence));
        }
        worker.open.set(worker.open.get() + 1);
        worker.shared.connections.fetch_add(1, Ordering::Relaxed);
        plan.metrics.connection_opened(place);
        Self { place, number, worker, plan }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.worker.present.borrow_mut().remove(&self.number);
        self.worker.open.set(self.worker.open.get() - 1);
        self.worker.shared.connections.fetch_sub(1, Ordering::Relaxed);
        self.plan.metrics.connection_closed(self.place);
        self.worker.closed.notify_one();
    }
}

async fn expire(worker: Rc<Worker>) {
    loop {
        tokio::time::sleep(EXPIRE_EVERY).await;
        // A worker without requests lets go of what an old plan holds, too: its connections to the shared store.
        worker.plan();
        worker.pools.expire();
    }
}
