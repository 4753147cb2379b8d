//! The traces of `tests/traces`, played by the core and by the memory store.

use tollgate::limit::units::{Cost, Fingerprint, Timestamp};
use tollgate::limit::{Algorithm, Decision, State};
use tollgate::store::{Charge, Group, ParamsId, SharedKeyInfo, Store};

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
    runtime: tokio::runtime::Runtime,
    keys: u128,
}

impl Memory {
    fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        Self { limit: None, store: Store::new(10_000, None).unwrap(), runtime, keys: 0 }
    }
}

impl Executor for Memory {
    fn begin(&mut self, algorithm: Algorithm) {
        self.store.register(&algorithm, 0);
        self.limit = Some(algorithm);
        self.keys += 1;
    }

    fn decide(&mut self, now: Timestamp, cost: Cost) -> Decision {
        let algorithm = self.limit.as_ref().unwrap();
        let charge = Charge {
            algorithm,
            numbers: ParamsId::of(algorithm),
            key: Fingerprint(self.keys),
            cost,
            group: Group::Enforced,
            remote: SharedKeyInfo::NONE,
        };
        let outcome = self.runtime.block_on(self.store.open(0).decide(&[charge], now));
        assert_eq!(outcome.decisions.len(), 1, "one charge, one decision");
        outcome.decisions[0]
    }

    fn settle(&mut self, _admitted_at: Timestamp, _difference: i64, _now: Timestamp) -> Option<u64> {
        None
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
