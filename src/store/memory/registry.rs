//! The registry of policies: the policy and parameters of a stored state, and the usage of the store by each policy.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use parking_lot::{RwLock, RwLockReadGuard};

use super::policy_usage::PolicyUsage;
use super::share::LimitShare;
use crate::limit::Algorithm;
use crate::store::ParamsId;

/// Policies by [`ParamsId`]: at least the last 32,768 registered, at most 65,536.
#[derive(Debug, Default)]
pub(super) struct Registry {
    generations: RwLock<Generations>,
}

/// A read lock on the registry. Set locks may be held while it is acquired, never the other way round.
pub(super) struct RegistryReader<'a>(RwLockReadGuard<'a, Generations>);

/// The previous entry under the id that [`Registry::register`] was given.
#[derive(Clone, Debug)]
pub(super) enum Registered {
    /// None, or the same algorithm.
    Unique,
    /// Another algorithm hashes to the same id: a state under it may be of either, so none can be trusted. The usage is
    /// that of the policy that had the id alone until now.
    Ambiguous(Option<Arc<PolicyUsage>>),
}

/// A policy with certain parameters.
#[derive(Clone, Debug)]
pub(super) struct RegisteredPolicy {
    pub(super) identity: u128,
    pub(super) algorithm: Algorithm,
    /// Shared by all parameters that the policy had.
    pub(super) usage: Arc<PolicyUsage>,
    /// The share of its limit, if that has one.
    pub(super) share: Option<Arc<LimitShare>>,
}

/// The entry of an id.
#[derive(Clone, Debug)]
enum RegistryEntry {
    Of(RegisteredPolicy),
    Ambiguous,
}

/// Two half-full maps instead of an ordered one: when the newer is full it becomes the older, and the older is dropped.
#[derive(Debug, Default)]
struct Generations {
    newer: BTreeMap<ParamsId, RegistryEntry>,
    older: BTreeMap<ParamsId, RegistryEntry>,
    /// By the policy's identity. A usage without an entry is dropped with the next generation.
    usages: BTreeMap<u128, Arc<PolicyUsage>>,
}

impl Registry {
    /// Entries in one generation; two generations are kept.
    const GENERATION: usize = 32_768;

    /// Registers the policy with this identity and `algorithm` under the parameters `params`, and with the share of its
    /// limit. A repeated registration keeps it from being dropped.
    pub(super) fn register(
        &self,
        params: ParamsId,
        algorithm: &Algorithm,
        identity: u128,
        share: Option<Arc<LimitShare>>,
    ) -> Registered {
        let mut generations = self.generations.write();
        if generations.newer.len() >= Self::GENERATION && !generations.newer.contains_key(&params) {
            generations.next();
        }
        let (mut entry, registered) = match generations.find(params) {
            Some(RegistryEntry::Ambiguous) => (RegistryEntry::Ambiguous, Registered::Ambiguous(None)),
            Some(RegistryEntry::Of(before)) if before.algorithm != *algorithm => {
                (RegistryEntry::Ambiguous, Registered::Ambiguous(Some(Arc::clone(&before.usage))))
            }
            Some(entry) => (entry.clone(), Registered::Unique),
            None => {
                let usage = Arc::clone(generations.usages.entry(identity).or_default());
                (
                    RegistryEntry::Of(RegisteredPolicy {
                        identity,
                        algorithm: *algorithm,
                        usage,
                        share: None,
                    }),
                    Registered::Unique,
                )
            }
        };
        if let RegistryEntry::Of(policy) = &mut entry {
            share.iter().for_each(|share| share.add_usage(&policy.usage));
            policy.share = share;
        }
        generations.newer.insert(params, entry);
        registered
    }

    /// Opens the registry for look-ups. One thread must not open it twice at once.
    pub(super) fn read(&self) -> RegistryReader<'_> {
        RegistryReader(self.generations.read())
    }

    /// As [`Self::read`], unless that would wait.
    pub(super) fn try_read(&self) -> Option<RegistryReader<'_>> {
        self.generations.try_read().map(RegistryReader)
    }
}

impl RegistryReader<'_> {
    /// All parameters of the policies whose entries a share counts, those of before a reload among them.
    pub(super) fn numbers_in(&self, share: &LimitShare) -> HashSet<ParamsId> {
        let entries = self.0.older.iter().chain(&self.0.newer);
        let is_in =
            |entry: &RegistryEntry| matches!(entry, RegistryEntry::Of(policy) if share.counts(&policy.usage));
        entries.filter(|(_, entry)| is_in(entry)).map(|(params, _)| *params).collect()
    }

    /// All policies that are known unambiguously.
    pub(super) fn all(&self) -> impl Iterator<Item = (ParamsId, &RegisteredPolicy)> {
        let older = self.0.older.iter().filter(|(params, _)| !self.0.newer.contains_key(params));
        older.chain(&self.0.newer).filter_map(|(params, entry)| match entry {
            RegistryEntry::Of(policy) => Some((*params, policy)),
            RegistryEntry::Ambiguous => None,
        })
    }

    /// The policy with the parameters `params`; `None` if it was dropped, was never registered, or is ambiguous.
    pub(super) fn get(&self, params: ParamsId) -> Option<&RegisteredPolicy> {
        match self.0.find(params)? {
            RegistryEntry::Of(policy) => Some(policy),
            RegistryEntry::Ambiguous => None,
        }
    }
}

impl Generations {
    fn find(&self, params: ParamsId) -> Option<&RegistryEntry> {
        self.newer.get(&params).or_else(|| self.older.get(&params))
    }

    fn next(&mut self) {
        self.older = std::mem::take(&mut self.newer);
        self.usages.retain(|_, usage| Arc::strong_count(usage) > 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::units::{Micros, Rate};

    fn algorithm(count: u32) -> Algorithm {
        Algorithm::sliding_window(Rate::new(count, Micros::SECOND).unwrap())
    }

    #[test]
    fn forgets_the_oldest_and_keeps_what_is_registered_again() {
        let registry = Registry::default();
        let kept = ParamsId(u32::MAX);
        for id in 0..200_000 {
            registry.register(ParamsId(id), &algorithm(1), 0, None);
            if id % 1_000 == 0 {
                registry.register(kept, &algorithm(2), 0, None);
            }
        }
        let known = registry.read();
        assert_eq!(known.get(kept).map(|it| it.algorithm), Some(algorithm(2)));
        assert_eq!(known.get(ParamsId(199_999 - 30_000)).map(|it| it.algorithm), Some(algorithm(1)));
        assert!(known.get(ParamsId(0)).is_none());
        assert_eq!(known.0.usages.len(), 1);
        assert!(known.0.newer.len() + known.0.older.len() <= 65_536);
    }

    #[test]
    fn trusts_neither_of_two_algorithms_under_one_id() {
        let registry = Registry::default();
        let id = ParamsId(7);
        let register = |count| registry.register(id, &algorithm(count), 0, None);
        assert!(matches!(register(1), Registered::Unique));
        assert!(matches!(register(1), Registered::Unique));
        assert!(matches!(register(2), Registered::Ambiguous(Some(_))));
        assert!(matches!(register(2), Registered::Ambiguous(None)));
        assert!(registry.read().get(id).is_none());
    }

    #[test]
    fn a_policy_keeps_its_usage_under_new_numbers_and_no_other_policy_shares_it() {
        let registry = Registry::default();
        for (id, identity) in [(1, 10), (2, 10), (3, 11)] {
            registry.register(ParamsId(id), &algorithm(id), identity, None);
        }
        let known = registry.read();
        let [one, two, three] = [1, 2, 3].map(|id| &known.get(ParamsId(id)).unwrap().usage);
        assert!(Arc::ptr_eq(one, two) && !Arc::ptr_eq(one, three));
    }
}
