//! What a limit is asked: its kind, its tiers, its bans.

use super::{Limit, LimitBan, Policy, TierIndex};
use crate::limit::units::{Cost, Fingerprint, Timestamp};
use crate::route::key::Part;
use crate::store::bans::{ActiveBan, BanCause, Banned, Bans};
use crate::store::{Charge, Group, MaxKeys, PolicyRegistration};

impl LimitBan {
    /// The charge of one refusal of a key.
    pub fn charge(&self, owner: Fingerprint, group: Group) -> Charge<'_> {
        Charge {
            algorithm: &self.algorithm,
            numbers: self.numbers,
            key: owner.of_policy(self.remote.identity),
            cost: Cost::ONE,
            group,
            remote: &self.remote,
        }
    }
}

impl Limit {
    /// Whether it limits the requests in flight.
    #[inline]
    pub fn is_concurrency(&self) -> bool {
        self.policies.first().is_some_and(|policy| policy.algorithm.as_concurrency().is_some())
    }

    /// Whether costs of it are settled after the response.
    pub fn settles(&self) -> bool {
        self.policies.first().is_some_and(|policy| policy.remote.settles)
    }

    /// A key of this limit, as bans identify it.
    pub fn banned(&self, owner: Fingerprint) -> Banned {
        Banned { limit: self.identity(), owner }
    }

    /// The ban that refuses requests of this key at `now`, if there is one; `by_hand_only` leaves automatic ones out.
    pub fn refusing_ban(
        &self,
        bans: &Bans,
        owner: Fingerprint,
        by_hand_only: bool,
        now: Timestamp,
    ) -> Option<ActiveBan> {
        bans.refusing(self.banned(owner), by_hand_only, now)
    }

    /// The limit's identity for bans: its first policy's
    /// [`SharedKeyInfo::identity`](crate::store::SharedKeyInfo::identity).
    pub fn identity(&self) -> u128 {
        self.policies.first().map_or(0, |policy| policy.remote.identity)
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

    /// The index of the consumer's name among the values of a key.
    pub fn consumer_at(&self) -> Option<usize> {
        self.key.parts.iter().filter(|part| **part != Part::Global).position(|part| *part == Part::Consumer)
    }

    /// The policies for the consumers of a tier.
    #[inline]
    pub fn policies_of(&self, tier: Option<TierIndex>) -> &[Policy] {
        tier.and_then(|tier| self.tiers.get(tier.0)).map_or(&self.policies, |tier| &tier.policies)
    }

    /// All policies and the ban, for the store.
    pub fn registrations(&self) -> impl Iterator<Item = PolicyRegistration<'_>> {
        let share = self.max_keys.map(|bound| MaxKeys { limit: self.identity(), bound });
        let policies = self.all_policies().map(|policy| (&policy.algorithm, policy.remote.identity));
        let ban = self.ban.iter().map(|ban| (&ban.algorithm, ban.remote.identity));
        policies.chain(ban).map(move |(algorithm, identity)| PolicyRegistration {
            algorithm,
            identity,
            share,
        })
    }

    /// All policies, those of tiers too.
    pub fn all_policies(&self) -> impl Iterator<Item = &Policy> {
        self.policies.iter().chain(self.tiers.iter().flat_map(|tier| &tier.policies))
    }
}
