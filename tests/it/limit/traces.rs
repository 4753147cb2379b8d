//! The traces of `tests/traces`, played by the core and by the memory store.

use tollgate::limit::units::{Cost, Fingerprint, Timestamp};
use tollgate::limit::{Algorithm, Decision, State};
use tollgate::store::memory::MemoryStore;
use tollgate::store::memory::in_flight::{LocalPlaces, PlaceClaims, Turn};
use tollgate::store::{Charge, Group, ParamsId, PolicyRegistration, SharedKeyInfo, Store, StoreRequest};

use crate::harness::trace::{Executor, play, play_all};

/// The functions of the core themselves.
#[derive(Default)]
struct Pure {
    limit: Option<Algorithm>,
    state: State,
}

impl Executor for Pure {
    fn begin(&mut self, algorithm: Algorithm) {
        *self = Self { limit: Some(algorithm), state: State::default() };
    }

    fn decide(&mut self, now: Timestamp, cost: Cost) -> Decision {
        let state = std::mem::take(&mut self.state);
        let (state, decision) = self.limit.unwrap().decide(state, now, cost);
        self.state = state;
        decision
    }

    fn settle(&mut self, admitted_at: Timestamp, difference: i64, now: Timestamp) -> Option<u64> {
        let (limit, state) = (self.limit.unwrap(), std::mem::take(&mut self.state));
        self.state = limit.settle(state, admitted_at, difference, now);
        Some(limit.peek(&self.state, now, Cost::ONE).remaining)
    }
}

/// A memory store: each request is one charge.
struct Memory {
    limit: Option<Algorithm>,
    store: Store,
    in_flight: InFlight,
    runtime: tokio::runtime::Runtime,
    keys: u128,
}

impl Memory {
    fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let store = Store::new(10_000, None).unwrap();
        Self { limit: None, store, in_flight: InFlight::new(), runtime, keys: 0 }
    }
}

/// Requests under a concurrency limit, each with its cost and the time of its admission.
struct InFlight {
    store: MemoryStore,
    requests: Vec<(Timestamp, Cost, LocalPlaces)>,
}

impl InFlight {
    fn new() -> Self {
        Self { store: MemoryStore::new(100).unwrap(), requests: Vec::new() }
    }

    fn decide(&mut self, charge: Charge<'_>, now: Timestamp) -> Decision {
        let mut ticket = self.store.in_flight().ticket(PlaceClaims::default());
        let Turn::Decided(outcome, places) = self.store.admit(&[charge], now, &mut ticket) else {
            panic!("there is no queue")
        };
        let decision = outcome.decisions[0];
        assert_eq!(places.is_some(), !decision.denies(), "an admitted request holds places");
        self.requests.extend(places.map(|places| (now, charge.cost, places)));
        decision
    }

    /// Ends a request that was admitted then, at this cost. Returns whether there is one.
    fn end(&mut self, admitted_at: Timestamp, units: u64) -> bool {
        let is_it = |(at, cost, _): &(Timestamp, Cost, LocalPlaces)| {
            *at == admitted_at && u64::from(cost.units()) == units
        };
        let index = self.requests.iter().position(is_it);
        index.map(|index| self.requests.swap_remove(index)).is_some()
    }
}

fn charge(algorithm: &Algorithm, key: u128, cost: Cost) -> Charge<'_> {
    let params = ParamsId::of(algorithm);
    let (group, shared_key) = (Group::Enforced, SharedKeyInfo::NONE);
    Charge { algorithm, params, key: Fingerprint(key), cost, group, shared_key }
}

impl Executor for Memory {
    fn begin(&mut self, algorithm: Algorithm) {
        self.store
            .register([PolicyRegistration { algorithm: &algorithm, identity: 0, share: None }], Timestamp(0));
        self.limit = Some(algorithm);
        self.keys += 1;
    }

    fn decide(&mut self, now: Timestamp, cost: Cost) -> Decision {
        let algorithm = self.limit.unwrap();
        let charge = charge(&algorithm, self.keys, cost);
        if algorithm.as_concurrency().is_some() {
            return self.in_flight.decide(charge, now);
        }
        let outcome = self.runtime.block_on(self.store.open(0).decide(StoreRequest::of(&[charge]), now));
        assert_eq!(outcome.decisions.len(), 1, "one charge, one decision");
        outcome.decisions[0]
    }

    fn settle(&mut self, admitted_at: Timestamp, difference: i64, now: Timestamp) -> Option<u64> {
        let algorithm = self.limit.unwrap();
        algorithm.as_concurrency()?;
        assert!(self.in_flight.end(admitted_at, difference.unsigned_abs()), "no request was admitted then");
        Some(self.in_flight.store.look(&[charge(&algorithm, self.keys, Cost::ONE)], now)[0].remaining)
    }
}

#[test]
fn pure_functions_play_the_traces() {
    play_all(&mut Pure::default());
}

#[test]
fn the_memory_store_plays_the_traces() {
    play_all(&mut Memory::new());
}

#[test]
fn a_wrong_answer_is_found() {
    let table = "limit gcra rate 10/s\nat 0ms cost 1 → allow\nat 0ms cost 1 → allow";
    let told = play(&mut Pure::default(), table).unwrap_err();
    assert_eq!(told, "line 3: `at 0ms cost 1 → allow`: it was `deny wait 100ms remaining 0 reset 100ms`");
    for broken in
        ["at 0ms cost 1 → allow", "limit gcra rate 10/s\nat 0ms cost 1 → perhaps", "limit gcra speed 9"]
    {
        assert!(play(&mut Pure::default(), broken).is_err(), "{broken}");
    }
}
