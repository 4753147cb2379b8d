//! The example that comes with tollgate: it loads without a word, and shows what it promises to show.

use std::path::Path;

use tollgate::config;
use tollgate::limit::Algorithm;

fn tour() -> config::LoadedConfig {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("gateway.toml");
    config::load(&path).unwrap_or_else(|report| panic!("{report}"))
}

#[test]
fn the_example_has_neither_faults_nor_warnings() {
    assert_eq!(tour().warnings.to_string(), "");
}

#[test]
fn the_example_shows_each_algorithm_once() {
    let plan = tour().plan;
    let policies = plan.limits.iter().flat_map(|limit| &limit.policies);
    let mut names: Vec<_> = policies.map(|policy| policy.algorithm.name()).collect();
    names.sort_unstable();
    let all = ["fixed-window", "gcra", "leaky-bucket", "sliding-log", "sliding-window", "token-bucket"];
    assert_eq!(names, all);
}

#[test]
fn the_example_has_a_route_that_costs_ten() {
    let plan = tour().plan;
    let ten = plan.routes.iter().find(|route| route.cost.least() == 10);
    let route = ten.expect("a route of cost 10");
    let limit = &plan.limits[route.limits[0].limit.0];
    assert!(limit.policies.iter().all(|policy| matches!(policy.algorithm, Algorithm::TokenBucket(_))));
}
