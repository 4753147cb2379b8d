//! Bans after refusals that several gateways count together.

use std::time::{Duration, Instant};

use crate::harness::api::{api, good};
use crate::harness::fleet_config::{Plan, client, is_up};
use crate::harness::in_flight::{begin, limited};
use crate::harness::{Backend, Fleet, Gateway, HoldingBackend, Redis, Response, eventually};

const ONE: &str = "algorithm = \"token-bucket\"\nrate = \"1/366day\"\nburst = 1\n";

fn bans(gateway: &Gateway) -> u64 {
    api(gateway, "bans")["total"].as_u64().expect("a number")
}

/// Whether this is the refusal of a ban of an hour.
fn is_ban(response: &Response) -> bool {
    assert_eq!(response.status, 429, "{}", response.head);
    response.banned_for().is_some_and(|rest| (3_000..=3_600).contains(&rest))
}

fn fleet(backend: &Backend, redis: &Redis, limit: &str) -> Fleet {
    let plan = Plan::to(backend).route("/*", "limits = [\"x\"]").limit("x", limit);
    let fleet = Fleet::start(&plan.on(redis));
    is_up(&fleet);
    fleet
}

/// Refusals of a concurrency limit are never answered from the cache of denials, so the server counts each at once.
#[test]
fn refusals_by_two_gateways_begin_one_ban_at_exactly_the_last() {
    let (backend, redis) = (HoldingBackend::start(), Redis::start());
    let limit = "max = 1\nban = { after = 7, within = \"10min\", for = \"1h\" }";
    let store = redis.store_table();
    let fleet = Fleet::start(&limited(&backend, limit, "", &store));
    is_up(&fleet);
    let mut first = begin(&fleet.gateways[0], "/first");
    backend.holds(1);
    for number in 0..6 {
        let refused = begin(&fleet.gateways[number % 2], "/refused").read();
        assert!(!is_ban(&refused), "refusal {number}: {}", refused.head);
    }
    assert_eq!(fleet.gateways.each_ref().map(bans), [0, 0]);
    let seventh = begin(&fleet.gateways[0], "/seventh").read();
    assert!(is_ban(&seventh), "{}", seventh.head);
    assert!(is_ban(&begin(&fleet.gateways[1], "/other").read()), "at once, whatever this gateway has read");
    backend.open();
    first.read().expect(200);
    for gateway in &fleet.gateways {
        eventually("the ban on the list", || (bans(gateway) == 1).then_some(()));
        assert!(is_ban(&begin(gateway, "/banned").read()));
    }
    assert_eq!(backend.arrivals(), ["/first"]);
}

/// Each gateway answers most refusals from its cache, and tells the server of them within a second.
#[test]
fn refusals_from_the_cache_are_counted_and_counted_once() {
    let (backend, redis) = (Backend::ok(), Redis::start());
    let ban = format!("{ONE}ban = {{ after = 30, within = \"10min\", for = \"1h\" }}");
    let fleet = fleet(&backend, &redis, &ban);
    for number in 0..30 {
        let expected = if number == 0 { 200 } else { 429 };
        fleet.get_with(number, "/", &client("a")).expect(expected);
    }
    // 29 refusals, all of which are told by now.
    std::thread::sleep(Duration::from_millis(2_500));
    assert_eq!(fleet.gateways.each_ref().map(bans), [0, 0]);
    let last = fleet.get_with(0, "/", &client("a")).expect(429);
    let is_begun = is_ban(&last);
    let began = Instant::now();
    for gateway in &fleet.gateways {
        eventually("the ban on the list", || (bans(gateway) == 1).then_some(()));
    }
    assert!(began.elapsed() < Duration::from_secs(8), "{:?} (begun at once: {is_begun})", began.elapsed());
    for number in 0..2 {
        assert!(is_ban(&fleet.get_with(number, "/", &client("a"))));
    }
    // A flood through one gateway alone, within the second in which its cache answers.
    for _ in 0..40 {
        fleet.get_with(1, "/", &client("b"));
    }
    for gateway in &fleet.gateways {
        eventually("the second ban", || (bans(gateway) == 2).then_some(()));
    }
    // Refusals of several keys are told in one call, whether or not some are banned already.
    for _ in 0..40 {
        for name in ["b", "c", "d"] {
            fleet.get_with(0, "/", &client(name));
        }
    }
    for gateway in &fleet.gateways {
        eventually("the bans of two more", || (bans(gateway) == 4).then_some(()));
    }
    assert_eq!(backend.count(), 4);
}

#[test]
fn a_ban_holds_for_the_fleet_and_is_lifted_for_the_fleet() {
    let (backend, redis) = (Backend::ok(), Redis::start());
    let fleet =
        fleet(&backend, &redis, &format!("{ONE}ban = {{ after = 5, within = \"10min\", for = \"1h\" }}"));
    let [one, other] = &fleet.gateways;
    for _ in 0..10 {
        fleet.get_with(0, "/", &client("a"));
    }
    for gateway in [one, other] {
        eventually("the ban on the list", || (bans(gateway) == 1).then_some(()));
        assert_eq!(api(gateway, "limits/x/keys/a")["verdict"], "banned");
    }
    // A gateway that starts later reads it.
    let text = std::fs::read_to_string(one.config_path()).expect("it can be read");
    let late = Gateway::start(&text);
    eventually("the ban on the list of the new gateway", || (bans(&late) == 1).then_some(()));
    good(other, "DELETE limits/x/keys/a/ban", "");
    let lifted = Instant::now();
    for gateway in [one, other, &late] {
        eventually("an end of the ban", || (bans(gateway) == 0).then_some(()));
    }
    // The workers' caches of denials, which last a second, know of no ban.
    assert!(lifted.elapsed() < Duration::from_secs(6), "{:?}", lifted.elapsed());
    for number in 0..2 {
        let refused = fleet.get_with(number, "/", &client("a"));
        assert!(!is_ban(&refused), "by the limit alone: {}", refused.head);
    }
    std::thread::sleep(Duration::from_millis(1_500));
    assert_eq!([one, other, &late].map(bans), [0; 3], "nothing begins it again");
}

/// A ban is kept by the server: it outlives all gateways.
#[test]
fn a_ban_outlives_its_gateway() {
    let (backend, redis) = (Backend::ok(), Redis::start());
    let plan = Plan::to(&backend).route("/*", "limits = [\"x\"]");
    let ban = format!("{ONE}ban = {{ after = 2, within = \"10min\", for = \"1h\" }}");
    let toml = plan.limit("x", &ban).on(&redis);
    let gateway = Gateway::start(&toml);
    // A decision without the store would begin a ban of this gateway alone.
    eventually("the store", || (gateway.metric("tollgate_store_up", &[]) > 0.5).then_some(()));
    for _ in 0..5 {
        crate::harness::get_with(gateway.addr(), "/", &client("a"));
    }
    eventually("the ban", || (bans(&gateway) == 1).then_some(()));
    // The store's list is told afterwards: a gateway that is killed before tells nobody.
    let beside = Gateway::start(&toml);
    eventually("the ban in a gateway beside it", || (bans(&beside) == 1).then_some(()));
    drop((gateway, beside));
    let next = Gateway::start(&toml);
    eventually("the ban in the next gateway", || (bans(&next) == 1).then_some(()));
    assert!(is_ban(&crate::harness::get_with(next.addr(), "/", &client("a"))));
    assert_eq!(backend.count(), 1);
}

/// The store is slow, and the first request comes at once.
#[test]
fn a_gateway_knows_bans_and_overrides_before_its_first_request() {
    let (backend, redis) = (Backend::ok(), Redis::start());
    let plan = Plan::to(&backend).route("/*", "limits = [\"x\"]").limit("x", ONE);
    let toml = plan.on(&redis);
    let first = Gateway::start(&toml);
    eventually("the store", || (first.metric("tollgate_store_up", &[]) > 0.5).then_some(()));
    good(&first, "POST limits/x/keys/banned/ban", r#"{"for": "1h"}"#);
    good(&first, "PUT limits/x/keys/larger/override", r#"{"rate": "9/366day", "burst": 9}"#);
    redis.command(["CLIENT", "PAUSE", "300", "ALL"]);
    let next = Gateway::start(&toml);
    assert!(is_ban(&crate::harness::get_with(next.addr(), "/", &client("banned"))));
    for _ in 0..9 {
        crate::harness::get_with(next.addr(), "/", &client("larger")).expect(200);
    }
}

/// A gateway that enforces a limit knows nothing of the bans that gateways with the same limit in shadow have begun.
#[test]
fn a_ban_in_shadow_becomes_real_at_no_gateway() {
    let (backend, redis) = (Backend::ok(), Redis::start());
    let ban = "ban = { after = 3, within = \"10min\", for = \"1h\" }";
    let fleet = fleet(&backend, &redis, &format!("{ONE}{ban}\nmode = \"shadow\""));
    let [one, other] = &fleet.gateways;
    (0..10).for_each(|number| _ = fleet.get_with(number % 2, "/", &client("a")).expect(200));
    let marks = |gateway| {
        let listed = api(gateway, "bans")["bans"].as_array().expect("a list").clone();
        listed.iter().map(|ban| ban["in_shadow"].as_bool().expect("a mark")).collect::<Vec<_>>()
    };
    for gateway in [one, other] {
        eventually("the ban on the list", || (bans(gateway) == 1).then_some(()));
        assert_eq!(marks(gateway), [true]);
    }
    let file = std::fs::read_to_string(one.config_path()).expect("it can be read");
    let enforced = file.replace("shadow", "enforce");
    one.write_config(&enforced);
    let ended = &good(one, "POST reload", "")["ended_bans"];
    assert_eq!(ended, &serde_json::json!([{ "limit": "x", "bans": 1, "in_shadow": true }]));
    let refused = fleet.get_with(0, "/", &client("a")).expect(429);
    assert!(!is_ban(&refused), "by the limit alone: {}", refused.head);
    // The fleet's list has it no more, and a gateway in shadow counts anew.
    eventually("its end at the other gateway", || (bans(other) == 0).then_some(()));
    // A ban that the other gateway begins in shadow meanwhile is none here.
    (0..20).for_each(|_| _ = fleet.get_with(1, "/", &client("a")).expect(200));
    eventually("the next ban in shadow", || (marks(other) == [true]).then_some(()));
    let refused = fleet.get_with(0, "/", &client("a")).expect(429);
    assert!(!is_ban(&refused) && bans(one) == 0, "by the limit alone: {}", refused.head);
    // Real refusals begin a real one, which is idle where the limit is in shadow.
    eventually("a ban", || is_ban(&fleet.get_with(0, "/", &client("a"))).then_some(()));
    assert_eq!(marks(one), [false]);
    fleet.get_with(1, "/", &client("a")).expect(200);
    eventually("both at the other gateway", || (marks(other) == [true, true]).then_some(()));
    other.write_config(&enforced);
    good(other, "POST reload", "");
    assert!(is_ban(&fleet.get_with(1, "/", &client("a"))), "the one that began where the limit was enforced");
    eventually("one ban", || (marks(other) == [false]).then_some(()));
}
