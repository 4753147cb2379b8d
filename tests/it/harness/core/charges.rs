//! What the tests of the store share: one algorithm of each kind, keys, charges.

use std::hash::Hasher as _;

use siphasher::sip128::{Hasher128 as _, SipHasher13};
use tollgate::limit::units::{Cost, Fingerprint, Micros, Rate, Timestamp};
use tollgate::limit::{Algorithm, Align, Verdict};
use tollgate::store::memory::MemoryStore;
use tollgate::store::{Charge, Group, ParamsId, SharedKeyInfo};

/// Noon of some day, so that windows of a day neither begin nor end near it.
pub(crate) const NOON: Timestamp = Timestamp(1_600_000_000_000_000 / DAY.0 * DAY.0 + DAY.0 / 2);
pub(crate) const DAY: Micros = Micros(86_400_000_000);

/// Every algorithm that admits at once or refuses: `count` a period.
pub(crate) fn prompt(count: u32, period: Micros) -> Vec<Algorithm> {
    let (rate, burst) = (Rate::new(count, period).unwrap(), Cost::new(count).unwrap());
    vec![
        Algorithm::token_bucket(rate, burst),
        Algorithm::gcra(rate, burst),
        Algorithm::fixed_window(rate, Align::Clock),
        Algorithm::fixed_window(rate, Align::FirstRequest),
        Algorithm::sliding_window(rate),
        Algorithm::sliding_log(rate, None, false),
        Algorithm::sliding_log(rate, None, true),
    ]
}

/// Every algorithm: `count` a period.
pub(crate) fn all(count: u32, period: Micros) -> Vec<Algorithm> {
    let rate = Rate::new(count, period).unwrap();
    let queue = Algorithm::leaky_bucket(rate, Cost::new(count).unwrap(), Rate::MAX_PERIOD);
    prompt(count, period).into_iter().chain([queue]).collect()
}

/// Key number `number` of limit `limit`.
pub(crate) fn key(limit: u64, number: u64) -> Fingerprint {
    let mut hasher = SipHasher13::new_with_keys(1, 2);
    hasher.write_u64(limit);
    hasher.write_u64(number);
    Fingerprint(hasher.finish128().as_u128())
}

/// An enforced charge.
pub(crate) fn charge(algorithm: &Algorithm, key: Fingerprint, cost: u32) -> Charge<'_> {
    let cost = Cost::new(cost).unwrap_or(Cost::ZERO);
    Charge {
        algorithm,
        params: ParamsId::of(algorithm),
        key,
        cost,
        group: Group::Enforced,
        shared_key: SharedKeyInfo::NONE,
    }
}

/// Whether a decision lets the request pass, now or later.
pub(crate) fn admits(verdict: Verdict) -> bool {
    !matches!(verdict, Verdict::Deny(_))
}

/// Decides the charges and says whether all admit.
pub(crate) fn admitted(store: &MemoryStore, charges: &[Charge<'_>], now: Timestamp) -> bool {
    store.decide(charges, now).decisions.iter().all(|decision| admits(decision.verdict))
}

/// An empty store that knows `algorithms`.
pub(crate) fn store(max_keys: usize, algorithms: &[Algorithm]) -> MemoryStore {
    let store = MemoryStore::new(max_keys).unwrap();
    algorithms.iter().for_each(|algorithm| store.register(algorithm));
    store
}

/// A small number as a index in a list.
pub(crate) fn index(number: u64) -> usize {
    usize::try_from(number).expect("small")
}
