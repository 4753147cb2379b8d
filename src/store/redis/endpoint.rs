//! The server of a connection, and the proof it has to pass.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use super::errors::ConnectionTrouble;
use super::handshake::Proof;
use super::sentinel;
use super::settings::{ConnectOptions, RedisServer};
use super::shared_slots::SharedSlotMap;

/// The destination of a connection.
#[derive(Clone, Debug)]
pub(super) enum RedisEndpoint {
    /// One server, which has all keys.
    Single(RedisServer),
    /// The present master by the sentinels.
    Master {
        sentinels: Rc<[RedisServer]>,
        name: Arc<str>,
        /// The index of the sentinel that is asked first: the last that replied.
        first: Rc<Cell<usize>>,
    },
    /// One node of a cluster.
    Node { server: RedisServer, map: Rc<SharedSlotMap> },
}

impl RedisEndpoint {
    /// The name in the log and the metrics.
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

    /// The proof that it has to pass now.
    pub(super) fn proof(&self) -> Proof {
        match self {
            Self::Single(_) => Proof::Whole { is_master: false },
            Self::Master { .. } => Proof::Whole { is_master: true },
            Self::Node { server, map } => map.map.borrow().tag_of(server).map_or(Proof::Nothing, Proof::Part),
        }
    }

    /// The server seems to be down: its slots may have moved to another node.
    pub(super) fn suspect(&self) {
        if let Self::Node { map, .. } = self {
            map.suspect();
        }
    }
}
