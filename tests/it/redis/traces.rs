//! A real Redis plays the traces of `tests/traces`.

use tollgate::limit::units::{Cost, Fingerprint, Timestamp};
use tollgate::limit::{Algorithm, Decision};
use tollgate::store::redis::call::Correction;

use crate::harness::script::{Shared, charge};
use crate::harness::trace::{Executor, play_all};

/// One key in a server.
struct Script {
    shared: Shared,
    limit: Option<Algorithm>,
    key: Fingerprint,
}

impl Executor for Script {
    fn begin(&mut self, algorithm: Algorithm) {
        self.limit = Some(algorithm);
        self.key = self.shared.new_key();
    }

    fn decide(&mut self, now: Timestamp, cost: Cost) -> Decision {
        self.shared.decide(&[charge(&self.limit.unwrap(), self.key, cost)], now)[0]
    }

    fn settle(&mut self, admitted_at: Timestamp, difference: i64, now: Timestamp) -> Option<u64> {
        let (algorithm, key) = (self.limit.unwrap(), self.key);
        self.shared.settle(&[Correction { algorithm: &algorithm, key, difference }], admitted_at, now);
        Some(self.shared.peek(&[charge(&algorithm, key, Cost::ONE)], now)[0].remaining)
    }
}

#[test]
fn the_script_plays_the_traces() {
    play_all(&mut Script { shared: Shared::start(), limit: None, key: Fingerprint(0) });
}
