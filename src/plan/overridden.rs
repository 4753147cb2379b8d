//! The policies of overrides: each is made once for a plan, and stays for as long as the plan.

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;

use super::{Limit, Plan, Policy};
use crate::limit::units::{Fingerprint, Timestamp};
use crate::limit::wall_clock;
use crate::store::memory::MemoryStore;
use crate::store::overrides::{KeyOfLimit, OverrideNumbers};
use crate::store::{Known, ParamsId};

/// How many a plan has at most: changes of overrides are made by hand, and a reload begins anew.
const MAX: usize = 100_000;

/// The policies of all overrides so far. They are never freed before the plan is, so that requests borrow them.
#[derive(Debug, Default)]
pub(super) struct OverriddenPolicies {
    /// By the limit's identity and the numbers. `None`: the limit cannot have them.
    indices: DashMap<(u128, OverrideNumbers), Option<usize>>,
    all: boxcar::Vec<Box<[Policy]>>,
}

impl Plan {
    /// The policies of a key with an override that holds now. `None`: it has none.
    #[inline]
    pub fn overridden(&self, limit: &Limit, key_hash: Fingerprint, known: Known<'_>) -> Option<&[Policy]> {
        if known.overrides.is_empty() { None } else { self.find_overridden(limit, key_hash, known) }
    }

    #[cold]
    fn find_overridden(&self, limit: &Limit, key_hash: Fingerprint, known: Known<'_>) -> Option<&[Policy]> {
        let key = KeyOfLimit::new(limit.identity, key_hash);
        let found = known.overrides.find(key, wall_time(known.now))?;
        self.policies_with(limit, found.numbers, known.memory?)
    }

    /// The policies of a limit with other numbers, which `memory` knows from then on. `None`: it cannot have them.
    pub fn policies_with(
        &self,
        limit: &Limit,
        numbers: OverrideNumbers,
        memory: &MemoryStore,
    ) -> Option<&[Policy]> {
        let OverriddenPolicies { indices, all } = &self.overridden;
        let key = (limit.identity, numbers);
        // Not locked while the policies are made by the entry below: a request may look another one up.
        if let Some(index) = indices.get(&key).map(|index| *index) {
            return Some(all.get(index?)?);
        }
        let index = match indices.entry(key) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(_) if all.count() >= MAX => None,
            Entry::Vacant(entry) => {
                let policies = limit.with_numbers(&entry.key().1);
                let register = |policy: &Policy| {
                    limit.registrations_of(policy).for_each(|one| memory.register_one(&one));
                };
                policies.iter().flatten().for_each(register);
                *entry.insert(policies.map(|policies| all.push(policies)))
            }
        };
        Some(all.get(index?)?)
    }
}

impl Limit {
    /// Whether its algorithm has such numbers.
    pub fn can_have(&self, numbers: &OverrideNumbers) -> bool {
        self.with_numbers(numbers).is_some()
    }

    /// Its policies with other numbers, which count in the same counters. `None`: it [cannot have](Self::can_have) them.
    fn with_numbers(&self, numbers: &OverrideNumbers) -> Option<Box<[Policy]>> {
        let with = |policy: &Policy| {
            let count = numbers.count_in(policy.algorithm.rate()?.period())?;
            let algorithm = policy.algorithm.with_numbers(count, numbers.burst)?;
            let params = ParamsId::of_policy(&algorithm, policy.shared_key.identity);
            Some(Policy::new(policy.name.clone(), algorithm, (policy.shared_key.clone(), params)))
        };
        self.policies.iter().map(with).collect()
    }
}

/// The time of the wall clock, by which overrides end.
fn wall_time(now: Timestamp) -> wall_clock::WallTime {
    wall_clock::system().wall_time(now)
}
