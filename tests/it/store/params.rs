//! A limit's numbers may change under its counters: each state is converted once, or starts afresh.

use std::collections::HashMap;

use tollgate::limit::units::{Cost, Micros, Rate};
use tollgate::limit::{Algorithm, Align, Verdict, Wait};
use tollgate::store::ParamsId;

use crate::harness::charges::{DAY, NOON, all, charge, key, store};

fn window(count: u32) -> Algorithm {
    Algorithm::fixed_window(Rate::new(count, DAY).unwrap(), Align::Clock)
}

#[test]
fn a_state_under_other_numbers_is_converted_when_it_is_next_used() {
    for (old, new) in all(10, DAY).iter().zip(&all(20, DAY)) {
        let store = store(100, &[*old, *new]);
        let (before, _) = old.decide(<_>::default(), NOON, Cost::new(7).unwrap());
        store.decide(&[charge(old, key(0, 0), 7)], NOON);
        let later = NOON.plus(Micros(1));
        let expected = new.decide(new.convert(old, before, later), later, Cost::ONE).1;
        let decisions = store.decide(&[charge(new, key(0, 0), 1)], later).decisions;
        assert_eq!(decisions[0], expected, "{new:?}");
        assert_eq!(store.keys(), if old.name() == "sliding-log" { 2 } else { 1 }, "{new:?}");
    }
}

#[test]
fn conversion_happens_also_where_several_limits_decide() {
    let (old, new) = (window(10), window(20));
    let store = store(100, &[old, new]);
    store.decide(&[charge(&old, key(0, 0), 7)], NOON);
    let decisions = store.decide(&[charge(&new, key(0, 0), 1), charge(&new, key(0, 1), 1)], NOON).decisions;
    assert_eq!([decisions[0].remaining, decisions[1].remaining], [12, 19]);
}

#[test]
fn a_refusal_keeps_its_word_although_the_numbers_have_changed() {
    let [fast, slow] = [Micros::SECOND, Micros(10_000_000)].map(|period| Rate::new(10, period).unwrap());
    let [old, new] = [fast, slow].map(|rate| Algorithm::token_bucket(rate, Cost::new(10).unwrap()));
    let store = store(100, &[old, new]);
    store.decide(&[charge(&old, key(0, 0), 10)], NOON);
    let both = [charge(&new, key(0, 0), 1), charge(&new, key(0, 1), 1)];
    let ask = |now| store.decide(&both, now).decisions[0].verdict;
    let Verdict::Deny(Wait::After(wait)) = ask(NOON) else { panic!("nothing is left") };
    assert!(matches!(ask(NOON.plus(Micros(wait.0 - 1))), Verdict::Deny(_)), "one microsecond early");
    assert_eq!(ask(NOON.plus(wait)), Verdict::Allow);
}

#[test]
fn a_state_under_forgotten_numbers_is_fresh() {
    let (old, new) = (window(10), window(20));
    let store = store(100, std::slice::from_ref(&new));
    store.decide(&[charge(&old, key(0, 0), 7)], NOON);
    assert_eq!(store.decide(&[charge(&new, key(0, 0), 1)], NOON).decisions[0].remaining, 19);
}

#[test]
fn ids_tell_algorithms_and_numbers_apart() {
    let (rate, slow) = (Rate::new(10, Micros::SECOND).unwrap(), Rate::new(10, DAY).unwrap());
    let (ten, more) = (Cost::new(10).unwrap(), Cost::new(11).unwrap());
    let others = [
        Algorithm::token_bucket(rate, more),
        Algorithm::token_bucket(slow, ten),
        Algorithm::gcra(rate, more),
        Algorithm::leaky_bucket(rate, more, Micros::SECOND),
        Algorithm::leaky_bucket(rate, ten, Micros::SECOND),
        Algorithm::leaky_bucket(rate, ten, DAY),
        Algorithm::sliding_log(rate, Some(Micros(1)), false),
        Algorithm::sliding_log(rate, Some(Micros(2)), false),
    ];
    let algorithms: Vec<_> = all(10, Micros::SECOND).into_iter().chain(others).collect();
    let ids: HashMap<_, _> = algorithms.iter().map(|it| (ParamsId::of(it), it)).collect();
    assert_eq!(ids.len(), algorithms.len());
}

/// Processes of different builds must agree on these: a change here makes every stored state start afresh.
#[test]
fn ids_are_the_same_in_every_process() {
    let (rate, units) = (Rate::new(10, Micros::SECOND).unwrap(), Cost::new(50).unwrap());
    let ids = [Algorithm::token_bucket(rate, units), Algorithm::sliding_log(rate, Some(Micros(5)), true)]
        .map(|algorithm| ParamsId::of(&algorithm).0);
    assert_eq!(ids, [1_400_755_076, 1_877_505_734]);
}

/// A collision is found by trying some 100,000 numbers; then no state under the common id may be read as the other's.
#[test]
fn two_algorithms_under_one_id_start_afresh() {
    let mut seen = HashMap::new();
    let (first, second) = (1..2_000_000)
        .find_map(|count| Some((window(seen.insert(ParamsId::of(&window(count)), count)?), window(count))))
        .unwrap();
    let store = store(100, std::slice::from_ref(&first));
    let spend = |algorithm| store.decide(&[charge(algorithm, key(0, 0), 1)], NOON).decisions[0].remaining;
    assert_eq!(spend(&first), first.quota() - 1);
    store.register(&second);
    assert_eq!(store.keys(), 0);
    assert_eq!(spend(&second), second.quota() - 1);
}
