//! Charging units by hand, beyond the allowance if need be.

use proptest::prelude::*;
use tollgate::limit::units::{Cost, EXACT, Timestamp};
use tollgate::limit::{Algorithm, Align, State, Verdict, Wait};

use crate::harness::cases::{START, cost, forward_trace, ordinary_algorithm, passes, play, rate, trace};

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    /// A charge adds exactly its units, whatever was used, and whether or not they fit.
    #[test]
    fn a_charge_adds_its_units(algorithm in ordinary_algorithm(), trace in trace(), units in 1..100_u32) {
        play(&algorithm, &trace, |seen| {
            let before = algorithm.in_use(seen.after, seen.now);
            if before > 1_000_000 {
                // A queue may be as long as its meter counts.
                return;
            }
            let state = algorithm.charge(seen.after.clone(), cost(units), seen.now);
            assert_eq!(algorithm.in_use(&state, seen.now), before + u64::from(units), "{algorithm:?} {:?}", seen.after);
            let (state, granted) = algorithm.grant(state, cost(units), seen.now);
            assert_eq!((granted, algorithm.in_use(&state, seen.now)), (units.into(), before), "grant is the counterpart");
        });
    }

    /// The wait that is told in debt is the wait: not a microsecond less.
    #[test]
    fn a_wait_in_debt_is_exact(algorithm in ordinary_algorithm(), trace in forward_trace(), units in 1..100_u32) {
        play(&algorithm, &trace, |seen| {
            let state = algorithm.charge(seen.after.clone(), cost(units), seen.now);
            if let Verdict::Deny(Wait::After(wait)) = algorithm.peek(&state, seen.now, Cost::ONE).verdict {
                let opens = seen.now.plus(wait);
                // A refused attempt that counts would move the end.
                let at = |now: Timestamp| passes(algorithm.peek(&state, now, Cost::ONE).verdict);
                // Beyond the last moment there is no later one.
                if !algorithm.counts_denied() && opens.0 < EXACT {
                    assert!(at(opens) && !at(Timestamp(opens.0 - 1)), "{algorithm:?} {state:?}");
                }
            }
        });
    }
}

#[test]
fn a_charge_counts_from_now_on() {
    let minute = rate(5, 60_000_000);
    let later = START.plus(tollgate::limit::units::Micros(90_000_000));
    for algorithm in [
        Algorithm::fixed_window(minute, Align::Clock),
        Algorithm::fixed_window(minute, Align::FirstRequest),
        Algorithm::sliding_window(minute),
        Algorithm::sliding_log(minute, None, false),
        Algorithm::sliding_log(minute, None, true),
    ] {
        let (state, _) = algorithm.decide(State::default(), START, cost(3));
        let state = algorithm.charge(state, cost(7), later);
        assert!(algorithm.in_use(&state, later) >= 7, "{algorithm:?}");
        assert!(!passes(algorithm.peek(&state, later, Cost::ONE).verdict), "{algorithm:?}");
    }
}

/// Charges without end stop at a bound, and the counter is still one.
#[test]
fn debt_is_bounded() {
    let second = rate(5, 1_000_000);
    for algorithm in [
        Algorithm::token_bucket(second, cost(5)),
        Algorithm::leaky_bucket(second, cost(5), tollgate::limit::units::Micros(1)),
        Algorithm::fixed_window(second, Align::Clock),
        Algorithm::sliding_window(second),
        Algorithm::sliding_log(second, None, false),
    ] {
        let mut state = State::default();
        for _ in 0..40 {
            state = algorithm.charge(state, cost(Cost::MAX), START);
        }
        assert!(algorithm.in_use(&state, START) >= u64::from(Cost::MAX), "{algorithm:?}");
        assert!(!passes(algorithm.peek(&state, START, Cost::ONE).verdict), "{algorithm:?}");
    }
}
