//! Costs that are settled in a shared store.

use std::thread;
use std::time::Duration;

use rustix::process::Signal;

use crate::harness::api::{api, good};
use crate::harness::fleet_config::PATIENT;
use crate::harness::metered::{a_day, begin, comes_to_use, json, metered, parrot, used};
use crate::harness::{Backend, Cluster, Gateway, Redis, eventually};

const TOKENS: &str = "{ reserve = 100, settle = \"json:/total\" }";

fn fleet<const COUNT: usize>(backend: &Backend, redis: &Redis, cost: &str, lines: &str) -> [Gateway; COUNT] {
    let store = format!("{}{lines}\n", redis.store_table());
    let toml = metered(&backend.url(), &[cost], &a_day(1_000), &store);
    std::array::from_fn(|_| {
        let gateway = Gateway::start(&toml);
        is_up(&gateway);
        gateway
    })
}

fn is_up(gateway: &Gateway) {
    eventually("the store to be up", || (gateway.metric("tollgate_store_up", &[]) > 0.5).then_some(()));
}

/// A response that waits at the gate before its body.
fn held(total: u32) -> Vec<u8> {
    let body = format!("{{\"total\":{total}}}");
    format!("HTTP/1.1 200 OK\r\n|content-length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

#[test]
fn all_gateways_know_what_was_settled() {
    let (backend, redis) = (parrot(), Redis::start());
    let [one, other] = fleet(&backend, &redis, TOKENS, "");
    for (gateway, total, sum) in [(&one, 30, 30), (&other, 250, 280), (&one, 0, 280), (&other, 700, 980)] {
        begin(gateway, 0, "a", "", &json(&format!("{{\"total\":{total}}}"))).read().expect(200);
        comes_to_use(&one, "a", sum);
        comes_to_use(&other, "a", sum);
    }
    for gateway in [&one, &other] {
        begin(gateway, 0, "a", "", &json("{\"total\":1}")).read().expect(429);
    }
    // A refusal is not remembered where a refund may end it.
    good(&one, "POST limits/x/keys/a/grant", "{\"units\":80}");
    begin(&other, 0, "a", "", &json("{\"total\":1}")).read().expect(200);
    comes_to_use(&one, "a", 901);
}

/// A counter that one gateway has reset begins afresh for all.
#[test]
fn a_reset_voids_the_refunds_of_all_gateways() {
    let (backend, redis) = (parrot(), Redis::start());
    let [one, other] = fleet(&backend, &redis, TOKENS, "");
    let mut clients = [30, 130].map(|total| begin(&one, 0, "a", "x-then: gate\r\n", &held(total)));
    comes_to_use(&other, "a", 200);
    good(&other, "DELETE limits/x/keys/a", "");
    begin(&other, 0, "a", "", &json("{\"total\":50}")).read().expect(200);
    comes_to_use(&other, "a", 50);
    backend.open_gate();
    for client in &mut clients {
        client.read().expect(200);
    }
    comes_to_use(&other, "a", 80);
    assert_eq!(used(&one, "a"), 80);
}

/// Limits with different keys stand on different nodes, and each settles its own.
#[test]
fn costs_are_settled_on_the_nodes_of_a_cluster() {
    let (backend, cluster) = (parrot(), Cluster::start());
    let all = "[limits.all]\nkey = \"global\"\nalgorithm = \"sliding-log\"\nrate = \"1500/day\"\n";
    let store = format!("[store]\nbackend = \"redis\"\nurl = {}\n{PATIENT}\n", cluster.urls());
    let toml = metered(&backend.url(), &[TOKENS], &a_day(1_000), &format!("{all}{store}"))
        .replace("limits = [\"x\"]", "limits = [\"x\", \"all\"]");
    let [one, other] = [(); 2].map(|()| Gateway::start(&toml));
    for gateway in [&one, &other] {
        is_up(gateway);
    }
    let mut sum = 0;
    for (number, total) in [30, 250, 0, 700, 101].into_iter().enumerate() {
        let (gateway, client) = (if number % 2 == 0 { &one } else { &other }, format!("c{number}"));
        begin(gateway, 0, &client, "", &json(&format!("{{\"total\":{total}}}"))).read().expect(200);
        sum += total;
        comes_to_use(&other, &client, total);
        eventually("the sum of all clients", || {
            let key = api(&one, "limits/all/keys/everyone");
            (key["policies"][0]["used"].as_u64() == Some(sum)).then_some(())
        });
    }
    // 1,081 units of 1,500 are used, so that four more reservations fit.
    for number in 0..4 {
        let client = format!("held{number}");
        begin(&one, 0, &client, "", &json("{\"total\":100}")).read().expect(200);
        comes_to_use(&other, &client, 100);
    }
    // The fifth is refused by the limit of all, and given back on the node of its client.
    begin(&other, 0, "held4", "", &json("{\"total\":100}")).read().expect(429);
    comes_to_use(&one, "held4", 0);
}

/// It settles the requests that it has finished before it ends; one that is killed leaves its reservations.
#[test]
fn a_gateway_that_stops_settles_and_one_that_dies_leaves_what_was_reserved() {
    let (backend, redis) = (parrot(), Redis::start());
    let [mut stops, mut dies, stays] = fleet(&backend, &redis, TOKENS, "");
    let mut finishes = begin(&stops, 0, "a", "x-then: gate\r\n", &held(30));
    let _lost = begin(&dies, 0, "b", "x-then: gate\r\n", &held(30));
    comes_to_use(&stays, "a", 100);
    comes_to_use(&stays, "b", 100);
    dies.signal(Signal::KILL);
    dies.wait_for_exit();
    stops.signal(Signal::TERM);
    eventually("the gateway to drain", || {
        stops.stderr_lines().iter().any(|line| line.contains("draining")).then_some(())
    });
    backend.open_gate();
    finishes.read().expect(200);
    stops.wait_for_exit();
    assert_eq!(used(&stays, "a"), 30);
    assert_eq!(used(&stays, "b"), 100);
}

/// The corrections wait while the store is away. Its counters are gone then: what was charged more counts, and a refund
/// has nothing to give back.
#[test]
fn corrections_wait_for_the_store() {
    let (backend, mut redis) = (parrot(), Redis::start());
    let [gateway] = fleet(&backend, &redis, TOKENS, "");
    let mut clients = [30, 130, 101].map(|total| begin(&gateway, 0, "a", "x-then: gate\r\n", &held(total)));
    comes_to_use(&gateway, "a", 300);
    redis.kill();
    eventually("the store to be down", || (gateway.metric("tollgate_store_up", &[]) < 0.5).then_some(()));
    backend.open_gate();
    for client in &mut clients {
        client.read().expect(200);
    }
    redis.restart();
    is_up(&gateway);
    comes_to_use(&gateway, "a", 31);
    assert!(gateway.metric("tollgate_store_unsettled_units_total", &[]) < 0.5);
}

#[test]
fn corrections_outlive_a_reload() {
    outlive_reloads("1000/day", ["1001/day", "1002/day", "1003/day"]);
}

/// They go to the store as it was.
#[test]
fn corrections_outlive_a_reload_of_the_store() {
    outlive_reloads("timeout = \"5s\"", ["4s", "3s", "2s"].map(|span| format!("timeout = \"{span}\"")));
}

/// The file has other words in place of these, one after another, while the store is away.
#[track_caller]
fn outlive_reloads<W: AsRef<str>>(words: &str, others: [W; 3]) {
    let (backend, mut redis) = (parrot(), Redis::start());
    let store = redis.store_table();
    let toml = metered(&backend.url(), &[TOKENS], &a_day(1_000), &store);
    let gateway = Gateway::start(&toml);
    is_up(&gateway);
    let mut clients = [30, 130, 101].map(|total| begin(&gateway, 0, "a", "x-then: gate\r\n", &held(total)));
    comes_to_use(&gateway, "a", 300);
    redis.kill();
    eventually("the store to be down", || (gateway.metric("tollgate_store_up", &[]) < 0.5).then_some(()));
    backend.open_gate();
    for client in &mut clients {
        client.read().expect(200);
    }
    // A connection keeps the plan of its last request.
    drop(clients);
    for other in others {
        gateway.reload(&toml.replace(words, other.as_ref()), "reloaded");
        // Each worker takes the new plan with its next request.
        for _ in 0..20 {
            gateway.get("/none").expect(404);
        }
    }
    // What waits is sent again every second.
    thread::sleep(Duration::from_millis(2_500));
    redis.restart();
    is_up(&gateway);
    comes_to_use(&gateway, "a", 31);
    assert!(gateway.metric("tollgate_store_unsettled_units_total", &[]) < 0.5);
}

/// The reservation, its settlement, and what is counted of them.
#[test]
fn a_reservation_outlives_reloads_and_is_settled_after_them() {
    let backend = parrot();
    let toml = metered(&backend.url(), &[TOKENS], &a_day(1_000), "");
    let gateway = Gateway::start(&toml);
    begin(&gateway, 0, "a", "", &json("{\"total\":500}")).read().expect(200);
    let mut clients = [30, 130].map(|total| begin(&gateway, 0, "a", "x-then: gate\r\n", &held(total)));
    comes_to_use(&gateway, "a", 700);
    for more in ["", "[limits.y]\nkey = \"ip\"\nalgorithm = \"gcra\"\nrate = \"1/s\"\n", ""] {
        gateway.reload(&format!("{toml}{more}"), "reloaded");
        gateway.get("/none").expect(404);
        assert_eq!(used(&gateway, "a"), 700, "{more}");
    }
    backend.open_gate();
    for client in &mut clients {
        client.read().expect(200);
    }
    assert_eq!(used(&gateway, "a"), 660);
    let metric = |name: &str, label: &str| {
        let labels = ["limit=\"x\"", label].into_iter().filter(|label| !label.is_empty());
        gateway.metric(name, &labels.collect::<Vec<_>>())
    };
    assert!((metric("tollgate_settlements_total", "result=\"measured\"") - 3.0).abs() < 0.5);
    let changed = |direction| metric("tollgate_settled_units_total", direction);
    let sum = metric("tollgate_reserved_units_total", "") + changed("direction=\"charged\"")
        - changed("direction=\"refunded\"");
    assert!((sum - 660.0).abs() < 0.5, "{sum}");
}

/// Whether a call without a reply was made is unknown: it is not made again, and its units are counted.
#[test]
fn a_correction_without_a_reply_is_counted() {
    let (backend, redis) = (parrot(), Redis::start());
    let store = format!("[store]\nbackend = \"redis\"\nurl = \"{}\"\ntimeout = \"2s\"\n", redis.url());
    let gateway = Gateway::start(&metered(&backend.url(), &[TOKENS], &a_day(1_000), &store));
    is_up(&gateway);
    let mut client = begin(&gateway, 0, "a", "x-then: gate\r\n", &held(30));
    comes_to_use(&gateway, "a", 100);
    redis.stop();
    backend.open_gate();
    client.read().expect(200);
    let unsettled = || gateway.metric("tollgate_store_unsettled_units_total", &[]);
    eventually("the units to be counted", || (unsettled() > 0.5).then_some(()));
    assert!((unsettled() - 70.0).abs() < 0.5, "{}", unsettled());
    redis.resume();
}

/// Decided without the store, a cost is settled where it was counted.
#[test]
fn a_cost_that_was_counted_locally_is_settled_locally() {
    let (backend, mut redis) = (parrot(), Redis::start());
    let [gateway] = fleet(&backend, &redis, TOKENS, "");
    redis.kill();
    eventually("the store to be down", || (gateway.metric("tollgate_store_up", &[]) < 0.5).then_some(()));
    // Eleven requests of 90 units fit, since each gives 10 units of its reservation back; another reservation does not.
    for _ in 0..11 {
        begin(&gateway, 0, "a", "", &json("{\"total\":90}")).read().expect(200);
    }
    begin(&gateway, 0, "a", "", &json("{\"total\":1}")).read().expect(429);
    redis.restart();
    is_up(&gateway);
    assert_eq!(used(&gateway, "a"), 0);
}
