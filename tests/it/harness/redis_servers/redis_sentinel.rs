//! A sentinel that watches over a master and its replica.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Stdio};

use super::redis;
use super::redis::{Answer, Connection, Redis, free_port, program};
use crate::harness::eventually;

/// A sentinel, a master named `mymaster` and a replica of it.
#[derive(Debug)]
pub(crate) struct Sentinel {
    /// The master at first, and its replica.
    pub(crate) servers: [Redis; 2],
    child: Child,
    address: SocketAddr,
    _directory: tempfile::TempDir,
}

impl Sentinel {
    /// Starts them all and waits until the sentinel knows the replica.
    pub(crate) fn start() -> Self {
        let servers = [Redis::start(), Redis::start()];
        let master = servers[0].addr().port().to_string();
        servers[1].set(&["REPLICAOF", "127.0.0.1", &master]);
        eventually("the replica to follow", || {
            (servers[1].info("replication").get("master_link_status")? == "up").then_some(())
        });
        let directory = tempfile::tempdir().expect("a temporary directory");
        let (child, address) =
            (0..10).find_map(|_| watch(&master, directory.path())).expect("no sentinel starts");
        let sentinel = Self { servers, child, address, _directory: directory };
        eventually("the sentinel to know the replica", || {
            let Answer::List(replicas) = sentinel.command(&["SENTINEL", "REPLICAS", "mymaster"]) else {
                return None;
            };
            (replicas.len() == 1).then_some(())
        });
        sentinel
    }

    /// `redis+sentinel://ADDRESS/mymaster`.
    pub(crate) fn url(&self) -> String {
        format!("redis+sentinel://{}/mymaster", self.address)
    }

    /// Waits until the replica has all that the master has.
    pub(crate) fn replicate(&self) {
        // The server waits for what its asker has written, and so for all before it.
        self.servers[0].set(&["SET", "mark", "1"]);
        assert_eq!(self.servers[0].command(["WAIT", "1", "5000"]).integer(), 1);
    }

    /// Kills the master and waits until the sentinel has made the replica one.
    pub(crate) fn fail_over(&mut self) {
        self.servers[0].kill();
        let port = self.servers[1].addr().port().to_string();
        eventually("the replica to be master", || {
            let told = self.command(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "mymaster"]);
            matches!(told, Answer::List(list) if list[1].text() == port).then_some(())
        });
        self.servers[1].reconnect();
    }

    fn command(&self, words: &[&str]) -> Answer {
        Connection::open(self.address).expect("the sentinel takes connections").call(words)
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn watch(master: &str, directory: &std::path::Path) -> Option<(Child, SocketAddr)> {
    let (port, file) = (free_port(), directory.join("sentinel.conf"));
    let settings = format!(
        "port {port}\nbind 127.0.0.1\ndir {}\nsentinel monitor mymaster 127.0.0.1 {master} 1\n\
         sentinel down-after-milliseconds mymaster 300\nsentinel failover-timeout mymaster 2000\n",
        directory.display()
    );
    std::fs::write(&file, settings).expect("the file can be written");
    let mut child = Command::new("setpriv")
        .args(["--pdeathsig", "KILL", &program()])
        .arg(file)
        .arg("--sentinel")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap_or_else(|fault| panic!("setpriv (util-linux): {fault}"));
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    redis::first_answer(&mut child, address).map(|_| (child, address))
}

/// The harness against itself.
#[test]
fn the_sentinel_makes_the_replica_a_master() {
    let mut sentinel = Sentinel::start();
    sentinel.servers[0].set(&["SET", "a", "1"]);
    sentinel.replicate();
    sentinel.fail_over();
    assert_eq!(sentinel.servers[1].command(["GET", "a"]).text(), "1");
    assert_eq!(sentinel.servers[1].info("replication")["role"], "master");
}
