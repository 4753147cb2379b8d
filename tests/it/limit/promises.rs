//! The promises of the core, for all algorithms, ordinary and extreme, on random traces.

use proptest::prelude::*;
use tollgate::limit::units::{Cost, EXACT, Micros, Timestamp};
use tollgate::limit::{Algorithm, State, Verdict, Wait};

use crate::harness::cases::{
    START, alike, any_algorithm, any_rate, cost, forward_trace, ordinary_algorithm, ordinary_rate, passes,
    play, trace,
};

fn both() -> impl Strategy<Value = Algorithm> {
    prop_oneof![ordinary_algorithm(), any_algorithm()]
}

fn counts_denied(algorithm: &Algorithm) -> bool {
    algorithm.to_string().contains("refused attempts count too")
}

fn in_time(moment: Timestamp) -> bool {
    moment.0 < EXACT
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn default_is_fresh(algorithm in both(), trace in forward_trace()) {
        play(&algorithm, &trace, |seen| {
            let forget_at = algorithm.forget_at(seen.after);
            if !passes(seen.decision.verdict) || !in_time(forget_at.plus(Micros(EXACT / 3))) {
                return;
            }
            assert!(forget_at > seen.now);
            assert!(alike(&algorithm, seen.after, &State::default(), forget_at), "not forgotten at {forget_at:?}");
            assert_eq!(algorithm.used(seen.after, forget_at), 0);
            let before = Timestamp(forget_at.0 - 1);
            assert!(!alike(&algorithm, seen.after, &State::default(), before), "forgotten before {forget_at:?}");
        });
    }

    #[test]
    fn a_refusal_changes_nothing(algorithm in both(), trace in trace()) {
        play(&algorithm, &trace, |seen| {
            if !passes(seen.decision.verdict) && !counts_denied(&algorithm) {
                assert_eq!(seen.before, seen.after);
            }
        });
    }

    #[test]
    fn the_wait_is_exact(algorithm in both(), trace in trace()) {
        play(&algorithm, &trace, |seen| match seen.decision.verdict {
            Verdict::Deny(Wait::Never) => assert!(u64::from(seen.cost.units()) > algorithm.max_cost()),
            Verdict::Deny(Wait::After(wait)) => {
                let moment = seen.now.plus(wait);
                if in_time(moment) {
                    assert!(passes(algorithm.peek(seen.after, moment, seen.cost).verdict), "refused after {wait:?}");
                }
                let before = Timestamp(moment.0 - 1);
                assert!(!passes(algorithm.peek(seen.after, before, seen.cost).verdict), "admitted before {wait:?}");
            }
            Verdict::Deny(Wait::Unknown) => panic!("all waits are known here"),
            Verdict::Allow | Verdict::Delay(_) => {}
        });
    }

    #[test]
    fn remaining_is_exact(algorithm in both(), trace in trace()) {
        play(&algorithm, &trace, |seen| {
            let remaining = seen.decision.remaining;
            assert!(remaining <= algorithm.quota());
            let mut state = seen.after.clone();
            // One by one where that is quick, else all but the last as one request.
            let mut left = remaining;
            if left > 50 {
                let max = Cost::new(u32::try_from(left - 1).unwrap()).unwrap();
                let (after, decision) = algorithm.decide(state, seen.now, max);
                assert!(passes(decision.verdict));
                (state, left) = (after, 1);
            }
            for _ in 0..left {
                let (after, decision) = algorithm.decide(state, seen.now, Cost::ONE);
                assert!(passes(decision.verdict), "{remaining} was too many");
                state = after;
            }
            let capped = algorithm.name() == "leaky-bucket" && remaining == algorithm.quota();
            assert!(capped || !passes(algorithm.peek(&state, seen.now, Cost::ONE).verdict), "{remaining} was too few");
        });
    }

    #[test]
    fn the_reset_is_exact(algorithm in both(), trace in trace()) {
        play(&algorithm, &trace, |seen| {
            let remaining = |moment| algorithm.peek(seen.after, moment, Cost::ONE).remaining;
            let (now, told) = (seen.decision.remaining, seen.decision.reset_after);
            assert_eq!(now, remaining(seen.now));
            if let Verdict::Deny(Wait::After(wait)) = seen.decision.verdict {
                assert!(told <= wait, "reset {told:?} after wait {wait:?}");
            }
            if told == Micros(0) {
                assert_eq!(now, algorithm.peek(&State::default(), seen.now, Cost::ONE).remaining);
                return;
            }
            let moment = seen.now.plus(told);
            assert!(!in_time(moment) || remaining(moment) > now);
            assert_eq!(remaining(Timestamp(moment.0 - 1)), now);
        });
    }

    #[test]
    fn peek_says_what_decide_does(algorithm in both(), trace in trace()) {
        play(&algorithm, &trace, |seen| {
            let peeked = algorithm.peek(seen.before, seen.now, seen.cost);
            assert_eq!(peeked.verdict, seen.decision.verdict);
            if !passes(peeked.verdict) && !counts_denied(&algorithm) {
                assert_eq!(peeked, seen.decision);
            }
        });
    }

    #[test]
    fn time_that_runs_backwards_grants_nothing(algorithm in both(), trace in forward_trace(), back in 1..10_000_000_u64) {
        play(&algorithm, &trace, |seen| {
            if !passes(seen.decision.verdict) {
                return;
            }
            let earlier = Timestamp(seen.now.0 - back);
            let (state, here) = algorithm.decide(seen.after.clone(), seen.now, seen.cost);
            let (back_then, there) = algorithm.decide(seen.after.clone(), earlier, seen.cost);
            assert_eq!(state, back_then);
            assert_eq!(here.remaining, there.remaining);
            match (here.verdict, there.verdict) {
                (Verdict::Deny(Wait::After(one)), Verdict::Deny(Wait::After(other))) => {
                    assert_eq!(seen.now.plus(one), earlier.plus(other));
                }
                (one, other) => assert_eq!(one, other),
            }
        });
    }

    #[test]
    fn token_bucket_is_gcra(
        rate in prop_oneof![ordinary_rate().boxed(), any_rate().boxed()],
        burst in prop_oneof![1..=20_u32, 1..=Cost::MAX],
        trace in trace(),
    ) {
        let (bucket, gcra) = (Algorithm::token_bucket(rate, cost(burst)), Algorithm::gcra(rate, cost(burst)));
        let mut said = Vec::new();
        play(&bucket, &trace, |seen| said.push(seen.decision));
        let mut said = said.into_iter();
        play(&gcra, &trace, |seen| assert_eq!(said.next(), Some(seen.decision)));
    }

    #[test]
    fn nothing_panics_at_the_ends_of_time(
        algorithm in any_algorithm(),
        other in any_algorithm(),
        steps in prop::collection::vec((
            prop_oneof![Just(0), Just(1), Just(EXACT - 1), Just(EXACT), Just(u64::MAX), 0..EXACT, Just(START.0)],
            1..=Cost::MAX,
            prop_oneof![Just(i64::MIN), Just(i64::MAX), any::<i64>(), -5..5_i64],
        ), 1..20),
    ) {
        let mut state = State::default();
        for (now, units, difference) in steps {
            let now = Timestamp(now);
            (state, _) = algorithm.decide(state, now, cost(units));
            (state, _) = algorithm.decide(state, now, Cost::ONE);
            state = algorithm.settle(state, now, difference, now);
            algorithm.peek(&state, now, cost(units));
            algorithm.used(&state, now);
            algorithm.forget_at(&state);
            other.decide(state.clone(), now, cost(units));
            other.convert(&algorithm, state.clone(), now);
            assert!(state.weight() >= 1);
        }
    }
}
