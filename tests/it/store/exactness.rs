//! Of any number of concurrent requests exactly the allowance passes.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, Ordering};

use tollgate::limit::units::{Micros, Timestamp};
use tollgate::limit::{Algorithm, Decision, Verdict, Wait};
use tollgate::store::{Charge, Group, PolicyRegistration, Store, StoreRequest};

use crate::harness::charges::{DAY, NOON, admits, admitted, all, charge, index, key, prompt, store};

const THREADS: usize = 8;

/// Runs `request` this number of times on several threads at once. Returns the number of `true` results. Time advances a
/// little.
fn passed(requests: u64, request: impl Fn(u64, Timestamp) -> bool + Sync) -> u32 {
    let (passed, start) = (AtomicU32::new(0), Barrier::new(THREADS));
    std::thread::scope(|scope| {
        for thread in 0..THREADS as u64 {
            let (passed, start, request) = (&passed, &start, &request);
            scope.spawn(move || {
                start.wait();
                for turn in (thread..requests).step_by(THREADS) {
                    passed.fetch_add(request(turn, NOON.plus(Micros(turn))).into(), Ordering::Relaxed);
                }
            });
        }
    });
    passed.into_inner()
}

#[test]
fn twenty_thousand_requests_against_an_allowance_of_777_admit_777() {
    for algorithm in all(777, DAY) {
        let store = store(1_000, std::slice::from_ref(&algorithm));
        let client = charge(&algorithm, key(0, 0), 1);
        let passed = passed(20_000, |_, now| admitted(&store, &[client], now));
        // The leaky bucket holds one and 777 more that wait behind it.
        let queued = if algorithm.name() == "leaky-bucket" { 1 } else { 0 };
        assert_eq!(passed, 777 + queued, "{algorithm:?}");
    }
}

/// Requests that were on their way keep the plan of before: for a while both tiers are charged at once.
#[test]
fn a_consumer_that_moves_to_another_tier_meanwhile_gets_the_larger_allowance_and_no_more() {
    for (free, pro) in prompt(100, DAY).iter().zip(&prompt(777, DAY)) {
        for (tier_of, name) in [
            ((|turn| turn < 10_000) as fn(u64) -> bool, "up"),
            (|turn| turn % 2 == 0, "to and fro"),
            (|turn| (5_000..10_000).contains(&turn), "down and up"),
        ] {
            let store = store(1_000, &[*free, *pro]);
            let passed = passed(20_000, |turn, now| {
                let tier = if tier_of(turn) { free } else { pro };
                admitted(&store, &[charge(tier, key(0, 0), 1)], now)
            });
            assert_eq!(passed, 777, "{name}: {pro:?}");
        }
    }
}

#[test]
fn limits_that_share_counters_in_different_orders_neither_deadlock_nor_leak() {
    for tight in prompt(100, DAY) {
        let (wide, wider) = (prompt(150, DAY).remove(0), prompt(201, DAY).remove(4));
        let store = store(1_000, &[tight, wide, wider]);
        let (a, b) = (charge(&tight, key(0, 0), 1), charge(&wide, key(1, 0), 1));
        let c = charge(&wider, key(2, 0), 2);
        let passed = passed(6_000, |turn, now| {
            let orders = [[a, b, c], [a, c, b], [b, a, c], [b, c, a], [c, a, b], [c, b, a]];
            admitted(&store, &orders[index(turn % 6)], now)
        });
        assert_eq!(passed, 100, "{tight:?}");
        let left =
            |charge: Charge<'_>| store.decide(&[charge], NOON.plus(Micros(6_000))).decisions[0].remaining;
        assert_eq!((left(b), left(Charge { cost: a.cost, ..c })), (50 - 1, 1 - 1), "{tight:?}");
    }
}

#[test]
fn of_overlapping_limits_the_sums_never_exceed_any() {
    let algorithm = prompt(300, DAY).remove(0);
    let store = store(1_000, std::slice::from_ref(&algorithm));
    let keys: Vec<_> = (0..6).map(|number| charge(&algorithm, key(0, number), 1)).collect();
    let spent: Vec<_> = keys.iter().map(|_| AtomicU32::new(0)).collect();
    passed(12_000, |turn, now| {
        let (first, second) = (index(turn % 6), index((turn / 6 % 5 + turn % 6 + 1) % 6));
        let yes = admitted(&store, &[keys[first], keys[second]], now);
        if yes {
            spent[first].fetch_add(1, Ordering::Relaxed);
            spent[second].fetch_add(1, Ordering::Relaxed);
        }
        yes
    });
    for (charge, spent) in keys.iter().zip(spent) {
        let left = store.decide(&[*charge], NOON.plus(Micros(12_000))).decisions[0];
        let expected = 300 - u64::from(spent.into_inner());
        assert_eq!((admits(left.verdict), left.remaining), (expected > 0, expected.saturating_sub(1)));
    }
}

#[test]
fn a_key_charged_twice_by_one_request_pays_twice_or_not_at_all() {
    for algorithm in prompt(10, DAY) {
        let store = store(100, std::slice::from_ref(&algorithm));
        let (three, two) = (charge(&algorithm, key(0, 0), 3), charge(&algorithm, key(0, 0), 2));
        let ask = |charges: &[Charge<'_>]| store.decide(charges, NOON).decisions.to_vec();
        let remaining =
            |decisions: Vec<Decision>| decisions.iter().map(|it| it.remaining).collect::<Vec<_>>();

        assert_eq!(remaining(ask(&[three, two])), [7, 5], "{algorithm:?}");
        let refused = ask(&[three, three]);
        assert!(admits(refused[0].verdict) && !admits(refused[1].verdict), "{algorithm:?}");
        // Each of the two would be admitted alone, so nothing is recorded even with `count_denied`.
        assert_eq!(remaining(refused), [5, 5], "{algorithm:?}");
        assert_eq!(remaining(ask(&[three, two])), [2, 0], "{algorithm:?}");
    }
}

#[test]
fn a_yes_that_is_held_back_is_not_charged_and_says_so() {
    for algorithm in prompt(10, DAY) {
        let store = store(100, std::slice::from_ref(&algorithm));
        let (open, closed) = (charge(&algorithm, key(0, 0), 4), charge(&algorithm, key(0, 1), 10));
        assert!(admitted(&store, &[closed], NOON));
        for _ in 0..3 {
            let [yes, no] = store.decide(&[open, closed], NOON).decisions[..] else { panic!("two charges") };
            assert_eq!((yes.verdict, yes.remaining, yes.reset_after), (Verdict::Allow, 10, Micros(0)));
            assert!(!admits(no.verdict));
        }
        assert_eq!(store.decide(&[open], NOON).decisions[0].remaining, 6, "{algorithm:?}");
    }
}

#[test]
fn a_refusal_of_a_new_key_takes_no_room() {
    for algorithm in all(10, DAY).into_iter().filter(|it| it.name() != "leaky-bucket") {
        let store = store(100, std::slice::from_ref(&algorithm));
        for number in 0..50 {
            let never = store.decide(&[charge(&algorithm, key(0, number), 11)], NOON).decisions[0];
            assert_eq!(never.verdict, Verdict::Deny(Wait::Never), "{algorithm:?}");
        }
        assert_eq!(store.keys(), 0, "{algorithm:?}");
    }
}

#[test]
fn count_denied_counts_what_it_refuses_itself_and_nothing_else() {
    let log = Algorithm::sliding_log(rate(2, 10), None, true);
    let other = Algorithm::fixed_window(rate(1, 86_400), tollgate::limit::Align::Clock);
    let store = store(100, &[log, other]);
    let (mine, closed) = (charge(&log, key(0, 0), 1), charge(&other, key(1, 0), 1));
    let at = |second: u64| NOON.plus(Micros(second * 1_000_000));
    assert!(admitted(&store, &[closed], at(0)));
    // Refused by the other limit: the log holds nothing.
    assert!(!admitted(&store, &[mine, closed], at(0)));
    assert_eq!(store.decide(&[mine], at(0)).decisions[0].remaining, 1);
    assert!(admitted(&store, &[mine], at(0)));
    // Refused by both: the log keeps the attempt, and is still closed when the admitted ones have left the window.
    assert!(!admitted(&store, &[closed, mine], at(9)));
    assert!(!admitted(&store, &[mine, closed], at(9)));
    assert!(!admitted(&store, &[mine], at(11)));
}

#[test]
fn a_shadow_limit_is_charged_only_with_the_enforced_ones_and_decides_alone() {
    let algorithm = prompt(10, DAY).remove(0);
    let store = store(100, std::slice::from_ref(&algorithm));
    let shadow = |number, cost, index| Charge {
        group: Group::Shadow(index),
        ..charge(&algorithm, key(1, number), cost)
    };
    let enforced = charge(&algorithm, key(0, 0), 5);
    let ask = |charges: &[Charge<'_>]| {
        let decisions = store.decide(charges, NOON).decisions;
        decisions.iter().map(|it| (admits(it.verdict), it.remaining)).collect::<Vec<_>>()
    };
    // The second shadow limit has two policies, of which one refuses: neither is charged, the others are.
    let request = [shadow(0, 4, 0), enforced, shadow(1, 3, 1), shadow(2, 11, 1)];
    assert_eq!(ask(&request), [(true, 6), (true, 5), (true, 10), (false, 10)]);
    assert_eq!(ask(&request), [(true, 2), (true, 0), (true, 10), (false, 10)]);
    // The first shadow limit would refuse, without effect; the enforced limit refuses, so no limit is charged.
    assert_eq!(ask(&[shadow(0, 4, 0), shadow(3, 1, 1)]), [(false, 2), (true, 9)]);
    assert_eq!(ask(&[enforced, shadow(0, 2, 0), shadow(3, 1, 1)]), [(false, 0), (true, 2), (true, 9)]);
    assert_eq!(ask(&[shadow(0, 2, 0)]), [(true, 0)]);
}

#[tokio::test]
async fn the_store_answers_as_its_memory_does() {
    let algorithm = prompt(2, DAY).remove(0);
    let store = Store::new(10, None).unwrap();
    store.register([PolicyRegistration { algorithm: &algorithm, identity: 0, share: None }], NOON);
    let client = [charge(&algorithm, key(0, 0), 1)];
    for expected in [true, true, false] {
        assert_eq!(
            admits(store.open(0).decide(StoreRequest::of(&client), NOON).await.decisions[0].verdict),
            expected
        );
    }
    assert_eq!((store.keys(), store.evictions()), (1, 0));
    assert!(store.open(0).decide(StoreRequest::of(&[]), NOON).await.decisions.is_empty());
}

fn rate(count: u32, seconds: u64) -> tollgate::limit::units::Rate {
    tollgate::limit::units::Rate::new(count, Micros(seconds * 1_000_000)).unwrap()
}
