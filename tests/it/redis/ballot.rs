//! Several limits a request: the script admits all or none, as the memory store does.

use proptest::prelude::*;
use tollgate::limit::units::{Micros, Timestamp};
use tollgate::limit::{Algorithm, Verdict};
use tollgate::store::{Charge, Group};

use crate::harness::charges::{DAY, NOON, admits, all, charge, key, prompt, store};
use crate::harness::script::{Shared, hold, named};

/// One request: how long after the one before, and its charges as (limit, client, cost, shadow place or 3 for enforced).
type Request = (u64, Vec<(usize, u64, u32, u8)>);

fn requests() -> impl Strategy<Value = Vec<Request>> {
    let charge = (0..8_usize, 0..3_u64, prop_oneof![4 => 1..4_u32, 1 => 1..14_u32], 0..8_u8);
    let pause = prop_oneof![Just(0), 0..100_000_u64, 0..3_000_000_u64];
    prop::collection::vec((pause, prop::collection::vec(charge, 1..6)), 1..60)
}

fn charges<'a>(algorithms: &'a [Algorithm], case: u64, request: &[(usize, u64, u32, u8)]) -> Vec<Charge<'a>> {
    let place = |place| if place < 3 { Group::Shadow(place) } else { Group::Enforced };
    let charge = |&(limit, client, cost, group): &(usize, u64, u32, u8)| Charge {
        group: place(group),
        ..charge(&algorithms[limit], key(limit as u64, 100 * case + client), cost)
    };
    request.iter().map(charge).collect()
}

#[test]
fn the_script_agrees_with_the_memory_store() {
    let algorithms = all(10, Micros::SECOND);
    hold(200, requests(), |shared, requests| {
        let (store, mut now) = (store(10_000, &algorithms), NOON);
        shared.command(&["FLUSHALL"]);
        for (pause, request) in &requests {
            now = now.plus(Micros(*pause));
            let charges = charges(&algorithms, 0, request);
            let expected = store.decide(&charges, now).decisions.to_vec();
            assert_eq!(shared.decide(&charges, now), expected, "{charges:?}");
        }
    });
}

#[test]
fn a_refusal_writes_nothing_and_a_request_that_passes_writes_each_key() {
    for algorithm in prompt(10, DAY).into_iter().take(6) {
        let mut shared = Shared::start();
        let (open, closed) = (charge(&algorithm, key(0, 0), 4), charge(&algorithm, key(0, 1), 10));
        assert!(shared.decide(&[closed], NOON).iter().all(|decision| admits(decision.verdict)));
        let [yes, no] = shared.decide(&[open, closed], NOON)[..] else { panic!("two charges") };
        assert_eq!((yes.verdict, yes.remaining, yes.reset_after), (Verdict::Allow, 10, Micros(0)));
        assert!(!admits(no.verdict));
        assert_eq!(shared.command(&["EXISTS", &named(&open)]).integer(), 0, "{algorithm:?}");
        let later = NOON.plus(Micros(DAY.0 * 3));
        shared.decide(&[open, closed], later);
        let both = ["EXISTS", &named(&open), &named(&closed)];
        assert_eq!(shared.command(&both).integer(), 2, "{algorithm:?}");
    }
}

#[test]
fn thirty_two_charges_are_decided_at_once() {
    let (mut shared, algorithms) = (Shared::start(), all(10, DAY));
    let memory = store(1_000, &algorithms);
    let charges: Vec<_> =
        (0..32_u8).map(|it| charge(&algorithms[usize::from(it % 8)], key(1, it.into()), 3)).collect();
    for turn in 0..5 {
        let now = Timestamp(NOON.0 + turn);
        assert_eq!(shared.decide(&charges, now), memory.decide(&charges, now).decisions.to_vec());
    }
}
