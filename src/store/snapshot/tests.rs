use proptest::prelude::*;

use super::*;
use crate::limit::units::{Cost, Fingerprint, Micros, Rate};
use crate::limit::{Algorithm, Align, Decision};
use crate::store::bans::Banned;
use crate::store::{Charge, ChargeEffect, Group, IdempotentCharge, SharedKeyInfo};

/// The wall clock less the clock of the counters.
const OFFSET: i64 = 1_700_000_000_000_000;
const NOW: Timestamp = Timestamp(2_000_000_000);
const SECRET: [u8; 16] = *b"a secret of keys";
const MAX_KEYS: usize = 500;

fn at(at: Timestamp) -> SnapshotTime {
    let wall_clock = WallClock::resumed(OFFSET, [(Timestamp(1_000), 0), (Timestamp(9_000), -7)]);
    SnapshotTime { at, wall_clock, is_last: false }
}

fn wall(at: Timestamp) -> WallTime {
    WallTime(at.0 + OFFSET.unsigned_abs())
}

fn algorithms() -> Vec<Algorithm> {
    let rate = |count, seconds: u64| Rate::new(count, Micros(seconds * 1_000_000)).unwrap();
    let cost = |units| Cost::new(units).unwrap();
    vec![
        Algorithm::token_bucket(rate(7, 60), cost(9)),
        Algorithm::gcra(rate(3, 1), cost(4)),
        Algorithm::leaky_bucket(rate(5, 10), cost(6), Micros(30_000_000)),
        Algorithm::fixed_window(rate(8, 3_600), Align::Clock),
        Algorithm::fixed_window(rate(8, 3_600), Align::FirstRequest),
        Algorithm::sliding_window(rate(8, 60)),
        Algorithm::sliding_log(rate(5, 60), None, false),
        Algorithm::sliding_log(rate(5, 60), Some(Micros(1_000)), true),
        Algorithm::ban(2, Micros(60_000_000), &[Micros(5_000_000), Micros(9_000_000)]).unwrap(),
    ]
}

fn store() -> Store {
    let store = Store::new(MAX_KEYS, None).unwrap();
    algorithms().iter().for_each(|algorithm| store.memory.register_policy(algorithm, 0));
    store
}

/// A decision on a request of this client, under the algorithm with this index.
fn decide(store: &Store, (algorithm, client, units): (usize, u64, u32), now: Timestamp) -> Decision {
    let algorithm = &algorithms()[algorithm];
    let params = ParamsId::of_policy(algorithm, 0);
    // Spread as fingerprints are: otherwise a set of the table is full early, and evicts.
    let hash = blake3::hash(&[client.to_le_bytes(), u64::from(params.0).to_le_bytes()].concat());
    let (half, _) = hash.as_bytes().split_first_chunk().unwrap();
    let charge = Charge {
        algorithm,
        params,
        key: Fingerprint(u128::from_le_bytes(*half)),
        cost: Cost::new(units).unwrap(),
        group: Group::Enforced,
        shared_key: SharedKeyInfo::NONE,
    };
    store.memory.decide_alone(&charge, now)
}

fn file() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("counters");
    (folder, path)
}

/// The bytes of a file with some counters of each kind, and bans.
fn bytes() -> Vec<u8> {
    let (_folder, path) = file();
    write(&path, &used(), SECRET, &at(NOW), || {}).unwrap();
    fs::read(path).unwrap()
}

fn used() -> Store {
    let store = store();
    for (turn, algorithm) in (0..60).zip((0..9).cycle()) {
        decide(&store, (algorithm, turn / 9, 1), Timestamp(NOW.0 - 60 + turn));
    }
    let banned = |client| Banned { limit: 5, key_hash: Fingerprint(client) };
    store.bans.insert(banned(1), Timestamp(NOW.0 + 10), NOW).unwrap();
    store.bans.begin(banned(2), Micros(20), NOW);
    store.bans.set_label(banned(2), "192.0.2.2");
    store
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// A store that takes the counters of another one decides like it from then on.
    #[test]
    fn counters_count_on(
        before in prop::collection::vec((0..9_usize, 0..12_u64, 1..4_u32, 0..3_000_000_u64), 0..200),
        after in prop::collection::vec((0..9_usize, 0..12_u64, 1..4_u32, 0..3_000_000_u64), 1..200),
    ) {
        let (one, mut now) = (store(), Timestamp(1_000_000_000));
        for (algorithm, client, units, later) in before {
            now = now.plus(Micros(later));
            decide(&one, (algorithm, client, units), now);
        }
        let (_folder, path) = file();
        let written = write(&path, &one, SECRET, &at(now), || {}).unwrap();
        let snapshot = Snapshot::read(&path).unwrap().unwrap();
        prop_assert_eq!(snapshot.secret(), SECRET);
        prop_assert_eq!(snapshot.resumed_at(wall(now)).unwrap(), now);
        let other = Store::new(MAX_KEYS, None).unwrap();
        let restored = snapshot.restore(&other, now, |_| None).unwrap();
        prop_assert_eq!(restored, RestoredCounters { counters: written, dropped: 0, bans: 0 });
        prop_assert_eq!(one.keys(), other.keys());
        for (algorithm, client, units, later) in after {
            now = now.plus(Micros(later));
            let asked = (algorithm, client, units);
            prop_assert_eq!(decide(&one, asked, now), decide(&other, asked, now));
        }
    }
}

#[test]
fn bans_and_charges_by_hand_go_on() {
    let (_folder, path) = file();
    let store = used();
    let once = IdempotentCharge { id: 7, request: 9 };
    store.charge_records.once(Some(&once), NOW, || {}).unwrap();
    write(&path, &store, SECRET, &at(NOW), || {}).unwrap();
    let other = Store::new(MAX_KEYS, None).unwrap();
    let later = NOW.plus(Micros(9));
    let restored = Snapshot::read(&path).unwrap().unwrap().restore(&other, later, |_| None).unwrap();
    assert_eq!((restored.bans, restored.dropped), (2, 0));
    let banned = |client| Banned { limit: 5, key_hash: Fingerprint(client) };
    assert_eq!(other.bans.until(banned(1), later), Some(Timestamp(NOW.0 + 10)));
    assert_eq!(other.bans.find(banned(2), later), store.bans.find(banned(2), later));
    assert_eq!(other.bans.label(banned(2)).as_deref(), Some("192.0.2.2"));
    let again = other.charge_records.once(Some(&once), later, || {});
    assert_eq!(again, Ok(ChargeEffect::Repeated));
}

#[test]
fn a_file_that_is_cut_or_changed_is_not_used() {
    let bytes = bytes();
    assert!(Snapshot::decode(bytes.clone()).is_ok());
    for end in 0..bytes.len() {
        let cut = Snapshot::decode(bytes[..end].to_vec());
        assert!(matches!(cut, Err(SnapshotFault::Damaged)), "{end}");
    }
    for index in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[index] ^= 1 << (index % 8);
        assert!(matches!(Snapshot::decode(changed), Err(SnapshotFault::Damaged)), "{index}");
    }
}

/// Of a file with a right hash that tollgate has not written, nothing is used that is none of its format.
#[test]
fn bytes_of_another_program_are_not_used() {
    let bytes = bytes();
    let whole = &bytes[..bytes.len() - HASH];
    let hashed = |bytes: &[u8]| [bytes, blake3::hash(bytes).as_bytes()].concat();
    let restored = |bytes: Vec<u8>| {
        let store = Store::new(MAX_KEYS, None).unwrap();
        Snapshot::decode(bytes)?.restore(&store, NOW, |_| None)
    };
    assert!(restored(hashed(whole)).is_ok());
    let mut other = whole.to_vec();
    other[MAGIC.len()] = 2;
    assert!(matches!(restored(hashed(&other)), Err(SnapshotFault::Version(2))));
    for end in 0..whole.len() {
        assert!(restored(hashed(&whole[..end])).is_err(), "{end}");
    }
    for index in 0..whole.len() {
        let mut other = whole.to_vec();
        other[index] = other[index].wrapping_add(1);
        // It may still be one of the format, with another number.
        let _ = restored(hashed(&other));
    }
}

#[test]
fn a_file_from_the_future_or_of_another_capacity_is_not_used() {
    let read = || Snapshot::decode(bytes()).unwrap();
    let resumed = |moment: u64| read().resumed_at(wall(Timestamp(moment))).ok();
    assert_eq!(resumed(NOW.0 + 5), Some(Timestamp(NOW.0 + 5)));
    assert_eq!(resumed(NOW.0 - MAX_AHEAD), Some(NOW));
    assert_eq!(resumed(NOW.0 - MAX_AHEAD - 1), None);
    assert_eq!(read().wall_clock().offset(), OFFSET);
    assert!(read().wall_clock().steps().eq(at(NOW).wall_clock.steps()));
    let small = Store::new(MAX_KEYS / 2, None).unwrap();
    let restored = read().restore(&small, NOW, |_| None);
    assert!(matches!(restored, Err(SnapshotFault::Capacity)));
    assert_eq!(small.keys(), 0);
}

#[test]
fn an_earlier_file_stays_until_the_next_one_is_whole() {
    use std::os::unix::fs::PermissionsExt as _;

    let (folder, path) = file();
    assert!(Snapshot::read(&path).unwrap().is_none());
    write(&path, &used(), SECRET, &at(NOW), || {}).unwrap();
    let earlier = fs::read(&path).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    // The next file has no place to be made.
    fs::create_dir(folder.path().join("counters.new")).unwrap();
    assert!(write(&path, &store(), SECRET, &at(NOW), || {}).is_err());
    assert_eq!(fs::read(&path).unwrap(), earlier);
    fs::remove_dir(folder.path().join("counters.new")).unwrap();
    // A crash has left one.
    fs::write(folder.path().join("counters.new"), "half").unwrap();
    write(&path, &store(), SECRET, &at(NOW), || {}).unwrap();
    assert_ne!(fs::read(&path).unwrap(), earlier);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

/// A disk that is full after so many bytes.
struct FullAfter(usize);

impl Write for FullAfter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = bytes.len().min(self.0);
        self.0 -= written;
        if written == 0 { Err(io::ErrorKind::StorageFull.into()) } else { Ok(written) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_full_disk_is_an_error_wherever_it_is_full() {
    let (store, length) = (used(), bytes().len() - HASH);
    for room in 0..length {
        let written = encode(&mut FullAfter(room), &store, SECRET, &at(NOW), || {});
        assert_eq!(written.map_err(|error| error.kind()), Err(io::ErrorKind::StorageFull), "{room}");
    }
    assert!(encode(&mut FullAfter(length), &store, SECRET, &at(NOW), || {}).is_ok());
}
