//! Two gateways on one server: never one more than the allowance, never one less, all limits or none.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::harness::fleet_config::{Plan, client, of, request, statuses};
use crate::harness::{Backend, Client, Fleet, Gateway, Load, Redis, eventually};

const LOAD: Load = Load { requests: 8_000, concurrency: 100 };

/// 8,000 requests at concurrency 100 over both against an allowance of 777, counted where it matters: at the backend.
fn admits_exactly_777(limit: &str) {
    let (backend, redis) = (Backend::ok(), Redis::start());
    let plan = Plan::to(&backend).quiet().route("/*", "limits = [\"all\"]").limit_by("global", "all", limit);
    let fleet = Fleet::start(&plan.on(&redis));
    let statuses = LOAD.run_over(&fleet.addrs(), |_| request("/", "any"));
    assert_eq!(statuses, BTreeMap::from([(200, 777), (429, 7_223)]));
    assert_eq!(backend.count(), 777);
}

#[test]
fn a_fleet_admits_exactly_the_burst_of_a_token_bucket() {
    admits_exactly_777(&of("token-bucket", 777));
}

#[test]
fn a_fleet_admits_exactly_the_burst_of_gcra() {
    admits_exactly_777(&of("gcra", 777));
}

#[test]
fn a_fleet_admits_exactly_the_count_of_a_fixed_window() {
    admits_exactly_777(&of("fixed-window", 777));
}

#[test]
fn a_fleet_admits_exactly_the_count_of_a_sliding_window() {
    admits_exactly_777(&of("sliding-window", 777));
}

#[test]
fn a_fleet_admits_exactly_the_count_of_a_sliding_log() {
    admits_exactly_777(&of("sliding-log", 777));
}

#[test]
fn a_fleet_admits_exactly_the_least_of_a_list_of_rates() {
    admits_exactly_777(
        "algorithm = \"fixed-window\"\nrate = [\"100000/day\", \"777/366day\", \"1000/366day\"]",
    );
}

/// One passes, 176 wait for months, all others are told at once: so the test needs no patience.
#[test]
fn a_fleet_fills_the_queue_of_a_leaky_bucket_exactly() {
    let (backend, redis) = (Backend::ok(), Redis::start());
    let limit = "algorithm = \"leaky-bucket\"\nrate = \"1000/366day\"\nqueue = 176\nmax_wait = \"366day\"";
    let plan = Plan::to(&backend).quiet().route("/*", "limits = [\"all\"]").limit_by("global", "all", limit);
    let fleet = Fleet::start(&plan.on(&redis));
    let connect = |number: usize| Client::connect(fleet.addrs()[number % 2]);
    let mut waiting: Vec<_> = (0..400).map(connect).collect();
    std::thread::scope(|scope| {
        for part in waiting.chunks_mut(100) {
            scope.spawn(|| part.iter_mut().for_each(|client| client.write(request("/", "any"))));
        }
    });
    let mut answered = BTreeMap::new();
    let mut hear = |waiting: &mut Vec<Client>| {
        waiting.retain_mut(|client| {
            let silent = client.silent_for(Duration::from_millis(1));
            if !silent {
                *answered.entry(client.read().status).or_insert(0) += 1;
            }
            silent
        });
        waiting.len()
    };
    eventually("all but the queue to be answered", || (hear(&mut waiting) <= 176).then_some(()));
    assert_eq!(hear(&mut waiting), 176, "those in the queue still wait");
    assert_eq!(answered, BTreeMap::from([(200, 1), (429, 223)]));
    assert_eq!(backend.count(), 1);
}

#[test]
fn costs_of_several_routes_add_up_to_the_allowance() {
    let (backend, redis) = (Backend::ok(), Redis::start());
    let plan = Plan::to(&backend)
        .quiet()
        .route("/one", "limits = [\"all\"]")
        .route("/three", "cost = 3\nlimits = [\"all\"]")
        .limit_by("global", "all", &of("token-bucket", 500));
    let fleet = Fleet::start(&plan.on(&redis));
    let path = |number: usize| if number.is_multiple_of(2) { "/one" } else { "/three" };
    let load = Load { requests: 2_000, concurrency: 40 };
    load.run_over(&fleet.addrs(), |number| request(path(number), "any"));
    let spent = backend.requests().iter().map(|it| if it.target() == "/one" { 1 } else { 3 }).sum::<u32>();
    assert_eq!(spent, 500);
}

/// Each client may 10, all together 35, everybody's second rate 1,000: a refusal by one must charge none of the others.
#[test]
fn several_limits_admit_all_or_none_across_the_fleet() {
    let (backend, redis) = (Backend::ok(), Redis::start());
    let everyone = "algorithm = \"fixed-window\"\nrate = [\"35/366day\", \"1000/366day\"]";
    let plan = Plan::to(&backend)
        .quiet()
        .route("/*", "limits = [\"per-client\", \"everyone\"]")
        .limit("per-client", &of("token-bucket", 10))
        .limit_by("global", "everyone", everyone);
    let fleet = Fleet::start(&plan.on(&redis));
    let load = Load { requests: 1_000, concurrency: 20 };
    let greedy = load.run_over(&fleet.addrs(), |_| request("/", 0));
    assert_eq!(greedy.get(&200), Some(&10), "the greedy client has its own ten");
    let others = load.run_over(&fleet.addrs(), |number| request("/", 1 + number % 4));
    assert_eq!(others.get(&200), Some(&25), "what is left of the 35 was not eaten by refused requests");
    assert_eq!(backend.count(), 35);
}

/// What one gateway says is left counts what the other has admitted, and a refusal by one limit charges no other.
#[test]
fn the_fields_tell_what_the_whole_fleet_has_left() {
    let (backend, redis) = (Backend::ok(), Redis::start());
    let plan = Plan::to(&backend)
        .route("/wide", "limits = [\"wide\"]")
        .route("/both", "limits = [\"wide\", \"narrow\"]")
        .limit("wide", &of("gcra", 10))
        .limit("narrow", &of("sliding-log", 1));
    let fleet = Fleet::start(&plan.on(&redis));
    assert_eq!(statuses(&fleet, "/both", "a", 6), [200, 429, 429, 429, 429, 429]);
    for (number, left) in ["8", "7", "6", "5"].into_iter().enumerate() {
        let response = fleet.get_with(number, "/wide", &client("a")).expect(200);
        assert_eq!(response.header("x-ratelimit-remaining"), Some(left));
    }
}

/// A shadow limit is also counted together, and refuses no request.
#[test]
fn a_shadow_limit_is_shared_as_well() {
    let (backend, redis) = (Backend::ok(), Redis::start());
    let shadow = of("token-bucket", 5) + "\nmode = \"shadow\"";
    let plan = Plan::to(&backend)
        .route("/*", "limits = [\"shadow\", \"enforced\"]")
        .limit("shadow", &shadow)
        .limit("enforced", &of("gcra", 12));
    let fleet = Fleet::start(&plan.on(&redis));
    assert_eq!(statuses(&fleet, "/", "a", 16), [[200; 12].as_slice(), &[429; 4]].concat());
    let labels = ["limit=\"shadow\"", "decision=\"shadow_limited\""];
    let limited = fleet.metric("tollgate_decisions_total", &labels);
    assert!((7.0..=11.0).contains(&limited), "seven of the twelve that passed: {limited}");
}

/// The store was there all the time, so nothing may have been decided without it.
#[test]
fn the_first_requests_after_the_start_are_counted_together_too() {
    let (backend, redis) = (Backend::ok(), Redis::start());
    let plan = Plan::to(&backend).route("/*", "limits = [\"all\"]");
    let toml = plan.limit_by("global", "all", &of("token-bucket", 5)).on(&redis);
    let count = |gateway: &Gateway| (0..3).filter(|_| gateway.get("/").status == 200).count();
    let passed: usize = (0..3).map(|_| count(&Gateway::start(&toml))).sum();
    assert_eq!(passed, 5, "three gateways, one after the other, three requests each");
    assert_eq!(redis.keys().len(), 1);
}
