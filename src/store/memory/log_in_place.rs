//! A sliding log changed where it is, without a copy and mostly without a lock on its set.

use super::MemoryStore;
use super::set::SlotView;
use super::slot::{Content, CounterSlot, Tag};
use crate::limit::units::Timestamp;
use crate::limit::{Decision, State};
use crate::store::Charge;

impl MemoryStore {
    /// A stored sliding log that has capacity for the request. `None` for any other, or while others write to its set.
    #[inline]
    pub(super) fn decide_log_in_place(&self, charge: &Charge<'_>, now: Timestamp) -> Option<Decision> {
        if !charge.algorithm.keeps_events() {
            return None;
        }
        let wanted =
            |id, events| CounterSlot::new(Tag::of(charge.key), charge.params, Content::Log { id, events });
        let seen = self.table.look(charge.key, &wanted(0, 0))?;
        let Content::Log { id, events: before } = seen.slot.content() else { return None };
        let decide = |log: &mut State| {
            // From here on the log changes only here: a thread that locks its set now waits for the log's shard.
            if !seen.is_current() {
                return None;
            }
            let may_hold = |after: usize| {
                let after = after as u64;
                after == before || self.resize_log(charge, &seen, before, after, &wanted(id, after))
            };
            charge.algorithm.decide_log(log, now, charge.cost, may_hold)
        };
        self.table.logs.change(id, decide)?
    }

    /// Counts `after` entries for a log that counted `before`. Returns whether it did: the capacity may be used up, and
    /// a share is enlarged only under its lock.
    fn resize_log(
        &self,
        charge: &Charge<'_>,
        seen: &SlotView<'_>,
        before: u64,
        after: u64,
        slot: &CounterSlot,
    ) -> bool {
        let Some(registry) = self.registry.try_read() else { return false };
        if after > before && registry.get(charge.params).is_some_and(|policy| policy.share.is_some()) {
            return false;
        }
        let Some(_locked) = seen.lock() else { return false };
        let (more, fewer) = (after.saturating_sub(before), before.saturating_sub(after));
        let taken = self.table.room.take(more);
        if taken < more {
            self.table.room.give_back(taken);
            return false;
        }
        self.table.room.give_back(fewer);
        if let Some(policy) = registry.get(charge.params) {
            policy.usage.add(more);
            policy.usage.remove(fewer);
        }
        seen.write(slot);
        true
    }
}

#[cfg(test)]
mod tests {
    use crate::limit::Algorithm;
    use crate::limit::units::{Cost, Fingerprint, Micros, Rate, Timestamp};
    use crate::store::memory::MemoryStore;
    use crate::store::{Charge, Group, ParamsId, SharedKeyInfo};

    /// Several threads charge the same logs: alone, in pairs, and with evictions between them.
    #[test]
    fn logs_of_several_threads_count_what_is_held() {
        let algorithm = Algorithm::sliding_log(Rate::new(5, Micros(50_000)).unwrap(), None, false);
        let params = ParamsId::of(&algorithm);
        let store = MemoryStore::new(30).unwrap();
        store.register(&algorithm);
        let charge = |client: u64| Charge {
            algorithm: &algorithm,
            params,
            key: Fingerprint(u128::from(client + 1).wrapping_mul(u128::MAX / 201)),
            cost: Cost::ONE,
            group: Group::Enforced,
            shared_key: SharedKeyInfo::NONE,
        };
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (store, charge) = (&store, &charge);
                scope.spawn(move || {
                    for turn in 0..20_000 {
                        let charges = [charge((turn / 7 + thread) % 12), charge(turn % 5)];
                        let several = usize::from(turn % 11 == 0);
                        store.decide(&charges[..=several], Timestamp(1_000_000 + turn * 3_000));
                    }
                });
            }
        });
        assert_eq!(store.keys(), store.table.recounted());
        assert_eq!(store.registry.read().get(params).unwrap().usage.held(), store.keys());
        assert!(store.keys() <= 30);
    }
}
