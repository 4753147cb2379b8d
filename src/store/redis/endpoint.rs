//! The server of a connection (given, or the master that sentinels name), and the proof it has to pass.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::errors::ConnectionTrouble;
use super::handshake::{Proof, ask_once};
use super::resp::RespValue;
use super::settings::{ConnectOptions, RedisServer};
use super::slots::SharedSlotMap;

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
            Self::Master { sentinels, name, first } => find_master(sentinels, name, first, dial).await,
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

/// The timeout for one sentinel.
const TIMEOUT: Duration = Duration::from_millis(300);

/// Finds the master through sentinels. They are asked again for each connection, and their announcements are not
/// subscribed to: a master that has lost its role refuses the next call, which leads to a new connection.
///
/// Asks the sentinels one after the other, beginning with `first`. Afterwards `first` is the one that replied, or the
/// next one if there is no time left.
async fn find_master(
    sentinels: &[RedisServer],
    name: &str,
    first: &Cell<usize>,
    dial: &ConnectOptions,
) -> Result<RedisServer, ConnectionTrouble> {
    let mut last = ConnectionTrouble::Odd("there is no sentinel");
    for sentinel in sentinels.iter().cycle().skip(first.get()).take(sentinels.len()) {
        match timeout(TIMEOUT, ask(sentinel, name, dial))
            .await
            .unwrap_or(Err(ConnectionTrouble::Silence(TIMEOUT)))
        {
            Ok(master) => return Ok(master),
            Err(trouble) => last = trouble,
        }
        first.set((first.get() + 1) % sentinels.len());
    }
    Err(ConnectionTrouble::NoMaster(Box::new(last)))
}

async fn ask(
    sentinel: &RedisServer,
    name: &str,
    dial: &ConnectOptions,
) -> Result<RedisServer, ConnectionTrouble> {
    let reply = ask_once(sentinel, dial, &[b"SENTINEL", b"get-master-addr-by-name", name.as_bytes()]).await?;
    read(&reply).ok_or(ConnectionTrouble::Odd("it knows no master of this name"))
}

fn read(reply: &RespValue) -> Option<RedisServer> {
    let RespValue::List(words) = reply else { return None };
    let [RespValue::Bytes(host), RespValue::Bytes(port)] = &words[..] else { return None };
    let (host, port) = (std::str::from_utf8(host).ok()?, std::str::from_utf8(port).ok()?);
    Some(RedisServer { host: host.into(), port: port.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::super::resp;
    use super::*;

    #[test]
    fn a_master_is_a_host_and_a_port() {
        for (reply, master) in [
            ("*2\r\n$9\r\n127.0.0.1\r\n$4\r\n6379\r\n", Some("127.0.0.1:6379")),
            ("*2\r\n$3\r\n::1\r\n$4\r\n6379\r\n", Some("[::1]:6379")),
            ("*-1\r\n", None),
            ("*2\r\n$1\r\na\r\n$5\r\n65536\r\n", None),
            ("+OK\r\n", None),
        ] {
            let (value, _) = resp::read(reply.as_bytes()).unwrap().unwrap();
            assert_eq!(read(&value).map(|server| server.to_string()).as_deref(), master, "{reply}");
        }
    }
}
