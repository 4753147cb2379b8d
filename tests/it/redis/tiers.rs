//! A consumer that moves between the tiers of a limit: the server, the memory store and the core decide the same.

use proptest::prelude::*;
use tollgate::limit::units::{Micros, Timestamp};
use tollgate::limit::{Algorithm, Align, State};

use crate::harness::cases::{START, cost, rate};
use crate::harness::charges;
use crate::harness::script::{charge, hold};

/// The tiers of one limit: equal in algorithm and period, and in `align`.
fn tiers() -> impl Strategy<Value = Vec<Algorithm>> {
    let period = prop::sample::select(vec![1_000_u64, 1_000_000, 60_000_000, 7_777_000, 86_400_000_000]);
    let count = || prop_oneof![1..=40_u32, Just(1_000), Just(999_983), Just(1_000_000_000)];
    let parameters =
        (count(), prop_oneof![1..=50_u32, count()], prop::sample::select(vec![0, 1_000_000, 60_000_000_u64]));
    (0..8_usize, period, prop::collection::vec(parameters, 2..5)).prop_map(|(kind, period, tiers)| {
        let tier = |(count, units, span): (u32, u32, u64)| {
            let (rate, units) = (rate(count, period), cost(units));
            match kind {
                0 => Algorithm::token_bucket(rate, units),
                1 => Algorithm::gcra(rate, units),
                2 => Algorithm::leaky_bucket(rate, units, Micros(span)),
                3 => Algorithm::fixed_window(rate, Align::Clock),
                4 => Algorithm::fixed_window(rate, Align::FirstRequest),
                5 => Algorithm::sliding_window(rate),
                6 => Algorithm::sliding_log(rate, Some(Micros(span)), false),
                _ => Algorithm::sliding_log(rate, None, true),
            }
        };
        tiers.into_iter().map(tier).collect()
    })
}

/// Requests: of which tier, how much later, at what cost.
fn history() -> impl Strategy<Value = Vec<(prop::sample::Index, u64, u32)>> {
    let pause = prop_oneof![Just(0), 0..3_000_u64, 0..3_000_000_u64, 0..90_000_000_u64];
    let units = prop_oneof![4 => 1..4_u32, 1 => 1..60_u32];
    prop::collection::vec((any::<prop::sample::Index>(), pause, units), 1..60)
}

#[test]
fn moves_between_tiers_are_decided_alike_by_all_stores() {
    hold(400, (tiers(), history()), |shared, (tiers, history)| {
        let (key, memory) = (shared.new_key(), charges::store(100, &tiers));
        let (mut state, mut last, mut now) = (State::default(), tiers[0], START);
        for (which, pause, units) in history {
            now = Timestamp(now.0 + pause);
            let tier = which.get(&tiers);
            if last != *tier {
                state = tier.convert(&last, state, now);
                last = *tier;
            }
            let (after, decision) = tier.decide(state, now, cost(units));
            state = after;
            let charges = [charge(tier, key, cost(units))];
            assert_eq!(shared.decide(&charges, now), [decision], "Redis, {tier:?}");
            assert_eq!(memory.decide(&charges, now).decisions.to_vec(), [decision], "memory, {tier:?}");
        }
    });
}
