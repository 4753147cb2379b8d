//! Eviction: the counters that are removed when a key is new or a log grows.
//!
//! First come the expired counters of the key's two sets, then an expired one in the neighbourhood. Of live counters,
//! the least used of the neighbourhood is evicted, but only of one policy (a limit, or one rate of a limit with
//! several): the new key's own. So a flood of keys in one limit evicts that limit's counters and no others.
//!
//! A policy that holds less than a quarter of the entries of the largest policy in the neighbourhood does not evict its
//! own counters: the largest one's are evicted. So a new limit gets its counters in a store that others have filled,
//! and all policies but the largest keep theirs.

use smallvec::SmallVec;

use super::eviction_policy::{EvictionPolicy, EvictionRank, PolicyCache};
use super::locked_sets::{LockedSets, SlotRef};
use super::policy_usage::PolicyUsage;
use super::set::SLOTS;
use crate::limit::units::Fingerprint;
use crate::store::Charge;

/// The rank of a slot among the candidates for eviction: the lowest is evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct EvictionOrder {
    is_live: bool,
    claim: Claim,
    pub(super) standing: EvictionRank,
}

/// The order of policies for eviction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Claim {
    /// The chosen policy, and states of an unknown policy.
    Chosen,
    /// The other one of the new key's own and the largest policy, in case the neighbourhood has no counter of the
    /// chosen one.
    Second,
    Other,
}

/// The policy of the new key, the largest other one that was met, and which of them is evicted from.
#[derive(Clone, Copy, Default)]
pub(super) struct Choice<'c> {
    own: Option<&'c PolicyUsage>,
    largest: Option<&'c PolicyUsage>,
    own_first: bool,
}

/// A slot that may be evicted.
struct EvictionCandidate<'c> {
    slot_ref: SlotRef,
    standing: EvictionRank,
    usage: Option<&'c PolicyUsage>,
}

type EvictionCandidates<'c> = SmallVec<[EvictionCandidate<'c>; 48]>;

/// How many more sets may be visited for counters of the new key's own policy.
struct Budget(usize);

impl LockedSets<'_> {
    /// The number of slots that an eviction chooses from, if there are as many nearby. If half of all keys are to be
    /// kept, the chance that all of these are among them is 2^-32.
    const MIN_CANDIDATES: usize = 32;
    /// With at most this many keys in all, every key is a candidate.
    const ALL: u64 = 64;
    /// The maximum number of sets visited for candidates. Only logs of very many events leave many sets empty.
    const MAX_VISITS: usize = 1_024;
    /// Where counters of the new key's own policy are rare, this many runs of this many sets are visited for them. The
    /// runs are spread over the table: a single one would use up the counters of one region, although other regions
    /// have enough of them.
    const OWN_RUNS: (usize, usize) = (8, 8);
    /// The maximum number of these sets visited for one request, which may need capacity more than once.
    const MAX_OWN_VISITS: usize = 256;

    /// Evicts until `needed` entries, or as many as possible, are free, and takes them from the capacity.
    pub(super) fn make_room(&mut self, charge: &Charge<'_>, needed: u64, policy: &EvictionPolicy<'_>) -> u64 {
        if needed == 0 {
            return 0;
        }
        let mut room = self.vacate(charge.key, policy);
        room += self.table.room.take(needed.saturating_sub(room));
        let mut budget = Budget(Self::MAX_OWN_VISITS);
        while room < needed {
            let Some(freed) = self.evict(charge, policy, &mut budget) else { break };
            room += freed;
        }
        room
    }

    /// Empties every expired slot of the key's sets, and returns the number of entries freed.
    fn vacate(&mut self, key: Fingerprint, policy: &EvictionPolicy<'_>) -> u64 {
        let mut room = 0;
        for set in self.own(key) {
            for slot in 0..SLOTS {
                let slot_ref = SlotRef { set, slot };
                let held = self.get(slot_ref);
                if policy.is_evictable(&held) && policy.is_expired(&held, &self.table.logs) {
                    room += self.clear(slot_ref, policy);
                }
            }
        }
        room
    }

    /// Evicts a slot of the neighbourhood, and returns the number of entries freed; `None` if no slot can be evicted.
    fn evict(
        &mut self,
        charge: &Charge<'_>,
        policy: &EvictionPolicy<'_>,
        budget: &mut Budget,
    ) -> Option<u64> {
        let [set_index, _] = self.table.set_indices(charge.key);
        let visited = self.collect(set_index, policy);
        let candidates = self.candidates(0..self.sets.len(), policy);
        let choice = Choice::new(policy.usage(charge.params), usages(&candidates));
        let mut chosen = choice.lowest(&candidates, policy)?;
        if let Some(own) = choice.own
            && choice.own_first
            && chosen.0.is_live
        {
            let met = candidates.iter().filter(|candidate| is_same(candidate.usage, Some(own))).count();
            chosen = self.collect_own(own, met, set_index + visited, chosen, policy, budget);
        }
        let (rank, slot_ref) = chosen;
        Some(self.evict_slot(rank.standing, slot_ref, policy))
    }

    /// Evicts a slot of the key's own sets, and returns its entries to the capacity; `None` if no slot can be evicted.
    pub(super) fn evict_from_own(
        &mut self,
        charge: &Charge<'_>,
        policy: &EvictionPolicy<'_>,
    ) -> Option<SlotRef> {
        let candidates = self.candidates(self.own(charge.key), policy);
        let choice = Choice::new(policy.usage(charge.params), usages(&candidates));
        let (rank, slot_ref) = choice.lowest(&candidates, policy)?;
        let room = self.evict_slot(rank.standing, slot_ref, policy);
        self.table.room.give_back(room);
        Some(slot_ref)
    }

    /// Empties the slot, which is counted as evicted unless it has expired. Returns the number of entries freed.
    pub(super) fn evict_slot(
        &mut self,
        standing: EvictionRank,
        slot_ref: SlotRef,
        policy: &EvictionPolicy<'_>,
    ) -> u64 {
        if !policy.has_expired(standing) {
            self.table.count_eviction();
        }
        self.clear(slot_ref, policy)
    }

    /// The slots of some of the locked sets that may be evicted.
    fn candidates<'c>(
        &self,
        sets: impl Iterator<Item = usize>,
        policy: &'c EvictionPolicy<'_>,
    ) -> EvictionCandidates<'c> {
        let mut cache = PolicyCache::default();
        let slot_refs = sets.flat_map(|set| (0..SLOTS).map(move |slot| SlotRef { set, slot }));
        let company = slot_refs
            .map(|slot_ref| (self.get(slot_ref), slot_ref))
            .filter(|(slot, _)| policy.is_evictable(slot));
        let candidate = |(slot, slot_ref)| {
            let (standing, usage) = policy.rank(&slot, &self.table.logs, &mut cache);
            EvictionCandidate { slot_ref, standing, usage }
        };
        company.map(candidate).collect()
    }

    /// Locks further sets, from index `set_index` on, until there are enough candidates, and returns the number of indices
    /// visited. It never waits for a lock, so it cannot deadlock; a set locked by another request is skipped.
    fn collect(&mut self, set_index: usize, policy: &EvictionPolicy<'_>) -> usize {
        let table = self.table;
        let enough = if table.room.bound() <= Self::ALL { usize::MAX } else { Self::MIN_CANDIDATES };
        let company =
            |slots: &mut dyn Iterator<Item = _>| slots.filter(|slot| policy.is_evictable(slot)).count();
        let mut gathered: usize = self.sets.iter().map(|(_, set)| company(&mut set.slots())).sum();
        let mut visited = 0;
        for next in (set_index..table.sets()).chain(0..set_index).take(Self::MAX_VISITS) {
            if gathered >= enough {
                break;
            }
            visited += 1;
            if table.set(next).is_untouched() || self.index(next).is_some() {
                continue;
            }
            let Some(set) = table.set(next).try_lock() else { continue };
            let found = company(&mut set.slots());
            if found > 0 {
                gathered += found;
                self.sets.push((next, set));
            }
        }
        visited
    }

    /// Continues, in runs of sets from index `set_index` on, until enough counters of the new key's own policy were met,
    /// `met` of which were collected already, and returns the slot to be evicted. Only its set stays locked. This does
    /// not wait for a lock either.
    fn collect_own(
        &mut self,
        own: &PolicyUsage,
        mut met: usize,
        set_index: usize,
        mut chosen: (EvictionOrder, SlotRef),
        policy: &EvictionPolicy<'_>,
        budget: &mut Budget,
    ) -> (EvictionOrder, SlotRef) {
        let (table, gathered) = (self.table, self.sets.len());
        let mut cache = PolicyCache::default();
        let (runs, length) = Self::OWN_RUNS;
        let start = |run: usize| set_index + run * (table.sets() / runs);
        for next in (0..runs).flat_map(|run| start(run)..start(run) + length) {
            let next = next % table.sets();
            if met >= Self::MIN_CANDIDATES || budget.0 == 0 {
                break;
            }
            budget.0 -= 1;
            if table.set(next).is_untouched() || self.index(next).is_some() {
                continue;
            }
            let Some(set) = table.set(next).try_lock() else { continue };
            let mut lowest: Option<(EvictionOrder, usize)> = None;
            for index in 0..SLOTS {
                let slot = set.get(index);
                if policy.is_evictable(&slot) && policy.is_of(&slot, own, &mut cache) {
                    met += 1;
                    let (standing, _) = policy.rank(&slot, &table.logs, &mut cache);
                    let rank = EvictionOrder {
                        is_live: !policy.has_expired(standing),
                        claim: Claim::Chosen,
                        standing,
                    };
                    lowest = lowest.into_iter().chain([(rank, index)]).min();
                }
            }
            if let Some((rank, slot)) = lowest.filter(|(rank, _)| *rank < chosen.0) {
                self.sets.truncate(gathered);
                self.sets.push((next, set));
                chosen = (rank, SlotRef { set: gathered, slot });
            }
        }
        chosen
    }
}

impl<'c> Choice<'c> {
    /// The new key's own policy must hold at least 1 ÷ this share of the largest one's entries to be evicted from.
    const OWN_SHARE: u64 = 4;

    /// The choice for a new key of a policy with the usage `own`, among counters of policies with the usages `met`.
    pub(super) fn new(own: Option<&'c PolicyUsage>, met: impl Iterator<Item = &'c PolicyUsage>) -> Self {
        let others = met.filter(|usage| !is_same(own, Some(usage)));
        let largest = others.max_by_key(|usage| usage.held());
        let held = |usage: Option<&PolicyUsage>| usage.map_or(0, PolicyUsage::held);
        let own_first = held(own) > 0 && held(own).saturating_mul(Self::OWN_SHARE) >= held(largest);
        Self { own, largest, own_first }
    }

    fn claim(&self, usage: Option<&PolicyUsage>) -> Claim {
        let (chosen, second) =
            if self.own_first { (self.own, self.largest) } else { (self.largest, self.own) };
        if usage.is_none() || is_same(usage, chosen) {
            Claim::Chosen
        } else if is_same(usage, second) {
            Claim::Second
        } else {
            Claim::Other
        }
    }

    fn lowest(
        &self,
        candidates: &[EvictionCandidate<'_>],
        policy: &EvictionPolicy<'_>,
    ) -> Option<(EvictionOrder, SlotRef)> {
        let rank =
            |candidate: &EvictionCandidate<'_>| self.order(candidate.standing, candidate.usage, policy);
        candidates.iter().map(|candidate| (rank(candidate), candidate.slot_ref)).min()
    }

    /// The rank of a counter of a policy with this usage.
    pub(super) fn order(
        &self,
        standing: EvictionRank,
        usage: Option<&PolicyUsage>,
        policy: &EvictionPolicy<'_>,
    ) -> EvictionOrder {
        EvictionOrder { is_live: !policy.has_expired(standing), claim: self.claim(usage), standing }
    }
}

fn usages<'c>(candidates: &[EvictionCandidate<'c>]) -> impl Iterator<Item = &'c PolicyUsage> {
    candidates.iter().filter_map(|candidate| candidate.usage)
}

fn is_same(one: Option<&PolicyUsage>, other: Option<&PolicyUsage>) -> bool {
    matches!((one, other), (Some(one), Some(other)) if std::ptr::eq(one, other))
}
