//! The list of bans.

use tollgate::limit::units::{Fingerprint, Micros, Timestamp};
use tollgate::store::bans::{ActiveBan, BanCause, BanFault, Banned, Bans};

const NOW: Timestamp = Timestamp(1_000_000_000);

fn key(limit: u128, owner: u128) -> Banned {
    Banned { limit, owner: Fingerprint(owner) }
}

fn after(seconds: u64) -> Timestamp {
    NOW.plus(Micros(seconds * 1_000_000))
}

fn by_hand(seconds: u64) -> ActiveBan {
    ActiveBan { until: after(seconds), cause: BanCause::Hand }
}

#[test]
fn a_ban_holds_for_its_key_and_its_time() {
    let bans = Bans::default();
    assert!(bans.is_empty());
    bans.insert(key(1, 1), after(10), NOW).unwrap();
    assert_eq!(bans.until(key(1, 1), NOW), Some(after(10)));
    assert_eq!([key(1, 2), key(2, 1)].map(|other| bans.until(other, NOW)), [None, None]);
    bans.insert(key(1, 1), after(5), NOW).unwrap();
    assert_eq!((bans.until(key(1, 1), after(4)), bans.until(key(1, 1), after(5))), (Some(after(5)), None));
    bans.insert(key(2, 1), after(9), NOW).unwrap();
    assert_eq!(bans.of_limit(2, NOW), [(Fingerprint(1), by_hand(9))]);
    assert_eq!(bans.counts(after(6)).into_iter().collect::<Vec<_>>(), [(2, 1)]);
    bans.sweep(after(6));
    assert!(!bans.is_empty());
    bans.remove(key(2, 1));
    bans.remove(key(2, 1));
    assert!(bans.is_empty());
}

#[test]
fn a_label_is_kept_as_long_as_its_ban() {
    let bans = Bans::default();
    bans.name(key(1, 1), "early");
    assert_eq!(bans.label(key(1, 1)), None, "it is not banned");
    bans.insert(key(1, 1), after(5), NOW).unwrap();
    bans.insert(key(1, 2), after(9), NOW).unwrap();
    bans.name(key(1, 1), "one");
    bans.name(key(1, 2), "two");
    bans.sweep(after(6));
    assert_eq!((bans.label(key(1, 1)), bans.label(key(1, 2)).as_deref()), (None, Some("two")));
    bans.replace(BanCause::Hand, [(key(1, 3), after(9))], NOW);
    assert_eq!(bans.label(key(1, 2)), None);
}

#[test]
fn there_are_no_more_than_there_may_be() {
    let bans = Bans::default();
    let listed =
        (0..Bans::MAX as u128).map(|owner| (key(1, owner), after(if owner % 2 == 0 { 1 } else { 2 })));
    bans.replace(BanCause::Hand, listed, NOW);
    assert_eq!(bans.insert(key(2, 1), after(9), NOW), Err(BanFault::TooMany));
    assert_eq!(bans.insert(key(1, 1), after(9), NOW), Ok(()));
    // Those that are over make room.
    assert_eq!(bans.insert(key(2, 1), after(9), after(1)), Ok(()));
    assert_eq!(bans.of_limit(1, after(3)), [(Fingerprint(1), by_hand(9))]);
}
