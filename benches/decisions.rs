//! What a decision costs: as a pure function, through the memory store, and by the `governor` crate in the same run.
//!
//! `cargo bench --bench decisions`. No clock is read: the time is passed in, to governor as well. Names under `hot` ask for one
//! key again and again, those under `million` for a million keys in random order; `t=2` is two threads at once.
#![expect(clippy::unwrap_used, reason = "a benchmark that cannot be set up should stop")]

use std::cell::Cell;
use std::hash::{BuildHasher as _, RandomState};
use std::num::NonZeroU32;
use std::time::Duration;

use divan::{Bencher, black_box};
use governor::clock::Clock;
use governor::middleware::NoOpMiddleware;
use governor::nanos::Nanos;
use governor::state::keyed::DashMapStateStore;
use governor::{Quota, RateLimiter};
use tollgate::limit::units::{Cost, Fingerprint, Micros, Rate, Timestamp};
use tollgate::limit::{Algorithm, Align, State, Verdict};
use tollgate::store::memory::MemoryStore;
use tollgate::store::{Charge, Group, ParamsId, SharedKeyInfo};

const NOON: Timestamp = Timestamp(1_599_998_400_000_000);
const DAY: Micros = Micros(86_400_000_000);
const MILLION: u64 = 1_000_000;
const ALGORITHMS: [&str; 6] =
    ["token-bucket", "gcra", "leaky-bucket", "fixed-window", "sliding-window", "sliding-log"];

fn main() {
    divan::main();
}

fn algorithm(name: &str, count: u32, period: Micros) -> Algorithm {
    let (rate, units) = (Rate::new(count, period).unwrap(), Cost::new(count).unwrap());
    match name {
        "token-bucket" => Algorithm::token_bucket(rate, units),
        "gcra" => Algorithm::gcra(rate, units),
        "leaky-bucket" => Algorithm::leaky_bucket(rate, units, DAY),
        "fixed-window" => Algorithm::fixed_window(rate, Align::Clock),
        "sliding-window" => Algorithm::sliding_window(rate),
        _ => Algorithm::sliding_log(rate, None, false),
    }
}

/// Asked once a millisecond, it always admits: some ten requests lie in its window.
fn open(name: &str) -> Algorithm {
    algorithm(name, 1_000, Micros(10_000))
}

/// Once used up, it refuses for the rest of the run.
fn closed(name: &str) -> Algorithm {
    algorithm(name, 10, DAY)
}

thread_local! {
    static TURN: Cell<u64> = const { Cell::new(0) };
    static RANDOM: Cell<u64> = Cell::new(RandomState::new().hash_one(0) | 1);
}

fn turn() -> u64 {
    TURN.set(TURN.get() + 1);
    TURN.get()
}

/// Xorshift, below a million.
fn random_client() -> u64 {
    let mut random = RANDOM.get();
    random ^= random << 13;
    random ^= random >> 7;
    random ^= random << 17;
    RANDOM.set(random);
    random % MILLION
}

/// Spreads a number as the keyed hash of a client's key does (two rounds of a multiplicative mixer).
fn fingerprint(number: u64) -> Fingerprint {
    let mixed = u128::from(number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
    Fingerprint((mixed ^ (mixed >> 67)).wrapping_mul(0xda94_2042_e4dd_58b5_94d0_49bb_1331_11eb))
}

fn charge(algorithm: &Algorithm, client: u64) -> Charge<'_> {
    Charge {
        algorithm,
        params: ParamsId::of(algorithm),
        key: fingerprint(client),
        cost: Cost::ONE,
        group: Group::Enforced,
        shared_key: SharedKeyInfo::NONE,
    }
}

/// The last charge's verdict: dropped in the loop, the rest of the outcome is part of the price.
fn verdict(store: &MemoryStore, charges: &[Charge<'_>], now: Timestamp) -> Option<Verdict> {
    store.decide(black_box(charges), now).decisions.last().map(|decision| decision.verdict)
}

fn store(algorithm: &Algorithm) -> MemoryStore {
    let store = MemoryStore::new(1_100_000).unwrap();
    store.register(algorithm);
    store
}

mod pure {
    use super::*;

    #[divan::bench(args = ALGORITHMS, sample_size = 2_000, min_time = 0.2)]
    fn admitted(bencher: Bencher, name: &str) {
        let (algorithm, mut state, mut now) = (open(name), State::default(), NOON);
        bencher.bench_local(|| {
            now = now.plus(Micros(1_000));
            let decision;
            (state, decision) = black_box(&algorithm).decide(std::mem::take(&mut state), now, Cost::ONE);
            decision.verdict
        });
    }

    #[divan::bench(args = ALGORITHMS, sample_size = 2_000, min_time = 0.2)]
    fn refused(bencher: Bencher, name: &str) {
        let (algorithm, mut state) = (closed(name), State::default());
        for _ in 0..11 {
            state = algorithm.decide(state, NOON, Cost::ONE).0;
        }
        bencher.bench_local(|| {
            let decision;
            (state, decision) = black_box(&algorithm).decide(std::mem::take(&mut state), NOON, Cost::ONE);
            decision.verdict
        });
    }
}

mod hot {
    use super::*;

    #[divan::bench(args = ALGORITHMS, threads = [1, 2], sample_size = 2_000, min_time = 0.2)]
    fn admitted(bencher: Bencher, name: &str) {
        let algorithm = open(name);
        let (store, charge) = (store(&algorithm), charge(&algorithm, 0));
        bencher.bench(|| verdict(&store, &[charge], NOON.plus(Micros(turn() * 1_000))));
    }

    #[divan::bench(args = ALGORITHMS, threads = [1, 2], sample_size = 2_000, min_time = 0.2)]
    fn refused(bencher: Bencher, name: &str) {
        let algorithm = closed(name);
        let (store, charge) = (store(&algorithm), charge(&algorithm, 0));
        for _ in 0..11 {
            store.decide(&[charge], NOON);
        }
        bencher.bench(|| verdict(&store, &[charge], NOON));
    }

    #[divan::bench(sample_size = 2_000, min_time = 0.2)]
    fn three_limits_admitted(bencher: Bencher) {
        let algorithm = open("token-bucket");
        let (store, charges) = (store(&algorithm), [0, 1, 2].map(|client| charge(&algorithm, client)));
        bencher.bench(|| verdict(&store, &charges, NOON.plus(Micros(turn() * 1_000))));
    }

    #[divan::bench(sample_size = 2_000, min_time = 0.2)]
    fn three_limits_refused(bencher: Bencher) {
        let (open, closed) = (open("token-bucket"), closed("token-bucket"));
        let store = store(&open);
        let charges = [charge(&open, 0), charge(&closed, 1), charge(&open, 2)];
        for _ in 0..11 {
            store.decide(&charges[1..2], NOON);
        }
        bencher.bench(|| verdict(&store, &charges, NOON));
    }
}

mod million {
    use super::*;

    #[divan::bench(args = ALGORITHMS, threads = [1, 2], sample_size = 2_000, min_time = 0.2)]
    fn admitted(bencher: Bencher, name: &str) {
        let algorithm = algorithm(name, 1_000, DAY);
        let store = match name {
            // Each event takes room, and a million logs of several would be a measure of eviction.
            "sliding-log" => MemoryStore::new(100_000_000).unwrap(),
            _ => store(&algorithm),
        };
        for client in 0..MILLION {
            store.decide(&[charge(&algorithm, client)], NOON);
        }
        let params = ParamsId::of(&algorithm);
        let template = charge(&algorithm, 0);
        bencher.bench(|| {
            let charge = Charge { key: fingerprint(random_client()), params, ..template };
            verdict(&store, &[charge], NOON.plus(Micros(turn())))
        });
    }

    /// Every request brings a new key to a full table: the price of an eviction.
    #[divan::bench(args = ["token-bucket", "sliding-window"], sample_size = 2_000, min_time = 0.2)]
    fn flood(bencher: Bencher, name: &str) {
        let algorithm = algorithm(name, 1_000, DAY);
        let store = MemoryStore::new(1_000_000).unwrap();
        store.register(&algorithm);
        for client in 0..MILLION {
            store.decide(&[charge(&algorithm, client)], NOON);
        }
        let template = charge(&algorithm, 0);
        bencher.bench_local(|| {
            let charge = Charge { key: fingerprint(MILLION + turn()), ..template };
            verdict(&store, &[charge], NOON)
        });
    }
}

mod governor_crate {
    use super::*;

    /// A clock that advances by this number of nanoseconds at each reading.
    #[derive(Clone)]
    struct Passed(u64);

    impl Clock for Passed {
        type Instant = Nanos;

        fn now(&self) -> Nanos {
            Nanos::from(1_000_000_000 + turn() * self.0)
        }
    }

    const OPEN: Passed = Passed(1_000_000);
    const CLOSED: Passed = Passed(0);

    fn quota(count: u32, period: Duration) -> Quota {
        let count = NonZeroU32::new(count).unwrap();
        Quota::with_period(period / count.get()).unwrap().allow_burst(count)
    }

    fn keyed(
        quota: Quota,
        clock: Passed,
    ) -> RateLimiter<u64, DashMapStateStore<u64>, Passed, NoOpMiddleware<Nanos>> {
        RateLimiter::new(quota, DashMapStateStore::default(), clock)
    }

    #[divan::bench(threads = [1, 2], sample_size = 2_000, min_time = 0.2)]
    fn direct_hot_admitted(bencher: Bencher) {
        let limiter = RateLimiter::direct_with_clock(quota(1_000, Duration::from_millis(10)), OPEN);
        bencher.bench(|| limiter.check().is_ok());
    }

    #[divan::bench(threads = [1, 2], sample_size = 2_000, min_time = 0.2)]
    fn direct_hot_refused(bencher: Bencher) {
        let limiter = RateLimiter::direct_with_clock(quota(10, Duration::from_secs(86_400)), CLOSED);
        while limiter.check().is_ok() {}
        bencher.bench(|| limiter.check().is_ok());
    }

    #[divan::bench(threads = [1, 2], sample_size = 2_000, min_time = 0.2)]
    fn keyed_hot_admitted(bencher: Bencher) {
        let limiter = keyed(quota(1_000, Duration::from_millis(10)), OPEN);
        bencher.bench(|| limiter.check_key(&0).is_ok());
    }

    #[divan::bench(threads = [1, 2], sample_size = 2_000, min_time = 0.2)]
    fn keyed_hot_refused(bencher: Bencher) {
        let limiter = keyed(quota(10, Duration::from_secs(86_400)), CLOSED);
        while limiter.check_key(&0).is_ok() {}
        bencher.bench(|| limiter.check_key(&0).is_ok());
    }

    #[divan::bench(threads = [1, 2], sample_size = 2_000, min_time = 0.2)]
    fn keyed_million_admitted(bencher: Bencher) {
        let limiter = keyed(quota(1_000, Duration::from_secs(86_400)), Passed(1_000));
        for client in 0..MILLION {
            let _ = limiter.check_key(&client);
        }
        bencher.bench(|| limiter.check_key(&random_client()).is_ok());
    }
}
