//! The memory store in figures: ns per decision beside the `governor` crate in the same run, and bytes per slot.
//!
//! `cargo bench --bench store`, about two minutes; `-- 1000000` for other numbers of keys. No clock is read by what is measured: the
//! time is passed in. Each figure is the median of several rounds. Stores of which the resident memory is measured are kept
//! until the end, so that no page is used twice.
#![expect(clippy::unwrap_used, reason = "a benchmark that cannot be set up should stop")]
#![expect(clippy::disallowed_methods, reason = "a benchmark reads a clock")]

use std::hint::black_box;
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use governor::clock::FakeRelativeClock;
use governor::middleware::NoOpMiddleware;
use governor::nanos::Nanos;
use governor::state::keyed::DashMapStateStore;
use governor::{Quota, RateLimiter};
use tollgate::limit::units::{Cost, Fingerprint, Micros, Rate, Timestamp};
use tollgate::limit::{Algorithm, Align, Verdict};
use tollgate::store::memory::MemoryStore;
use tollgate::store::{Charge, Group, ParamsId, SharedKeyInfo};

const NOON: Timestamp = Timestamp(1_599_998_400_000_000);
const DAY: Micros = Micros(86_400_000_000);
const ROUNDS: usize = 9;
const TURNS: u64 = 400_000;
const SEED: u64 = 88_172_645_463_325_252;

type Governor = RateLimiter<u64, DashMapStateStore<u64>, FakeRelativeClock, NoOpMiddleware<Nanos>>;

fn main() {
    println!("ns per decision, one thread, one hot key");
    println!("  {:16}{:>10}{:>10}", "", "admitted", "refused");
    let (mut admitted, mut refused) = (0.0_f64, 0.0_f64);
    for (open, closed) in algorithms(1_000, Micros(10_000)).iter().zip(&algorithms(10, DAY)) {
        let figures = (hot(open, Micros(1_000)), hot(closed, Micros(0)));
        println!("  {:16}{:10.1}{:10.1}", open.name(), figures.0, figures.1);
        (admitted, refused) = (admitted.max(figures.0), refused.max(figures.1));
    }
    println!("must: ns for a decision on a hot key, admitted, slowest algorithm | 30 | {admitted:.1}");
    println!("must: ns for a decision on a hot key, refused, slowest algorithm | 20 | {refused:.1}");
    let given: Vec<u64> = std::env::args().filter_map(|argument| argument.parse().ok()).collect();
    for keys in if given.is_empty() { vec![1_000_000, 10_000_000] } else { given } {
        many(keys);
    }
}

fn algorithms(count: u32, period: Micros) -> [Algorithm; 5] {
    let (rate, units) = (Rate::new(count, period).unwrap(), Cost::new(count).unwrap());
    [
        Algorithm::token_bucket(rate, units),
        Algorithm::gcra(rate, units),
        Algorithm::fixed_window(rate, Align::Clock),
        Algorithm::sliding_window(rate),
        Algorithm::leaky_bucket(rate, units, DAY),
    ]
}

/// Asked so often: `open` limits admit for ever, closed ones refuse from the eleventh time on.
fn hot(algorithm: &Algorithm, pause: Micros) -> f64 {
    let store = store(100_000, algorithm);
    let charge = charge(algorithm, 0);
    nanoseconds(|turn| {
        black_box(verdict(&store, black_box(&charge), NOON.plus(Micros(turn * pause.0))));
    })
}

/// The stores come first: what `governor` gives back to the allocator would hide what they take.
fn many(keys: u64) {
    let algorithms = algorithms(1_000, DAY);
    let measured: Vec<_> = algorithms[..4].iter().map(|algorithm| full(algorithm, keys)).collect();
    let limiter = governor();
    for key in 0..keys {
        let _ = limiter.check_key(&key);
    }
    let mut random = SEED;
    let theirs = nanoseconds(|_| {
        black_box(limiter.check_key(&(xorshift(&mut random) % keys)).is_ok());
    });
    println!("\n{keys} keys, one thread; governor, keyed, in random order: {theirs:.0} ns");
    println!(
        "  {:16}{:>10}{:>11}{:>10}{:>10}{:>10}{:>11}",
        "", "fill ns", "random ns", "ratio", "flood ns", "B/key", "evictions"
    );
    let (mut slowest, mut largest) = (0.0_f64, 0.0_f64);
    for (algorithm, Full { fill, random, flood, bytes, evictions }) in algorithms.iter().zip(measured) {
        let (name, ratio) = (algorithm.name(), random / theirs);
        println!("  {name:16}{fill:10.0}{random:11.0}{ratio:10.2}{flood:10.0}{bytes:10.1}{evictions:11}");
        (slowest, largest) = (slowest.max(ratio), largest.max(bytes));
    }
    if keys >= 10_000_000 {
        println!(
            "must: a decision on one of {keys} keys, to governor, slowest algorithm | 0.5 | {slowest:.2}"
        );
    }
    println!("must: bytes a key in a full store of {keys} keys, largest | 40 | {largest:.1}");
    println!(
        "  ns a new key of one of 20 limits of equal size, in a full store: {:.0}",
        among_limits(&algorithms[0], keys)
    );
}

/// The dearest eviction: the limit that has to make room holds a twentieth of the store, so its counters are looked for.
fn among_limits(algorithm: &Algorithm, keys: u64) -> f64 {
    const LIMITS: u64 = 20;
    let store = MemoryStore::new(usize::try_from(keys).unwrap()).unwrap();
    let limits: Vec<_> = (0..LIMITS).map(|limit| fingerprint(u64::MAX - 1 - limit).0).collect();
    limits.iter().for_each(|identity| store.register_policy(algorithm, *identity));
    let template = charge(algorithm, 0);
    let params: Vec<_> = limits.iter().map(|identity| ParamsId::of_policy(algorithm, *identity)).collect();
    let ask = |key: u64, params, now| {
        verdict(&store, &Charge { key: fingerprint(key), params, ..template }, now);
    };
    for key in 0..keys {
        ask(key, params[usize::try_from(key % LIMITS).unwrap()], NOON);
    }
    nanoseconds(|turn| ask(keys + turn, params[0], NOON.plus(Micros(turn))))
}

/// What is measured of a full store: ns per decision, bytes per key, evictions while it was filled.
struct Full {
    fill: f64,
    random: f64,
    flood: f64,
    bytes: f64,
    evictions: u64,
}

/// A store with this number of keys: filled, asked in random order, and flooded with new keys.
fn full(algorithm: &Algorithm, keys: u64) -> Full {
    let before = resident();
    let store = store(keys, algorithm);
    let template = charge(algorithm, 0);
    let ask = |key: u64, now| verdict(&store, black_box(&Charge { key: fingerprint(key), ..template }), now);
    let start = Instant::now();
    (0..keys).for_each(|key| assert!(ask(key, NOON) == Verdict::Allow));
    let fill = nanoseconds_each(start.elapsed(), keys);
    let bytes = (resident() - before) as f64 / keys as f64;
    let evictions = store.evictions();
    let mut seed = SEED;
    let random = nanoseconds(|turn| {
        black_box(ask(xorshift(&mut seed) % keys, NOON.plus(Micros(turn))));
    });
    let flood = nanoseconds(|turn| {
        black_box(ask(keys + turn, NOON.plus(Micros(turn))));
    });
    std::mem::forget(store);
    Full { fill, random, flood, bytes, evictions }
}

fn verdict(store: &MemoryStore, charge: &Charge<'_>, now: Timestamp) -> Verdict {
    store.decide(std::slice::from_ref(charge), now).decisions[0].verdict
}

fn store(max_keys: u64, algorithm: &Algorithm) -> MemoryStore {
    let store = MemoryStore::new(usize::try_from(max_keys).unwrap()).unwrap();
    store.register(algorithm);
    store
}

fn charge(algorithm: &Algorithm, key: u64) -> Charge<'_> {
    let (params, key) = (ParamsId::of(algorithm), fingerprint(key));
    Charge {
        algorithm,
        params,
        key,
        cost: Cost::ONE,
        group: Group::Enforced,
        shared_key: SharedKeyInfo::NONE,
    }
}

fn governor() -> Governor {
    let burst = NonZeroU32::new(1_000).unwrap();
    let quota = Quota::with_period(Duration::from_millis(86_400)).unwrap().allow_burst(burst);
    RateLimiter::new(quota, DashMapStateStore::default(), FakeRelativeClock::default())
}

/// The median of several rounds. Turns are counted through.
fn nanoseconds(mut act: impl FnMut(u64)) -> f64 {
    let mut rounds: Vec<f64> = (0..ROUNDS as u64)
        .map(|round| {
            let start = Instant::now();
            (round * TURNS..(round + 1) * TURNS).for_each(&mut act);
            nanoseconds_each(start.elapsed(), TURNS)
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    rounds[ROUNDS / 2]
}

fn nanoseconds_each(span: Duration, turns: u64) -> f64 {
    span.as_nanos() as f64 / turns as f64
}

/// Bytes of this process that are in memory.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap();
    let line = status.lines().find(|line| line.starts_with("Rss:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1_024
}

fn xorshift(random: &mut u64) -> u64 {
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    *random
}

/// Spreads a number as the keyed hash of a client's key does (two rounds of a multiplicative mixer).
fn fingerprint(number: u64) -> Fingerprint {
    let mixed = u128::from(number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
    Fingerprint((mixed ^ (mixed >> 67)).wrapping_mul(0xda94_2042_e4dd_58b5_94d0_49bb_1331_11eb))
}
