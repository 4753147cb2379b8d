//! What leased limits do beside deciding: units come back, costs are corrected, keys are banned or have other numbers, and
//! several limits stay all or none.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::harness::api::{api, good};
use crate::harness::fleet_config::{PATIENT, Plan, is_up, request, statuses_of};
use crate::harness::metered::{begin, json as settled_by, metered, parrot};
use crate::harness::{Backend, Cluster, Fleet, Gateway, Load, Redis, eventually};

/// Busy enough for units in advance.
const BURST: Load = Load { requests: 2_000, concurrency: 8 };

/// 100,000 in a window that outlives any test.
fn leased(lease: &str, more: &str) -> String {
    format!(
        "sync = \"lease\"\nlease = \"{lease}\"\nalgorithm = \"fixed-window\"\nalign = \"first-request\"\n\
         rate = \"100000/h\"\n{more}"
    )
}

fn fleet(backend: &Backend, redis: &Redis, limit: &str) -> Fleet {
    let plan = Plan::to(backend).quiet().route("/*", "limits = [\"x\"]").limit("x", limit);
    let fleet = Fleet::start(&plan.on(redis));
    is_up(&fleet);
    fleet
}

/// The units of a key that Redis counts as used.
fn used(gateway: &Gateway, key: &str) -> u64 {
    let state = good(gateway, &format!("GET limits/x/keys/{key}"), "");
    100_000 - state["policies"][0]["remaining"].as_u64().expect("a number")
}

fn leased_units(gateway: &Gateway) -> Vec<u64> {
    let fleet = api(gateway, "fleet");
    let units = |one: &Value| one["leased_units"].as_u64().expect("a number");
    fleet["gateways"].as_array().expect("a list").iter().map(units).collect()
}

/// Sends bursts until units in advance have decided a request, and returns the number of all requests. On a busy machine
/// the requests of one burst can come too slowly to be worth units in advance.
fn bursts_until_leased(mut burst: impl FnMut() -> f64) -> u64 {
    let bursts = (1..=5).find(|_| burst() > 0.0).expect("units in advance decide requests");
    bursts * 2_000
}

#[test]
fn units_that_are_not_spent_come_back_after_the_lease() {
    let (backend, redis) = (Backend::ok(), Redis::start());
    let fleet = fleet(&backend, &redis, &leased("500ms", ""));
    let [one, other] = &fleet.gateways;
    let spent = bursts_until_leased(|| {
        BURST.run(one.addr(), |_| request("/", "a"));
        one.metric("tollgate_store_leased_total", &[])
    });
    eventually("all but what was spent to come back", || (used(other, "a") == spent).then_some(()));
}

#[test]
fn a_gateway_returns_all_units_at_its_end_and_the_others_see_them_until_then() {
    let (backend, redis) = (Backend::ok(), Redis::start());
    let mut fleet = fleet(&backend, &redis, &leased("60s", ""));
    let [one, other] = &mut fleet.gateways;
    BURST.run(one.addr(), |_| request("/", "a"));
    eventually("the fleet to see what it has in advance", || {
        let withheld = used(other, "a") - 2_000;
        (withheld > 0 && leased_units(other).contains(&withheld)).then_some(())
    });
    one.signal(Signal::TERM);
    one.wait_for_exit();
    assert_eq!(used(other, "a"), 2_000);
}

#[test]
fn without_the_store_what_is_leased_is_spent_and_no_more() {
    for (on_error, status) in [("local", 503), ("deny", 503), ("allow", 200)] {
        let (backend, mut redis) = (Backend::ok(), Redis::start());
        let fleet = fleet(&backend, &redis, &leased("60s", &format!("on_error = \"{on_error}\"")));
        let [one, other] = &fleet.gateways;
        BURST.run(one.addr(), |_| request("/", "a"));
        let withheld = usize::try_from(used(other, "a") - 2_000).expect("few");
        redis.kill();
        let explained = |gateway| {
            let told = good(gateway, "POST explain", r#"{"url": "/", "headers": {"x-client": "a"}}"#);
            assert_eq!(told["limits"][0]["on_error"], on_error, "{told}");
            (told["verdict"].clone(), told["status"].clone(), told["reason"].clone())
        };
        assert_eq!(explained(one).0, "admitted", "{on_error}: {withheld} units are left");
        let spent = statuses_of(one, "/", "a", withheld);
        let refused = spent.iter().position(|status| *status != 200);
        assert_eq!(refused, None, "{on_error}: of {withheld}");
        eventually("the units to be spent", || (statuses_of(one, "/", "a", 1) == [status]).then_some(()));
        assert_eq!(statuses_of(one, "/", "a", 5), [status; 5], "{on_error}");
        assert_eq!(statuses_of(other, "/", "b", 1), [status], "{on_error}: it has none");
        let expected = match status {
            200 => (json!("admitted"), Value::Null, Value::Null),
            _ => {
                let reason =
                    "the shared store is unreachable, and no units of the lease of `x` are left here";
                (json!("answered"), json!(status), json!(reason))
            }
        };
        assert_eq!((explained(one), explained(other)), (expected.clone(), expected), "{on_error}");
    }
}

/// The limit of each client is exact, that of all is leased: what the former refuses costs the latter nothing.
#[test]
fn several_limits_are_all_or_none() {
    let (backend, redis) = (Backend::ok(), Redis::start());
    let own = "algorithm = \"fixed-window\"\nalign = \"first-request\"\nrate = \"50/h\"";
    let plan = Plan::to(&backend)
        .quiet()
        .route("/*", "limits = [\"own\", \"x\"]")
        .limit("own", own)
        .limit_by("global", "x", &leased("500ms", ""));
    let fleet = Fleet::start(&plan.on(&redis));
    is_up(&fleet);
    let statuses = BURST.run_over(&fleet.addrs(), |number| request("/", number % 10));
    assert_eq!((statuses[&200], statuses[&429]), (500, 1_500));
    eventually("the limit of all to count what passed", || {
        let keys = api(&fleet.gateways[1], "limits/x/keys");
        let id = keys["keys"][0]["id"].as_str().map(str::to_owned);
        let state = good(&fleet.gateways[1], &format!("GET limits/x/keys/{}", id.unwrap_or_default()), "");
        (state["policies"][0]["remaining"] == json!(99_500)).then_some(())
    });
}

#[test]
fn a_limit_in_shadow_refuses_nothing() {
    let (backend, redis) = (Backend::ok(), Redis::start());
    let limit = "mode = \"shadow\"\nsync = \"lease\"\nlease = \"60s\"\nalgorithm = \"fixed-window\"\n\
                 align = \"first-request\"\nrate = \"300/h\"";
    let fleet = fleet(&backend, &redis, limit);
    let statuses = BURST.run(fleet.gateways[0].addr(), |_| request("/", "a"));
    assert_eq!(statuses[&200], 2_000);
    let of = |decision: &str| {
        let labels = ["limit=\"x\"".to_owned(), format!("decision=\"{decision}\"")];
        fleet.gateways[0].metric("tollgate_decisions_total", &labels.each_ref().map(String::as_str))
    };
    assert_eq!((of("allowed"), of("shadow_limited")), (300.0, 1_700.0));
}

#[test]
fn refusals_of_a_leased_limit_begin_a_ban() {
    let (backend, redis) = (Backend::ok(), Redis::start());
    let limit = "sync = \"lease\"\nalgorithm = \"token-bucket\"\nrate = \"100/h\"\nburst = 3\n\
                 ban = { after = 20, within = \"10min\", for = \"1h\" }";
    let fleet = fleet(&backend, &redis, limit);
    for gateway in &fleet.gateways {
        eventually("the ban to be in force here", || {
            statuses_of(gateway, "/", "a", 10);
            (api(gateway, "bans")["total"] == json!(1)).then_some(())
        });
    }
    assert_eq!(backend.count(), 3);
}

#[test]
fn an_override_has_other_numbers_on_the_same_counter() {
    let (backend, redis) = (Backend::ok(), Redis::start());
    let fleet = fleet(&backend, &redis, &leased("500ms", ""));
    let [one, other] = &fleet.gateways;
    BURST.run(one.addr(), |_| request("/", "a"));
    good(other, "PUT limits/x/keys/a/override", r#"{"rate": "2100/h"}"#);
    for gateway in [one, other] {
        eventually("both to know it", || {
            (!api(gateway, "limits/x/keys/a")["override"].is_null()).then_some(())
        });
    }
    eventually("the rest of the new number to be admitted", || {
        let refused = [one, other].map(|gateway| statuses_of(gateway, "/", "a", 20).contains(&429));
        (refused == [true, true] && backend.count() >= 2_100).then_some(())
    });
    assert_eq!(backend.count(), 2_100);
}

/// Each request reserves 5 units and costs 2.
#[test]
fn costs_are_corrected_where_the_units_were_taken() {
    let (backend, redis) = (parrot(), Redis::start());
    let cost = "{ reserve = 5, settle = \"json:/total\" }";
    let toml = metered(&backend.url(), &[cost], &leased("500ms", ""), &redis.store_table());
    let gateway = Gateway::start(&toml);
    eventually("the store to be up", || (gateway.metric("tollgate_store_up", &[]) > 0.5).then_some(()));
    for _ in 0..200 {
        begin(&gateway, 0, "a", "", &settled_by("{\"total\":2}")).read().expect(200);
    }
    eventually("all costs to be corrected", || (used(&gateway, "a") == 400).then_some(()));
}

/// The counters of clients and that of all are on different nodes: units of each are taken from its own.
#[test]
fn in_a_cluster_units_are_taken_from_each_node() {
    let (backend, cluster) = (Backend::ok(), Cluster::start());
    let plan = Plan::to(&backend)
        .quiet()
        .route("/*", "limits = [\"own\", \"x\"]")
        .limit("own", &leased("2s", "").replace("100000", "20000"))
        .limit_by("global", "x", &leased("2s", ""));
    let fleet = Fleet::start(&plan.store(&format!("url = {}\n{PATIENT}", cluster.urls())));
    is_up(&fleet);
    let spent = bursts_until_leased(|| {
        let statuses = BURST.run_over(&fleet.addrs(), |number| request("/", number % 3));
        assert_eq!(statuses[&200], 2_000);
        fleet.metric("tollgate_store_leased_total", &[])
    });
    eventually("all but what was spent to come back", || {
        let remaining = |limit: &str, key: &str| {
            let state = good(&fleet.gateways[0], &format!("GET limits/{limit}/keys/{key}"), "");
            state["policies"][0]["remaining"].as_u64().expect("a number")
        };
        let own: u64 = ["0", "1", "2"].iter().map(|client| 20_000 - remaining("own", client)).sum();
        (own == spent).then_some(())
    });
}

/// The gateway does not ask again for a moment after a refusal: the wait that the client is told counts that in.
#[test]
fn a_refused_client_that_waits_as_long_as_it_is_told_is_admitted() {
    let (backend, redis) = (Backend::ok(), Redis::start());
    let limit = "sync = \"lease\"\nalgorithm = \"token-bucket\"\nrate = \"40/s\"\nburst = 40";
    let fleet = fleet(&backend, &redis, limit);
    let gateway = &fleet.gateways[0];
    for _ in 0..2 {
        let mut responses =
            (0..1_000).map(|_| crate::harness::get_with(gateway.addr(), "/", "x-client: a\r\n"));
        let refused = responses.find(|response| response.status == 429).expect("a refusal");
        let wait = refused.header("retry-after").and_then(|wait| wait.parse().ok()).expect("seconds");
        std::thread::sleep(std::time::Duration::from_secs(wait));
        assert_eq!(statuses_of(gateway, "/", "a", 1), [200], "after {wait} s");
    }
}
