//! A real Redis plays the traces of `tests/traces`.

use tollgate::limit::units::{Cost, Fingerprint, Timestamp};
use tollgate::limit::{Algorithm, Decision};

use crate::harness::script::{Shared, charge};
use crate::harness::trace::{Executor, play_all};

/// One key in a server.
struct Script {
    shared: Shared,
    limit: Option<Algorithm>,
    key: Fingerprint,
    /// The requests in flight under a concurrency limit: time, cost and id.
    requests: Vec<(Timestamp, Cost, u128)>,
    last_id: u128,
}

impl Executor for Script {
    fn begin(&mut self, algorithm: Algorithm) {
        self.limit = Some(algorithm);
        self.key = self.shared.new_key();
        self.requests.clear();
    }

    fn decide(&mut self, now: Timestamp, cost: Cost) -> Decision {
        let algorithm = self.limit.unwrap();
        let charge = charge(&algorithm, self.key, cost);
        if algorithm.as_ban().is_some() {
            return self.shared.refuse(&charge, now).0;
        }
        if algorithm.as_concurrency().is_none() {
            return self.shared.decide(&[charge], now)[0];
        }
        self.last_id += 1;
        let decision = self.shared.admit(&[charge], self.last_id, now)[0];
        if !decision.denies() {
            self.requests.push((now, cost, self.last_id));
        }
        decision
    }

    fn settle(&mut self, admitted_at: Timestamp, difference: i64, now: Timestamp) -> Option<u64> {
        let (algorithm, key) = (self.limit.unwrap(), self.key);
        if algorithm.as_concurrency().is_some() {
            let is_it = |(at, cost, _): &(Timestamp, Cost, u128)| {
                *at == admitted_at && -i64::from(cost.units()) == difference
            };
            let index = self.requests.iter().position(is_it).expect("a request was admitted then");
            let (_, cost, id) = self.requests.swap_remove(index);
            self.shared.release(&charge(&algorithm, key, cost), id, now);
            return Some(self.shared.peek(&[charge(&algorithm, key, Cost::ONE)], now)[0].remaining);
        }
        self.shared.settle(&charge(&algorithm, key, Cost::ONE), admitted_at, difference, now);
        Some(self.shared.peek(&[charge(&algorithm, key, Cost::ONE)], now)[0].remaining)
    }
}

#[test]
fn the_script_plays_the_traces() {
    let shared = Shared::start();
    play_all(&mut Script { shared, limit: None, key: Fingerprint(0), requests: Vec::new(), last_id: 0 });
}
