//! A limit's numbers change under its counters in Redis, at once or while old and new gateways run side by side.

use std::collections::HashMap;

use proptest::prelude::*;
use tollgate::limit::units::{Cost, Micros, Rate, Timestamp};
use tollgate::limit::{Algorithm, Align, State, Verdict};
use tollgate::store::redis::key::Version;

use crate::harness::cases::{START, algorithm, any_rate, cost, ordinary_rate, passes, rate};
use crate::harness::charges;
use crate::harness::script::{Shared, charge, hold, name};

/// What the script does, in the core's words: states under one version share a key and are converted when they are next read.
#[derive(Default)]
struct Converting(HashMap<String, (Algorithm, State)>);

impl Converting {
    fn decide(&mut self, to: &Algorithm, now: Timestamp, cost: Cost) -> tollgate::limit::Decision {
        let version = Version(to).to_string();
        let state = match self.0.remove(&version) {
            Some((from, state)) if from != *to => to.convert(&from, state, now),
            Some((_, state)) => state,
            None => State::default(),
        };
        let (state, decision) = to.decide(state, now, cost);
        self.0.insert(version, (*to, state));
        decision
    }
}

/// Some configurations of one limit, and requests to gateways that have one or the other: which, how much later (or before), what
/// cost.
fn rollouts() -> impl Strategy<Value = (Vec<Algorithm>, Vec<(prop::sample::Index, i64, u32)>)> {
    let units = || prop_oneof![1..=20_u32, 1..=Cost::MAX].prop_map(cost);
    let of_any_kind = prop_oneof![algorithm(ordinary_rate(), units()), algorithm(any_rate(), units())];
    // Of a few periods, so that windows share them.
    let period = prop_oneof![Just(1_000_u64), Just(1_000_000), Just(7_777)];
    let few = (1..=20_u32, period).prop_map(|(count, period)| rate(count, period));
    let algorithms = prop_oneof![of_any_kind, algorithm(few, (1..=20_u32).prop_map(cost))];
    let pause = prop_oneof![Just(0), 0..3_000_i64, 0..3_000_000_i64, -2_000_000..0_i64];
    let request = (any::<prop::sample::Index>(), pause, prop_oneof![4 => 1..4_u32, 1 => 1..30_u32]);
    (prop::collection::vec(algorithms, 2..5), prop::collection::vec(request, 1..60))
}

#[test]
fn states_are_converted_as_the_core_converts_them() {
    hold(400, rollouts(), |shared, (algorithms, requests)| {
        let (key, mut expected, mut now) = (shared.new_key(), Converting::default(), START);
        for (which, pause, units) in requests {
            now = Timestamp(now.0.saturating_add_signed(pause));
            let algorithm = which.get(&algorithms);
            let decision = expected.decide(algorithm, now, cost(units));
            assert_eq!(
                shared.decide(&[charge(algorithm, key, cost(units))], now),
                [decision],
                "{algorithm:?}"
            );
        }
    });
}

#[test]
fn one_reload_is_seen_as_by_the_memory_store() {
    let mut shared = Shared::start();
    for (old, new) in charges::all(10, Micros::SECOND).iter().zip(&charges::all(20, Micros::SECOND)) {
        let memory = charges::store(100, &[*old, *new]);
        let key = shared.new_key();
        for (turn, algorithm) in (0..).zip([old, old, new, new, old, new]) {
            let now = START.plus(Micros(turn * 30_000));
            let charges = [charge(algorithm, key, cost(4))];
            assert_eq!(
                shared.decide(&charges, now),
                memory.decide(&charges, now).decisions.to_vec(),
                "{new:?}"
            );
        }
    }
}

/// Windows of other lengths count under keys of their own: otherwise each gateway would start the other's count afresh, and
/// together they would admit anything.
#[test]
fn gateways_with_other_windows_do_not_reset_each_other() {
    type New = fn(Rate) -> Algorithm;
    let kinds: [New; 3] = [
        |rate| Algorithm::fixed_window(rate, Align::Clock),
        Algorithm::sliding_window,
        |rate| Algorithm::sliding_log(rate, None, false),
    ];
    let mut shared = Shared::start();
    for new in kinds {
        let gateways = [new(rate(5, 1_000_000)), new(rate(5, 60_000_000))];
        let key = shared.new_key();
        let mut admits =
            |gateway: &Algorithm| passes(shared.decide(&[charge(gateway, key, Cost::ONE)], START)[0].verdict);
        let passed = (0..100).filter(|turn| admits(&gateways[turn % 2])).count();
        assert_eq!(passed, 10, "{gateways:?}");
    }
}

/// Otherwise the old rate would go on draining what the client was told to wait for.
#[test]
fn a_refusal_under_new_numbers_is_kept_in_them() {
    let (fast, slow) =
        (Algorithm::gcra(rate(100, 1_000_000), cost(50)), Algorithm::gcra(rate(1, 60_000_000), cost(1)));
    let other = Algorithm::fixed_window(rate(100, 1_000_000), Align::Clock);
    for charges in [1, 2] {
        let mut shared = Shared::start();
        let (key, second) = (shared.new_key(), shared.new_key());
        shared.decide(&[charge(&fast, key, cost(50))], START);
        let mut wait = |now| {
            let both = [charge(&slow, key, Cost::ONE), charge(&other, second, Cost::ONE)];
            let Verdict::Deny(wait) = shared.decide(&both[..charges], now)[0].verdict else {
                panic!("denied")
            };
            wait
        };
        let hour = Micros(50 * 60_000_000);
        assert_eq!(wait(START), tollgate::limit::Wait::After(hour));
        let later = START.plus(Micros::SECOND);
        assert_eq!(wait(later), tollgate::limit::Wait::After(Micros(hour.0 - 1_000_000)));
    }
}

/// Otherwise Redis would forget the last request before the client has waited as long as it was told.
#[test]
fn a_longer_spacing_makes_a_key_live_longer() {
    let (mut shared, rate) = (Shared::start(), rate(5, 1_000_000));
    let old = Algorithm::sliding_log(rate, None, false);
    let new = Algorithm::sliding_log(rate, Some(Micros(100_000_000)), false);
    let key = shared.new_key();
    shared.decide(&[charge(&old, key, Cost::ONE)], START);
    let lives = |shared: &mut Shared| shared.command(&["PTTL", &name(key, &old)]).integer();
    let before = lives(&mut shared);
    let refused = shared.decide(&[charge(&new, key, Cost::ONE)], START)[0];
    assert!(!passes(refused.verdict));
    assert!(lives(&mut shared) > before + 90_000);
}
