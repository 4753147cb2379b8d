//! Three Redis servers that make a cluster.

use std::fmt::Write as _;

use super::redis::{Answer, Redis, free_port, program};
use crate::harness::eventually;

/// Slots of a cluster.
const SLOTS: usize = 16_384;
/// How far a node's port for the other nodes lies above its own.
const BUS: u16 = 10_000;

/// A cluster of three masters, each with a third of the slots; one that dies leaves the others their own.
#[derive(Debug)]
pub(crate) struct Cluster {
    /// The nodes. A node's slots at first: those from `number * 16384 / 3` on.
    pub(crate) nodes: Vec<Redis>,
}

impl Cluster {
    /// Starts one and waits until every node knows all.
    pub(crate) fn start() -> Self {
        let cluster = Self { nodes: (0..3).map(|_| node()).collect() };
        for (number, node) in cluster.nodes.iter().enumerate() {
            let slots = (number * SLOTS).div_ceil(3)..((number + 1) * SLOTS).div_ceil(3);
            let words = ["CLUSTER".to_owned(), "ADDSLOTS".to_owned()];
            let words: Vec<_> = words.into_iter().chain(slots.map(|slot| slot.to_string())).collect();
            assert_eq!(node.command(words), Answer::Bytes(b"OK".into()));
            node.set(&["CLUSTER", "SET-CONFIG-EPOCH", &(number + 1).to_string()]);
        }
        for other in &cluster.nodes[1..] {
            let port = other.addr().port().to_string();
            cluster.nodes[0].set(&["CLUSTER", "MEET", "127.0.0.1", &port]);
        }
        cluster.wait_until_whole();
        // A busy machine must not make one node take another for dead.
        for node in &cluster.nodes {
            node.set(&["CONFIG", "SET", "cluster-node-timeout", "5000"]);
        }
        cluster
    }

    /// The nodes' URLs, as a list for a configuration.
    pub(crate) fn urls(&self) -> String {
        let mut list = String::from("[");
        for node in &self.nodes {
            write!(list, "\"{}\", ", node.url()).expect("a string takes it");
        }
        list + "]"
    }

    /// All keys with the number of the node that has each.
    pub(crate) fn keys(&self) -> Vec<(usize, String)> {
        let of = |(number, node): (usize, &Redis)| node.keys().into_iter().map(move |key| (number, key));
        self.nodes.iter().enumerate().flat_map(of).collect()
    }

    /// The slot of a key.
    pub(crate) fn slot(&self, key: &str) -> i64 {
        self.nodes[0].command(["CLUSTER", "KEYSLOT", key]).integer()
    }

    /// Begins to move a slot: from now on, `from` redirects a call for a key that it does not have to `to` (ASK).
    pub(crate) fn begin_move(&self, slot: i64, from: usize, to: usize) {
        let (slot, [from_id, to_id]) = (slot.to_string(), [from, to].map(|node| self.id(node)));
        self.nodes[to].set(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &from_id]);
        self.nodes[from].set(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &to_id]);
    }

    /// Moves the slot's keys and ends the move: from now on, all other nodes redirect to `to` (MOVED).
    pub(crate) fn end_move(&self, slot: i64, from: usize, to: usize) {
        let (slot, id) = (slot.to_string(), self.id(to));
        let port = self.nodes[to].addr().port().to_string();
        let Answer::List(keys) = self.nodes[from].command(["CLUSTER", "GETKEYSINSLOT", &slot, "1000"]) else {
            panic!("a list of keys")
        };
        for key in keys {
            self.nodes[from].set(&["MIGRATE", "127.0.0.1", &port, &key.text(), "0", "5000"]);
        }
        for node in [to, from, 3 - to - from] {
            self.nodes[node].set(&["CLUSTER", "SETSLOT", &slot, "NODE", &id]);
        }
    }

    fn id(&self, node: usize) -> String {
        self.nodes[node].command(["CLUSTER", "MYID"]).text()
    }

    fn wait_until_whole(&self) {
        eventually("the cluster to be whole", || {
            let whole = self.nodes.iter().all(|node| {
                let told = node.command(["CLUSTER", "INFO"]).text();
                let says = |line: &str| told.lines().any(|told| told.trim_end() == line);
                says("cluster_state:ok") && says("cluster_known_nodes:3") && says("cluster_size:3")
            });
            whole.then_some(())
        });
    }
}

fn node() -> Redis {
    let mut ports = std::iter::repeat_with(free_port).filter(|port| *port < u16::MAX - BUS).take(10);
    let arguments = [
        ["--cluster-enabled", "yes"],
        // They wait for as long before they take the cluster for whole.
        ["--cluster-node-timeout", "1000"],
        ["--cluster-require-full-coverage", "no"],
    ];
    let started = ports.find_map(|port| Redis::start_on(&program(), port, arguments.as_flattened()));
    started.expect("no node starts")
}

#[test]
fn the_cluster_is_whole_and_a_slot_moves() {
    let cluster = Cluster::start();
    let slot = cluster.slot("a");
    let owner = usize::try_from(slot).unwrap() * 3 / SLOTS;
    cluster.nodes[owner].set(&["SET", "a", "1"]);
    assert_eq!(cluster.keys(), [(owner, "a".to_owned())]);
    let to = (owner + 1) % 3;
    cluster.begin_move(slot, owner, to);
    assert_eq!(cluster.nodes[owner].command(["GET", "a"]).text(), "1");
    let Answer::Error(told) = cluster.nodes[owner].command(["GET", "{a}b"]) else { panic!("no redirection") };
    assert!(told.starts_with("ASK "), "{told}");
    cluster.end_move(slot, owner, to);
    assert_eq!(cluster.keys(), [(to, "a".to_owned())]);
    let Answer::Error(told) = cluster.nodes[owner].command(["GET", "a"]) else { panic!("no redirection") };
    assert!(told.starts_with("MOVED "), "{told}");
}
