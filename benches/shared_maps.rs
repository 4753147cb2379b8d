//! What a look-up costs in the maps that workers share: open connections by client, resets and bans.
//!
//! `cargo bench --bench shared_maps`. `t=2` is two threads at once. Keys are taken at random.
#![expect(clippy::unwrap_used, reason = "a benchmark that cannot be set up should stop")]

use std::cell::Cell;
use std::hash::{BuildHasher as _, RandomState};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use divan::{Bencher, black_box};
use tollgate::limit::Algorithm;
use tollgate::limit::units::{Cost, Fingerprint, Micros, Rate, Timestamp};
use tollgate::shared::client_connections::ClientConnections;
use tollgate::store::bans::{Banned, Bans};
use tollgate::store::memory::MemoryStore;
use tollgate::store::{Charge, Correction, Group, ParamsId, SharedKeyInfo};

const NOON: Timestamp = Timestamp(1_599_998_400_000_000);
const HOUR: Micros = Micros(3_600_000_000);
const LIMIT: u128 = 7;
const KEYS: u64 = 10_000;

fn main() {
    divan::main();
}

thread_local! {
    static RANDOM: Cell<u64> = Cell::new(RandomState::new().hash_one(0) | 1);
}

/// Xorshift.
fn random(below: u64) -> u64 {
    let mut random = RANDOM.get();
    random ^= random << 13;
    random ^= random >> 7;
    random ^= random << 17;
    RANDOM.set(random);
    random % below
}

/// Spreads a number as the keyed hash of a client's key does (two rounds of a multiplicative mixer).
fn fingerprint(number: u64) -> Fingerprint {
    let mixed = u128::from(number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
    Fingerprint((mixed ^ (mixed >> 67)).wrapping_mul(0xda94_2042_e4dd_58b5_94d0_49bb_1331_11eb))
}

/// A connection is opened and closed beside the open connections of 10,000 clients.
#[divan::bench(args = ["IPv4", "IPv6"], threads = [1, 2], sample_size = 50_000, sample_count = 40)]
fn client_connection(bencher: Bencher<'_, '_>, family: &str) {
    let network = |number: u32| match family {
        "IPv4" => IpAddr::from(Ipv4Addr::from_bits(number)),
        // The network of a client is its /64.
        _ => IpAddr::from(Ipv6Addr::from_bits(u128::from(number) << 64)),
    };
    let connections = Arc::new(ClientConnections::default());
    let clients = u32::try_from(KEYS).unwrap();
    let _open: Vec<_> = (0..clients).map(|client| connections.admit(network(client), 100).unwrap()).collect();
    bencher.bench(|| {
        let client = u32::try_from(random(2 * KEYS)).unwrap();
        black_box(connections.admit(network(client), 100)).is_some()
    });
}

/// A refund of a charge that was made before its counter was reset, beside 10,000 resets.
#[divan::bench(threads = [1, 2], sample_size = 50_000, sample_count = 40)]
fn refund_before_reset(bencher: Bencher<'_, '_>) {
    let algorithm = Algorithm::token_bucket(Rate::new(10, Micros::SECOND).unwrap(), Cost::new(10).unwrap());
    let params = ParamsId::of(&algorithm);
    let charge = |client| Charge {
        algorithm: &algorithm,
        params,
        key: fingerprint(client),
        cost: Cost::ONE,
        group: Group::Enforced,
        shared_key: SharedKeyInfo::NONE,
    };
    let store = MemoryStore::new(100).unwrap();
    store.register(&algorithm);
    for client in 0..KEYS {
        store.reset(&[charge(client)], NOON.plus(HOUR));
    }
    bencher.bench(|| {
        let charge = charge(random(KEYS));
        let refund = Correction { charge, counted_at: NOON, difference: -1, shared: false };
        store.settle(black_box(&refund), NOON.plus(HOUR));
    });
}

/// A request of a key that is banned, or is not, while 10,000 automatic bans and 1,000 by hand are in force.
#[divan::bench(args = ["banned", "not banned"], threads = [1, 2], sample_size = 50_000, sample_count = 40)]
fn find_ban(bencher: Bencher<'_, '_>, what: &str) {
    let bans = Bans::default();
    let key = |client| Banned { limit: LIMIT, key_hash: fingerprint(client) };
    (0..KEYS).for_each(|client| _ = bans.begin(key(client), HOUR, NOON));
    (0..KEYS / 10).for_each(|client| bans.insert(key(client * 20), NOON.plus(HOUR), NOON).unwrap());
    let first = if what == "banned" { 0 } else { 2 * KEYS };
    bencher.bench(|| black_box(bans.find(key(first + random(KEYS)), NOON)).is_some());
}

/// An automatic ban begins, in a full table: the one that ends first is dropped.
#[divan::bench(threads = [1, 2], sample_size = 5_000, sample_count = 40)]
fn begin_ban(bencher: Bencher<'_, '_>) {
    let bans = Bans::default();
    let key = |client| Banned { limit: LIMIT, key_hash: fingerprint(client) };
    let until = |number| Micros(HOUR.0 + number);
    let full = Bans::MAX_AUTOMATIC as u64;
    (0..full).for_each(|client| _ = bans.begin(key(client), until(client), NOON));
    bencher.bench(|| {
        let client = full + random(1 << 40);
        black_box(bans.begin(key(client), until(client), NOON))
    });
}
