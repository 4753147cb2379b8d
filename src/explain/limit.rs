//! A limit on a request, or on a descriptor of a call, and its effect.

use std::num::NonZeroU32;

use super::description;
use crate::limit::Algorithm;
use crate::limit::fair_queue::Priority;
use crate::limit::units::{Cost, Fingerprint};
use crate::plan::admission::{self, LimitCheck};
use crate::plan::trial::Trial;
use crate::plan::{LimitIndex, LimitUse, Mode, Route, TierIndex};
use crate::route::key::{Key, Missing};
use crate::route::mask::{Masking, ShortIds};
use crate::route::{self, RouteIndex};

/// A limit on a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitExplanation {
    /// The index of the limit.
    pub index: LimitIndex,
    /// The route that it is a limit of, or the rule for descriptors.
    pub route: RouteIndex,
    /// The index of the descriptor in a call; `None`: it is a limit of a request.
    pub descriptor: Option<usize>,
    /// Its name.
    pub name: String,
    /// The tier of the request's consumer, if the limit has it.
    pub tier: Option<TierIndex>,
    /// The name of that tier.
    pub tier_name: Option<String>,
    /// The owner of the counters that it charges; `None`: it charges none.
    pub key_hash: Option<Fingerprint>,
    /// The values of its key, in the form of [`Key::label`](crate::route::key::Key::label).
    pub label: Vec<String>,
    /// Refuse, or only count.
    pub mode: Mode,
    /// The share of keys for which the limit is enforced; `mode` says whether this one belongs to it.
    pub trial: Option<Trial>,
    /// Its effect on the request.
    pub status: LimitStatus,
    /// The number in the request that its cost was measured by: `query:limit is 50`.
    pub measured: Option<String>,
    /// How its cost is settled after the response, if it is: `json:/usage/total_tokens`.
    pub settled_by: Option<String>,
    /// The key's parts and values, masked unless the limit reveals them.
    pub key: Vec<(String, Option<String>)>,
    /// The rule for requests without the key, if there can be some.
    pub missing: Option<Missing>,
    /// The algorithm of each policy.
    pub algorithms: Vec<Algorithm>,
    /// Each policy as text.
    pub policies: Vec<String>,
    /// Its numbers are those of an override of the key.
    pub is_overridden: bool,
    /// Whether automatic bans neither begin for the key nor refuse it.
    pub by_hand_only: bool,
    /// Whose share of its places or its queue the request takes: `consumer = acme, weight 4, priority high`.
    pub share: Option<String>,
    /// Its ban as text.
    pub ban: Option<String>,
}

/// The effect of a limit on a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LimitStatus {
    /// Charges this cost.
    Charged(Cost),
    /// Nothing: the route has no cost there.
    Free,
    /// Nothing: this exemption applies, or this tier is unlimited (`tier:NAME`).
    Exempt(String),
    /// Nothing: a part of the key is missing.
    Skipped,
    /// Refuses: a part of the key is missing.
    Missing,
    /// Refuses with 400: a part of the key has several values.
    Repeated,
}

impl LimitExplanation {
    pub(super) fn new(
        (index, route): (RouteIndex, &Route),
        used: &LimitUse,
        (check, key_hash): (&LimitCheck<'_>, Option<Fingerprint>),
        request: &route::RouteRequest<'_>,
        ids: Option<&ShortIds>,
    ) -> Self {
        let limit = check.limit;
        let matched = route.matched(request);
        let masking = match (limit.reveal, ids) {
            (true, _) => Masking::Off,
            (false, Some(ids)) => Masking::Ids(ids),
            (false, None) => Masking::NoIds,
        };
        Self {
            index: used.limit,
            route: index,
            descriptor: None,
            key_hash,
            label: limit.key.label(matched, masking),
            name: limit.name.to_string(),
            tier: check.tier,
            tier_name: limit.tier_name(check.tier).map(str::to_owned),
            mode: check.mode,
            trial: limit.trial,
            status: LimitStatus::of(check, matched),
            measured: description::measured(&used.cost, request),
            settled_by: used.cost.settled().map(|settled| settled.settled_by()),
            key: limit.key.describe(matched, masking),
            missing: limit.key.may_be_missing().then_some(limit.key.missing),
            algorithms: check.policies().iter().map(|policy| policy.algorithm).collect(),
            is_overridden: check.overriding.is_some(),
            policies: check
                .policies()
                .iter()
                .map(|policy| description::policy(policy, check.cost()))
                .collect(),
            by_hand_only: check.by_hand_only(),
            share: limit.share_by.as_ref().map(|share_by| {
                share(share_by, (limit.weight(check.tier), route.priority), matched, masking)
            }),
            ban: limit.ban.as_ref().map(|ban| ban.algorithm.to_string()),
        }
    }
}

fn share(
    share_by: &Key,
    (weight, priority): (NonZeroU32, Priority),
    matched: route::MatchedRequest<'_>,
    masking: Masking<'_>,
) -> String {
    let part = |(part, value): (String, Option<String>)| match value {
        Some(value) => format!("{part} = {value}"),
        None => part,
    };
    let parts: Vec<_> = share_by.describe(matched, masking).into_iter().map(part).collect();
    format!("{}, weight {weight}, priority {priority}", parts.join(" and "))
}

impl LimitStatus {
    fn of(check: &LimitCheck<'_>, matched: route::MatchedRequest<'_>) -> Self {
        match check.applicability {
            admission::Applicability::Charged(cost, _) => Self::Charged(cost),
            admission::Applicability::Free => Self::Free,
            admission::Applicability::Exempt => {
                let first = check.limit.exempt.first(matched);
                let tier = || check.limit.tier_name(check.tier).map(|tier| format!("tier:{tier}"));
                Self::Exempt(first.map(ToString::to_string).or_else(tier).unwrap_or_default())
            }
            admission::Applicability::Skipped => Self::Skipped,
            // The body of an explained request is unknown: what reads it finds nothing.
            admission::Applicability::Missing | admission::Applicability::Unreadable(_) => Self::Missing,
            admission::Applicability::Repeated => Self::Repeated,
        }
    }
}
