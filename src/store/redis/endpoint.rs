//! Which server a link leads to, and what that server has to prove.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use super::errors::ConnectionTrouble;
use super::handshake::Proof;
use super::sentinel;
use super::settings::{ConnectOptions, RedisServer};
use super::shared_slots::SharedSlotMap;

/// Where a link leads.
#[derive(Clone, Debug)]
pub(super) enum RedisEndpoint {
    /// To one server, which has all keys.
    Single(RedisServer),
    /// To the master that the sentinels name at the time.
    Master {
        sentinels: Rc<[RedisServer]>,
        name: Arc<str>,
        /// Who is asked first: the last that answered.
        first: Rc<Cell<usize>>,
    },
    /// To one node of a cluster.
    Node { server: RedisServer, map: Rc<SharedSlotMap> },
}

impl RedisEndpoint {
    /// What the log and the metrics call it.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Single(server) | Self::Node { server, .. } => server.to_string(),
            Self::Master { name, .. } => name.to_string(),
        }
    }

    /// The server to connect to now.
    pub(super) async fn locate(&self, dial: &ConnectOptions) -> Result<RedisServer, ConnectionTrouble> {
        match self {
            Self::Single(server) | Self::Node { server, .. } => Ok(server.clone()),
            Self::Master { sentinels, name, first } => sentinel::master(sentinels, name, first, dial).await,
        }
    }

    /// What it has to prove now.
    pub(super) fn proof(&self) -> Proof {
        match self {
            Self::Single(_) => Proof::Whole { is_master: false },
            Self::Master { .. } => Proof::Whole { is_master: true },
            Self::Node { server, map } => map.tag_of(server).map_or(Proof::Nothing, Proof::Part),
        }
    }

    /// The server seems to be away: its part of a cluster may have another by now.
    pub(super) fn suspect(&self) {
        if let Self::Node { map, .. } = self {
            map.suspect();
        }
    }
}
