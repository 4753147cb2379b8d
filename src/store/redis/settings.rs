//! Where the shared counters stand, and how to get in.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::net::TlsClientConfig;

/// `[store]` with `backend = "redis"`. Two are equal if they lead to the same place in the same way.
#[derive(Clone, Debug, PartialEq)]
pub struct RedisSettings {
    /// Whom to ask.
    pub servers: RedisServers,
    /// How to speak to each of them.
    pub dial: ConnectOptions,
    /// What all keys begin with. At least one byte, no braces.
    pub prefix: Arc<str>,
    /// What all gateways of the fleet know and nobody else should: it keys the names of counters.
    pub secret: RedisPassword,
    /// Whether the file gives `secret`. If not, it is the same everywhere and no secret.
    pub has_secret: bool,
    /// How long one decision may take, all included; at least 1 ms.
    pub timeout: Duration,
}

/// A key that neither `Debug` nor `Display` shows.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct RedisPassword(pub [u8; 32]);

/// Whom to ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RedisServers {
    /// One server that has all the keys.
    Single(RedisServer),
    /// Some of a cluster's nodes, from which the others are learned. At least one.
    Cluster(Vec<RedisServer>),
    /// Sentinels that know which server is the master of this name. At least one.
    Sentinel {
        /// Those who are asked, in this order.
        sentinels: Vec<RedisServer>,
        /// The name under which they know it.
        master: Arc<str>,
    },
}

/// A host with its port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RedisServer {
    /// A name or an address, without brackets.
    pub host: Arc<str>,
    /// TCP port.
    pub port: u16,
}

/// How to speak to a server.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ConnectOptions {
    /// Who we say we are.
    pub login: Option<Login>,
    /// The number of the database; a cluster has only 0.
    pub database: u32,
    /// `rediss://`.
    pub tls: Option<TlsClientConfig>,
}

/// A name with its password.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    /// The ACL user; `None`: the default user.
    pub user: Option<Arc<str>>,
    /// Its password.
    pub password: Arc<str>,
}

impl fmt::Debug for RedisPassword {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login").field("user", &self.user).finish_non_exhaustive()
    }
}

impl fmt::Display for RedisServer {
    /// `host:port`, an IPv6 address in brackets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

impl fmt::Display for RedisServers {
    /// For people: which servers, never a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, servers): (&str, &[RedisServer]) = match self {
            Self::Single(server) => return server.fmt(f),
            Self::Cluster(nodes) => ("the cluster of ", nodes),
            Self::Sentinel { sentinels, master } => {
                write!(f, "`{master}` by ")?;
                ("the sentinels ", sentinels)
            }
        };
        f.write_str(what)?;
        for (place, server) in servers.iter().enumerate() {
            write!(f, "{}{server}", if place > 0 { ", " } else { "" })?;
        }
        Ok(())
    }
}
