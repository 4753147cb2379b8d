//! The address and credentials of the shared counters.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::net::TlsClientConfig;

/// `[store]` with `backend = "redis"`. Two are equal if they lead to the same counters in the same way.
#[derive(Clone, Debug, PartialEq)]
pub struct RedisSettings {
    /// The servers.
    pub servers: RedisServers,
    /// How to connect to each of them.
    pub dial: ConnectOptions,
    /// The prefix of all keys. At least one byte, no braces.
    pub prefix: Arc<str>,
    /// The secret of the fleet, which keys the names of counters. Where the file has none, a fixed value, which is not
    /// a secret.
    pub secret: RedisPassword,
    /// The timeout of one decision, all included; at least 1 ms.
    pub timeout: Duration,
}

/// A key that neither `Debug` nor `Display` shows.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct RedisPassword(pub [u8; 32]);

/// The servers of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RedisServers {
    /// One server that has all the keys.
    Single(RedisServer),
    /// Some of a cluster's nodes; the others are learned from them. At least one.
    Cluster(Vec<RedisServer>),
    /// Sentinels that know the master of this name. At least one.
    Sentinel {
        /// The sentinels, in the order in which they are asked.
        sentinels: Vec<RedisServer>,
        /// The master's name at the sentinels.
        master: Arc<str>,
    },
}

/// A host with its port, or a Unix socket of this machine.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RedisServer {
    /// A host name or an address, without brackets; or the absolute path of a Unix socket, as no host begins with `/`.
    pub host: Arc<str>,
    /// TCP port; 0 with a Unix socket.
    pub port: u16,
}

impl RedisServer {
    /// The Unix socket, if it is one.
    pub fn unix_socket(&self) -> Option<&Path> {
        self.host.starts_with('/').then(|| Path::new(&*self.host))
    }
}

/// How to connect to a server.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ConnectOptions {
    /// The credentials.
    pub login: Option<Login>,
    /// The number of the database; a cluster has only 0.
    pub database: u32,
    /// `rediss://`.
    pub tls: Option<TlsClientConfig>,
}

/// A user name with its password.
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
    /// `host:port`, an IPv6 address in brackets; or `unix:` and the path.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.unix_socket().is_some() {
            write!(f, "unix:{}", self.host)
        } else if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

impl fmt::Display for RedisServers {
    /// The servers, without the password.
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
        for (index, server) in servers.iter().enumerate() {
            write!(f, "{}{server}", if index > 0 { ", " } else { "" })?;
        }
        Ok(())
    }
}
