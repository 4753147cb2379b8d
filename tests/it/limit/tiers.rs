//! A consumer that moves between the tiers of a limit keeps what it has used, however often it moves.

use proptest::prelude::*;
use tollgate::limit::units::{Micros, Timestamp};
use tollgate::limit::{Algorithm, Align, State};

use crate::harness::cases::{START, cost, passes, rate};

/// The tiers of one limit: rates of one period.
fn tiers(kind: usize, period: u64, counts: &[u32]) -> Vec<Algorithm> {
    let tier = |count: &u32| {
        let (rate, burst) = (rate(*count, period), cost(*count));
        match kind {
            0 => Algorithm::token_bucket(rate, burst),
            1 => Algorithm::gcra(rate, burst),
            2 => Algorithm::fixed_window(rate, Align::Clock),
            3 => Algorithm::fixed_window(rate, Align::FirstRequest),
            4 => Algorithm::sliding_window(rate),
            _ => Algorithm::sliding_log(rate, None, false),
        }
    };
    counts.iter().map(tier).collect()
}

/// The state of one consumer as the store keeps it: with the tier under which it was written.
struct Counter {
    state: State,
    tier: Algorithm,
}

impl Counter {
    /// Whether a request under `tier` passes. The state is converted even if it does not.
    fn ask(&mut self, tier: &Algorithm, units: u32, now: Timestamp) -> (bool, u64) {
        let state = std::mem::take(&mut self.state);
        let state = if self.tier == *tier { state } else { tier.convert(&self.tier, state, now) };
        let (state, decision) = tier.decide(state, now, cost(units));
        *self = Self { state, tier: *tier };
        (passes(decision.verdict), decision.remaining)
    }
}

fn counts() -> impl Strategy<Value = Vec<u32>> {
    prop::collection::vec(prop_oneof![1..=40_u32, Just(1_000), Just(999_983)], 2..5)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    /// At one moment a request passes exactly if all that was used, with it, is within the allowance of its tier.
    #[test]
    fn a_move_brings_no_allowance_and_loses_none(
        kind in 0..6_usize,
        period in prop::sample::select(vec![1_000_000_u64, 60_000_000, 7_777_000]),
        counts in counts(),
        history in prop::collection::vec((any::<prop::sample::Index>(), 1..12_u32), 1..80),
    ) {
        let tiers = tiers(kind, period, &counts);
        let mut counter = Counter { state: State::default(), tier: tiers[0] };
        let mut used = 0;
        for (which, units) in history {
            let tier = which.get(&tiers);
            let (passed, remaining) = counter.ask(tier, units, START);
            prop_assert_eq!(passed, used + u64::from(units) <= tier.quota(), "{:?} used {}", tier, used);
            if passed {
                used += u64::from(units);
            }
            prop_assert_eq!(remaining, tier.quota().saturating_sub(used), "{:?}", tier);
        }
    }

    /// A bucket drains at the rate of the tier that was last, as exactly as with real numbers: less than one unit is
    /// lost in all, not by each move.
    #[test]
    fn a_bucket_drains_at_the_rate_of_the_last_tier(
        gcra: bool,
        counts in prop::collection::vec(1..=40_u32, 2..5),
        history in prop::collection::vec((any::<prop::sample::Index>(), 0..400_000_u64, 1..4_u32), 1..200),
    ) {
        let tiers = tiers(usize::from(gcra), 1_000_000, &counts);
        let mut counter = Counter { state: State::default(), tier: tiers[0] };
        let (mut used, mut last, mut now) = (0.0_f64, tiers[0], START);
        for (which, pause, units) in history {
            let tier = which.get(&tiers);
            now = now.plus(Micros(pause));
            used = (used - pause as f64 * last.quota() as f64 / 1e6).max(0.0);
            last = *tier;
            let (passed, remaining) = counter.ask(tier, units, now);
            if passed {
                used += f64::from(units);
            }
            let left = |used: f64| (tier.quota() as f64 - used.ceil()).max(0.0);
            let (most, least) = (left(used - 1e-6), left(used + 0.05));
            prop_assert!((least..=most).contains(&(remaining as f64)), "{remaining} of {used} under {tier:?}");
        }
        prop_assert!(last.quota() > 0);
    }

    /// A window counts for all tiers together.
    #[test]
    fn a_window_keeps_its_count_until_it_ends(
        counts in counts(),
        history in prop::collection::vec((any::<prop::sample::Index>(), 0..300_000_u64, 1..8_u32), 1..80),
    ) {
        let tiers = tiers(2, 1_000_000, &counts);
        let mut counter = Counter { state: State::default(), tier: tiers[0] };
        let (mut used, mut now) = (0, START);
        for (which, pause, units) in history {
            let (tier, before) = (which.get(&tiers), now.0 / 1_000_000);
            now = now.plus(Micros(pause));
            if now.0 / 1_000_000 != before {
                used = 0;
            }
            let (passed, _) = counter.ask(tier, units, now);
            prop_assert_eq!(passed, used + u64::from(units) <= tier.quota());
            if passed {
                used += u64::from(units);
            }
        }
    }
}

/// Refused attempts of a small tier take the place of requests that a larger one admitted, but do not make room.
#[test]
fn attempts_of_a_smaller_tier_make_no_room_in_a_log_that_counts_them() {
    let [free, pro] = [5, 50].map(|count| Algorithm::sliding_log(rate(count, 60_000_000), None, true));
    let mut counter = Counter { state: State::default(), tier: pro };
    let mut now = START;
    let mut passed = 0;
    for turn in 0..500 {
        now = now.plus(Micros(10_000));
        let tier = if turn % 2 == 0 { &pro } else { &free };
        passed += u32::from(counter.ask(tier, 1, now).0);
    }
    assert_eq!(passed, 50);
}

/// Rounded up to whole units at each move, the counter would stand still: a refused request every 30 ms would keep it so
/// for ever, and all that count by it would be locked out.
#[test]
fn requests_of_another_tier_do_not_stop_the_drain() {
    for gcra in [0, 1] {
        let tiers = tiers(gcra, 60_000_000, &[10, 1_000]);
        let (free, pro) = (&tiers[0], &tiers[1]);
        let mut counter = Counter { state: State::default(), tier: *pro };
        assert!(counter.ask(pro, 1_000, START).0);
        let (mut now, mut passed) = (START, 0);
        for _ in 0..1_000 {
            now = now.plus(Micros(30_000));
            passed += u32::from(counter.ask(pro, 1, now).0);
            now = now.plus(Micros(30_000));
            assert!(!counter.ask(free, 1, now).0);
        }
        // Half of the time it drains one unit in 60 ms.
        assert!((495..=510).contains(&passed), "{passed}");
    }
}
