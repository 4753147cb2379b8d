//! Whom a worker asks: one server, the master that sentinels name, or the nodes of a cluster. All of it lives on the worker's thread.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::cluster::Cluster;
use super::fault::Fault;
use super::health::Healths;
use super::link::{Link, Mode, Reply};
use super::refusal::Code;
use super::resp::{Command, Integers};
use super::script::Script;
use super::settings::{Servers, Settings};
use super::slot::Slot;
use super::target::Target;
use crate::clock::deadline::now;

/// One worker's connections. Closed when it is dropped.
#[derive(Debug)]
pub struct Nodes(Kind);

#[derive(Debug)]
enum Kind {
    /// One server has all the keys.
    One(Link),
    /// A cluster's node has the keys of its slots.
    Cluster(Cluster),
}

/// What the script has answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// See [`reply`](super::reply).
    pub integers: Integers,
    /// From the call to the answer.
    pub took: Duration,
}

impl Nodes {
    /// Begins to connect; calls wait for it, each at most as long as it may. To be called on the worker's local runtime.
    /// `healths` is shared by all workers.
    pub fn open(settings: &Arc<Settings>, script: &Arc<Script>, healths: &Arc<Healths>) -> Self {
        let target = match &settings.servers {
            Servers::Single(server) => Target::Single(server.clone()),
            Servers::Sentinel { sentinels, master } => Target::Master {
                sentinels: sentinels.as_slice().into(),
                name: Arc::clone(master),
                first: Rc::new(Cell::new(0)),
            },
            Servers::Cluster(listed) => {
                return Self(Kind::Cluster(Cluster::open(listed, settings, script, healths)));
            }
        };
        Self(Kind::One(Link::open(target, settings, script, healths)))
    }

    /// Where the keys with this hash tag are: keys of one call must have one slot. (One server has one slot.)
    pub fn slot(&self, tag: &[u8]) -> Slot {
        match self.0 {
            Kind::One(_) => Slot::default(),
            Kind::Cluster(_) => Slot::of(tag),
        }
    }

    /// Has one call decided, within `timeout`. `write` writes the whole command, `EVALSHA` and all; it may be called again. A future that is
    /// dropped before it is ready may have charged.
    ///
    /// # Errors
    /// It was not decided, or nobody knows whether it was: see [`Fault`].
    pub async fn ask(&self, slot: Slot, write: impl Fn(&mut Command<'_>)) -> Result<Answer, Fault> {
        let asked = now();
        let (integers, at) = match &self.0 {
            Kind::One(link) => decided(link.ask(asked, Mode::Own, &write).await?)?,
            Kind::Cluster(cluster) => cluster.ask(asked, slot, &write).await?,
        };
        Ok(Answer { integers, took: at.saturating_duration_since(asked) })
    }
}

/// One server that names another is a cluster's.
fn decided(reply: Reply) -> Result<(Integers, Instant), Fault> {
    match reply {
        Reply::Decided(integers, at) => Ok((integers, at)),
        Reply::Moved(..) | Reply::Ask(_) => Err(Fault::Refused(Code::MOVED)),
    }
}
