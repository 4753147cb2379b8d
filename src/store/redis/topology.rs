//! The topology of a cluster: one worker's slot map with its connections, and the task that keeps the map current.
//!
//! The map is read at start and whenever it is found or suspected to be wrong: a node redirects, or a connection
//! breaks. It is read at most about ten times a second, from any node that replies. A redirect (`MOVED`) changes the
//! map at once.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::convert::Infallible;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{sleep_until, timeout};

use super::breaker::Backoff;
use super::endpoint::RedisEndpoint;
use super::errors::{CallError, ConnectionTrouble};
use super::handshake::ask_once;
use super::health::{OutageGuard, ServerHealths};
use super::pipeline::Pipeline;
use super::resp::RespValue;
use super::script::Script;
use super::server_error::ErrorKind;
use super::settings::{RedisServer, RedisSettings};
use super::slot::HashSlot;
use super::slots::{SharedSlotMap, SlotMap};
use crate::clock::now;

/// The timeout for one node's reply.
const TIMEOUT: Duration = Duration::from_secs(1);
/// The maximum number of nodes asked for one map.
const MAX_NODES_ASKED: usize = 32;

/// The topology of a cluster.
#[derive(Debug)]
pub(super) struct Topology {
    listed: Vec<RedisServer>,
    settings: Arc<RedisSettings>,
    script: Arc<Script>,
    healths: Arc<ServerHealths>,
    slots: Rc<SharedSlotMap>,
    /// By index in the map; a connection is opened when first needed.
    nodes: RefCell<Vec<Option<Rc<Node>>>>,
    sight: Cell<Sight>,
    /// The first map was read, or could not be.
    first: Notify,
}

/// A node with a connection.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) server: RedisServer,
    pub(super) pipeline: Pipeline,
}

/// Whether there is a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sight {
    /// Not yet.
    Awaited,
    Clear,
    /// It could not be read.
    None,
}

impl Topology {
    pub(super) fn new(
        listed: Vec<RedisServer>,
        settings: &Arc<RedisSettings>,
        script: &Arc<Script>,
        healths: &Arc<ServerHealths>,
    ) -> Rc<Self> {
        Rc::new(Self {
            listed,
            settings: Arc::clone(settings),
            script: Arc::clone(script),
            healths: Arc::clone(healths),
            slots: Rc::new(SharedSlotMap::new()),
            nodes: RefCell::default(),
            sight: Cell::new(Sight::Awaited),
            first: Notify::new(),
        })
    }

    /// Reads the map whenever requested, until the task is aborted.
    pub(super) async fn run(self: Rc<Self>) -> Infallible {
        let (mut teller, mut backoff, mut down): (_, _, Option<OutageGuard>) =
            (None, Backoff::default(), None);
        loop {
            let start = now();
            match self.look(&mut teller).await {
                Ok(map) => {
                    self.adopt(map);
                    self.sight.set(Sight::Clear);
                    down.take().into_iter().for_each(OutageGuard::over);
                    backoff.reset();
                }
                Err(trouble) => {
                    tracing::debug!("{trouble}");
                    if self.sight.get() != Sight::Clear {
                        self.sight.set(Sight::None);
                        down.get_or_insert_with(|| self.healths.of(&self.name()).down(&trouble));
                    }
                    self.slots.suspect();
                }
            }
            self.first.notify_waiters();
            sleep_until(start + backoff.next(fastrand::u64(..))).await;
            self.slots.suspected().await;
        }
    }

    /// The node of the slot.
    ///
    /// # Errors
    ///
    /// The slot has no node, or none that is known.
    pub(super) fn node(&self, slot: HashSlot) -> Result<Rc<Node>, CallError> {
        let owner = self.slots.map.borrow().owner(slot);
        match (owner, self.sight.get()) {
            (Some(index), _) => self.node_at(index),
            (None, Sight::Clear) => {
                self.slots.suspect();
                Err(CallError::Refused(ErrorKind::CLUSTERDOWN))
            }
            (None, Sight::Awaited | Sight::None) => Err(CallError::Down),
        }
    }

    /// Ready when it is known whether there is a map.
    pub(super) async fn first_look(&self) {
        while self.sight.get() == Sight::Awaited {
            self.first.notified().await;
        }
    }

    /// The node to which the slot is assigned from now on.
    pub(super) fn learn(&self, slot: HashSlot, server: &RedisServer) -> Result<Rc<Node>, CallError> {
        self.slots.suspect();
        let index = self.slots.map.borrow_mut().learn(slot, server);
        self.node_at(index.ok_or(CallError::Busy)?)
    }

    /// The node of this address, whatever its slots.
    pub(super) fn node_called(&self, server: &RedisServer) -> Result<Rc<Node>, CallError> {
        let index = self.slots.map.borrow_mut().index_of(server);
        self.node_at(index.ok_or(CallError::Busy)?)
    }

    fn node_at(&self, index: usize) -> Result<Rc<Node>, CallError> {
        let mut nodes = self.nodes.borrow_mut();
        if nodes.len() <= index {
            nodes.resize(index + 1, None);
        }
        let entry = nodes.get_mut(index).ok_or(CallError::Down)?;
        if let Some(node) = entry {
            return Ok(Rc::clone(node));
        }
        let server = self.slots.map.borrow().masters().get(index).cloned().ok_or(CallError::Down)?;
        let target = RedisEndpoint::Node { server: server.clone(), map: Rc::clone(&self.slots) };
        let pipeline = Pipeline::open(target, &self.settings, &self.script, &self.healths);
        Ok(Rc::clone(entry.insert(Rc::new(Node { server, pipeline }))))
    }

    /// Replaces the map. Connections to nodes that are no longer in it are closed once their calls have ended.
    fn adopt(&self, map: SlotMap) {
        let masters = map.masters().to_vec();
        let Some(before) = self.slots.replace(map) else { return };
        let mut nodes = self.nodes.borrow_mut();
        let old = std::mem::take(&mut *nodes);
        let mut known: HashMap<_, _> = before.masters().iter().cloned().zip(old).collect();
        *nodes = masters.iter().map(|server| known.remove(server).flatten()).collect();
    }

    /// Reads the map: first from the node that returned the last one, then from the configured nodes, then from the
    /// learned ones.
    async fn look(&self, teller: &mut Option<RedisServer>) -> Result<SlotMap, ConnectionTrouble> {
        let learned = self.slots.map.borrow().masters().to_vec();
        let candidates: Vec<_> =
            teller.take().into_iter().chain(self.listed.iter().cloned()).chain(learned).collect();
        let mut last = ConnectionTrouble::Odd("there is no node");
        for server in candidates.into_iter().take(MAX_NODES_ASKED) {
            match timeout(TIMEOUT, self.ask(&server))
                .await
                .unwrap_or(Err(ConnectionTrouble::Silence(TIMEOUT)))
            {
                Ok(map) => {
                    *teller = Some(server);
                    return Ok(map);
                }
                Err(trouble) => last = trouble,
            }
        }
        Err(ConnectionTrouble::NoMap(Box::new(last)))
    }

    async fn ask(&self, server: &RedisServer) -> Result<SlotMap, ConnectionTrouble> {
        let reply = ask_once(server, &self.settings.dial, &[b"CLUSTER", b"SLOTS"]).await;
        let no_cluster = ConnectionTrouble::Odd("it is not a node of a cluster, or of one without slots");
        match reply {
            Ok(RespValue::Integers(_)) => Err(no_cluster),
            Err(ConnectionTrouble::Refused(code)) if code == ErrorKind::ERR => Err(no_cluster),
            reply => SlotMap::read(&reply?, server)
                .ok_or(ConnectionTrouble::Odd("its map of the cluster can't be read")),
        }
    }

    /// The cluster's name as long as its nodes are unknown.
    fn name(&self) -> String {
        let names: Vec<_> = self.listed.iter().map(ToString::to_string).collect();
        names.join(", ")
    }
}
