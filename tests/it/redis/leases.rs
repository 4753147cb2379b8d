//! Random steps: units in advance, and what comes back of them, are the same by the script in a real Redis as by the core.

use proptest::prelude::*;
use tollgate::limit::lease::Lease;
use tollgate::limit::lease::ledger::LeasedCounter;
use tollgate::limit::units::{Cost, Micros, Rate, Timestamp};
use tollgate::limit::{Algorithm, Align};

use crate::harness::cases::START;
use crate::harness::script::{Shared, charge, hold};

/// A step of a gateway.
#[derive(Clone, Debug)]
enum Action {
    Take(u32),
    Decide(u32),
    /// Of the grant so many grants ago, so many units come back, as if they were taken by so much later.
    Return(usize, u32, u64),
    Settle(i64),
}

fn actions() -> impl Strategy<Value = Vec<(u64, Action)>> {
    let action = prop_oneof![
        4 => (1..40_u32).prop_map(Action::Take),
        1 => (1..=LARGE).prop_map(Action::Take),
        2 => (1..6_u32).prop_map(Action::Decide),
        3 => (0..3_usize, 0..30_u32, prop_oneof![3 => Just(0), 1 => 0..2_000_000_u64])
            .prop_map(|(which, units, later)| Action::Return(which, units, later)),
        1 => (-5..5_i64).prop_map(Action::Settle),
    ];
    let pause = prop_oneof![Just(0), 0..2_000_u64, 0..400_000_u64, 1_000_000..3_000_000_u64];
    prop::collection::vec((pause, action), 1..30)
}

/// More units than any limit here has.
const LARGE: u32 = (1 << 24) - 1;

fn algorithms() -> impl Strategy<Value = Algorithm> {
    let rate = (1..50_u32, prop_oneof![Just(1_000_000), Just(60_000_000), 1_000..5_000_000_u64])
        .prop_map(|(count, period)| Rate::new(count, Micros(period)).unwrap());
    let large = (1..=Cost::MAX, Just(3_600_000_000_u64))
        .prop_map(|(count, period)| Rate::new(count, Micros(period)).unwrap());
    (prop_oneof![4 => rate, 1 => large], 0..5_usize, 2..60_u32).prop_map(|(rate, kind, burst)| {
        let burst = Cost::new(burst).unwrap();
        match kind {
            0 => Algorithm::token_bucket(rate, burst),
            1 => Algorithm::gcra(rate, burst),
            2 => Algorithm::fixed_window(rate, Align::Clock),
            3 => Algorithm::fixed_window(rate, Align::FirstRequest),
            _ => Algorithm::sliding_window(rate),
        }
    })
}

fn compare(shared: &mut Shared, algorithm: &Algorithm, lease: &Lease, actions: &[(u64, Action)]) {
    let key = shared.new_key();
    let charge_of = |cost: Cost| charge(algorithm, key, cost);
    let (mut counter, mut now, mut grants) = (LeasedCounter::default(), START, Vec::new());
    for (pause, action) in actions {
        now = now.plus(Micros(*pause));
        match *action {
            Action::Take(wanted) => {
                let expected = counter.take(algorithm, lease, wanted, now);
                let (units, told) = shared.lease(&charge_of(Cost::ONE), lease, wanted, now);
                let numbers = (units, told.remaining, told.reset_after);
                assert_eq!(
                    numbers,
                    (expected.0, expected.1.remaining, expected.1.reset_after),
                    "{algorithm:?} {actions:?}"
                );
                grants.push((expected.0, now));
            }
            Action::Decide(units) => {
                let cost = Cost::new(units).unwrap();
                let (state, expected) = algorithm.decide(std::mem::take(&mut counter.state), now, cost);
                counter.state = state;
                assert_eq!(shared.decide(&[charge_of(cost)], now), [expected], "{algorithm:?} {actions:?}");
            }
            Action::Return(which, units, later) => {
                let Some(&(granted, at)) = grants.iter().rev().nth(which) else { continue };
                let (units, at) = (units.min(granted), Timestamp((at.0 + later).min(now.0)));
                counter.give_back(algorithm, lease, units, at, now);
                shared.give_back(&charge_of(Cost::ONE), lease, (units, at), now);
            }
            Action::Settle(difference) => {
                let state = std::mem::take(&mut counter.state);
                counter.state = algorithm.settle(state, now, difference, now);
                shared.settle(&charge_of(Cost::ONE), now, difference, now);
            }
        }
        let expected = algorithm.peek(&counter.state, now, Cost::ONE);
        assert_eq!(
            shared.peek(&[charge_of(Cost::ONE)], now),
            [expected],
            "{algorithm:?} after {action:?} of {actions:?}"
        );
    }
}

#[test]
fn grants_and_returns_are_alike() {
    let lease =
        prop_oneof![Just(100_000), Just(1_000_000_u64)].prop_map(|span| Lease::new(Micros(span)).unwrap());
    hold(400, (algorithms(), lease, actions()), |shared, (algorithm, lease, actions)| {
        compare(shared, &algorithm, &lease, &actions);
    });
}

/// What comes back after a reset stays charged: the counter has begun anew.
#[test]
fn nothing_comes_back_to_a_counter_that_was_reset() {
    let mut shared = Shared::start();
    let rate = Rate::new(10, Micros(60_000_000)).unwrap();
    let lease = Lease::new(Micros::SECOND).unwrap();
    let ten = Cost::new(10).unwrap();
    for algorithm in [Algorithm::token_bucket(rate, ten), Algorithm::sliding_window(rate)] {
        let key = shared.new_key();
        let charge = charge(&algorithm, key, Cost::ONE);
        let (units, _) = shared.lease(&charge, &lease, 4, START);
        shared.reset(&charge, START.plus(Micros(10)));
        shared.lease(&charge, &lease, 2, START.plus(Micros(20)));
        shared.give_back(&charge, &lease, (units, START), START.plus(Micros(30)));
        assert_eq!(shared.used(&charge, START.plus(Micros(30))), 2, "{algorithm:?}");
    }
}
