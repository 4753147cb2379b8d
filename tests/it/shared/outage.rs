//! What is counted while the store is away, and what is said of it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::harness::fleet_config::{AT_ONCE, Plan, client, of, shares, statuses_of};
use crate::harness::{Backend, Client, Fleet, Gateway, Redis, eventually, get_with};

fn store_of(redis: &Redis, lines: &str) -> String {
    format!("url = \"{}\"\ntimeout = \"100ms\"\n{lines}", redis.url())
}

/// A gateway with a limit of ten for each algorithm, on a path of its name.
fn gateway_of_all(backend: &Backend, redis: &Redis) -> Gateway {
    let with = |plan: Plan, algorithm: &&str| {
        plan.route(&format!("/{algorithm}"), &format!("limits = [\"{algorithm}\"]"))
            .limit(algorithm, &of(algorithm, 10))
    };
    // Until it is killed, the store has all the time it wants.
    Gateway::start(&AT_ONCE.iter().fold(Plan::to(backend), with).on(redis))
}

fn admitted(gateway: &Gateway, path: &str, name: &str, count: usize) -> usize {
    statuses_of(gateway, path, name, count).into_iter().filter(|status| *status == 200).count()
}

#[test]
fn counting_goes_on_from_what_is_known() {
    let (backend, mut redis) = (Backend::ok(), Redis::start());
    let gateway = gateway_of_all(&backend, &redis);
    for path in AT_ONCE.map(|algorithm| format!("/{algorithm}")) {
        assert_eq!(admitted(&gateway, &path, "four", 4), 4, "{path}");
        assert_eq!(admitted(&gateway, &path, "ten", 10), 10, "{path}");
        assert_eq!(admitted(&gateway, &path, "all", 11), 10, "{path}");
    }
    redis.kill();
    for path in AT_ONCE.map(|algorithm| format!("/{algorithm}")) {
        assert_eq!(admitted(&gateway, &path, "all", 3), 0, "{path}: it was refused before");
        assert_eq!(admitted(&gateway, &path, "ten", 3), 0, "{path}: ten of ten were used");
        assert_eq!(admitted(&gateway, &path, "four", 9), 6, "{path}: four of ten were used");
        assert_eq!(admitted(&gateway, &path, "new", 12), 10, "{path}: nothing was known");
    }
}

/// A request that is refused because the store is unreachable charges no limit, wherever the others count.
#[test]
fn where_one_limit_denies_the_others_are_charged_nothing() {
    let (backend, mut redis) = (Backend::ok(), Redis::start());
    let plan = Plan::to(&backend)
        .route("/both", "limits = [\"local\", \"deny\"]")
        .route("/local", "limits = [\"local\"]")
        .route("/lenient", "limits = [\"local\", \"allow\"]")
        .limit("local", &(of("token-bucket", 3) + "\non_error = \"local\""))
        .limit("allow", &(of("token-bucket", 1) + "\non_error = \"allow\""))
        .limit("deny", &of("token-bucket", 1));
    let gateway = Gateway::start(&plan.store(&store_of(&redis, "on_error = \"deny\"")));
    redis.kill();
    assert_eq!(statuses_of(&gateway, "/both", "a", 10), [503; 10]);
    assert_eq!(statuses_of(&gateway, "/local", "a", 4), [200, 200, 200, 429]);
    assert_eq!(
        statuses_of(&gateway, "/lenient", "b", 4),
        [200, 200, 200, 429],
        "the lenient limit lets pass"
    );
    assert_eq!(statuses_of(&gateway, "/both", "a", 1), [503], "whatever the other would say");
    assert_eq!(backend.count(), 6);
}

/// A shadow limit fails no request, whatever its decision.
#[test]
fn a_shadow_limit_that_denies_fails_no_request() {
    let (backend, mut redis) = (Backend::ok(), Redis::start());
    let shadow = of("token-bucket", 1) + "\nmode = \"shadow\"\non_error = \"deny\"";
    let plan = Plan::to(&backend)
        .route("/*", "limits = [\"shadow\", \"enforced\"]")
        .limit("shadow", &shadow)
        .limit("enforced", &of("token-bucket", 3));
    let gateway = Gateway::start(&plan.store(&store_of(&redis, "")));
    redis.kill();
    assert_eq!(statuses_of(&gateway, "/", "a", 4), [200, 200, 200, 429]);
}

/// A hung store does not keep a gateway from ending.
#[test]
fn a_gateway_ends_while_its_store_hangs() {
    let (backend, redis) = (Backend::ok(), Redis::start());
    let plan = Plan::to(&backend).route("/*", "limits = [\"a\"]").limit("a", &of("gcra", 2));
    let mut gateway = Gateway::start(&plan.store(&store_of(&redis, "")));
    assert_eq!(statuses_of(&gateway, "/", "a", 1), [200]);
    redis.stop();
    let waiting = Client::connect(gateway.addr());
    let started = Instant::now();
    gateway.signal(rustix::process::Signal::TERM);
    assert_eq!(gateway.wait_for_exit().code(), Some(0));
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    drop(waiting);
    redis.resume();
}

/// It never refuses, so the gateway serves all traffic.
#[test]
fn a_shadow_limit_takes_no_gateway_out_of_service() {
    let (backend, mut redis) = (Backend::ok(), Redis::start());
    redis.kill();
    let limit = of("sliding-window", 2) + "\nmode = \"shadow\"\non_error = \"deny\"";
    let plan = Plan::to(&backend).route("/*", "limits = [\"quiet\"]").limit("quiet", &limit);
    let gateway = Gateway::start(&plan.store(&store_of(&redis, "")));
    assert_eq!(statuses_of(&gateway, "/", "a", 3), [200; 3]);
    gateway.admin("/readyz").expect(200);
}

/// The log names the limit, as the metric does.
#[test]
fn a_leased_limit_without_units_is_a_store_error_in_the_log() {
    let (backend, mut redis) = (Backend::ok(), Redis::start());
    redis.kill();
    let limit = of("fixed-window", 100) + "\nsync = \"lease\"";
    let plan = Plan::to(&backend).route("/*", "limits = [\"leased\"]").limit("leased", &limit);
    let gateway = Gateway::start(&plan.store(&store_of(&redis, "")));
    assert_eq!(statuses_of(&gateway, "/", "a", 1), [503]);
    let record = &gateway.access_log(1)[0];
    assert_eq!(
        (&record["limit"], &record["decision"]),
        (&json!("leased"), &json!("store_error")),
        "{record}"
    );
    assert_eq!(record["error"], "store");
}

#[test]
fn a_gateway_that_starts_before_its_store_shares_as_soon_as_that_comes() {
    let (backend, mut redis) = (Backend::ok(), Redis::start());
    redis.kill();
    let plan = Plan::to(&backend)
        .route("/local", "limits = [\"local\"]")
        .route("/deny", "limits = [\"deny\"]")
        .limit("local", &of("sliding-window", 2))
        .limit("deny", &(of("sliding-window", 2) + "\non_error = \"deny\""));
    let fleet = Fleet::start(&plan.store(&store_of(&redis, "")));
    for gateway in &fleet.gateways {
        assert_eq!(statuses_of(gateway, "/local", "a", 3), [200, 200, 429]);
        assert_eq!(statuses_of(gateway, "/deny", "a", 2), [503, 503]);
        assert_eq!(gateway.admin("/readyz").status, 503);
        assert_eq!(gateway.admin("/healthz").status, 200);
    }
    redis.restart();
    let started = Instant::now();
    shares(&fleet, "/local");
    assert!(started.elapsed() < Duration::from_secs(4), "a try each two seconds: {:?}", started.elapsed());
    shares(&fleet, "/deny");
    for gateway in &fleet.gateways {
        eventually("the gateway to be ready", || (gateway.admin("/readyz").status == 200).then_some(()));
    }
}

/// Only a limit that denies makes a gateway useless without its store.
#[test]
fn a_gateway_that_need_not_deny_stays_ready() {
    let (backend, mut redis) = (Backend::ok(), Redis::start());
    let plan = Plan::to(&backend).route("/*", "limits = [\"a\"]").limit("a", &of("gcra", 2));
    let gateway = Gateway::start(&plan.store(&store_of(&redis, "on_error = \"allow\"")));
    redis.kill();
    assert_eq!(statuses_of(&gateway, "/", "a", 30), [200; 30]);
    assert!(gateway.metric("tollgate_store_up", &[]) < 0.5);
    gateway.admin("/readyz").expect(200);
}

#[test]
fn log_and_metrics_tell_decisions_that_were_taken_without_the_store() {
    let (backend, mut redis) = (Backend::ok(), Redis::start());
    let plan = Plan::to(&backend)
        .route("/local", "limits = [\"local\"]")
        .route("/deny", "limits = [\"deny\"]")
        .limit("local", &of("sliding-log", 2))
        .limit("deny", &(of("sliding-log", 2) + "\non_error = \"deny\""));
    // Until it is killed, the store has all the time it wants.
    let gateway = Gateway::start(&plan.on(&redis));
    assert_eq!(statuses_of(&gateway, "/local", "a", 1), [200]);
    let server = format!("server=\"{}\"", redis.addr());
    eventually("the store to be up", || {
        (gateway.metric("tollgate_store_up", &[&server]) > 0.5).then_some(())
    });
    assert!(gateway.metric("tollgate_store_calls_total", &[]) > 0.5);
    assert!(gateway.metric("tollgate_store_duration_seconds_count", &[]) > 0.5);
    assert!(gateway.metric("tollgate_store_errors_total", &[]) < 0.5);
    redis.kill();
    assert_eq!(statuses_of(&gateway, "/local", "b", 3), [200, 200, 429]);
    assert_eq!(statuses_of(&gateway, "/deny", "b", 2), [503, 503]);
    let mut log = gateway.access_log(6);
    // Two workers write it, and several lines within a millisecond.
    log.sort_by_key(|line| {
        (line["path"] != "/local", line["status"].as_u64(), line["decision"] != "allowed")
    });
    let told: Vec<_> = log.iter().map(|line| (line["status"].as_u64(), line["decision"].as_str())).collect();
    let without = Some("store_error");
    assert_eq!(told[0], (Some(200), Some("allowed")));
    assert_eq!(told[1..3], [(Some(200), without), (Some(200), without)]);
    assert_eq!(told[3].0, Some(429), "refused by its own count");
    assert_eq!(told[4..], [(Some(503), without), (Some(503), without)]);
    assert_eq!(log[4]["error"], "store");
    assert_eq!(log[1]["error"], serde_json::Value::Null);
    let decisions = |limit: &str| {
        let limit = format!("limit=\"{limit}\"");
        gateway.metric("tollgate_decisions_total", &[&limit, "decision=\"store_error\""])
    };
    assert!((2.0..=3.0).contains(&decisions("local")) && (decisions("deny") - 2.0).abs() < 0.5);
    assert!(gateway.metric("tollgate_store_errors_total", &[]) >= 1.0);
    assert!(gateway.metric("tollgate_store_up", &[&server]) < 0.5);
}

/// Eight clients ask without a pause while the store hangs, comes back, dies and comes back again.
#[test]
fn under_load_no_request_fails_and_none_waits_for_a_store_that_is_away() {
    let (backend, mut redis) = (Backend::ok(), Redis::start());
    let plan = Plan::to(&backend)
        .quiet()
        .route("/allow", "limits = [\"allow\"]")
        .route("/local", "limits = [\"local\"]")
        .limit("allow", &(of("token-bucket", 1_000_000) + "\non_error = \"allow\""))
        .limit("local", &of("fixed-window", 1_000_000));
    let fleet = Fleet::start(&plan.store(&store_of(&redis, "")));
    let over = AtomicBool::new(false);
    let ask = |number: usize| {
        let mut one = Client::connect(fleet.addrs()[number % 2]);
        let (mut slowest, mut asked) = (Duration::ZERO, 0);
        while !over.load(Ordering::Relaxed) {
            let started = Instant::now();
            let path = if asked % 2 == 0 { "/allow" } else { "/local" };
            one.get(path, &client(number)).expect(200);
            (slowest, asked) = (slowest.max(started.elapsed()), asked + 1);
        }
        (slowest, asked)
    };
    let told: Vec<_> = std::thread::scope(|scope| {
        let ask = &ask;
        let askers: Vec<_> = (0..8).map(|number| scope.spawn(move || ask(number))).collect();
        let pause = || std::thread::sleep(Duration::from_millis(700));
        pause();
        redis.stop();
        pause();
        redis.resume();
        pause();
        redis.kill();
        pause();
        redis.restart();
        pause();
        over.store(true, Ordering::Relaxed);
        askers.into_iter().map(|asker| asker.join().expect("no request fails")).collect()
    });
    for (slowest, asked) in told {
        assert!(slowest < Duration::from_millis(1_050), "{slowest:?}");
        assert!(asked > 50, "{asked} requests in 3.5 s");
    }
}

/// A late reply is not taken as the reply to the next call. A caller that has gone meanwhile does no harm.
#[test]
fn a_late_reply_goes_to_no_other_call() {
    let (backend, redis) = (Backend::ok(), Redis::start());
    let plan = Plan::to(&backend)
        .route("/five", "limits = [\"five\"]")
        .route("/nine", "limits = [\"nine\"]")
        .limit("five", &of("token-bucket", 5))
        .limit("nine", &of("token-bucket", 9));
    let gateway = Gateway::start(&plan.store(&store_of(&redis, "")));
    let mut one = Client::connect(gateway.addr());
    for round in 0..5 {
        redis.stop();
        // Fewer than make an outage, all on one connection, so on one worker.
        for number in 0..3 {
            one.get("/five", &client(format!("late-{round}-{number}"))).expect(200);
        }
        let mut gone = Client::connect(gateway.addr());
        gone.write(crate::harness::fleet_config::request("/five", "gone"));
        gone.reset();
        redis.resume();
        for number in 0..3 {
            for (path, left) in [("/nine", "8"), ("/five", "4"), ("/nine", "7"), ("/five", "3")] {
                let response = one.get(path, &client(format!("next-{round}-{number}"))).expect(200);
                assert_eq!(response.header("x-ratelimit-remaining"), Some(left), "{path}, round {round}");
            }
        }
    }
}

/// The state after a failover: scripts and keys are gone, without a notice.
#[test]
fn forgotten_scripts_and_keys_fail_no_request() {
    let (backend, redis) = (Backend::ok(), Redis::start());
    let limit = of("token-bucket", 300) + "\non_error = \"deny\"";
    let plan = Plan::to(&backend).quiet().route("/*", "limits = [\"all\"]").limit("all", &limit);
    let fleet = Fleet::start(&plan.on(&redis));
    let mut passed = 0;
    for round in 0..20 {
        redis.set(&["SCRIPT", "FLUSH"]);
        for gateway in &fleet.gateways {
            passed += admitted(gateway, "/", "a", 8);
        }
        assert_eq!(passed, (300).min(16 * (round + 1)), "what was counted is still there");
    }
    assert_eq!(fleet.gateways.each_ref().map(|it| admitted(it, "/", "a", 1)), [0, 0]);
    redis.set(&["FLUSHALL"]);
    redis.set(&["SCRIPT", "FLUSH"]);
    eventually("the allowance to be whole again", || {
        (get_with(fleet.gateways[0].addr(), "/", &client("a")).status == 200).then_some(())
    });
    let errors = fleet.metric("tollgate_store_errors_total", &[]);
    assert!(errors < 0.5, "{errors} decisions without the store");
}

/// Scripts that vanish while many decide at once.
#[test]
fn scripts_that_are_forgotten_under_load_leave_counters_exact() {
    let (backend, redis) = (Backend::ok(), Redis::start());
    let limit = of("sliding-log", 300) + "\non_error = \"deny\"";
    let plan = Plan::to(&backend).quiet().route("/*", "limits = [\"all\"]").limit("all", &limit);
    let fleet = Fleet::start(&plan.on(&redis));
    let load = crate::harness::Load { requests: 3_000, concurrency: 20 };
    let over = AtomicBool::new(false);
    let statuses = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                redis.set(&["SCRIPT", "FLUSH"]);
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        let statuses = load.run_over(&fleet.addrs(), |_| crate::harness::fleet_config::request("/", "a"));
        over.store(true, Ordering::Relaxed);
        statuses
    });
    assert_eq!(statuses.into_iter().collect::<Vec<_>>(), [(200, 300), (429, 2_700)]);
}
