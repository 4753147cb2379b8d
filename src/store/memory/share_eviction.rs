//! The eviction of counters of one limit, so that it stays within its share.

use smallvec::SmallVec;

use super::eviction::{Choice, EvictionOrder};
use super::eviction_policy::{EvictionPolicy, EvictionRank, PolicyCache};
use super::locked_sets::{LockedSets, SlotRef};
use super::policy_usage::PolicyUsage;
use super::share::{LimitShare, Member, Members};
use super::table::CounterTable;
use crate::limit::units::Fingerprint;
use crate::store::Charge;

/// A counter of the list that may be evicted.
struct MemberCandidate<'c> {
    position: usize,
    standing: EvictionRank,
    usage: Option<&'c PolicyUsage>,
}

impl LimitShare {
    /// Evicts counters until the share is within its bound. Not for the request path.
    pub(super) fn shrink(&self, table: &CounterTable, policy: &EvictionPolicy<'_>) {
        policy.open();
        loop {
            let mut held = LockedSets::none(table);
            let mut members = self.members.lock();
            if self.has_capacity(&members, 0, false) || !held.evict_member(&mut members, None, policy) {
                return;
            }
        }
    }
}

impl LockedSets<'_> {
    /// The number of candidates for eviction. If half of all counters are to be kept, the chance that all of these are
    /// among them is 2^-32.
    const MEMBER_CANDIDATES: usize = 32;
    /// With at most this many counters, each is a candidate.
    const ALL_MEMBERS: usize = 64;

    /// Evicts counters of the share until `needed` more entries fit for the charge's key. Returns whether they do.
    pub(super) fn fit_share(
        &mut self,
        share: &LimitShare,
        members: &mut Members,
        (charge, needed, is_new): (&Charge<'_>, u64, bool),
        policy: &EvictionPolicy<'_>,
    ) -> bool {
        while !share.has_capacity(members, needed, is_new) {
            if !self.evict_member(members, policy.usage(charge.params), policy) {
                return false;
            }
        }
        true
    }

    /// Adds the key's counter to the list, if it is stored.
    pub(super) fn list_member(&self, members: &mut Members, key: Fingerprint) {
        if self.find(key).is_some() {
            members.list.push(Member::of(self.table, key));
        }
    }

    /// Drops what has left the table from the next part of the list or, if all of it is stored, evicts a counter of it.
    /// `own` is the usage of the new counter's policy. Returns whether the list is shorter now.
    fn evict_member(
        &mut self,
        members: &mut Members,
        own: Option<&PolicyUsage>,
        policy: &EvictionPolicy<'_>,
    ) -> bool {
        let before = members.list.len();
        let candidates = self.member_candidates(members, policy);
        if members.list.len() < before {
            return true;
        }
        let choice = Choice::new(own, candidates.iter().filter_map(|candidate| candidate.usage));
        let mut ranked: SmallVec<[(EvictionOrder, usize); 64]> = candidates
            .iter()
            .map(|one| (choice.order(one.standing, one.usage, policy), one.position))
            .collect();
        ranked.sort_unstable();
        for (order, position) in ranked {
            let is_cleared = self.clear_member(members.list[position], order, policy);
            if is_cleared {
                members.list.swap_remove(position);
                return true;
            }
        }
        false
    }

    /// The next counters of the list that may be evicted. Members that have left the table are dropped from the list.
    fn member_candidates<'c>(
        &mut self,
        members: &mut Members,
        policy: &'c EvictionPolicy<'_>,
    ) -> SmallVec<[MemberCandidate<'c>; 64]> {
        let mut candidates = SmallVec::new();
        let mut cache = PolicyCache::default();
        let is_short = members.list.len() <= Self::ALL_MEMBERS;
        let visits = if is_short { members.list.len() } else { Self::MEMBER_CANDIDATES };
        for visit in 0..visits {
            // Spread over the list: counters that were stored one after the other are often alike.
            let length = members.list.len();
            let position = (members.next + visit * length / visits).checked_rem(length).unwrap_or(0);
            let Some(&member) = members.list.get(position) else { break };
            match member.peek(self.table) {
                None if self.has_left(member) => {
                    members.list.swap_remove(position);
                }
                Some(slot) if policy.is_evictable(&slot) => {
                    let (standing, usage) = policy.rank(&slot, &self.table.logs, &mut cache);
                    candidates.push(MemberCandidate { position, standing, usage });
                }
                _ => {}
            }
        }
        members.next = members.next.wrapping_add(1) % members.list.len().max(1);
        candidates
    }

    /// Whether the counter is certainly in neither of its sets: while they are locked, it cannot move. `false` if one of
    /// them cannot be locked now.
    fn has_left(&mut self, member: Member) -> bool {
        let locked = self.sets.len();
        let set_indices = member.set_indices(self.table);
        let mut is_absent =
            |set_index| self.visit(set_index).is_some_and(|set| self.sets[set].1.find(member.tag).is_none());
        let first = is_absent(set_indices[0]);
        let has_left = is_absent(set_indices[1]) && first;
        self.sets.truncate(locked);
        has_left
    }

    /// Evicts the counter, unless it is gone or its set cannot be locked now. Returns whether it did.
    fn clear_member(&mut self, member: Member, order: EvictionOrder, policy: &EvictionPolicy<'_>) -> bool {
        let locked = self.sets.len();
        let mut found = None;
        for set_index in member.set_indices(self.table) {
            let Some(set) = self.visit(set_index) else { continue };
            if let Some(slot) = self.sets[set].1.find(member.tag) {
                found = Some(SlotRef { set, slot });
                break;
            }
        }
        if let Some(slot_ref) = found {
            let room = self.evict_slot(order.standing, slot_ref, policy);
            self.table.room.give_back(room);
        }
        self.sets.truncate(locked);
        found.is_some()
    }
}
