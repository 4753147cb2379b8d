//! A flood of new keys: the bound holds, and a key that has used more than the flood's keys is not evicted.

use tollgate::limit::units::{Cost, Fingerprint, Micros, Timestamp};
use tollgate::limit::{Algorithm, Decision};
use tollgate::store::Charge;
use tollgate::store::memory::MemoryStore;

use crate::harness::charges::{DAY, NOON, admits, admitted, all, charge, index, key, prompt, store};

/// Limits of the keys in a flood: those that are to be kept, and those that come.
const KEPT: u64 = 0;
const FLOOD: u64 = 1;

/// One limit on a store of its own. The numbers' id is computed once, as a plan does.
struct Flooded<'a> {
    store: MemoryStore,
    charge: Charge<'a>,
}

impl<'a> Flooded<'a> {
    fn new(max_keys: usize, algorithm: &'a Algorithm) -> Self {
        let store = store(max_keys, std::slice::from_ref(algorithm));
        Self { store, charge: charge(algorithm, key(KEPT, 0), 1) }
    }

    fn ask(&self, key: Fingerprint, cost: u32, now: Timestamp) -> Decision {
        let cost = Cost::new(cost).unwrap();
        self.store.decide(&[Charge { key, cost, ..self.charge }], now).decisions[0]
    }
}

/// Uses up the first key and half of the other kept ones, sends a flood, and finds all of them as they were.
fn flood(algorithm: &Algorithm, max_keys: usize, honest: u64, flood: u64) {
    let flooded = Flooded::new(max_keys, algorithm);
    let mut tries = 0;
    while admits(flooded.ask(key(KEPT, 0), 5, NOON).verdict) {
        tries += 1;
        assert!(tries < 10, "{algorithm:?} never refuses");
    }
    let before: Vec<_> = (1..=honest).map(|client| flooded.ask(key(KEPT, client), 5, NOON)).collect();
    for number in 0..flood {
        assert!(admits(flooded.ask(key(FLOOD, number), 1, NOON.plus(Micros(number))).verdict));
        assert!(flooded.store.keys() <= max_keys as u64);
    }
    let now = NOON.plus(Micros(flood));
    assert!(flooded.store.evictions() > 0, "{algorithm:?} was not flooded");
    assert!(!admits(flooded.ask(key(KEPT, 0), 5, now).verdict), "{algorithm:?} forgot the attacker");
    for (client, before) in (1..=honest).zip(before) {
        let after = flooded.ask(key(KEPT, client), 1, now);
        assert_eq!(after.remaining + 1, before.remaining, "{algorithm:?} forgot client {client} of {honest}");
    }
}

#[test]
fn a_flood_resets_neither_the_exhausted_nor_the_honest_among_10() {
    for algorithm in all(10, DAY) {
        flood(&algorithm, 10, 3, 1_000);
    }
}

#[test]
fn a_flood_resets_neither_the_exhausted_nor_the_honest_among_1_000() {
    for algorithm in all(10, DAY) {
        flood(&algorithm, 1_000, 400, 5_000);
    }
}

#[test]
fn a_flood_resets_neither_the_exhausted_nor_the_honest_among_20_000() {
    let algorithms = all(10, DAY);
    std::thread::scope(|scope| {
        for algorithm in &algorithms {
            scope.spawn(move || flood(algorithm, 20_000, 6_000, 17_000));
        }
    });
}

#[test]
fn nothing_is_evicted_while_there_is_room() {
    for max_keys in [1_u64, 10, 64, 65, 1_000, 5_000] {
        for algorithm in all(10, DAY) {
            let flooded = Flooded::new(index(max_keys), &algorithm);
            let ask_all = |remaining| {
                for number in 0..max_keys {
                    let decision = flooded.ask(key(KEPT, number), 1, NOON);
                    assert_eq!(decision.remaining, remaining, "{algorithm:?}");
                }
            };
            let first = Flooded::new(1, &algorithm).ask(key(KEPT, 0), 1, NOON).remaining;
            ask_all(first);
            assert_eq!((flooded.store.keys(), flooded.store.evictions()), (max_keys, 0), "{algorithm:?}");
            if store_takes_no_more(&algorithm) {
                ask_all(first - 1);
                assert_eq!((flooded.store.keys(), flooded.store.evictions()), (max_keys, 0), "{algorithm:?}");
            }
        }
    }
}

/// Whether a key's second request takes no more room than its first.
fn store_takes_no_more(algorithm: &Algorithm) -> bool {
    algorithm.name() != "sliding-log"
}

#[test]
fn the_expired_leave_before_the_living_and_are_not_counted_as_evicted() {
    for algorithm in all(10, Micros::SECOND) {
        let flooded = Flooded::new(1_000, &algorithm);
        let later = NOON.plus(Micros(20 * Micros::SECOND.0));
        for round in 0..5 {
            let now = Timestamp(NOON.0 + round * (later.0 - NOON.0));
            for number in 0..500 {
                flooded.ask(key(round, number), 1, now);
            }
            for number in 0..500 {
                let decision = flooded.ask(key(round, number), 1, now);
                let fresh = Flooded::new(1, &algorithm).ask(key(0, 0), 1, now);
                assert!(
                    decision.remaining < fresh.remaining,
                    "{algorithm:?} forgot {number} of round {round}"
                );
            }
        }
        assert!(flooded.store.keys() <= 1_000);
        if store_takes_no_more(&algorithm) {
            assert_eq!(flooded.store.evictions(), 0, "{algorithm:?}");
        }
    }
}

#[test]
fn each_event_of_a_sliding_log_takes_room() {
    for algorithm in prompt(100, DAY).into_iter().filter(|it| it.name() == "sliding-log") {
        let flooded = Flooded::new(1_000, &algorithm);
        for event in 0..100 {
            assert!(admitted(&flooded.store, &[charge(&algorithm, key(0, 0), 1)], NOON.plus(Micros(event))));
            assert_eq!(flooded.store.keys(), event + 1);
        }
        // Ten more such clients: the bound holds at every step, and the first is the most used, so it stays.
        for event in 100..1_100 {
            flooded.ask(key(0, 1 + event % 10), 1, NOON.plus(Micros(event)));
            assert!(flooded.store.keys() <= 1_000);
        }
        assert!(flooded.store.evictions() > 0);
        assert!(!admits(flooded.ask(key(0, 0), 1, NOON.plus(Micros(1_100))).verdict));
    }
}

#[test]
fn a_log_larger_than_the_whole_store_starts_afresh_and_keeps_the_bound() {
    let algorithm = prompt(100, DAY).remove(5);
    let flooded = Flooded::new(20, &algorithm);
    for event in 0..200 {
        assert!(admitted(&flooded.store, &[charge(&algorithm, key(0, 0), 1)], NOON.plus(Micros(event))));
        assert!(flooded.store.keys() <= 20);
    }
    assert_eq!(flooded.store.evictions(), 200 / 21);
}

#[test]
fn a_request_does_not_evict_its_own_keys() {
    let algorithm = prompt(10, DAY).remove(0);
    let flooded = Flooded::new(2, &algorithm);
    for number in 0..100 {
        flooded.ask(key(2, number), 5, NOON);
        let [one, two] = [key(0, number), key(1, number)].map(|key| charge(&algorithm, key, 1));
        assert!(admitted(&flooded.store, &[one, two], NOON));
        assert_eq!(flooded.ask(one.key, 1, NOON).remaining, 8);
        assert_eq!(flooded.ask(two.key, 1, NOON).remaining, 8);
    }
}

#[test]
fn the_bound_holds_under_concurrent_floods_of_every_algorithm() {
    let algorithms = all(10, DAY);
    for max_keys in [1, 10, 100, 1_000] {
        let store = store(max_keys, &algorithms);
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                let (store, algorithms) = (&store, &algorithms);
                scope.spawn(move || {
                    for turn in 0..1_500 {
                        let client = (thread * 1_500 + turn) % 1_777;
                        let [a, b] = [turn % 8, (turn + 1 + client % 7) % 8];
                        let charge = |limit: u64| charge(&algorithms[index(limit)], key(limit, client), 1);
                        store.decide(&[charge(a), charge(b)], NOON.plus(Micros(turn)));
                        assert!(store.keys() <= max_keys as u64);
                    }
                });
            }
        });
        assert!(store.evictions() > 0 && store.keys() > 0);
    }
}

/// Five slots a set, 15 for 14 keys: most sets are full, so keys must move to let the last ones in.
#[test]
fn a_large_store_takes_every_key_it_has_room_for() {
    let algorithm = prompt(10, DAY).remove(0);
    let flooded = Flooded::new(200_000, &algorithm);
    (0..200_000).for_each(|number| assert!(admits(flooded.ask(key(KEPT, number), 2, NOON).verdict)));
    assert_eq!((flooded.store.keys(), flooded.store.evictions()), (200_000, 0));
    for number in 0..200_000 {
        assert_eq!(flooded.ask(key(KEPT, number), 1, NOON).remaining, 7, "{number} was lost or met another");
    }
}

/// A page that no key has come to is not in memory.
#[cfg(target_os = "linux")]
#[test]
fn memory_is_taken_as_keys_come() {
    let resident = || {
        let told = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap();
        let line = told.lines().find(|line| line.starts_with("Rss:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1_024
    };
    let algorithm = prompt(10, DAY).remove(0);
    let before = resident();
    let flooded = Flooded::new(30_000_000, &algorithm);
    (0..100).for_each(|number| assert!(admits(flooded.ask(key(KEPT, number), 1, NOON).verdict)));
    // Whole, it takes 820 MB; other tests may run in the same process.
    let taken = resident().saturating_sub(before);
    assert!(taken < 400_000_000, "{taken} bytes for a hundred keys");
}
