//! The servers of a worker: one server, the master named by sentinels, or the nodes of a cluster. All state lives on
//! the worker's thread.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use super::cluster::Cluster;
use super::endpoint::RedisEndpoint;
use super::errors::CallError;
use super::health::ServerHealths;
use super::pipeline::{CallMode, Pipeline};
use super::resp::{Command, Integers};
use super::script::Script;
use super::settings::{RedisServers, RedisSettings};
use super::slot::HashSlot;
use crate::clock::now;

/// One worker's connections. Closed when it is dropped.
#[derive(Debug)]
pub struct Nodes(Kind);

#[derive(Debug)]
enum Kind {
    /// One server has all the keys.
    One(Pipeline),
    /// A cluster's node has the keys of its slots.
    Cluster(Cluster),
}

/// A reply of the script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodesReply {
    /// See [`reply`](super::reply).
    pub integers: Integers,
    /// The time from the call to the reply.
    pub took: Duration,
}

impl Nodes {
    /// Begins to connect. Calls wait for the connection, each at most until its timeout. Must be called on the worker's
    /// local runtime. `healths` is shared by all workers.
    pub fn open(settings: &Arc<RedisSettings>, script: &Arc<Script>, healths: &Arc<ServerHealths>) -> Self {
        let target = match &settings.servers {
            RedisServers::Single(server) => RedisEndpoint::Single(server.clone()),
            RedisServers::Sentinel { sentinels, master } => RedisEndpoint::Master {
                sentinels: sentinels.as_slice().into(),
                name: Arc::clone(master),
                first: Rc::new(Cell::new(0)),
            },
            RedisServers::Cluster(listed) => {
                return Self(Kind::Cluster(Cluster::open(listed, settings, script, healths)));
            }
        };
        Self(Kind::One(Pipeline::open(target, settings, script, healths)))
    }

    /// The slot of the keys with this hash tag. All keys of one call must be in one slot. (A single server has one
    /// slot.)
    pub fn slot(&self, tag: &[u8]) -> HashSlot {
        match self.0 {
            Kind::One(_) => HashSlot::default(),
            Kind::Cluster(_) => HashSlot::of(tag),
        }
    }

    /// Executes one call, within `timeout`. `write` writes the whole command, including `EVALSHA`; it may be called
    /// again. A future that is dropped before it is ready may have charged.
    ///
    /// # Errors
    ///
    /// The call was not executed, or it is unknown whether it was: see [`CallError`].
    pub async fn ask(
        &self,
        slot: HashSlot,
        write: impl Fn(&mut Command<'_>),
    ) -> Result<NodesReply, CallError> {
        let asked = now();
        let (integers, at) = match &self.0 {
            Kind::One(link) => link.ask(asked, CallMode::Own, &write).await?.decided()?,
            Kind::Cluster(cluster) => cluster.ask(asked, slot, &write).await?,
        };
        Ok(NodesReply { integers, took: at.saturating_duration_since(asked) })
    }
}
