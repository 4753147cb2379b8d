//! The eviction policy: how much each stored state has used, and the policy that it belongs to.

use std::cell::OnceCell;

use super::logs::Logs;
use super::policy_usage::PolicyUsage;
use super::registry::{RegisteredPolicy, Registry, RegistryReader};
use super::share::LimitShare;
use super::slot::{Content, CounterSlot, Tag};
use crate::limit::units::Timestamp;
use crate::limit::{Algorithm, State};
use crate::store::{Charge, ParamsId};

/// The view that one request has of its neighbours when it needs capacity.
pub(super) struct EvictionPolicy<'a> {
    /// The time of the request.
    pub(super) now: Timestamp,
    /// The request's own charges; their keys are not evicted.
    charges: &'a [Charge<'a>],
    registry: &'a Registry,
    /// The registered policies. Opened at the first parameters that are not the request's own, or when a counter is
    /// added or removed.
    known: OnceCell<RegistryReader<'a>>,
}

/// Lower is evicted sooner: the least used, and of equals the one that expires soonest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct EvictionRank {
    used: u32,
    forget_at: Timestamp,
}

/// Recently looked-up policies, by the low bits of their parameters' id: neighbours often have the same.
#[derive(Clone, Copy, Default)]
pub(super) struct PolicyCache<'c>([Option<(ParamsId, Option<&'c RegisteredPolicy>)>; 32]);

impl<'a> EvictionPolicy<'a> {
    /// The view of a request with these charges.
    pub(super) fn new(charges: &'a [Charge<'a>], registry: &'a Registry, now: Timestamp) -> Self {
        Self { now, charges, registry, known: OnceCell::new() }
    }

    /// The algorithm with the parameters `params`, unless they are unknown.
    pub(super) fn algorithm(&self, params: ParamsId) -> Option<&Algorithm> {
        self.own_algorithm(params).or_else(|| Some(&self.policy(params)?.algorithm))
    }

    /// The usage of the policy with the parameters `params`, unless they are unknown.
    pub(super) fn usage(&self, params: ParamsId) -> Option<&PolicyUsage> {
        Some(&self.policy(params)?.usage)
    }

    /// The share of the limit to which the policy with the parameters `params` belongs, if it has one.
    pub(super) fn share(&self, params: ParamsId) -> Option<&LimitShare> {
        self.policy(params)?.share.as_deref()
    }

    /// Opens the registry now. It must be open before a share's list is locked.
    pub(super) fn open(&self) {
        self.known.get_or_init(|| self.registry.read());
    }

    /// The slot's rank, and the usage of its policy. A slot with unknown parameters ranks lowest, but does not count as
    /// expired.
    pub(super) fn rank<'c>(
        &'c self,
        slot: &CounterSlot,
        logs: &Logs,
        cache: &mut PolicyCache<'c>,
    ) -> (EvictionRank, Option<&'c PolicyUsage>) {
        let policy = self.cached_policy(slot.params(), cache);
        let algorithm = policy.map(|policy| &policy.algorithm).or_else(|| self.own_algorithm(slot.params()));
        let standing = match algorithm {
            None => EvictionRank { used: 0, forget_at: Timestamp(u64::MAX) },
            Some(algorithm) => with_state(slot, algorithm, logs, |state| {
                let forget_at = algorithm.forget_at(state);
                let used = if forget_at <= self.now { 0 } else { algorithm.used(state, self.now) };
                EvictionRank { used, forget_at }
            }),
        };
        (standing, policy.map(|policy| &*policy.usage))
    }

    /// Whether the slot is a counter of the policy with this usage.
    pub(super) fn is_of<'c>(
        &'c self,
        slot: &CounterSlot,
        usage: &PolicyUsage,
        cache: &mut PolicyCache<'c>,
    ) -> bool {
        self.cached_policy(slot.params(), cache).is_some_and(|policy| std::ptr::eq(&*policy.usage, usage))
    }

    /// Whether the slot's state equals that of an unused counter.
    pub(super) fn is_expired(&self, slot: &CounterSlot, logs: &Logs) -> bool {
        self.algorithm(slot.params()).is_some_and(|algorithm| {
            with_state(slot, algorithm, logs, |state| algorithm.forget_at(state) <= self.now)
        })
    }

    /// The same of a slot with this rank.
    pub(super) fn has_expired(&self, standing: EvictionRank) -> bool {
        standing.forget_at <= self.now
    }

    /// Whether the slot may be evicted for this request: any but those of its own keys and empty ones.
    pub(super) fn is_evictable(&self, slot: &CounterSlot) -> bool {
        !slot.is_empty() && !self.charges.iter().any(|charge| slot.is_of(Tag::of(charge.key)))
    }

    fn own_algorithm(&self, params: ParamsId) -> Option<&Algorithm> {
        Some(self.charges.iter().find(|charge| charge.params == params)?.algorithm)
    }

    fn policy(&self, params: ParamsId) -> Option<&RegisteredPolicy> {
        self.known.get_or_init(|| self.registry.read()).get(params)
    }

    fn cached_policy<'c>(
        &'c self,
        params: ParamsId,
        cache: &mut PolicyCache<'c>,
    ) -> Option<&'c RegisteredPolicy> {
        let slot = &mut cache.0[params.0 as usize % 32];
        match *slot {
            Some((before, policy)) if before == params => policy,
            _ => {
                let policy = self.policy(params);
                *slot = Some((params, policy));
                policy
            }
        }
    }
}

fn with_state<T>(slot: &CounterSlot, algorithm: &Algorithm, logs: &Logs, ask: impl FnOnce(&State) -> T) -> T {
    match slot.content() {
        Content::State(state) => ask(&algorithm.unpacked(state)),
        Content::Log { id, .. } => logs.ask(id, ask),
    }
}
