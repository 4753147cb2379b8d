//! A stored state under new numbers: rounded against the client by less than one unit, however often, never in its
//! favour.

use proptest::prelude::*;
use tollgate::limit::units::{Cost, Micros, Rate, Timestamp};
use tollgate::limit::{Algorithm, Align, State, Verdict, Wait};

use crate::harness::cases::{
    START, any_algorithm, cost, forward_trace, ordinary_algorithm, ordinary_rate, passes, play, rate,
};

/// Units in use: how far the largest burst that passes falls short of the quota.
fn used(algorithm: &Algorithm, state: &State, now: Timestamp) -> u64 {
    algorithm.quota() - algorithm.peek(state, now, Cost::ONE).remaining
}

proptest! {
    #[test]
    fn the_same_numbers_change_nothing(algorithm in any_algorithm(), trace in forward_trace(), later in 0..1_000_000_u64) {
        play(&algorithm, &trace, |seen| {
            let now = seen.now.plus(Micros(later));
            let state = algorithm.convert(&algorithm, seen.after.clone(), now);
            for units in [1, 7, Cost::MAX] {
                assert_eq!(algorithm.peek(&state, now, cost(units)), algorithm.peek(seen.after, now, cost(units)));
            }
        });
    }

    #[test]
    fn buckets_keep_the_units_used(from in ordinary_rate(), to in ordinary_rate(), gcra: bool, spent in 1..=20_u32, later in 0..3_000_000_u64) {
        let new = if gcra { Algorithm::gcra } else { Algorithm::token_bucket };
        let (from, to) = (new(from, cost(20)), new(to, cost(30)));
        let (state, _) = from.decide(State::default(), START, cost(spent));
        let now = START.plus(Micros(later));
        let before = used(&from, &state, now);
        let state = to.convert(&from, state, now);
        // Both are reported in whole units, rounded up, so parts of a tick more are no more at all.
        assert_eq!(used(&to, &state, now), before);
    }

    #[test]
    fn another_algorithm_starts_afresh(from in ordinary_algorithm(), to in ordinary_algorithm(), trace in forward_trace()) {
        play(&from, &trace, |seen| {
            if from.name() != to.name() {
                assert_eq!(to.convert(&from, seen.after.clone(), seen.now), State::default());
                // Nor is a state of another kind ever misread.
                assert_eq!(to.peek(seen.after, seen.now, Cost::ONE), to.peek(&State::default(), seen.now, Cost::ONE));
            }
        });
    }
}

#[test]
fn windows_keep_their_counts_while_they_last_as_long() {
    type New = fn(Rate) -> Algorithm;
    let kinds: [New; 3] = [
        |rate| Algorithm::fixed_window(rate, Align::Clock),
        Algorithm::sliding_window,
        |rate| Algorithm::sliding_log(rate, None, false),
    ];
    for new in kinds {
        let (from, more, longer) =
            (new(rate(10, 1_000_000)), new(rate(12, 1_000_000)), new(rate(10, 2_000_000)));
        let (state, _) = from.decide(State::default(), START, cost(7));
        assert_eq!(used(&more, &more.convert(&from, state.clone(), START), START), 7);
        let fewer = new(rate(5, 1_000_000));
        let converted = fewer.convert(&from, state.clone(), START);
        assert!(!passes(fewer.peek(&converted, START, Cost::ONE).verdict));
        assert_eq!(used(&longer, &longer.convert(&from, state, START), START), 0);
    }
}

#[test]
fn a_queue_keeps_its_length_and_a_bucket_its_debt() {
    let (slow, fast) = (rate(10, 1_000_000), rate(20, 1_000_000));
    let (from, to) = (
        Algorithm::leaky_bucket(slow, cost(5), Micros(10_000_000)),
        Algorithm::leaky_bucket(fast, cost(5), Micros(10_000_000)),
    );
    let (state, _) = from.decide(State::default(), START, cost(4));
    let state = to.convert(&from, state, START);
    let wait = Verdict::Delay(Micros(200_000));
    assert_eq!(to.peek(&state, START, Cost::ONE).verdict, wait);

    let (from, to) = (Algorithm::token_bucket(slow, cost(5)), Algorithm::token_bucket(fast, cost(5)));
    let state = from.settle(State::default(), START, 15, START);
    let state = to.convert(&from, state, START);
    let wait = Wait::After(Micros(550_000));
    assert_eq!(to.peek(&state, START, Cost::ONE).verdict, Verdict::Deny(wait));
}
