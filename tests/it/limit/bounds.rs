//! Never more than an algorithm's stated bound in any interval, whatever is asked.

use proptest::prelude::*;
use tollgate::limit::units::{Cost, Micros, Rate, Timestamp};
use tollgate::limit::{Algorithm, Align, State, Verdict};

use crate::harness::cases::{Step, any_rate, cost, forward_trace, ordinary_rate, passes, play, rate};

/// Times and costs of what passed.
fn admitted(algorithm: &Algorithm, trace: &[Step]) -> Vec<(u64, u128)> {
    let mut admitted = Vec::new();
    play(algorithm, trace, |seen| {
        if passes(seen.decision.verdict) {
            admitted.push((seen.now.0, u128::from(seen.cost.units())));
        }
    });
    admitted
}

/// The units in every stretch of `admitted` from one event to another, with the stretch's length.
fn stretches(admitted: &[(u64, u128)]) -> impl Iterator<Item = (u128, u128)> + '_ {
    (0..admitted.len()).flat_map(move |first| {
        let mut units = 0;
        admitted[first..].iter().map(move |(at, cost)| {
            units += cost;
            (u128::from(at - admitted[first].0), units)
        })
    })
}

fn rates() -> impl Strategy<Value = Rate> {
    prop_oneof![ordinary_rate().boxed(), any_rate().boxed()]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn buckets_admit_the_burst_and_what_is_refilled(
        rate in rates(), burst in prop_oneof![1..=30_u32, 1..=Cost::MAX], gcra: bool, trace in forward_trace(),
    ) {
        let new = if gcra { Algorithm::gcra } else { Algorithm::token_bucket };
        for (span, units) in stretches(&admitted(&new(rate, cost(burst)), &trace)) {
            let above = units.saturating_sub(burst.into());
            assert!(above * u128::from(rate.period().0) <= span * u128::from(rate.count()));
        }
    }

    #[test]
    fn a_leaky_bucket_spaces_what_leaves(
        rate in rates(), queue in 1..=30_u32, max_wait in 0..60_000_000_u64, trace in forward_trace(),
    ) {
        let algorithm = Algorithm::leaky_bucket(rate, cost(queue), Micros(max_wait));
        let mut before: Option<(u64, u128)> = None;
        play(&algorithm, &trace, |seen| {
            let leaves = match seen.decision.verdict {
                Verdict::Allow => seen.now.0,
                Verdict::Delay(wait) => seen.now.plus(wait).0,
                Verdict::Deny(_) => return,
            };
            assert!(leaves - seen.now.0 <= max_wait);
            if let Some((left, cost)) = before {
                // Each leaves at the next whole µs after its turn.
                let span = u128::from(leaves - left) + 1;
                assert!(span * u128::from(rate.count()) > cost * u128::from(rate.period().0));
            }
            before = Some((leaves, seen.cost.units().into()));
        });
    }

    #[test]
    fn aligned_windows_admit_their_count(rate in rates(), sliding: bool, trace in forward_trace()) {
        let algorithm =
            if sliding { Algorithm::sliding_window(rate) } else { Algorithm::fixed_window(rate, Align::Clock) };
        let admitted = admitted(&algorithm, &trace);
        for window in admitted.chunk_by(|one, other| one.0 / rate.period().0 == other.0 / rate.period().0) {
            assert!(window.iter().map(|(_, cost)| cost).sum::<u128>() <= rate.count().into());
        }
        for (span, units) in stretches(&admitted) {
            assert!(span >= rate.period().0.into() || units <= 2 * u128::from(rate.count()));
        }
    }

    #[test]
    fn a_window_from_the_first_request_admits_its_count(rate in rates(), trace in forward_trace()) {
        let mut window = (Timestamp(0), 0);
        for (at, units) in admitted(&Algorithm::fixed_window(rate, Align::FirstRequest), &trace) {
            if Timestamp(at) >= window.0.plus(rate.period()) {
                window = (Timestamp(at), 0);
            }
            window.1 += units;
            assert!(window.1 <= rate.count().into());
        }
    }

    #[test]
    fn a_log_admits_its_count_in_any_period(
        rate in rates(), spacing in 0..2_000_000_u64, count_denied: bool, trace in forward_trace(),
    ) {
        let algorithm = Algorithm::sliding_log(rate, Some(Micros(spacing)), count_denied);
        let admitted = admitted(&algorithm, &trace);
        for (span, units) in stretches(&admitted) {
            assert!(span >= rate.period().0.into() || units <= rate.count().into());
        }
        assert!(admitted.windows(2).all(|pair| pair[1].0 - pair[0].0 >= spacing));
    }

    #[test]
    fn a_log_that_counts_refusals_stays_small(count in 1..=20_u32, hammering in 1..2_000_u64) {
        let algorithm = Algorithm::sliding_log(rate(count, 1_000_000), None, true);
        let mut state = State::default();
        for at in 0..hammering {
            (state, _) = algorithm.decide(state, Timestamp(at), Cost::ONE);
            assert!(state.weight() <= usize::try_from(count).unwrap());
        }
    }
}
