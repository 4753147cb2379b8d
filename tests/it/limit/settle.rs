//! Correcting a cost after the fact.

use proptest::prelude::*;
use tollgate::limit::units::{Cost, EXACT, Micros, Timestamp};
use tollgate::limit::{Algorithm, Align, State, Verdict, Wait};

use crate::harness::cases::{
    START, alike, any_algorithm, cost, forward_trace, ordinary_algorithm, passes, play, rate,
};

fn after(span: u64) -> Timestamp {
    START.plus(Micros(span))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn more_and_then_less_is_nothing(
        algorithm in ordinary_algorithm(), trace in forward_trace(), difference in 1..1000_i64, later in 0..2_000_000_u64,
    ) {
        play(&algorithm, &trace, |seen| {
            if passes(seen.decision.verdict) {
                let now = seen.now.plus(Micros(later));
                let more = algorithm.settle(seen.after.clone(), seen.now, difference, now);
                let less = algorithm.settle(more, seen.now, -difference, now);
                // A refund is void, and a charge one of the present, once the window or the event has passed.
                let one_less = algorithm.settle(seen.after.clone(), seen.now, -1, now);
                let counts = algorithm.state_period().is_none() || !alike(&algorithm, &one_less, seen.after, now);
                assert!(!counts || alike(&algorithm, &less, seen.after, now));
            }
        });
    }

    #[test]
    fn what_is_given_back_at_once_was_never_spent(
        algorithm in prop_oneof![ordinary_algorithm(), any_algorithm()], trace in forward_trace(),
    ) {
        play(&algorithm, &trace, |seen| {
            if passes(seen.decision.verdict) {
                let refund = -i64::from(seen.cost.units());
                let state = algorithm.settle(seen.after.clone(), seen.now, refund, seen.now);
                // A leaky bucket in which 10^9 units take longer than the end of time can't tell how much longer.
                let endless = algorithm.forget_at(seen.after).0 >= EXACT;
                assert!(endless || alike(&algorithm, &state, seen.before, seen.now));
            }
        });
    }

    #[test]
    fn a_refund_never_gives_more_than_all(algorithm in any_algorithm(), trace in forward_trace()) {
        play(&algorithm, &trace, |seen| {
            let state = algorithm.settle(seen.after.clone(), seen.now, i64::MIN, seen.now);
            let fresh = algorithm.peek(&State::default(), seen.now, Cost::ONE);
            assert!(algorithm.peek(&state, seen.now, Cost::ONE).remaining <= fresh.remaining);
        });
    }

    #[test]
    fn nothing_passes_until_a_debt_is_paid(algorithm in ordinary_algorithm(), debt in 1..1000_i64) {
        let quota = i64::try_from(algorithm.quota()).unwrap();
        let (state, _) = algorithm.decide(State::default(), START, Cost::ONE);
        // A leaky bucket takes one more than its queue.
        let state = algorithm.settle(state, START, quota + debt, START);
        let decision = algorithm.peek(&state, START, Cost::ONE);
        assert_eq!(decision.remaining, 0);
        let Verdict::Deny(Wait::After(wait)) = decision.verdict else { panic!("{:?}", decision.verdict) };
        assert!(algorithm.used(&state, START) > 1 << 16);
        assert!(passes(algorithm.peek(&state, START.plus(wait), Cost::ONE).verdict));
        assert!(!passes(algorithm.peek(&state, START.plus(Micros(wait.0 - 1)), Cost::ONE).verdict));
    }
}

#[test]
fn a_bucket_pays_a_debt_off_at_its_rate() {
    for algorithm in
        [Algorithm::token_bucket(rate(10, 1_000_000), cost(5)), Algorithm::gcra(rate(10, 1_000_000), cost(5))]
    {
        let (state, _) = algorithm.decide(State::default(), START, cost(5));
        let state = algorithm.settle(state, START, 10, START);
        let decision = algorithm.peek(&state, START, Cost::ONE);
        assert_eq!(decision.verdict, Verdict::Deny(Wait::After(Micros(1_100_000))));
        assert_eq!(decision.reset_after, Micros(1_100_000));
    }
}

#[test]
fn windows_correct_only_what_still_counts() {
    let fixed = Algorithm::fixed_window(rate(5, 1_000_000), Align::Clock);
    let (state, _) = fixed.decide(State::default(), START, cost(3));
    let (state, _) = fixed.decide(state, after(1_000_000), cost(2));
    let settled = fixed.settle(state.clone(), START, -3, after(1_000_000));
    assert_eq!(settled, state);

    let sliding = Algorithm::sliding_window(rate(5, 1_000_000));
    let (state, _) = sliding.decide(State::default(), START, cost(5));
    let state = sliding.settle(state, START, -3, after(1_500_000));
    assert_eq!(sliding.peek(&state, after(1_500_000), Cost::ONE).remaining, 4);
    let untouched = sliding.settle(state.clone(), START, -2, after(2_000_000));
    assert_eq!(untouched, state);
}

#[test]
fn a_charge_that_comes_too_late_for_its_window_counts_in_the_present_one() {
    let second = rate(5, 1_000_000);
    let late = after(3_000_000);
    for (algorithm, free_again) in [
        (Algorithm::fixed_window(second, Align::Clock), after(4_000_000)),
        (Algorithm::fixed_window(second, Align::FirstRequest), after(4_000_000)),
        (Algorithm::sliding_window(second), after(5_000_000)),
        (Algorithm::sliding_log(second, None, false), after(4_000_000)),
        (Algorithm::sliding_log(second, None, true), after(4_000_000)),
    ] {
        let (state, _) = algorithm.decide(State::default(), START, cost(2));
        let void = algorithm.settle(state.clone(), START, -2, late);
        assert!(alike(&algorithm, &void, &state, late), "{algorithm}");
        let state = algorithm.settle(state, START, 7, late);
        for asked in [Cost::ZERO, Cost::ONE] {
            assert!(!passes(algorithm.peek(&state, late, asked).verdict), "{algorithm}");
        }
        let full = algorithm.peek(&state, free_again, cost(5)).verdict;
        assert_eq!(full, Verdict::Allow, "{algorithm}");
    }
}

/// Five units a second, by each algorithm that refuses what exceeds them.
fn five_a_second() -> [Algorithm; 7] {
    let second = rate(5, 1_000_000);
    [
        Algorithm::token_bucket(second, cost(5)),
        Algorithm::gcra(second, cost(5)),
        Algorithm::fixed_window(second, Align::Clock),
        Algorithm::fixed_window(second, Align::FirstRequest),
        Algorithm::sliding_window(second),
        Algorithm::sliding_log(second, None, false),
        Algorithm::sliding_log(second, None, true),
    ]
}

/// Several workers read the clock: the later reading may come first, even from the next window.
#[test]
fn what_was_counted_later_is_corrected_where_it_counts() {
    let (early, late) = (after(999_999), after(1_000_001));
    for algorithm in five_a_second() {
        let (first, _) = algorithm.decide(State::default(), late, cost(2));
        let (second, decision) = algorithm.decide(first.clone(), early, cost(3));
        assert!(passes(decision.verdict), "{algorithm}");
        let counted_at = algorithm.counted_at(&second, early);
        let corrected = algorithm.settle(second, counted_at, -3, late);
        assert!(alike(&algorithm, &corrected, &first, late), "{algorithm}");
    }
}

/// A request that costs nothing yet is refused only in debt, and leaves no trace.
#[test]
fn a_cost_of_zero_is_refused_only_in_debt() {
    for algorithm in five_a_second() {
        let (state, decision) = algorithm.decide(State::default(), START, Cost::ZERO);
        assert!(passes(decision.verdict) && alike(&algorithm, &state, &State::default(), START));
        let (state, _) = algorithm.decide(state, START, cost(5));
        let (state, decision) = algorithm.decide(state, START, Cost::ZERO);
        assert_eq!((decision.verdict, decision.remaining), (Verdict::Allow, 0), "{algorithm}");
        let state = algorithm.settle(state, START, 1, START);
        let (after_denial, decision) = algorithm.decide(state.clone(), START, Cost::ZERO);
        let Verdict::Deny(Wait::After(wait)) = decision.verdict else { panic!("{algorithm}: {decision:?}") };
        assert!(alike(&algorithm, &after_denial, &state, START), "{algorithm}");
        let just_before = START.plus(Micros(wait.0 - 1));
        assert!(!passes(algorithm.peek(&state, just_before, Cost::ZERO).verdict), "{algorithm}");
        assert!(passes(algorithm.peek(&state, START.plus(wait), Cost::ZERO).verdict), "{algorithm}");
    }
}

#[test]
fn a_log_gives_back_only_what_the_admitted_had() {
    let log = Algorithm::sliding_log(rate(5, 1_000_000), None, true);
    let (state, _) = log.decide(State::default(), START, cost(3));
    let (state, refused) = log.decide(state, START, cost(3));
    assert!(!passes(refused.verdict));
    // Of the six units the newest five are kept: three admitted, two refused.
    let state = log.settle(state, START, -9, START);
    assert_eq!(log.peek(&state, START, Cost::ONE).remaining, 3);
}

#[test]
fn a_refund_in_a_log_frees_its_spacing() {
    let log = Algorithm::sliding_log(rate(5, 1_000_000), Some(Micros(300_000)), false);
    let (state, _) = log.decide(State::default(), START, Cost::ONE);
    let (state, _) = log.decide(state, after(300_000), Cost::ONE);
    let state = log.settle(state, after(300_000), -1, after(300_000));
    assert_eq!(log.peek(&state, after(300_000), Cost::ONE).verdict, Verdict::Allow);
}
