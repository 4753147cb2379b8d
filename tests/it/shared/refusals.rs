//! The denial cache: repeated refused requests cost the server almost nothing, and no admissible request is refused.

use std::time::{Duration, Instant};

use crate::harness::api::ask;
use crate::harness::fleet_config::{Plan, client, of, request, statuses};
use crate::harness::{Backend, Client, Fleet, Gateway, Load, Redis, eventually};

/// How long a refusal is remembered at most, and how much later a busy machine may see it.
const MEMORY: Duration = Duration::from_secs(1);
const SLACK: Duration = Duration::from_millis(1_500);

/// Decisions that the server was asked for; it is asked for bans, too.
fn asked(gateways: &[Gateway]) -> f64 {
    gateways.iter().map(|gateway| gateway.metric("tollgate_store_calls_total", &[])).sum()
}

#[test]
fn a_client_that_hammers_a_closed_gate_costs_the_server_next_to_nothing() {
    let (backend, redis) = (Backend::ok(), Redis::start());
    let plan = Plan::to(&backend).quiet().route("/*", "limits = [\"per-client\"]");
    let fleet = Fleet::start(&plan.limit("per-client", &of("sliding-log", 5)).on(&redis));
    assert_eq!(statuses(&fleet, "/", "a", 6), [200, 200, 200, 200, 200, 429]);
    let (before, started) = (asked(&fleet.gateways), Instant::now());
    let statuses = Load { requests: 2_000, concurrency: 8 }.run_over(&fleet.addrs(), |_| request("/", "a"));
    assert_eq!(statuses.into_iter().collect::<Vec<_>>(), [(429, 2_000)]);
    // Each of the four workers asks for itself, and again when a second is over.
    let allowed = 20.0 + 4.0 * (2.0 + started.elapsed().as_secs_f64());
    let calls = asked(&fleet.gateways) - before;
    assert!(calls <= allowed, "{calls} calls for 2,000 refusals");
    let remembered = fleet.metric("tollgate_store_remembered_total", &[]);
    assert!(remembered >= 1_950.0, "{remembered}");
}

#[test]
fn attempts_that_count_are_never_answered_from_memory() {
    let (backend, redis) = (Backend::ok(), Redis::start());
    let limit = of("sliding-log", 2) + "\ncount_denied = true";
    let plan = Plan::to(&backend).route("/*", "limits = [\"per-client\"]").limit("per-client", &limit);
    let gateway = Gateway::start(&plan.on(&redis));
    let mut one = Client::connect(gateway.addr());
    one.get("/", &client("a")).expect(200);
    let before = asked(std::slice::from_ref(&gateway));
    one.get("/", &client("a")).expect(200);
    for _ in 0..50 {
        one.get("/", &client("a")).expect(429);
    }
    let calls = asked(std::slice::from_ref(&gateway)) - before;
    assert!((calls - 51.0).abs() < 0.5, "{calls}");
    assert!(gateway.metric("tollgate_store_remembered_total", &[]).abs() < 0.5);
}

#[test]
fn a_counter_that_is_reset_opens_the_gate_within_a_second() {
    let (backend, redis) = (Backend::ok(), Redis::start());
    let plan = Plan::to(&backend).quiet().route("/*", "limits = [\"per-client\"]");
    let fleet = Fleet::start(&plan.limit("per-client", &of("token-bucket", 1)).on(&redis));
    assert_eq!(statuses(&fleet, "/", "a", 5), [200, 429, 429, 429, 429]);
    let [key] = &redis.keys()[..] else { panic!("one key: {:?}", redis.keys()) };
    let reset = Instant::now();
    assert_eq!(redis.command(["DEL", key]).integer(), 1);
    // Both hammer on, which must not make them remember for longer.
    eventually("the client to be admitted", || statuses(&fleet, "/", "a", 2).contains(&200).then_some(()));
    let took = reset.elapsed();
    assert!(took < MEMORY + SLACK, "{took:?}");
}

#[test]
fn a_client_is_admitted_when_its_wait_is_over() {
    let (backend, redis) = (Backend::ok(), Redis::start());
    let limit = "algorithm = \"gcra\"\nrate = \"5/s\"";
    let plan = Plan::to(&backend).quiet().route("/*", "limits = [\"per-client\"]");
    let fleet = Fleet::start(&plan.limit("per-client", limit).on(&redis));
    let (started, mut passed) = (Instant::now(), 0_u32);
    while started.elapsed() < Duration::from_secs(2) {
        passed += u32::from(statuses(&fleet, "/", "a", 2).contains(&200));
    }
    let max = started.elapsed().as_millis() / 200 + 1;
    assert!(passed >= 6, "a memory that outlives the wait would let few pass: {passed}");
    assert!(u128::from(passed) <= max, "{passed} of {max}");
}

#[test]
fn a_limit_that_a_reload_raises_opens_the_gate_at_once() {
    let (backend, redis) = (Backend::ok(), Redis::start());
    let plan = Plan::to(&backend).route("/*", "limits = [\"per-client\"]");
    let with = |count| plan.clone().limit("per-client", &of("fixed-window", count)).on(&redis);
    let gateway = Gateway::start(&with(2));
    let mut one = Client::connect(gateway.addr());
    for status in [200, 200, 429, 429] {
        one.get("/", &client("a")).expect(status);
    }
    gateway.write_config(&with(4));
    gateway.signal(rustix::process::Signal::HUP);
    eventually("the reload", || {
        (gateway.metric("tollgate_config_reloads_total", &["result=\"success\""]) > 0.5).then_some(())
    });
    for status in [200, 200, 429] {
        one.get("/", &client("a")).expect(status);
    }
}

/// Each worker has refused the client, and none of them refuses it again after the reset.
#[test]
fn a_reset_takes_effect_at_once_in_the_gateway_that_is_asked_for_it() {
    let (backend, redis) = (Backend::ok(), Redis::start());
    let plan = Plan::to(&backend).quiet().route("/*", "limits = [\"per-client\"]");
    let gateway = Gateway::start(&plan.limit("per-client", &of("fixed-window", 16)).on(&redis));
    let mut connections: Vec<Client> = (0..16).map(|_| Client::connect(gateway.addr())).collect();
    for round in 0..3 {
        connections.iter_mut().for_each(|one| _ = one.get("/", &client("a")).expect(200));
        connections.iter_mut().for_each(|one| _ = one.get("/", &client("a")).expect(429));
        assert_eq!(ask(&gateway, "DELETE limits/per-client/keys/a", "").0, 200, "{round}");
    }
    connections.iter_mut().for_each(|one| _ = one.get("/", &client("a")).expect(200));
}

/// One connection, so one worker and one memory.
#[test]
fn a_remembered_refusal_answers_only_what_costs_as_much() {
    let (backend, redis) = (Backend::ok(), Redis::start());
    let plan = Plan::to(&backend)
        .route("/one", "limits = [\"per-client\"]")
        .route("/five", "cost = 5\nlimits = [\"per-client\"]")
        .route("/seven", "cost = 7\nlimits = [\"per-client\"]")
        .limit("per-client", &of("token-bucket", 10));
    let gateway = Gateway::start(&plan.on(&redis));
    let mut one = Client::connect(gateway.addr());
    let mut get = |path: &str, status: u16| {
        let before = asked(std::slice::from_ref(&gateway));
        one.get(path, &client("a")).expect(status);
        #[expect(clippy::cast_possible_truncation, reason = "a small count")]
        let calls = (asked(std::slice::from_ref(&gateway)) - before).round() as i64;
        calls
    };
    get("/seven", 200);
    assert_eq!(get("/five", 429), 1, "the server says that five of three are too many");
    assert_eq!(get("/five", 429), 0, "and is not asked again");
    // More is refused, too; the server may be asked for how long.
    get("/seven", 429);
    assert_eq!(get("/one", 200), 1, "but less is not");
    assert_eq!([get("/one", 200), get("/one", 200)], [1, 1]);
    assert_eq!(get("/one", 429), 1);
    assert_eq!([get("/one", 429), get("/one", 429), get("/five", 429)], [0, 0, 0]);
    assert_eq!(backend.count(), 4);
}

/// The wait that is told goes down while the refusal is remembered, and stays honest.
#[test]
fn a_remembered_refusal_tells_the_time_that_is_left() {
    let (backend, redis) = (Backend::ok(), Redis::start());
    let limit = "algorithm = \"fixed-window\"\nalign = \"first-request\"\nrate = \"1/3s\"";
    let plan = Plan::to(&backend).route("/*", "limits = [\"per-client\"]").limit("per-client", limit);
    let gateway = Gateway::start(&plan.on(&redis));
    let mut one = Client::connect(gateway.addr());
    let started = Instant::now();
    one.get("/", &client("a")).expect(200);
    let admitted = eventually("the client to be admitted", || {
        let (asked, response) = (Instant::now(), one.get("/", &client("a")));
        if response.status == 200 {
            return Some(started.elapsed());
        }
        let wait: u64 = response.header("retry-after").expect("the field").parse().expect("seconds");
        let told = asked.duration_since(started) + Duration::from_secs(wait);
        assert!(told >= Duration::from_millis(2_900), "too early: {wait} s");
        assert!(told <= Duration::from_secs(4) + SLACK, "rounded up, but no more: {wait} s");
        None
    });
    assert!(admitted >= Duration::from_millis(2_900) && admitted < Duration::from_secs(3) + SLACK);
}
