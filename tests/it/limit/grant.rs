//! Giving units back, whenever they were used.

use proptest::prelude::*;
use tollgate::limit::units::{Cost, Timestamp};
use tollgate::limit::{Algorithm, Align, State};

use crate::harness::cases::{START, cost, forward_trace, ordinary_algorithm, passes, play, rate, trace};

fn remaining(algorithm: &Algorithm, state: &State, now: Timestamp) -> u64 {
    algorithm.peek(state, now, Cost::ONE).remaining
}

fn after(seconds: u64) -> Timestamp {
    START.plus(tollgate::limit::units::Micros(seconds * 1_000_000))
}

/// Whether `remaining` tells how much is in use: not with `spacing`, and not of a queue, which may be longer than it should.
fn counts(algorithm: &Algorithm) -> bool {
    !matches!(algorithm, Algorithm::LeakyBucket(_)) && !format!("{algorithm:?}").contains("spacing: Some")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn just_as_many_more_pass(
        algorithm in ordinary_algorithm().prop_filter("it counts", counts), trace in forward_trace(), units in 1..100_u32,
    ) {
        play(&algorithm, &trace, |seen| {
            let before = remaining(&algorithm, seen.after, seen.now);
            let (state, granted) = algorithm.grant(seen.after.clone(), cost(units), seen.now);
            let now = remaining(&algorithm, &state, seen.now);
            assert_eq!(now, (before + u64::from(units)).min(algorithm.quota()), "{algorithm:?} {:?}", seen.after);
            assert!(granted >= now - before && granted <= u64::from(units));
            if granted < u64::from(units) {
                assert_eq!(algorithm.used(&state, seen.now), 0);
            }
        });
    }

    #[test]
    fn all_that_was_used_is_no_more_than_all(algorithm in ordinary_algorithm(), trace in trace(), units in 1..100_u32) {
        play(&algorithm, &trace, |seen| {
            let fresh = remaining(&algorithm, &State::default(), seen.now);
            let (some, few) = algorithm.grant(seen.after.clone(), cost(units), seen.now);
            let (rest, many) = algorithm.grant(some, cost(Cost::MAX), seen.now);
            // A queue may hold more than can be given back at once.
            let rest = algorithm.grant(rest, cost(Cost::MAX), seen.now).0;
            assert_eq!(algorithm.used(&rest, seen.now), 0);
            assert_eq!(remaining(&algorithm, &rest, seen.now), fresh);
            assert_eq!(algorithm.grant(rest, cost(units), seen.now).1, 0);
            let all = algorithm.grant(seen.after.clone(), cost(Cost::MAX), seen.now).1;
            assert!(all == few + many || all == u64::from(Cost::MAX), "{all} {few} {many}");
        });
    }
}

#[test]
fn a_queue_that_is_full_takes_as_many_more() {
    let algorithm =
        Algorithm::leaky_bucket(rate(1, 1_000_000), cost(3), tollgate::limit::units::Micros(1 << 50));
    let mut state = State::default();
    let pass = |state: &mut State| {
        let (next, decision) = algorithm.decide(std::mem::take(state), START, Cost::ONE);
        *state = next;
        passes(decision.verdict)
    };
    assert_eq!((0..9).filter(|_| pass(&mut state)).count(), 4);
    let (mut state, granted) = algorithm.grant(state, cost(2), START);
    assert_eq!((granted, (0..9).filter(|_| pass(&mut state)).count()), (2, 2));
}

#[test]
fn a_log_gives_back_what_came_last_and_refused_attempts_too() {
    let spacing = Some(tollgate::limit::units::Micros(10_000_000));
    let algorithm = Algorithm::sliding_log(rate(2, 60_000_000), spacing, false);
    let (state, _) = algorithm.decide(State::default(), START, Cost::ONE);
    let (state, _) = algorithm.decide(state, after(10), Cost::ONE);
    // The spacing counts from the first again, which is long enough ago.
    let (state, granted) = algorithm.grant(state, Cost::ONE, after(11));
    assert!(granted == 1 && passes(algorithm.peek(&state, after(11), Cost::ONE).verdict));

    let algorithm = Algorithm::sliding_log(rate(2, 60_000_000), None, true);
    let state =
        (0..9).fold(State::default(), |state, second| algorithm.decide(state, after(second), Cost::ONE).0);
    let (state, granted) = algorithm.grant(state, Cost::ONE, after(9));
    assert_eq!((granted, remaining(&algorithm, &state, after(9))), (1, 1));
}

#[test]
fn a_window_that_is_over_has_nothing_to_give() {
    for align in [Align::Clock, Align::FirstRequest] {
        let algorithm = Algorithm::fixed_window(rate(5, 1_000_000), align);
        let (state, _) = algorithm.decide(State::default(), START, cost(5));
        assert_eq!(algorithm.grant(state.clone(), cost(9), START).1, 5);
        assert_eq!(algorithm.grant(state, cost(9), after(1)).1, 0);
    }
}
