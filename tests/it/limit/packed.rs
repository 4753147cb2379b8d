//! A state in two numbers, as stores keep it.

use proptest::prelude::*;
use tollgate::limit::units::{Cost, Micros};
use tollgate::limit::{Algorithm, Packed, State};

use crate::harness::cases::{START, any_algorithm, cost, play, rate, trace};

/// The largest whole number that a double of Lua counts to.
const EXACT: u64 = 1 << 53;

proptest! {
    #[test]
    fn a_packed_state_is_decided_as_the_state_itself(algorithm in any_algorithm(), trace in trace()) {
        let mut packed = Packed::default();
        play(&algorithm, &trace, |seen| {
            let found = algorithm.decide_packed(packed, seen.now, seen.cost);
            assert_eq!(found.is_none(), algorithm.keeps_events(), "{algorithm:?}");
            let Some((after, decision)) = found else { return };
            assert_eq!(decision, seen.decision, "{algorithm:?} {packed:?}");
            let probe = |state: &State| algorithm.peek(state, seen.now, Cost::ONE);
            assert_eq!(probe(&algorithm.unpacked(after)), probe(seen.after), "{algorithm:?} {after:?}");
            packed = after;
        });
    }
}

/// Lua counts in doubles: a level of 2^53 would equal the one after it.
#[test]
fn the_largest_debt_is_below_the_bound_of_doubles() {
    for algorithm in [
        Algorithm::token_bucket(rate(5, 1_000_000), cost(5)),
        Algorithm::gcra(rate(5, 1_000_000), cost(5)),
        Algorithm::leaky_bucket(rate(5, 1_000_000), cost(5), Micros(1)),
    ] {
        let mut state = algorithm.settle(State::default(), START, i64::MAX, START);
        assert_eq!(state.packed().map(|packed| packed.used), Some(EXACT - 1), "{algorithm:?}");
        state = algorithm.settle(state, START, 1, START);
        assert_eq!(state.packed().map(|packed| packed.used), Some(EXACT - 1), "{algorithm:?}");
    }
}

/// A reload changes what they allow, and keeps what is held.
#[test]
fn states_of_bans_and_concurrency_limits_depend_on_no_period() {
    let within = Micros(60_000_000);
    let ban = Algorithm::ban(3, within, &[Micros(1_000_000)]).expect("a ban");
    assert_eq!((ban.state_period(), ban.window()), (None, within));
    let concurrency = Algorithm::concurrency(cost(3), 0, Micros(0));
    assert_eq!((concurrency.state_period(), concurrency.window()), (None, Micros(0)));
}

/// A log that has given back all that counts is unused: its key is forgotten at once.
#[test]
fn a_log_that_gave_back_all_is_fresh() {
    let algorithm = Algorithm::sliding_log(rate(5, 1_000_000), None, false);
    let after = |milliseconds: u64| START.plus(Micros(milliseconds * 1_000));
    let (state, _) = algorithm.decide(State::default(), after(0), cost(2));
    let (state, _) = algorithm.decide(state, after(900), cost(3));
    // The first two units have expired, and are still in the log.
    let (state, granted) = algorithm.grant(state, cost(3), after(1_500));
    assert_eq!(granted, 3);
    assert_eq!(algorithm.forget_at(&state), algorithm.forget_at(&State::default()), "{state:?}");
}
