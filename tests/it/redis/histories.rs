//! Long histories of reservations and settlements: the core, the memory store and the script decide the same at each
//! step.

use std::borrow::Cow;

use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use tollgate::limit::units::{Cost, Micros, Timestamp};
use tollgate::limit::{Algorithm, Align, State};
use tollgate::store::memory::MemoryStore;
use tollgate::store::{Charge, Correction, OnError, SharedKeyInfo};

use crate::harness::cases::{START, cost, passes, rate};
use crate::harness::script::{Shared, charge};

/// One of each algorithm.
const HISTORIES: u8 = 8;
const STEPS: usize = 3_000;
/// Its costs are settled.
const SETTLES: &SharedKeyInfo = &SharedKeyInfo {
    name: Cow::Borrowed(""),
    identity: 0,
    on_error: OnError::Local,
    settles: true,
    stays_in_process: false,
    lease: None,
};

/// What happens next: after a pause in µs, a request of this cost, or the correction of an earlier admission.
#[derive(Clone, Copy, Debug)]
enum Step {
    Ask(u64, u32),
    Settle(u64, usize, i64),
}

fn algorithms() -> Vec<Algorithm> {
    let second = rate(100, 1_000_000);
    vec![
        Algorithm::token_bucket(second, cost(100)),
        Algorithm::gcra(second, cost(100)),
        Algorithm::leaky_bucket(second, cost(100), Micros(2_000_000)),
        Algorithm::fixed_window(second, Align::Clock),
        Algorithm::fixed_window(second, Align::FirstRequest),
        Algorithm::sliding_window(second),
        Algorithm::sliding_log(second, None, false),
        Algorithm::sliding_log(second, Some(Micros(1_500)), true),
    ]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let pause = prop_oneof![4 => Just(0_u64), 20 => 0..20_000_u64, 1 => 100_000..1_500_000_u64];
    let ask = (pause.clone(), prop_oneof![1 => Just(0_u32), 6 => 1..20_u32])
        .prop_map(|(pause, units)| Step::Ask(pause, units));
    let settle = (pause, 0..30_usize, -20..40_i64)
        .prop_map(|(pause, before, difference)| Step::Settle(pause, before, difference));
    prop::collection::vec(prop_oneof![3 => ask, 2 => settle], STEPS)
}

fn compare(shared: &mut Shared, algorithm: &Algorithm, steps: &[Step]) {
    let memory = MemoryStore::new(100_000).unwrap();
    memory.register(algorithm);
    let (key, mut state, mut now) = (shared.new_key(), State::default(), START);
    let of = |units| Charge {
        shared_key: SETTLES,
        ..charge(algorithm, key, Cost::new(units).unwrap_or(Cost::ZERO))
    };
    let mut admissions: Vec<Timestamp> = Vec::new();
    for (number, step) in steps.iter().enumerate() {
        match *step {
            Step::Ask(pause, units) => {
                now = now.plus(Micros(pause));
                let charge = of(units);
                let (after, expected) = algorithm.decide(state, now, charge.cost);
                let counted_at = algorithm.counted_at(&after, now);
                state = after;
                let outcome = memory.decide(&[charge], now);
                assert_eq!(*outcome.decisions, [expected], "step {number} of {algorithm} in memory");
                assert_eq!(outcome.counted_at.as_deref(), Some(&[counted_at][..]));
                assert_eq!(
                    shared.decide(&[charge], now),
                    [expected],
                    "step {number} of {algorithm} in Redis"
                );
                if passes(expected.verdict) {
                    admissions.push(counted_at);
                }
            }
            Step::Settle(pause, before, difference) => {
                now = now.plus(Micros(pause));
                let Some(&counted_at) = admissions.iter().rev().nth(before) else { continue };
                state = algorithm.settle(state, counted_at, difference, now);
                let charge = of(0);
                memory.settle(&Correction { charge, counted_at, difference, shared: false }, now);
                shared.settle(&charge, counted_at, difference, now);
            }
        }
    }
}

#[test]
fn long_histories_agree_in_the_core_in_memory_and_in_redis() {
    let mut shared = Shared::start();
    let algorithms = algorithms();
    for history in 0..HISTORIES {
        let mut seed = [7; 32];
        seed[0] = history;
        let mut runner =
            TestRunner::new_with_rng(Config::default(), TestRng::from_seed(RngAlgorithm::ChaCha, &seed));
        let steps = steps().new_tree(&mut runner).unwrap().current();
        compare(&mut shared, &algorithms[usize::from(history) % algorithms.len()], &steps);
    }
}
