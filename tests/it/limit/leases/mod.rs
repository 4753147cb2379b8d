//! Leases: a model.

mod gateway;
mod scenario;
mod spent;
mod store;
mod system;

use std::time::Instant;

use stateright::{Checker as _, Model as _, HasDiscoveries};

use scenario::Scenario;

fn run(name: &str, scenario: Scenario) {
    let started = Instant::now();
    let checker = scenario.checker().finish_when(HasDiscoveries::AnyFailures).target_state_count(20_000_000).spawn_bfs().join();
    eprintln!("{name}: {} states, depth {}, {:?}, done {}", checker.unique_state_count(), checker.max_depth(), started.elapsed(), checker.is_done());
    for (name, path) in checker.discoveries() {
        eprintln!("   {name}: {:?}", path.into_actions());
    }
}

#[test]
fn measure() {
        run("fixed 2 failover", Scenario::fixed_window(2).with_failover());
        run("fixed 3 failover", Scenario::fixed_window(3).with_failover());
        run("sliding 2 failover", Scenario::sliding_window(2).with_failover());
        run("token 2 failover", Scenario::token_bucket(2).with_failover());
}
