//! What a shared store has decided is counted on here, when that store is lost.

use proptest::prelude::*;
use tollgate::limit::units::{Micros, Rate};
use tollgate::limit::{Algorithm, Align, Decision, Verdict};
use tollgate::store::Charge;
use tollgate::store::memory::MemoryStore;

use crate::harness::charges::{DAY, NOON, admits, all, charge, index, key, prompt, store};

fn day(count: u32) -> Algorithm {
    Algorithm::fixed_window(Rate::new(count, DAY).unwrap(), Align::Clock)
}

fn told(remaining: u64, reset_after: Micros) -> Decision {
    Decision { verdict: Verdict::Allow, remaining, reset_after }
}

/// How many requests of one unit pass now.
fn passing(store: &MemoryStore, charge: &Charge<'_>) -> u32 {
    let passes = |_: &u32| admits(store.decide(std::slice::from_ref(charge), NOON).decisions[0].verdict);
    (0..100).take_while(passes).count().try_into().unwrap()
}

#[test]
fn counting_goes_on_from_what_was_decided() {
    for algorithm in all(10, DAY) {
        let far = store(100, &[algorithm]);
        let here = store(100, &[algorithm]);
        let spent = charge(&algorithm, key(0, 0), 7);
        here.adopt(&spent, &far.decide(&[spent], NOON).decisions[0], NOON);
        let (one, fresh) = (charge(&algorithm, key(0, 0), 1), charge(&algorithm, key(0, 1), 1));
        // A leaky bucket takes one more than its queue.
        let max = if algorithm.name() == "leaky-bucket" { 11 } else { 10 };
        assert_eq!(passing(&here, &one), max - 7, "{algorithm:?}");
        assert_eq!(passing(&here, &fresh), max, "{algorithm:?}");
    }
}

#[test]
fn a_refusal_goes_on_as_a_refusal() {
    for algorithm in prompt(10, DAY) {
        let (far, here) = (store(100, &[algorithm]), store(100, &[algorithm]));
        let (all, one) = (charge(&algorithm, key(0, 0), 10), charge(&algorithm, key(0, 0), 1));
        far.decide(&[all], NOON);
        let refused = far.decide(&[one], NOON).decisions[0];
        here.adopt(&one, &refused, NOON);
        let here = here.decide(&[one], NOON).decisions[0];
        assert!(!admits(here.verdict), "{algorithm:?}");
        // A bucket or a fixed window also tells the same wait.
        if !matches!(algorithm, Algorithm::SlidingLog(_) | Algorithm::SlidingWindow(_)) {
            assert_eq!(here, refused, "{algorithm:?}");
        }
    }
}

#[test]
fn the_last_that_was_told_counts() {
    let limits = [day(10), Algorithm::sliding_log(Rate::new(10, DAY).unwrap(), None, false)];
    for algorithm in &limits {
        let here = store(100, &limits);
        let one = charge(algorithm, key(0, 0), 1);
        for remaining in [3, 9, 0, 5] {
            here.adopt(&one, &told(remaining, Micros(1_000)), NOON);
            assert_eq!(here.keys(), 1);
        }
        assert_eq!(passing(&here, &one), 5, "{algorithm:?}");
        here.adopt(&one, &told(10, Micros(0)), NOON);
        assert_eq!(here.keys(), 0, "nothing used is nothing kept: {algorithm:?}");
    }
}

#[test]
fn a_state_under_other_numbers_makes_way() {
    let (old, new) = (day(10), day(20));
    let here = store(100, &[old, new]);
    here.decide(&[charge(&old, key(0, 0), 9)], NOON);
    let one = charge(&new, key(0, 0), 1);
    here.adopt(&one, &told(15, Micros(1_000)), NOON);
    assert_eq!((here.keys(), passing(&here, &one)), (1, 15));
}

#[test]
fn a_new_key_takes_the_place_of_one_other_when_it_is_full() {
    let limits = [day(10), Algorithm::sliding_log(Rate::new(1000, DAY).unwrap(), None, false)];
    for algorithm in &limits {
        let here = store(20, &limits);
        (0..20).for_each(|client| drop(here.decide(&[charge(&limits[0], key(0, client), 2)], NOON)));
        here.adopt(&charge(algorithm, key(1, 0), 1), &told(3, Micros(1_000)), NOON);
        assert_eq!((here.keys(), here.evictions()), (20, 1), "{algorithm:?}");
        here.adopt(&charge(algorithm, key(1, 0), 1), &told(2, Micros(1_000)), NOON);
        assert_eq!((here.keys(), here.evictions()), (20, 1), "{algorithm:?}");
    }
}

#[test]
fn many_threads_adopt_and_decide_at_once() {
    let algorithm = day(1_000_000);
    let here = store(100, &[algorithm]);
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let (here, one) = (&here, charge(&algorithm, key(0, thread % 2), 1));
            scope.spawn(move || {
                for turn in 0..5_000_u64 {
                    match turn % 2 {
                        0 => here.adopt(&one, &told(turn, Micros(1_000_000)), NOON),
                        _ => drop(here.decide(&[one], NOON)),
                    }
                }
            });
        }
    });
    assert_eq!((here.keys(), here.evictions()), (2, 0));
}

proptest! {
    /// Whatever was adopted on the way: never more passes here than would have passed there.
    #[test]
    fn what_is_lost_in_the_middle_is_not_admitted_twice(
        requests in prop::collection::vec((0..8_u64, 1..5_u32, 0..400_000_u64, any::<bool>()), 1..80),
    ) {
        let algorithms = all(10, Micros::SECOND);
        let (far, here, mut now) = (store(1000, &algorithms), store(1000, &algorithms), NOON);
        let mut lost = [false; 8];
        for (limit, cost, pause, is_lost) in requests {
            now = now.plus(Micros(pause));
            let charge = charge(&algorithms[index(limit)], key(limit, 0), cost);
            let gone = &mut lost[index(limit)];
            *gone |= is_lost;
            if !*gone {
                here.adopt(&charge, &far.decide(&[charge], now).decisions[0], now);
            } else if admits(here.decide(&[charge], now).decisions[0].verdict) {
                prop_assert!(admits(far.decide(&[charge], now).decisions[0].verdict), "{:?}", charge.algorithm);
            }
        }
    }
}
