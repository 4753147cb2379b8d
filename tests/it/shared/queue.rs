//! One queue for all gateways.

use std::time::Duration;

use crate::harness::fleet_config::{Plan, request};
use crate::harness::{Backend, Client, Fleet, Redis, eventually};

/// 20 a second: one each 50 ms.
const SPACING: Duration = Duration::from_millis(50);
const LIMIT: &str = "algorithm = \"leaky-bucket\"\nrate = \"20/s\"\nqueue = 11";

/// Sends `count` requests through the gateways in turn, the next when the server has decided the one before.
fn queue_up(fleet: &Fleet, count: usize) -> Vec<Client> {
    let mut clients: Vec<_> = (0..count).map(|number| Client::connect(fleet.addrs()[number % 2])).collect();
    // Beside decisions, the server is asked for bans.
    let decided = || fleet.metric("tollgate_store_calls_total", &[]);
    for (number, client) in clients.iter_mut().enumerate() {
        let before = decided();
        client.write(request(&format!("/{number}"), "any"));
        eventually("the server to decide", || (decided() > before + 0.5).then_some(()));
    }
    clients
}

#[test]
fn requests_through_both_gateways_leave_in_turn_at_the_shared_rate() {
    let (backend, redis) = (Backend::ok(), Redis::start());
    let plan = Plan::to(&backend).route("/*", "limits = [\"all\"]").limit_by("global", "all", LIMIT);
    let fleet = Fleet::start(&plan.on(&redis));
    // So that the script is known, and stands in the way of none of those that are timed.
    for gateway in &fleet.gateways {
        gateway.get("/warm").expect(200);
    }
    eventually("the bucket to be empty", || redis.keys().is_empty().then_some(()));
    let clients = queue_up(&fleet, 12);
    for mut client in clients {
        client.read().expect(200);
    }
    let all = backend.requests();
    let arrived = &all[2..];
    let order: Vec<_> = arrived.iter().map(|it| it.target().to_owned()).collect();
    assert_eq!(order, (0..12).map(|number| format!("/{number}")).collect::<Vec<_>>());
    // A request may be late, so the next may seem early: what counts is how long all took from the first.
    for (number, request) in (0..).zip(arrived) {
        let after = request.at - arrived[0].at;
        assert!(after + SPACING / 2 >= SPACING * number, "{number} left after {after:?}");
    }
}

#[test]
fn a_queue_that_one_gateway_fills_is_full_for_the_other() {
    let (backend, redis) = (Backend::ok(), Redis::start());
    let limit = "algorithm = \"leaky-bucket\"\nrate = \"1/h\"\nqueue = 2\nmax_wait = \"1day\"";
    let plan = Plan::to(&backend).route("/*", "limits = [\"all\"]").limit_by("global", "all", limit);
    let fleet = Fleet::start(&plan.on(&redis));
    fleet.gateways[0].get("/").expect(200);
    let _waiting = queue_up(&fleet, 2);
    for gateway in &fleet.gateways {
        let refused = gateway.get("/").expect(429);
        let wait: u64 = refused.header("retry-after").expect("the field").parse().expect("seconds");
        assert!((3_500..=3_600).contains(&wait), "one place is free when the next has left: {wait}");
    }
    assert_eq!(backend.count(), 1);
}
