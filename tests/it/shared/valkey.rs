//! The other server of the same language.

use crate::harness::fleet_config::{AT_ONCE, Plan, of, shares, statuses};
use crate::harness::{Backend, Fleet, Redis, tools};

#[test]
fn valkey_counts_like_redis() {
    let program = "valkey-server";
    if tools::tool(program).is_none() {
        return;
    }
    let (backend, mut redis) = (Backend::ok(), Redis::start_program(program, &[]));
    let with = |plan: Plan, algorithm: &str| {
        plan.route(&format!("/{algorithm}"), &format!("limits = [\"{algorithm}\"]"))
            .limit(algorithm, &of(algorithm, 2))
    };
    let fleet = Fleet::start(&AT_ONCE.into_iter().fold(Plan::to(&backend), with).on(&redis));
    for algorithm in AT_ONCE {
        assert_eq!(statuses(&fleet, &format!("/{algorithm}"), "a", 4), [200, 200, 429, 429], "{algorithm}");
    }
    assert_eq!(redis.keys().len(), AT_ONCE.len());
    redis.restart();
    shares(&fleet, "/gcra");
}
