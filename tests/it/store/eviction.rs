//! Several limits in one full store: which limit's counters make room for new keys, and which are never reset.
//!
//! An attacker has keys for ten times `max_keys`. All limits here have the same numbers, and one request exhausts a key, which is the
//! worst case: every counter has used all, so nothing but its limit tells it from the flood's.

use tollgate::limit::units::{Cost, Fingerprint, Micros, Rate, Timestamp};
use tollgate::limit::{Algorithm, Align};
use tollgate::store::memory::MemoryStore;
use tollgate::store::{Charge, ParamsId};

use crate::harness::charges::{DAY, NOON, admits, all, charge, index, key};

const MAX_KEYS: u64 = 2_000;
const FLOOD: u64 = 10 * MAX_KEYS;
/// Identities of limits.
const LOGIN: u64 = 1;
const INVENTED: u64 = 2;
const OTHER: u64 = 3;

/// A store with several limits, each of which has `algorithm`.
struct Limits<'a> {
    store: MemoryStore,
    algorithm: &'a Algorithm,
}

impl<'a> Limits<'a> {
    fn new(max_keys: u64, algorithm: &'a Algorithm) -> Self {
        let store = MemoryStore::new(index(max_keys)).unwrap();
        let limits = Self { store, algorithm };
        [LOGIN, INVENTED, OTHER].iter().for_each(|limit| limits.register(algorithm, *limit));
        limits
    }

    fn register(&self, algorithm: &Algorithm, limit: u64) {
        self.store.register_policy(algorithm, identity(limit));
    }

    fn charge(&self, limit: u64, number: u64) -> Charge<'a> {
        let params = ParamsId::of_policy(self.algorithm, identity(limit));
        Charge { params, ..charge(self.algorithm, key(limit, number), 1) }
    }

    /// One request of each key, a microsecond apart. All are admitted.
    fn spend(&self, limit: u64, params: std::ops::Range<u64>, from: Timestamp) -> Timestamp {
        let template = self.charge(limit, 0);
        let mut now = from;
        for number in params {
            now = now.plus(Micros(1));
            let charge = Charge { key: key(limit, number), ..template };
            assert!(admits(self.store.decide_alone(&charge, now).verdict), "{limit} {number}");
            assert!(self.store.keys() <= self.store.max_keys());
        }
        now
    }

    /// How many of these keys are still exhausted. Nothing is charged.
    fn exhausted(&self, limit: u64, params: std::ops::Range<u64>, now: Timestamp) -> u64 {
        let refused = |number: &u64| !admits(self.store.look(&[self.charge(limit, *number)], now)[0].verdict);
        params.filter(refused).count() as u64
    }
}

/// Spread over all bits, as the hash of a limit's name is.
fn identity(limit: u64) -> u128 {
    key(1_000, limit).0
}

fn login(count: u32) -> Algorithm {
    Algorithm::token_bucket(Rate::new(count, DAY).unwrap(), Cost::new(count).unwrap())
}

#[test]
fn a_flood_in_one_limit_resets_no_exhausted_counter_of_another() {
    for algorithm in all(1, DAY).iter().filter(|algorithm| algorithm.name() != "leaky-bucket") {
        let limits = Limits::new(MAX_KEYS, algorithm);
        let now = limits.spend(LOGIN, 0..1_000, NOON);
        let now = limits.spend(INVENTED, 0..FLOOD, now);
        assert!(limits.store.evictions() >= FLOOD - MAX_KEYS, "{algorithm:?}");
        assert_eq!(limits.exhausted(LOGIN, 0..1_000, now), 1_000, "{algorithm:?}");
    }
}

/// Up to 64 keys the whole store is the neighbourhood.
#[test]
fn nor_does_it_in_the_smallest_stores() {
    let algorithm = login(1);
    for max_keys in [8, 20, 64] {
        let limits = Limits::new(max_keys, &algorithm);
        let now = limits.spend(LOGIN, 0..max_keys / 2, NOON);
        let now = limits.spend(INVENTED, 0..10 * max_keys, now);
        assert_eq!(limits.exhausted(LOGIN, 0..max_keys / 2, now), max_keys / 2, "{max_keys}");
    }
}

/// A limit that fills the store makes room for others until each holds a quarter of what is left to it.
#[test]
fn a_limit_that_fills_the_store_keeps_four_fifths_of_it_and_a_small_one_keeps_all() {
    let algorithm = login(1);
    let limits = Limits::new(MAX_KEYS, &algorithm);
    let now = limits.spend(OTHER, 0..100, NOON);
    let now = limits.spend(LOGIN, 0..MAX_KEYS - 100, now);
    let now = limits.spend(INVENTED, 0..FLOOD, now);
    assert_eq!(limits.exhausted(OTHER, 0..100, now), 100);
    let kept = limits.exhausted(LOGIN, 0..MAX_KEYS - 100, now);
    assert_eq!(kept, (MAX_KEYS - 100) * 4 / 5);
    assert_eq!(limits.store.keys(), MAX_KEYS);
}

/// What is flooded starves no limit that comes later.
#[test]
fn a_new_limit_comes_to_its_counters_in_a_store_that_a_flood_has_filled() {
    let algorithm = login(1);
    let limits = Limits::new(MAX_KEYS, &algorithm);
    let mut now = limits.spend(INVENTED, 0..FLOOD, NOON);
    for (turn, number) in (0..MAX_KEYS / 5).enumerate() {
        now = limits.spend(LOGIN, number..number + 1, now);
        let turn = turn as u64 * 10;
        now = limits.spend(INVENTED, FLOOD + turn..FLOOD + turn + 10, now);
    }
    assert_eq!(limits.exhausted(LOGIN, 0..MAX_KEYS / 5, now), MAX_KEYS / 5);
}

/// Counters of the flooded limit that were exhausted before the flood: an exhausted key that needs many requests outlives keys
/// that were used once.
#[test]
fn in_its_own_limit_a_flood_of_keys_used_once_resets_nothing_that_was_used_more() {
    let algorithm = login(10);
    let limits = Limits::new(MAX_KEYS, &algorithm);
    let mut now = NOON;
    for _ in 0..10 {
        now = limits.spend(LOGIN, 0..500, now);
    }
    let now = limits.spend(LOGIN, 500..500 + FLOOD, now);
    assert_eq!(limits.exhausted(LOGIN, 0..500, now), 500);
}

/// Where one request exhausts a key, all counters have the same use, and the oldest are evicted first: an attacker that can
/// invent keys of this limit resets an exhausted counter, at the price of about `max_keys` new keys.
#[test]
fn in_its_own_limit_of_burst_1_a_flood_resets_the_oldest_but_needs_max_keys_new_keys_for_it() {
    let algorithm = login(1);
    let limits = Limits::new(MAX_KEYS, &algorithm);
    let now = limits.spend(LOGIN, 0..MAX_KEYS, NOON);
    // The youngest tenth are the victims.
    let victims = MAX_KEYS * 9 / 10..MAX_KEYS;
    let now = limits.spend(LOGIN, MAX_KEYS..MAX_KEYS * 3 / 2, now);
    assert_eq!(limits.exhausted(LOGIN, victims.clone(), now), MAX_KEYS / 10);
    let now = limits.spend(LOGIN, MAX_KEYS * 3 / 2..FLOOD, now);
    assert_eq!(limits.exhausted(LOGIN, victims, now), 0);
}

/// Counters that were written before a reload changed the numbers belong to their limit all the same.
#[test]
fn counters_of_a_limit_under_its_former_numbers_make_room_for_its_new_keys() {
    let (before, after) = (login(1), Algorithm::fixed_window(Rate::new(1, DAY).unwrap(), Align::Clock));
    let mut limits = Limits::new(MAX_KEYS, &before);
    limits.register(&after, INVENTED);
    let now = limits.spend(LOGIN, 0..500, NOON);
    let now = limits.spend(INVENTED, 0..FLOOD, now);
    limits.algorithm = &after;
    let now = limits.spend(INVENTED, FLOOD..2 * FLOOD, now);
    limits.algorithm = &before;
    assert_eq!(limits.exhausted(LOGIN, 0..500, now), 500);
}

/// An expired counter is as good as none, whatever its limit.
#[test]
fn expired_counters_of_another_limit_leave_before_live_ones_of_the_newcomers_own() {
    let second = Algorithm::token_bucket(Rate::new(1, Micros::SECOND).unwrap(), Cost::ONE);
    let limits = Limits::new(MAX_KEYS, &second);
    limits.spend(LOGIN, 0..MAX_KEYS / 2, NOON);
    let later = NOON.plus(Micros(2 * Micros::SECOND.0));
    let now = limits.spend(INVENTED, 0..MAX_KEYS, later);
    assert_eq!(limits.exhausted(INVENTED, 0..MAX_KEYS, now), MAX_KEYS);
    assert_eq!(limits.store.evictions(), 0);
}

/// A log takes as much of the bound as it has events, and its limit is judged by that.
#[test]
fn a_log_that_grows_takes_room_from_its_own_limit() {
    let rate = Rate::new(100, DAY).unwrap();
    let log = Algorithm::sliding_log(rate, None, false);
    let limits = Limits::new(MAX_KEYS, &log);
    let now = limits.spend(LOGIN, 0..MAX_KEYS / 10, NOON);
    let mut now = limits.spend(INVENTED, 0..1, now);
    for round in 0..98 {
        now = limits.spend(INVENTED, 0..(MAX_KEYS / 50).min(round + 1), now);
    }
    let look = |number| limits.store.look(&[limits.charge(LOGIN, number)], now)[0].remaining;
    assert!((0..MAX_KEYS / 10).all(|number| look(number) == 99));
}

/// Many limits of equal size: each is a twentieth of the store, so a neighbourhood may have none of the newcomer's.
#[test]
fn among_many_limits_the_flooded_one_makes_room() {
    let algorithm = login(1);
    let limits = Limits::new(20_000, &algorithm);
    (0..20).for_each(|limit| limits.register(&algorithm, 100 + limit));
    let mut now = NOON;
    for limit in 0..20 {
        now = limits.spend(100 + limit, 0..1_000, now);
    }
    now = limits.spend(100, 1_000..21_000, now);
    for limit in 1..20 {
        assert_eq!(limits.exhausted(100 + limit, 0..1_000, now), 1_000, "limit {limit}");
    }
    let left: Fingerprint = key(100, 20_999);
    assert!(!admits(limits.store.look(&[Charge { key: left, ..limits.charge(100, 0) }], now)[0].verdict));
}
