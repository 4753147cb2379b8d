//! What a concurrency limit promises, on random histories of requests that begin and end: in the core and in memory.

use proptest::prelude::*;
use tollgate::limit::units::Micros;
use tollgate::limit::{Algorithm, State, Verdict, Wait};
use tollgate::store::memory::MemoryStore;
use tollgate::store::memory::in_flight::{PlaceClaims, Turn};

use crate::harness::cases::{START, cost};
use crate::harness::charges::{self, charge};
use crate::harness::places::{Event, events, max};

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    /// No more than `max` places are held, and a request is refused only if its places are not free.
    #[test]
    fn at_most_max_are_held(max in max(), events in events()) {
        let algorithm = Algorithm::concurrency(cost(max), 0, Micros(0));
        let (mut state, mut now, mut requests) = (State::default(), START, Vec::new());
        for event in events {
            now = event.moment(now);
            let held: u32 = requests.iter().map(|(_, units)| units).sum();
            match event {
                Event::Begin { .. } => {
                    let units = event.units(max);
                    let before = state.clone();
                    let (after, decision) = algorithm.decide(state, now, cost(units));
                    let verdict = match (units <= max, u64::from(held) + u64::from(units) <= max.into()) {
                        (false, _) => Verdict::Deny(Wait::Never),
                        (true, false) => Verdict::Deny(Wait::Unknown),
                        (true, true) => Verdict::Allow,
                    };
                    prop_assert_eq!(decision.verdict, verdict);
                    let taken = if decision.denies() { 0 } else { units };
                    prop_assert_eq!(decision.remaining, u64::from(max - held - taken));
                    prop_assert_eq!(decision.reset_after, Micros(0));
                    prop_assert!(!decision.denies() || after == before);
                    if !decision.denies() {
                        requests.push((now, units));
                    }
                    state = after;
                }
                Event::End { .. } => {
                    let Some(index) = event.index(requests.len()) else { continue };
                    let (admitted_at, units) = requests.swap_remove(index);
                    state = algorithm.settle(state, admitted_at, -i64::from(units), now);
                }
            }
            let held: u32 = requests.iter().map(|(_, units)| units).sum();
            prop_assert!(held <= max);
            prop_assert_eq!(algorithm.peek(&state, now, cost(1)).remaining, u64::from(max - held));
        }
    }

    #[test]
    fn the_memory_store_holds_places_as_the_core_does(max in max(), events in events()) {
        let algorithm = Algorithm::concurrency(cost(max), 0, Micros(0));
        let store = MemoryStore::new(100).unwrap();
        let (mut state, mut now, mut requests) = (State::default(), START, Vec::new());
        for event in events {
            now = event.moment(now);
            match event {
                Event::Begin { .. } => {
                    let units = event.units(max);
                    let (after, expected) = algorithm.decide(state, now, cost(units));
                    state = after;
                    let charge = charge(&algorithm, charges::key(0, 1), units);
                    let mut ticket = store.in_flight().ticket(PlaceClaims::default());
                    let Turn::Decided(outcome, places) = store.admit(&[charge], now, &mut ticket) else {
                        panic!("there is no queue")
                    };
                    prop_assert_eq!(&outcome.decisions[..], [expected]);
                    prop_assert_eq!(places.is_some(), !expected.denies());
                    requests.extend(places.map(|places| (now, units, places)));
                }
                Event::End { .. } => {
                    let Some(index) = event.index(requests.len()) else { continue };
                    let (admitted_at, units, places) = requests.swap_remove(index);
                    drop(places);
                    state = algorithm.settle(state, admitted_at, -i64::from(units), now);
                }
            }
            let one = charge(&algorithm, charges::key(0, 1), 1);
            prop_assert_eq!(&store.look(&[one], now)[..], [algorithm.peek(&state, now, cost(1))]);
        }
        drop(requests);
        prop_assert!(store.in_flight().usage().is_empty(), "an unused key is removed");
    }
}
