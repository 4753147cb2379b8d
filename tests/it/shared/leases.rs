//! Limits of which each gateway takes units in advance: never more than the bound, all of it where there is demand, and few
//! calls.

use std::collections::BTreeMap;

use crate::harness::fleet_config::{Plan, request};
use crate::harness::{Backend, Fleet, Gateway, Load, Redis, eventually, get};

const LOAD: Load = Load { requests: 20_000, concurrency: 100 };

/// One gateway alone withholds units from no one: its total is exact, whatever is under way.
fn one_gateway_admits_exactly(limit: &str) {
    let (backend, redis) = (Backend::ok(), Redis::start());
    let limit = format!("sync = \"lease\"\nlease = \"60s\"\n{limit}");
    let plan = Plan::to(&backend).quiet().route("/*", "limits = [\"all\"]").limit_by("global", "all", &limit);
    let gateway = Gateway::start(&plan.on(&redis));
    let statuses = LOAD.run_over(&[gateway.addr()], |_| request("/", "any"));
    assert_eq!(statuses, BTreeMap::from([(200, 3_000), (429, 17_000)]));
    assert_eq!(backend.count(), 3_000);
    // Of a hundred requests at once, those that find no units in advance ask.
    let calls = gateway.metric("tollgate_store_calls_total", &[]);
    assert!(calls < 2_000.0, "{calls} calls");
}

#[test]
fn one_gateway_admits_exactly_the_count_of_a_fixed_window() {
    one_gateway_admits_exactly("algorithm = \"fixed-window\"\nalign = \"first-request\"\nrate = \"3000/h\"");
}

#[test]
fn one_gateway_admits_exactly_the_count_of_a_list_of_rates() {
    one_gateway_admits_exactly(
        "algorithm = \"fixed-window\"\nalign = \"first-request\"\nrate = [\"3000/h\", \"50000/day\"]",
    );
}

/// The rest of the count is given out as units come back: there is demand at both gateways, and no unit is lost.
#[test]
fn a_fleet_admits_exactly_the_count_once_units_have_come_back() {
    let (backend, redis) = (Backend::ok(), Redis::start());
    let limit = "sync = \"lease\"\nlease = \"200ms\"\nalgorithm = \"fixed-window\"\nalign = \"first-request\"\n\
                 rate = \"3000/60s\"";
    let plan = Plan::to(&backend).quiet().route("/*", "limits = [\"all\"]").limit_by("global", "all", limit);
    let fleet = Fleet::start(&plan.on(&redis));
    let statuses = LOAD.run_over(&fleet.addrs(), |_| request("/", "any"));
    let admitted = statuses[&200];
    assert!((2_900..=3_000).contains(&admitted), "{statuses:?}");
    eventually("the last units to be admitted", || {
        for gateway in &fleet.gateways {
            get(gateway.addr(), "/");
        }
        (backend.count() >= 3_000).then_some(())
    });
    for gateway in fleet.gateways.iter().cycle().take(20) {
        assert_eq!(get(gateway.addr(), "/").status, 429);
    }
    assert_eq!(backend.count(), 3_000);
}
