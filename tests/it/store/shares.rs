//! `max_keys` of a limit: its counters never hold more of the store, and a flood in it evicts no others.

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, Ordering};

use tollgate::limit::Algorithm;
use tollgate::limit::units::{Cost, Micros, Rate, Timestamp};
use tollgate::store::memory::MemoryStore;
use tollgate::store::{Charge, MaxKeys, ParamsId, PolicyRegistration};

use crate::harness::charges::{DAY, NOON, admits, all, charge, index, key};

const MAX_KEYS: u64 = 5_000;
const SHARE: u64 = 200;
/// Numbers of limits.
const BOUND: u64 = 1;
const OTHER: u64 = 2;
/// The second rate of the limit `BOUND`.
const SECOND_RATE: u64 = 3;

/// A store with the limits `BOUND`, which has two rates and a share, and `OTHER`, which has none.
struct Limits<'a> {
    store: MemoryStore,
    algorithm: &'a Algorithm,
}

impl<'a> Limits<'a> {
    fn new(share: impl Into<Option<u64>>, algorithm: &'a Algorithm) -> Self {
        let limits = Self { store: MemoryStore::new(index(MAX_KEYS)).unwrap(), algorithm };
        limits.register(share);
        limits
    }

    /// As a start or a reload does.
    fn register(&self, share: impl Into<Option<u64>>) {
        let bound = share.into().map(|most| NonZeroU64::new(most).unwrap());
        let share = bound.map(|bound| MaxKeys { limit: identity(BOUND), bound });
        let policies = [(BOUND, share), (SECOND_RATE, share), (OTHER, None)];
        let policy = |(limit, share)| PolicyRegistration {
            algorithm: self.algorithm,
            identity: identity(limit),
            share,
        };
        self.store.register_all(policies.map(policy), NOON);
    }

    fn charge(&self, limit: u64, number: u64) -> Charge<'a> {
        let params = ParamsId::of_policy(self.algorithm, identity(limit));
        Charge { params, ..charge(self.algorithm, key(limit, number), 1) }
    }

    /// One request of each key. All are admitted.
    fn spend(&self, limit: u64, params: std::ops::Range<u64>) {
        for number in params {
            let charge = self.charge(limit, number);
            assert!(admits(self.store.decide_alone(&charge, NOON).verdict), "{limit} {number}");
        }
    }

    /// How many of these keys are still exhausted. Nothing is charged.
    fn exhausted(&self, limit: u64, params: std::ops::Range<u64>) -> u64 {
        let refused =
            |number: &u64| !admits(self.store.look(&[self.charge(limit, *number)], NOON)[0].verdict);
        params.filter(refused).count() as u64
    }

    fn held(&self) -> u64 {
        self.store.keys_of_limit(identity(BOUND)).unwrap()
    }
}

/// Spread over all bits, as the hash of a limit's name is.
fn identity(limit: u64) -> u128 {
    key(1_000, limit).0
}

fn daily(count: u32) -> Algorithm {
    Algorithm::token_bucket(Rate::new(count, DAY).unwrap(), Cost::new(count).unwrap())
}

#[test]
fn a_flood_fills_the_share_and_evicts_no_counter_of_another_limit() {
    for algorithm in all(1, DAY).iter().filter(|algorithm| algorithm.name() != "leaky-bucket") {
        for share in [1, 2, 64, SHARE] {
            let limits = Limits::new(share, algorithm);
            limits.spend(OTHER, 0..1_000);
            for number in 0..10 * SHARE {
                limits.spend(BOUND, number..number + 1);
                assert!(limits.held() <= share, "{algorithm:?}");
            }
            assert_eq!(limits.held(), share, "{algorithm:?}");
            assert_eq!(limits.store.keys(), 1_000 + share, "{algorithm:?}");
            assert_eq!(limits.store.evictions(), 10 * SHARE - share, "{algorithm:?}");
            assert_eq!(limits.exhausted(BOUND, 0..10 * SHARE), share, "{algorithm:?}");
            assert_eq!(limits.exhausted(OTHER, 0..1_000), 1_000, "{algorithm:?}");
        }
    }
}

#[test]
fn a_flood_of_keys_that_use_little_evicts_no_counter_that_used_more() {
    let algorithm = daily(10);
    let limits = Limits::new(SHARE, &algorithm);
    for _ in 0..3 {
        limits.spend(BOUND, 0..SHARE / 4);
    }
    limits.spend(BOUND, SHARE..20 * SHARE);
    let charges: Vec<_> = (0..SHARE / 4).map(|number| limits.charge(BOUND, number)).collect();
    assert!(limits.store.used(&charges, NOON).iter().all(|used| *used == 3));
}

/// Both rates of a limit count, and neither starves the other.
#[test]
fn all_rates_of_a_limit_have_one_share() {
    let algorithm = daily(5);
    let limits = Limits::new(SHARE, &algorithm);
    for number in 0..10 * SHARE {
        limits.store.decide(&[limits.charge(BOUND, number), limits.charge(SECOND_RATE, number)], NOON);
        assert!(limits.held() <= SHARE);
    }
    assert_eq!(limits.held(), SHARE);
    let stored = |limit| {
        let charges: Vec<_> = (0..10 * SHARE).map(|number| limits.charge(limit, number)).collect();
        limits.store.used(&charges, NOON).into_iter().filter(|used| *used > 0).count()
    };
    let (first, second) = (stored(BOUND), stored(SECOND_RATE));
    assert_eq!((first + second) as u64, SHARE);
    assert!(first.min(second) as u64 > SHARE / 8, "{first} {second}");
}

#[test]
fn each_event_of_a_log_counts() {
    let algorithm = Algorithm::sliding_log(Rate::new(50, DAY).unwrap(), None, false);
    let limits = Limits::new(SHARE, &algorithm);
    for number in 0..40 {
        for _ in 0..30 {
            limits.spend(BOUND, number..number + 1);
            assert!(limits.held() <= SHARE);
        }
    }
    assert_eq!(limits.held(), limits.store.keys());
    // A log that is larger than the share starts afresh.
    let limits = Limits::new(20, &algorithm);
    for _ in 0..45 {
        limits.spend(BOUND, 0..1);
        assert!(limits.held() <= 20);
    }
    assert_eq!(limits.held(), limits.store.keys());
}

#[test]
fn an_expired_counter_leaves_before_a_live_one() {
    let algorithm = Algorithm::token_bucket(Rate::new(10, DAY).unwrap(), Cost::new(10).unwrap());
    for share in [40, SHARE] {
        let limits = Limits::new(share, &algorithm);
        limits.spend(BOUND, 0..share / 2);
        let later = NOON.plus(Micros(DAY.0 / 5));
        let ask = |number| limits.store.decide_alone(&limits.charge(BOUND, number), later);
        // One request is refilled by then: the first half has expired.
        (share / 2..share / 2 + share).for_each(|number| assert!(admits(ask(number).verdict)));
        assert_eq!(limits.held(), share);
        assert!(limits.store.evictions() <= share / 2, "{}", limits.store.evictions());
    }
}

#[test]
fn a_reload_changes_the_share_and_keeps_what_fits() {
    let algorithm = daily(1);
    let limits = Limits::new(None, &algorithm);
    limits.spend(OTHER, 0..100);
    limits.spend(BOUND, 0..300);
    limits.spend(SECOND_RATE, 0..100);
    assert_eq!(limits.store.keys_of_limit(identity(BOUND)), None);
    // It has more than its new share.
    limits.register(SHARE);
    assert_eq!((limits.held(), limits.store.keys()), (SHARE, SHARE + 100));
    assert_eq!(limits.store.evictions(), 400 - SHARE);
    let kept = limits.exhausted(BOUND, 0..300) + limits.exhausted(SECOND_RATE, 0..100);
    assert_eq!(kept, SHARE);
    limits.spend(BOUND, 1_000..1_500);
    assert_eq!(limits.held(), SHARE);
    limits.register(2 * SHARE);
    limits.spend(BOUND, 2_000..2_000 + SHARE);
    assert_eq!((limits.held(), limits.exhausted(BOUND, 2_000..2_000 + SHARE)), (2 * SHARE, SHARE));
    limits.register(10);
    assert_eq!(limits.held(), 10);
    // Without a share it grows, and the counters of that time are bounded by the next one.
    limits.register(None);
    limits.spend(BOUND, 3_000..4_000);
    limits.register(SHARE);
    assert_eq!((limits.held(), limits.store.keys()), (SHARE, SHARE + 100));
    assert_eq!(limits.exhausted(OTHER, 0..100), 100);
}

/// A counter that was reset or has expired leaves its entry to another one.
#[test]
fn a_counter_that_is_gone_leaves_its_entry() {
    let algorithm = daily(1);
    for share in [10, SHARE] {
        let limits = Limits::new(share, &algorithm);
        for round in 0..20 {
            let params = round * share..(round + 1) * share;
            limits.spend(BOUND, params.clone());
            assert_eq!((limits.held(), limits.store.evictions()), (share, 0));
            for number in params {
                assert!(limits.store.reset(&[limits.charge(BOUND, number)], NOON));
            }
            assert_eq!(limits.held(), 0);
        }
    }
}

#[test]
fn threads_together_never_exceed_it() {
    for (share, algorithm) in all(3, DAY).iter().flat_map(|algorithm| [(7, algorithm), (SHARE, algorithm)]) {
        let limits = Limits::new(share, algorithm);
        let is_done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (limits, is_done) = (&limits, &is_done);
            let threads: Vec<_> = (0..4_u64)
                .map(|thread| {
                    scope.spawn(move || {
                        for turn in 0..1_000_u64 {
                            let number = (turn * 7 + thread * 13) % 900;
                            let pair = [limits.charge(BOUND, number), limits.charge(SECOND_RATE, number)];
                            let now = NOON.plus(Micros(turn));
                            match turn % 50 {
                                0 => drop(limits.store.reset(&pair, now)),
                                1..10 => drop(limits.store.decide(&pair, now)),
                                10..20 => drop(limits.store.decide_alone(&limits.charge(OTHER, number), now)),
                                _ => drop(limits.store.decide_alone(&pair[0], now)),
                            }
                        }
                    })
                })
                .collect();
            scope.spawn(move || {
                while !is_done.load(Ordering::Relaxed) {
                    assert!(limits.held() <= share, "{} of {share}", limits.held());
                    std::thread::sleep(std::time::Duration::from_micros(20));
                }
            });
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            is_done.store(true, Ordering::Relaxed);
        });
        let all = [BOUND, SECOND_RATE].map(|limit| {
            let charges: Vec<_> = (0..900).map(|number| limits.charge(limit, number)).collect();
            limits
                .store
                .used(&charges, Timestamp(NOON.0 + 1_000))
                .into_iter()
                .filter(|used| *used > 0)
                .count()
        });
        let stored = (all[0] + all[1]) as u64;
        assert!(stored > 0 && stored <= limits.held() && limits.held() <= share, "{algorithm:?}");
    }
}
