//! The usage of gateways that share a store: each tells that of all.

use rustix::process::Signal;
use serde_json::Value;

use super::{SharedSite, comes_to, settled, stream, usage};
use crate::harness::api::ask;
use crate::harness::{Cluster, Gateway, Redis, Sentinel, eventually};

fn end(mut gateway: Gateway, signal: Signal) {
    gateway.signal(signal);
    gateway.wait_for_exit();
}

fn spend(gateway: &Gateway, consumer: &str, units: u32) {
    assert_eq!(settled(gateway, Some(consumer), units), 200);
}

fn is_complete(gateway: &Gateway) -> bool {
    usage(gateway, "")["incomplete_since"] == Value::Null
}

/// Planned ends, upgrades and reloads lose nothing; a crash is told of.
#[test]
fn two_gateways_tell_the_usage_of_both_whatever_becomes_of_one() {
    let redis = Redis::start();
    let site = SharedSite::new(&redis.store_table());
    let one = site.start();
    let mut other = site.start_upgradable();
    spend(&one, "anna", 30);
    spend(&other.gateway, "anna", 250);
    spend(&other.gateway, "bob", 7);
    let rows = [("anna", 280, 2), ("bob", 7, 1)];
    comes_to(&one, &rows);
    comes_to(&other.gateway, &rows);

    other.signal(Signal::HUP);
    // A request ends in the process before, once another one has taken over.
    let mut open = stream(&other.gateway, "bob");
    comes_to(&one, &[("anna", 280, 2), ("bob", 107, 2)]);
    other.hand_over();
    site.backend.open_gate();
    open.read().expect(200);
    other.wait_for(1, "stopped");
    comes_to(&one, &[("anna", 280, 2), ("bob", 77, 2)]);
    assert_eq!(ask(&one, "POST limits/x/keys/bob/grant", r#"{"units": 70}"#).0, 200);
    spend(&other.gateway, "bob", 3);
    comes_to(&one, &[("anna", 280, 2), ("bob", 10, 3)]);
    comes_to(&other.gateway, &[("anna", 280, 2), ("bob", 10, 3)]);

    // A planned end, and another process.
    end(one, Signal::TERM);
    comes_to(&other.gateway, &[("anna", 280, 2), ("bob", 10, 3)]);
    let one = site.start();
    spend(&one, "carl", 1);
    let rows = [("anna", 280, 2), ("bob", 10, 3), ("carl", 1, 1)];
    comes_to(&one, &rows);
    comes_to(&other.gateway, &rows);
    assert!(is_complete(&one) && is_complete(&other.gateway));

    // What the others know already stays.
    end(one, Signal::KILL);
    comes_to(&other.gateway, &rows);
    eventually("the crash to be known", || (!is_complete(&other.gateway)).then_some(()));
    comes_to(&other.gateway, &rows);
    let one = site.start();
    spend(&one, "carl", 2);
    comes_to(&other.gateway, &[("anna", 280, 2), ("bob", 10, 3), ("carl", 3, 2)]);
    assert!(!is_complete(&one));
}

#[test]
fn a_store_that_loses_its_data_gets_that_of_the_gateways_that_run() {
    let mut redis = Redis::start();
    let site = SharedSite::new(&redis.store_table());
    let (one, other) = (site.start(), site.start());
    spend(&one, "anna", 30);
    spend(&other, "anna", 250);
    comes_to(&one, &[("anna", 280, 2)]);
    redis.restart();
    comes_to(&one, &[("anna", 280, 2)]);
    comes_to(&other, &[("anna", 280, 2)]);
    assert!(is_complete(&one) && is_complete(&other));

    // The rows of a process that has ended are gone.
    end(other, Signal::TERM);
    comes_to(&one, &[("anna", 280, 2)]);
    // With its next write the gateway hears that there are such rows.
    let index = index(&redis);
    let records = || format!("{:?}", redis.command(["HGETALL", &index]));
    let before = records();
    spend(&one, "bob", 1);
    eventually("a write", || (records() != before).then_some(()));
    redis.restart();
    comes_to(&one, &[("anna", 30, 1), ("bob", 1, 1)]);
    eventually("the loss to be told of", || (!is_complete(&one)).then_some(()));
}

/// The name of the index.
fn index(redis: &Redis) -> String {
    redis.keys().into_iter().find(|key| key.starts_with("tollgate:usage:{")).expect("an index")
}

#[test]
fn a_cluster_has_all_rows_of_a_limit_on_one_node() {
    let cluster = Cluster::start();
    let site = SharedSite::new(&format!(
        "[store]\nbackend = \"redis\"\nurl = {}\ntimeout = \"5s\"\n",
        cluster.urls()
    ));
    let (one, other) = (site.start(), site.start());
    spend(&one, "anna", 30);
    spend(&other, "bob", 250);
    comes_to(&one, &[("anna", 30, 1), ("bob", 250, 1)]);
    end(other, Signal::TERM);
    comes_to(&one, &[("anna", 30, 1), ("bob", 250, 1)]);
    assert!(is_complete(&one));
    let keys = cluster.keys().into_iter().filter(|(_, key)| key.contains(":usage:"));
    let nodes: std::collections::BTreeSet<usize> = keys.map(|(node, _)| node).collect();
    assert_eq!(nodes.len(), 1);
}

#[test]
fn a_failover_loses_no_usage_of_gateways_that_run() {
    let mut sentinel = Sentinel::start();
    let store = format!("[store]\nbackend = \"redis\"\nurl = \"{}\"\ntimeout = \"100ms\"\n", sentinel.url());
    let site = SharedSite::new(&store);
    let (one, other) = (site.start(), site.start());
    spend(&one, "anna", 30);
    spend(&other, "bob", 250);
    comes_to(&one, &[("anna", 30, 1), ("bob", 250, 1)]);
    sentinel.fail_over();
    spend(&other, "bob", 5);
    comes_to(&one, &[("anna", 30, 1), ("bob", 255, 2)]);
    comes_to(&other, &[("anna", 30, 1), ("bob", 255, 2)]);
}

/// A user as documented for versions without usage: counters are shared, and decisions go on.
#[test]
fn a_user_without_the_rights_of_usage_decides() {
    let redis = Redis::start();
    let documented =
        include_str!("../../../docs/shared-limits.md").lines().find(|line| line.starts_with("ACL SETUSER"));
    let user = documented.expect("it is documented").replace("PASSWORD", "horse");
    redis.set(&user.split(' ').filter(|word| !word.starts_with("+h")).collect::<Vec<_>>());
    redis.set(&["ACL", "SETUSER", "default", "off"]);
    let url = format!("redis://tollgate:horse@{}", redis.addr());
    let site = SharedSite::new(&format!("[store]\nbackend = \"redis\"\nurl = \"{url}\"\ntimeout = \"5s\"\n"));
    let gateway = site.start();
    spend(&gateway, "anna", 30);
    gateway.wait_for_log("the store refuses what the usage of consumers need: they are off");
    assert_eq!(ask(&gateway, "GET limits/x/usage", "").0, 503);
    assert_eq!(gateway.stderr().matches("the store refuses").count(), 1);
}

/// A store that is away: each gateway goes on, and nothing is lost.
#[test]
fn usage_is_written_once_the_store_is_back() {
    let redis = Redis::start();
    let site = SharedSite::new(&redis.store_table().replace("5s", "50ms"));
    let (one, other) = (site.start(), site.start());
    spend(&one, "anna", 30);
    comes_to(&other, &[("anna", 30, 1)]);
    redis.stop();
    assert_eq!(settled(&one, Some("anna"), 100), 200);
    redis.resume();
    comes_to(&other, &[("anna", 130, 2)]);
}
