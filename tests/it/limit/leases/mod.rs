//! A model of leases, checked exhaustively: each order of all [steps](system::Step), with the code of both sides.
//!
//! `scenario` has the sizes, `system` the state machine. `gateway` and `store` call the code: `tollgate::limit::lease`
//! and its `ledger`. `spent` is the contract. `docs/lease-bound.md` has the argument, and the numbers that are compared
//! here with those found.
//!
//! The state has all that decides what may follow, so it is finite without a bound on the number of steps. Bounds are:
//! few units, some moments, grants of at most two units, and with a failover no more lost charges than the quota.

mod gateway;
mod scenario;
mod spent;
mod store;
mod system;

use std::collections::BTreeSet;

use stateright::{Checker, HasDiscoveries, Model as _};

use scenario::{Mutant, Scenario};
use system::{BOUND, SPENT_AGAIN};

use crate::harness::pages::root;

/// Looks for the row of the page with these cells.
#[track_caller]
fn assert_told(name: &str, number: usize) {
    let page = std::fs::read_to_string(root().join("docs/lease-bound.md")).expect("the page is there");
    let number = match (number / 1_000, number % 1_000) {
        (0, rest) => format!("{rest}"),
        (thousands, rest) => format!("{thousands},{rest:03}"),
    };
    let row = format!("| {name} | {number} |");
    assert!(page.contains(&row), "docs/lease-bound.md lacks the row `{row}`");
}

/// Tries everything.
#[track_caller]
fn assert_holds(name: &str, scenario: Scenario) {
    let checker = scenario.checker().spawn_bfs().join();
    checker.assert_properties();
    assert_told(name, checker.unique_state_count());
}

/// Tries short runs first, until a property has an example or a counterexample. Returns its number of steps.
fn steps_to(name: &'static str, scenario: Scenario) -> Option<usize> {
    let found = HasDiscoveries::AnyOf(BTreeSet::from([name]));
    let checker = scenario.checker().finish_when(found).spawn_bfs().join();
    checker.discovery(name).map(|path| path.into_actions().len())
}

#[test]
fn a_fixed_window_never_admits_more_than_its_count() {
    assert_holds("`fixed-window`, 4 in 200 ms | 3", Scenario::fixed_window(4));
}

#[test]
fn a_sliding_window_never_admits_more_than_its_estimate() {
    assert_holds("`sliding-window`, 3 in 200 ms | 3", Scenario::sliding_window(3));
}

#[test]
fn a_token_bucket_admits_at_most_what_it_refills_in_a_lease_more() {
    assert_holds("`token-bucket`, burst 2 | 3", Scenario::token_bucket(2));
}

#[test]
fn gcra_admits_at_most_what_it_refills_in_a_lease_more() {
    assert_holds("`gcra`, burst 2 | 3", Scenario::gcra(2));
}

#[test]
fn after_a_failover_a_window_admits_at_most_what_was_lost_more() {
    assert_holds("`fixed-window`, 2 in 200 ms, failover | 2", Scenario::fixed_window(2).with_failover());
}

#[test]
fn after_a_failover_a_bucket_admits_at_most_what_was_lost_more() {
    assert_holds("`token-bucket`, burst 2, failover | 2", Scenario::token_bucket(2).with_failover());
}

#[test]
fn units_that_come_back_are_spent_by_another_gateway() {
    for scenario in [Scenario::fixed_window(2), Scenario::sliding_window(2), Scenario::token_bucket(2)] {
        let name = scenario.algorithm.name();
        assert!(steps_to(SPENT_AGAIN, scenario.following_units()).is_some(), "{name}");
    }
}

#[test]
fn bugs_of_windows_are_found() {
    for (name, mutant) in [
        ("units are spent for the whole lease", Mutant::WholeLease),
        ("the lease is counted from the answer", Mutant::CountedFromAnswer),
        ("units do not end with their window", Mutant::PastWindow),
        ("units are spent after they went back", Mutant::SpendsReturned),
        ("units come back twice", Mutant::ReturnedTwice),
    ] {
        for scenario in [Scenario::fixed_window(2), Scenario::sliding_window(2)] {
            let algorithm = scenario.algorithm.name();
            let steps = steps_to(BOUND, scenario.with_mutant(mutant)).expect(name);
            assert_told(&format!("{name} | `{algorithm}`"), steps);
        }
    }
}

#[test]
fn bugs_of_buckets_are_found() {
    for (name, mutant, burst) in [
        ("units are spent for the whole lease", Mutant::WholeLease, 2),
        ("the lease is counted from the answer", Mutant::CountedFromAnswer, 2),
        ("units that come back are all taken off the level", Mutant::NoFloor, 2),
        ("units are spent after they went back", Mutant::SpendsReturned, 2),
        // With a burst of 2, what comes back twice is less than what the lease allows more.
        ("units come back twice", Mutant::ReturnedTwice, 4),
    ] {
        let scenario = Scenario::token_bucket(burst).with_mutant(mutant);
        let steps = steps_to(BOUND, scenario).expect(name);
        assert_told(&format!("{name} | `token-bucket`, burst {burst}"), steps);
    }
}
