//! The list of bans.

use std::collections::BTreeMap;
use std::sync::Barrier;
use std::thread;

use proptest::prelude::*;
use tollgate::limit::units::{Fingerprint, Micros, Timestamp};
use tollgate::store::bans::{ActiveBan, BanCause, BanFault, Banned, Bans};

const NOW: Timestamp = Timestamp(1_000_000_000);

fn key(limit: u128, key_hash: u128) -> Banned {
    Banned { limit, key_hash: Fingerprint(key_hash) }
}

fn after(seconds: u64) -> Timestamp {
    NOW.plus(Micros(seconds * 1_000_000))
}

/// The number of bans of each limit.
fn totals(bans: &Bans, now: Timestamp) -> BTreeMap<u128, usize> {
    bans.counts(now).into_iter().map(|(limit, counts)| (limit, counts.total())).collect()
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
    assert_eq!(totals(&bans, after(6)), [(2, 1)].into());
    bans.sweep(after(6));
    assert!(!bans.is_empty());
    bans.remove(key(2, 1));
    bans.remove(key(2, 1));
    assert!(bans.is_empty());
}

#[test]
fn a_label_is_kept_as_long_as_its_ban() {
    let bans = Bans::default();
    bans.set_label(key(1, 1), "early");
    assert_eq!(bans.label(key(1, 1)), None, "it is not banned");
    bans.insert(key(1, 1), after(5), NOW).unwrap();
    bans.insert(key(1, 2), after(9), NOW).unwrap();
    bans.set_label(key(1, 1), "one");
    bans.set_label(key(1, 2), "two");
    bans.sweep(after(6));
    assert_eq!((bans.label(key(1, 1)), bans.label(key(1, 2)).as_deref()), (None, Some("two")));
    bans.replace(BanCause::Hand, [(key(1, 3), after(9))], NOW);
    assert_eq!(bans.label(key(1, 2)), None);
}

#[test]
fn there_are_no_more_than_there_may_be() {
    let bans = Bans::default();
    let listed = (0..Bans::MAX as u128)
        .map(|key_hash| (key(1, key_hash), after(if key_hash % 2 == 0 { 1 } else { 2 })));
    bans.replace(BanCause::Hand, listed, NOW);
    assert_eq!(bans.insert(key(2, 1), after(9), NOW), Err(BanFault::TooMany));
    assert_eq!(bans.insert(key(1, 1), after(9), NOW), Ok(()));
    // Those that are over make room.
    assert_eq!(bans.insert(key(2, 1), after(9), after(1)), Ok(()));
    assert_eq!(bans.of_limit(1, after(3)), [(Fingerprint(1), by_hand(9))]);
}

#[test]
fn a_full_table_drops_the_automatic_ban_that_ends_first_and_none_by_hand() {
    let bans = Bans::default();
    bans.insert(key(1, 0), after(1), NOW).unwrap();
    let automatic =
        (0..Bans::MAX_AUTOMATIC as u64).map(|key_hash| (key(1, key_hash.into()), after(100 + key_hash)));
    bans.replace(BanCause::Refusals, automatic, NOW);
    assert_eq!((bans.counts(NOW)[&1].total(), bans.evictions()), (1 + Bans::MAX_AUTOMATIC, 0));
    assert!(bans.begin(key(2, 1), Micros(1_000_000_000_000), NOW));
    assert_eq!(bans.find(key(1, 0), NOW), Some(by_hand(1)), "its automatic ban ended first");
    assert_eq!((bans.until(key(1, 1), NOW), bans.evictions()), (Some(after(101)), 1));
    assert!(!bans.begin(key(2, 1), Micros(1_000_000_000_000), NOW), "known already");
    assert!(bans.begin(key(2, 2), Micros(1_000_000), NOW), "the newest ends first");
    assert_eq!((bans.until(key(2, 2), NOW), bans.evictions()), (None, 2));
    // The first one has ended by itself: nothing was dropped early.
    assert!(bans.begin(key(2, 3), Micros(1_000_000_000_000), after(102)));
    assert_eq!((bans.until(key(1, 1), NOW), bans.evictions()), (None, 2));
    bans.remove(key(1, 0));
    assert_eq!(totals(&bans, NOW), [(1, Bans::MAX_AUTOMATIC - 2), (2, 2)].into());
}

#[test]
fn a_flood_never_exceeds_the_bound() {
    let bans = Bans::default();
    let (max, flood) = (Bans::MAX_AUTOMATIC as u64, 2 * Bans::MAX_AUTOMATIC as u64);
    for key_hash in 0..flood {
        bans.begin(key(1, key_hash.into()), Micros(1_000 + key_hash), NOW);
        if key_hash % 10_000 == 0 {
            assert!(bans.counts(NOW)[&1].total() <= Bans::MAX_AUTOMATIC);
        }
    }
    assert_eq!((bans.counts(NOW)[&1].total(), bans.evictions()), (Bans::MAX_AUTOMATIC, flood - max));
    assert_eq!(bans.until(key(1, (flood - max).into()), NOW), Some(NOW.plus(Micros(1_000 + flood - max))));
    assert_eq!(bans.until(key(1, (flood - max - 1).into()), NOW), None);
}

#[derive(Clone, Debug)]
enum Step {
    Insert(u128, u64),
    Begin(u128, u64),
    InsertRemote(u128, u64),
    Remove(u128),
    SetLabel(u128),
    Replace(BanCause, Vec<(u128, u64)>),
    Sweep,
    Clear,
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let (key_hash, seconds) = (0..6_u128, 0..9_u64);
    let ban = (key_hash.clone(), seconds.clone());
    let cause = prop_oneof![Just(BanCause::Hand), Just(BanCause::Refusals)];
    prop_oneof![
        3 => ban.clone().prop_map(|(key_hash, seconds)| Step::Insert(key_hash, seconds)),
        3 => ban.clone().prop_map(|(key_hash, seconds)| Step::Begin(key_hash, seconds)),
        2 => ban.clone().prop_map(|(key_hash, seconds)| Step::InsertRemote(key_hash, seconds)),
        2 => key_hash.clone().prop_map(Step::Remove),
        3 => key_hash.prop_map(Step::SetLabel),
        1 => (cause, prop::collection::vec(ban, 0..6)).prop_map(|(cause, list)| Step::Replace(cause, list)),
        2 => Just(Step::Sweep),
        1 => Just(Step::Clear),
        2 => (0..3_u64).prop_map(Step::Pass),
    ]
}

/// Bans by owner and cause as a plain list, and the texts of the keys.
#[derive(Default)]
struct Model {
    ends: BTreeMap<(u128, BanCause), Timestamp>,
    labels: BTreeMap<u128, String>,
    begun: u64,
}

impl Model {
    /// Returns whether the ban is new.
    fn take(&mut self, step: &Step, now: Timestamp) -> bool {
        let until = |seconds: &u64| now.plus(Micros(seconds * 1_000_000));
        let mut is_new = false;
        match step {
            Step::Insert(key_hash, seconds) => {
                self.ends.retain(|(_, cause), until| *cause == BanCause::Refusals || *until > now);
                self.forget_labels();
                self.ends.insert((*key_hash, BanCause::Hand), until(seconds));
            }
            Step::Begin(key_hash, seconds) => {
                let before = self.ends.insert((*key_hash, BanCause::Refusals), until(seconds));
                is_new = before.is_none_or(|before| before <= now);
                self.begun += u64::from(is_new);
            }
            Step::InsertRemote(key_hash, seconds) => {
                self.ends.insert((*key_hash, BanCause::Refusals), until(seconds));
            }
            Step::Remove(removed) => self.ends.retain(|(key_hash, _), _| key_hash != removed),
            Step::SetLabel(key_hash) => _ = self.labels.insert(*key_hash, format!("{key_hash} at {now:?}")),
            Step::Replace(replaced, list) => {
                self.ends.retain(|(_, cause), _| cause != replaced);
                self.ends
                    .extend(list.iter().map(|(key_hash, seconds)| ((*key_hash, *replaced), until(seconds))));
            }
            Step::Sweep => self.ends.retain(|_, until| *until > now),
            Step::Clear => self.ends.clear(),
            Step::Pass(_) => {}
        }
        self.forget_labels();
        is_new
    }

    /// The texts of keys without a ban.
    fn forget_labels(&mut self) {
        self.labels.retain(|key_hash, _| self.ends.keys().any(|(banned, _)| banned == key_hash));
    }

    fn of(&self, key_hash: u128, cause: BanCause, now: Timestamp) -> Option<ActiveBan> {
        let until = *self.ends.get(&(key_hash, cause)).filter(|until| **until > now)?;
        Some(ActiveBan { until, cause })
    }
}

proptest! {
    /// Look-ups, lists and texts are those of a plain list, whatever is changed in which order.
    #[test]
    fn bans_are_those_of_a_plain_list(steps in prop::collection::vec(step(), 1..60)) {
        let (bans, mut model, mut now) = (Bans::default(), Model::default(), NOW);
        for step in steps {
            let span = |seconds: u64| Micros(seconds * 1_000_000);
            let is_new = match &step {
                Step::Insert(key_hash, seconds) => bans.insert(key(1, *key_hash), now.plus(span(*seconds)), now).is_err(),
                Step::Begin(key_hash, seconds) => bans.begin(key(1, *key_hash), span(*seconds), now),
                Step::InsertRemote(key_hash, seconds) => {
                    bans.insert_remote(key(1, *key_hash), span(*seconds), now);
                    false
                }
                Step::Remove(key_hash) => { bans.remove(key(1, *key_hash)); false }
                Step::SetLabel(key_hash) => { bans.set_label(key(1, *key_hash), format!("{key_hash} at {now:?}")); false }
                Step::Replace(cause, list) => {
                    let list = list.iter().map(|(key_hash, seconds)| (key(1, *key_hash), now.plus(span(*seconds))));
                    bans.replace(*cause, list, now);
                    false
                }
                Step::Sweep => { bans.sweep(now); false }
                Step::Clear => { bans.clear(); false }
                Step::Pass(seconds) => { now = now.plus(span(*seconds)); false }
            };
            prop_assert_eq!(is_new, model.take(&step, now));
            prop_assert_eq!(bans.is_empty(), model.ends.is_empty());
            prop_assert_eq!(bans.begun(1), model.begun);
            let mut listed = Vec::new();
            for key_hash in 0..6 {
                let [by_hand, automatic] =
                    [BanCause::Hand, BanCause::Refusals].map(|cause| model.of(key_hash, cause, now));
                let found = bans.find(key(1, key_hash), now);
                let later = by_hand.into_iter().chain(automatic).max_by_key(|ban| (ban.until, ban.cause));
                prop_assert_eq!(found, later);
                prop_assert_eq!(bans.refusing(key(1, key_hash), false, now), found);
                prop_assert_eq!(bans.refusing(key(1, key_hash), true, now), by_hand);
                let label = bans.label(key(1, key_hash));
                prop_assert_eq!(label.as_deref(), model.labels.get(&key_hash).map(String::as_str));
                listed.extend(by_hand.into_iter().chain(automatic).map(|ban| (key_hash, ban)));
            }
            prop_assert_eq!(bans.counts(now).get(&1).copied().unwrap_or_default().total(), listed.len());
            let mut of_limit: Vec<_> = bans.of_limit(1, now).into_iter().map(|(key_hash, ban)| (key_hash.0, ban)).collect();
            of_limit.sort_by_key(|(key_hash, ban)| (*key_hash, ban.cause));
            prop_assert_eq!(of_limit, listed);
        }
    }
}

/// Threads that change the same keys never wait for each other in a ring, and what they leave is whole.
#[test]
fn changes_of_several_threads_leave_a_whole_list() {
    let (bans, start) = (Bans::default(), Barrier::new(4));
    let change = |thread: u128| {
        start.wait();
        for turn in 0..2_000_u128 {
            let key_hash = key(1, (turn * (thread + 3)) % 7);
            match (turn + thread) % 7 {
                0 => bans.insert(key_hash, after(5), NOW).unwrap(),
                1 => _ = bans.begin(key_hash, Micros(4_000_000), NOW),
                2 => bans.insert_remote(key_hash, Micros(3_000_000), NOW),
                3 => bans.remove(key_hash),
                4 => bans.set_label(key_hash, "a text"),
                5 => bans.replace(BanCause::Refusals, [(key_hash, after(6))], NOW),
                _ => bans.sweep(after(4)),
            }
            assert!(bans.find(key_hash, NOW).is_none_or(|ban| ban.until <= after(6)));
            assert!(bans.of_limit(1, NOW).len() <= 2 * 7);
        }
    };
    thread::scope(|scope| (0..4).for_each(|thread| _ = scope.spawn(move || change(thread))));
    bans.sweep(after(6));
    assert!(
        bans.is_empty() && bans.of_limit(1, Timestamp(0)).is_empty(),
        "the order has every ban that the map has"
    );
}
