//! One worker's connections to the nodes of a real cluster.

use tollgate::store::redis::errors::CallError;
use tollgate::store::redis::settings::{RedisServers, RedisSettings};

use crate::harness::asker::{Asker, assert_down_at_once, eventually, run, server, settings, single};
use crate::harness::{Answer, Cluster, Redis, eventually as at_last};

/// Knows only the first of the nodes.
fn told_of_one(cluster: &Cluster) -> RedisSettings {
    settings(RedisServers::Cluster(vec![server(cluster.nodes[0].addr())]))
}

/// How often each node was asked for a decision.
fn calls(cluster: &Cluster) -> Vec<u64> {
    cluster.nodes.iter().map(|node| node.calls_of("evalsha")).collect()
}

/// The slot of a number that is a hash tag, and the place of the node that has it at first.
fn place(cluster: &Cluster, number: u64) -> (i64, usize) {
    let slot = cluster.slot(&number.to_string());
    (slot, usize::try_from(slot * 3 / 16_384).unwrap())
}

#[test]
fn every_key_is_asked_for_where_it_is() {
    let cluster = Cluster::start();
    run(async {
        let asker = Asker::open(told_of_one(&cluster));
        for number in 0..3 {
            asker.until_answered(number).await;
        }
        for number in 100..200 {
            assert_eq!(asker.ask(number).await, Ok(999_999));
        }
        let keys = cluster.keys();
        for number in 100..200 {
            assert!(keys.contains(&(place(&cluster, number).1, format!("test:{{{number}}}"))), "{number}");
        }
        for node in &cluster.nodes {
            eventually("one connection to each", async || (node.connections() == 1).then_some(())).await;
            assert_eq!(node.calls_of("cluster|slots"), u64::from(node.addr() == cluster.nodes[0].addr()));
        }
    });
}

#[test]
fn a_slot_that_moves_is_followed_and_then_known() {
    let cluster = Cluster::start();
    let (number, stays) = (1, 2);
    let (slot, from) = place(&cluster, number);
    let to = (from + 1) % 3;
    run(async {
        let asker = Asker::open(told_of_one(&cluster));
        for number in [number, stays, 3, 4, 5, 6, 7] {
            asker.until_answered(number).await;
        }
        // While it moves, the new node is asked for what the old one has not got.
        cluster.begin_move(slot, from, to);
        cluster.nodes[from].command(["DEL", "test:{1}"]);
        let before = calls(&cluster);
        for left in 1..=5 {
            assert_eq!(asker.ask(number).await, Ok(1_000_000 - left));
        }
        let after = calls(&cluster);
        assert!(after[to] >= before[to] + 5, "{before:?} {after:?}");
        // Once it has moved, the old node is asked at most once more.
        cluster.end_move(slot, from, to);
        let before = calls(&cluster);
        for left in 6..=15 {
            assert_eq!(asker.ask(number).await, Ok(1_000_000 - left));
        }
        let after = calls(&cluster);
        assert_eq!(after[to], before[to] + 10);
        // A refused call counts, too.
        assert!(after[from] <= before[from] + 1, "{before:?} {after:?}");
        // And a new picture was taken.
        eventually("another look", async || {
            let looks: u64 = cluster.nodes.iter().map(|node| node.calls_of("cluster|slots")).sum();
            (looks >= 2).then_some(())
        })
        .await;
        assert!(asker.ask(stays).await.is_ok() && asker.healths.is_up());
    });
}

#[test]
fn a_dead_node_hurts_only_its_own_keys() {
    let mut cluster = Cluster::start();
    let dead = place(&cluster, 1).1;
    let other = (2..).find(|number| place(&cluster, *number).1 != dead).unwrap();
    run(async {
        let asker = Asker::open(told_of_one(&cluster));
        asker.until_answered(1).await;
        asker.until_answered(other).await;
        cluster.nodes[dead].kill();
        asker.until_down(1).await;
        assert_down_at_once(&asker).await;
        for left in 2..100 {
            assert_eq!(asker.ask(other).await, Ok(1_000_000 - left));
        }
        assert_eq!(asker.reasons(), "connection refused");
        cluster.nodes[dead].restart();
        asker.until_answered(1).await;
        assert!(asker.healths.is_up());
    });
}

#[test]
fn a_replica_that_takes_over_is_found() {
    let mut cluster = Cluster::start();
    let dies = place(&cluster, 1).1;
    let replica = replica_of(&cluster, dies);
    run(async {
        let asker =
            Asker::open(settings(RedisServers::Cluster(vec![server(cluster.nodes[(dies + 1) % 3].addr())])));
        asker.until_answered(1).await;
        cluster.nodes[dies].kill();
        asker.until_down(1).await;
        asker.until_answered(1).await;
        assert!(replica.calls_of("evalsha") > 0);
        // The one that is dead is not asked any more.
        eventually("health", async || asker.healths.is_up().then_some(())).await;
    });
}

/// A node that takes over when the one at this place is dead.
fn replica_of(cluster: &Cluster, place: usize) -> Redis {
    let master = &cluster.nodes[place];
    let (id, port) = (master.command(["CLUSTER", "MYID"]).text(), master.addr().port().to_string());
    master.set(&["CONFIG", "SET", "repl-diskless-sync-delay", "0"]);
    let replica = Redis::start_with(&["--cluster-enabled", "yes", "--cluster-node-timeout", "1000"]);
    replica.set(&["CLUSTER", "MEET", "127.0.0.1", &port]);
    at_last("the replica to know its master", || {
        (replica.command(["CLUSTER", "REPLICATE", &id]) == Answer::Bytes(b"OK".into())).then_some(())
    });
    at_last("the replica to follow", || {
        (replica.info("replication").get("master_link_status")? == "up").then_some(())
    });
    // All must know of it before its master is gone.
    let port = replica.addr().port().to_string();
    at_last("all to know the replica", || {
        let knows = |node: &Redis| node.command(["CLUSTER", "NODES"]).text().contains(&format!(":{port}@"));
        cluster.nodes.iter().all(knows).then_some(())
    });
    for node in &cluster.nodes {
        node.set(&["CONFIG", "SET", "cluster-node-timeout", "1000"]);
    }
    replica
}

#[test]
fn a_cluster_that_is_not_there_at_first_is_asked_when_it_comes() {
    let mut cluster = Cluster::start();
    let listed = told_of_one(&cluster);
    cluster.nodes[0].kill();
    run(async {
        let asker = Asker::open(listed);
        asker.until_down(1).await;
        assert_eq!(asker.reasons(), "no node of the cluster returned the slot map: connection refused");
        cluster.nodes[0].restart();
        let known = cluster.nodes[0].addr().port().to_string();
        at_last("the node to be back in the cluster", || {
            let told = cluster.nodes[1].command(["CLUSTER", "NODES"]).text();
            told.lines().any(|line| line.contains(&known) && line.contains("connected")).then_some(())
        });
        for number in 0..10 {
            asker.until_answered(number).await;
        }
        assert!(asker.healths.is_up());
    });
}

#[test]
fn a_node_that_is_given_as_a_single_server_is_found_out() {
    let cluster = Cluster::start();
    run(async {
        let asker = Asker::open(single(&cluster.nodes[0]));
        asker.until_down(1).await;
        assert_eq!(
            asker.reasons(),
            "it is a node of a cluster: give the cluster's nodes as a list (CROSSSLOT)"
        );
        assert_eq!(asker.ask(1).await, Err(CallError::Down));
    });
}

#[test]
fn a_single_server_that_is_given_as_a_cluster_is_found_out() {
    let redis = Redis::start();
    run(async {
        let asker = Asker::open(settings(RedisServers::Cluster(vec![server(redis.addr())])));
        asker.until_down(1).await;
        let why = "it is not a node of a cluster, or of one without slots";
        assert_eq!(asker.reasons(), format!("no node of the cluster returned the slot map: {why}"));
    });
}
