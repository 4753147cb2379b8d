//! Taking units in advance, and giving them back: in the background.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use super::leased_key::{LeasedKey, ReturnedUnits};
use super::leases::{Leases, Renewal};
use super::script_client::ScriptClient;
use crate::limit::lease::Lease;
use crate::limit::units::Timestamp;
use crate::store::memory::MemoryStore;

/// After a renewal without a reply, the next one of the key waits this long.
const RETRY: Duration = Duration::from_millis(100);
/// The longest pause between looks for units that have ended.
const LONGEST_PAUSE: Duration = Duration::from_millis(100);
/// The most keys whose units go back in one call, so that no call keeps the server busy for long.
const BATCH: usize = 200;

/// What renewals and returns of one worker need.
#[derive(Clone, Debug)]
pub(super) struct LeaseKeeper {
    pub(super) leases: Arc<Leases>,
    pub(super) script: Rc<ScriptClient>,
    pub(super) memory: Arc<MemoryStore>,
}

/// Returns units as they end, until it is dropped.
#[derive(Debug)]
pub(super) struct LeaseReturns(tokio::task::JoinHandle<()>);

impl Drop for LeaseReturns {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl LeaseReturns {
    /// Begins to return units that end. Must be called on a local runtime.
    pub(super) fn start(leases: &Arc<Leases>, script: &Rc<ScriptClient>, memory: &Arc<MemoryStore>) -> Self {
        let keeper =
            LeaseKeeper { leases: Arc::clone(leases), script: Rc::clone(script), memory: Arc::clone(memory) };
        Self(tokio::task::spawn_local(async move {
            loop {
                let Some(ends) = keeper.leases.next_end() else {
                    keeper.leases.changed().await;
                    continue;
                };
                let now = keeper.script.now();
                if ends > now {
                    tokio::time::sleep(pause(ends, now)).await;
                }
                keeper.give_back(keeper.leases.due(&keeper.memory, keeper.script.now())).await;
            }
        }))
    }
}

fn pause(ends: Timestamp, now: Timestamp) -> Duration {
    Duration::from_micros(ends.since(now).0).clamp(Duration::from_millis(1), LONGEST_PAUSE)
}

impl LeaseKeeper {
    /// Takes units. `asked` is before the question is sent.
    pub(super) async fn renew(self, renewal: Renewal, key: LeasedKey, wanted: u32, asked: Timestamp) {
        let answer = self.script.lease(&key, wanted, asked).await;
        let now = self.script.now();
        match answer {
            Ok((granted_at, units, decision)) => {
                self.memory.adopt(&key.copy(), &decision, now);
                let rest = key.algorithm.rest_of_window(&decision, granted_at);
                let ends = key.lease.ends(asked, rest);
                if units > 0 {
                    self.leases.deposit(&self.memory, key, (units, ends), granted_at, now);
                } else {
                    self.end_renewal(&key, now);
                }
            }
            Err(_) => {
                drop(renewal);
                tokio::time::sleep(RETRY).await;
                self.end_renewal(&key, self.script.now());
            }
        }
    }

    fn end_renewal(&self, key: &LeasedKey, now: Timestamp) {
        self.memory.change_leased_units(&key.units(), now, |units| (Lease::end_renewal(units), ()));
    }

    /// Gives units back, those of one slot together. If a call fails, they stay charged.
    pub(super) async fn give_back(&self, mut returned: Vec<ReturnedUnits>) {
        returned.sort_by_key(|one| one.key.slot);
        for same_slot in returned.chunk_by(|one, other| one.key.slot == other.key.slot) {
            for batch in same_slot.chunks(BATCH) {
                let _ = self.script.give_back(batch, self.script.now()).await;
            }
        }
    }
}
