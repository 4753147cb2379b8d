//! What a limit is asked: its kind, its tiers, its bans.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::Arc;

use super::{Limit, Mode, Policy, TierIndex, policy};
use crate::limit::Algorithm;
use crate::limit::concurrency::Concurrency;
use crate::limit::lease::Lease;
use crate::limit::units::{Cost, Fingerprint, Micros, Rate, Timestamp};
use crate::route::MatchedRequest;
use crate::route::key::{Key, Part};
use crate::store::bans::{ActiveBan, BanCause, BanCounts, Banned, Bans};
use crate::store::{Charge, Group, LeasePolicy, MaxKeys, ParamsId, PolicyRegistration, SharedKeyInfo};

/// The ban of a key of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyBan {
    /// The key.
    pub key_hash: Fingerprint,
    /// The ban.
    pub ban: ActiveBan,
    /// The limit is in shadow for this ban: it refuses nothing.
    pub in_shadow: bool,
}

/// `ban` of a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitBan {
    /// It counts refusals.
    pub algorithm: Algorithm,
    /// Counts the refusals of requests for which the limit is enforced.
    pub enforced: BanCounter,
    /// Counts what it would have refused in shadow. Apart, so that no refusal or ban in shadow becomes real.
    pub in_shadow: BanCounter,
}

/// The counter of refusals of a limit's keys, as stores know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BanCounter {
    /// The id of its parameters in the store.
    pub params: ParamsId,
    /// Names the limit and its key: a reload keeps refusals and bans while this is unchanged.
    pub shared_key: SharedKeyInfo,
}

impl LimitBan {
    /// The charge of one refusal of a key: in shadow on a counter of its own.
    pub fn charge(&self, key_hash: Fingerprint, group: Group) -> Charge<'_> {
        let BanCounter { params, shared_key } =
            if group.is_shadow() { &self.in_shadow } else { &self.enforced };
        Charge {
            algorithm: &self.algorithm,
            params: *params,
            key: key_hash.of_policy(shared_key.identity),
            cost: Cost::ONE,
            group,
            shared_key,
        }
    }
}

impl Limit {
    /// Whether its maximum is found.
    #[inline]
    pub fn is_adaptive(&self) -> bool {
        let of = |policy: &Policy| policy.algorithm.as_concurrency().and_then(Concurrency::capacity_bounds);
        self.policies.first().and_then(of).is_some()
    }

    /// Whether it is full when a backend has as much as it bears, and not when a client asks for too much.
    pub fn protects_backend(&self) -> bool {
        self.is_adaptive() || self.is_concurrency() && self.key.parts.contains(&Part::Upstream)
    }

    /// Whether requests wait for it.
    pub fn has_queue(&self) -> bool {
        self.all_policies().any(|policy| match &policy.algorithm {
            Algorithm::Concurrency(limit) => limit.queue() > 0,
            algorithm => matches!(algorithm, Algorithm::LeakyBucket(_)),
        })
    }

    /// Whether requests wait for it in the order of priorities and shares.
    pub fn has_fair_queue(&self) -> bool {
        self.has_queue() && (self.is_concurrency() || self.share_by.is_some())
    }

    /// The weight of consumers of this tier.
    pub fn weight(&self, tier: Option<TierIndex>) -> NonZeroU32 {
        let tier = tier.and_then(|tier| self.tiers.get(tier.0));
        tier.map_or(NonZeroU32::MIN, |tier| tier.weight)
    }

    /// Whether it reads the body of requests.
    pub fn reads_body(&self) -> bool {
        self.key.reads_body() || self.share_by.as_ref().is_some_and(Key::reads_body)
    }

    /// The wait that a client is told that finds no place: an estimate, as long as requests wait for one, at least a second.
    pub fn estimated_wait(&self) -> Micros {
        let of = |policy: &Policy| Some(policy.algorithm.as_concurrency()?.max_wait());
        self.policies.first().and_then(of).unwrap_or_default().max(Micros::SECOND)
    }

    /// Whether it bounds the requests in flight.
    pub fn is_concurrency(&self) -> bool {
        self.policies.first().is_some_and(|policy| policy.algorithm.as_concurrency().is_some())
    }

    /// Whether costs of it are settled after the response.
    pub fn settles(&self) -> bool {
        self.policies.first().is_some_and(|policy| policy.shared_key.settles)
    }

    /// A key of this limit, as bans identify it.
    pub fn banned(&self, key_hash: Fingerprint) -> Banned {
        Banned { limit: self.identity, key_hash }
    }

    /// The same for bans that the limit begins in shadow. No ban of the limit as it is enforced has this name.
    pub fn banned_in_shadow(&self, key_hash: Fingerprint) -> Banned {
        Banned { limit: self.shadow_identity(), key_hash }
    }

    /// The limit's identity for bans that it begins in shadow.
    pub fn shadow_identity(&self) -> u128 {
        !self.identity
    }

    /// The share of its keys for which it is enforced: 0 in shadow, 1 for all.
    pub fn enforced_share(&self) -> f64 {
        match (self.mode, &self.trial) {
            (Mode::Shadow, _) => 0.0,
            (Mode::Enforce, Some(trial)) => trial.share(),
            (Mode::Enforce, None) => 1.0,
        }
    }

    /// Whether it is in shadow for some keys.
    fn has_shadow(&self) -> bool {
        self.enforced_share() < 1.0
    }

    /// The bans of its keys at `now`. Unordered; a key may have several.
    pub fn bans(&self, bans: &Bans, now: Timestamp) -> Vec<KeyBan> {
        let is_idle = |ban: &ActiveBan| self.mode == Mode::Shadow && ban.cause == BanCause::Refusals;
        let of = |identity, in_shadow: bool| {
            let its = bans.of_limit(identity, now).into_iter();
            its.map(move |(key_hash, ban)| KeyBan { key_hash, ban, in_shadow: in_shadow || is_idle(&ban) })
        };
        let mut all: Vec<KeyBan> = of(self.identity, false).collect();
        if self.has_shadow() {
            all.extend(of(self.shadow_identity(), true));
        }
        all
    }

    /// The ban of one key at `now`: if there is one that refuses, that one; of several the one that ends last.
    pub fn ban_of(&self, bans: &Bans, key_hash: Fingerprint, now: Timestamp) -> Option<KeyBan> {
        let by_hand_only = self.mode == Mode::Shadow;
        let refusing = self.refusing_ban(bans, key_hash, by_hand_only, now);
        let idle = || bans.find(self.banned(key_hash), now);
        let in_shadow = || bans.find(self.banned_in_shadow(key_hash), now).filter(|_| self.has_shadow());
        let of = |in_shadow| move |ban| KeyBan { key_hash, ban, in_shadow };
        refusing.map(of(false)).or_else(|| idle().max(in_shadow()).map(of(true)))
    }

    /// The numbers of its bans, by what there is of each identity: those that refuse, and those that do not, since the
    /// limit is in shadow.
    pub fn ban_counts(&self, counts: &HashMap<u128, BanCounts>) -> (usize, usize) {
        let of = |identity| counts.get(&identity).copied().unwrap_or_default();
        let (own, shadow) = (of(self.identity), of(self.shadow_identity()));
        match self.mode {
            Mode::Shadow => (own.by_hand, own.automatic + shadow.automatic),
            Mode::Enforce if self.has_shadow() => (own.total(), shadow.automatic),
            Mode::Enforce => (own.total(), 0),
        }
    }

    /// The ban that refuses requests of this key at `now`, if there is one; `by_hand_only` leaves automatic ones out.
    pub fn refusing_ban(
        &self,
        bans: &Bans,
        key_hash: Fingerprint,
        by_hand_only: bool,
        now: Timestamp,
    ) -> Option<ActiveBan> {
        bans.refusing(self.banned(key_hash), by_hand_only, now)
    }

    /// Why a key is banned: `by hand`, or `20 refusals in 10 minutes`.
    pub fn ban_cause(&self, cause: BanCause) -> String {
        let ban = self.ban.as_ref().and_then(|ban| ban.algorithm.as_ban());
        match (cause, ban) {
            (BanCause::Hand, _) => "by hand".to_owned(),
            (BanCause::Refusals, Some(ban)) => ban.cause().to_string(),
            // A reload has removed the `ban` of the limit.
            (BanCause::Refusals, None) => "too many refusals".to_owned(),
        }
    }

    /// The tier of a request, if the limit has it: by its map, or that of the request's consumer.
    #[inline]
    pub fn tier_of(&self, matched: MatchedRequest<'_>) -> Option<TierIndex> {
        match &self.mapped_tier {
            None => self.tier(matched.request.consumer.and_then(|consumer| consumer.tier())),
            Some(mapped) => self.tier(mapped.map.of_request(&mapped.part, matched)),
        }
    }

    /// The value of a key with these values by which its tier is known, if one is: that of the part that the map looks up, or
    /// the consumer's name.
    pub fn tier_value<'v>(&self, values: &'v [String]) -> Option<&'v String> {
        let part = self.mapped_tier.as_ref().map_or(&Part::Consumer, |mapped| &mapped.part);
        let mut parts = self.key.parts.iter().filter(|part| **part != Part::Global);
        values.get(parts.position(|other| other == part)?).filter(|_| !self.tiers.is_empty())
    }

    /// The tier of such a value. `of_consumer`: the tier of the consumer with this name.
    pub fn tier_of_value<'t>(
        &self,
        value: &str,
        of_consumer: impl FnOnce(&str) -> Option<&'t str>,
    ) -> Option<TierIndex> {
        match &self.mapped_tier {
            Some(mapped) => self.tier(mapped.map.of_written(&mapped.part, value)),
            None => self.tier(of_consumer(value)),
        }
    }

    /// The tier of this name, if the limit has it.
    #[inline]
    pub fn tier(&self, name: Option<&str>) -> Option<TierIndex> {
        let name = name?;
        self.tiers.binary_search_by(|tier| (*tier.name).cmp(name)).ok().map(TierIndex)
    }

    /// The name of a tier.
    pub fn tier_name(&self, tier: Option<TierIndex>) -> Option<&str> {
        self.tiers.get(tier?.0).map(|tier| &*tier.name)
    }

    /// The policies for the consumers of a tier.
    #[inline]
    pub fn policies_of(&self, tier: Option<TierIndex>) -> &[Policy] {
        tier.and_then(|tier| self.tiers.get(tier.0)).map_or(&self.policies, |tier| &tier.policies)
    }

    /// How long gateways take units of it in advance, if they do.
    pub fn lease(&self) -> Option<&Lease> {
        self.policies.first()?.shared_key.lease.as_ref()?.lease()
    }

    /// Has gateways take units of it in advance.
    pub fn set_lease(&mut self, lease: Lease) {
        let of_tiers = self.tiers.iter_mut().flat_map(|tier| &mut tier.policies);
        for Policy { shared_key, .. } in self.policies.iter_mut().chain(of_tiers) {
            shared_key.lease = Some(LeasePolicy::new(lease, shared_key.identity));
        }
    }

    /// All policies and the ban, for the store.
    pub fn registrations(&self) -> impl Iterator<Item = PolicyRegistration<'_>> {
        let share = self.max_keys.map(|bound| MaxKeys { limit: self.identity, bound });
        let policies = self.all_policies().flat_map(registered);
        let counters = |ban: &LimitBan| [&ban.enforced, &ban.in_shadow].map(|one| one.shared_key.identity);
        let ban =
            self.ban.iter().flat_map(move |ban| counters(ban).map(|identity| (&ban.algorithm, identity)));
        policies.chain(ban).map(move |(algorithm, identity)| PolicyRegistration {
            algorithm,
            identity,
            share,
        })
    }

    /// The only policy with other numbers; `None` if there are several, or it has no rate. With the period of the limit
    /// they count in the limit's own counter, with another in one of that period.
    pub fn with_rate(&self, rate: Rate) -> Option<Policy> {
        let [own] = self.policies.as_slice() else { return None };
        let algorithm = own.algorithm.with_rate(rate)?;
        let counters = if own.algorithm.rate()?.period() == rate.period() {
            let identity = own.shared_key.identity;
            (own.shared_key.clone(), ParamsId::of_policy(&algorithm, identity))
        } else {
            let (mut shared_key, params) =
                policy::counters_of_rate(&self.name, &algorithm, &self.key, 0, self.on_error);
            shared_key.lease = self.lease().map(|lease| LeasePolicy::new(*lease, shared_key.identity));
            (shared_key, params)
        };
        Some(Policy::new(Arc::clone(&own.name), algorithm, counters))
    }

    /// The registrations of such a policy.
    pub fn registrations_of<'a>(
        &self,
        policy: &'a Policy,
    ) -> impl Iterator<Item = PolicyRegistration<'a>> + use<'a> {
        let share = self.max_keys.map(|bound| MaxKeys { limit: self.identity, bound });
        registered(policy).map(move |(algorithm, identity)| PolicyRegistration { algorithm, identity, share })
    }

    /// The most charges of a request to it.
    pub fn max_charges(&self) -> usize {
        let of_tiers = self.tiers.iter().map(|tier| tier.policies.len());
        of_tiers.max().unwrap_or_default().max(self.policies.len())
    }

    /// These policies of it, and one for each other counter that tiers have.
    pub fn with_other_counters<'p>(&'p self, policies: &'p [Policy]) -> Vec<&'p Policy> {
        let mut all: Vec<_> = policies.iter().collect();
        for policy in self.all_policies() {
            if all.iter().all(|other| other.shared_key.identity != policy.shared_key.identity) {
                all.push(policy);
            }
        }
        all
    }

    /// All policies, those of tiers too.
    pub fn all_policies(&self) -> impl Iterator<Item = &Policy> {
        self.policies.iter().chain(self.tiers.iter().flat_map(|tier| &tier.policies))
    }
}

/// The counters of a policy, and of its units in advance, as a store knows them.
fn registered(policy: &Policy) -> impl Iterator<Item = (&Algorithm, u128)> {
    let own = (&policy.algorithm, policy.shared_key.identity);
    std::iter::once(own).chain(policy.shared_key.lease.as_ref().map(LeasePolicy::registration))
}
