//! From a request to its charges, and from the store's outcome to the decision on admission. Pure: the store is called
//! in between.

mod calls;
mod decision;
mod overrides;
mod places;
mod single;

use std::ops::Range;

use smallvec::SmallVec;

use super::{Limit, LimitUse, Mode, Plan, Policy, Route, TierIndex};
use crate::limit::units::{Cost, Fingerprint, Micros, Timestamp};
use crate::limit::{Decision, Verdict, Wait};
use crate::route::content::UnreadableBody;
use crate::route::key::{KeyResult, KeySecret};
use crate::route::{MatchedRequest, RouteRequest};
use crate::store::bans::{ActiveBan, BanCause, Bans};
use crate::store::{BanCharge, Charge, Group, OnError, Outcome, PlaceShare};
pub use decision::{Admission, AdmissionDecision, BanRefusal, BindingLimit, Refusal, RefusalCause};
use overrides::{UnlimitedKey, UnlimitedKeys};

/// The charges of a request: one entry per limit of the route, and the charges for the store.
#[derive(Debug, Default)]
pub struct RequestCharges<'a> {
    /// In the order of [`Route::limits`]; then those of further keys that the calls of a batch have.
    pub checks: SmallVec<[LimitCheck<'a>; 2]>,
    /// In the same order; a limit with several rates has several.
    pub charges: SmallVec<[Charge<'a>; 2]>,
    /// The numbers of limits that have admitted the request in an earlier phase.
    pub(super) before: Vec<BindingLimit<'a>>,
    /// Some of the charged limits has a ban.
    may_ban: bool,
    /// Some of them is a concurrency limit.
    takes_places: bool,
    /// Some of them is a leaky bucket whose queue is divided.
    leaves_by_shares: bool,
    /// The shares of places of limits with `share_by`.
    shares: Vec<PlaceShare>,
    /// The keys whose tier has no limit. An override gives them one.
    unlimited: Option<Box<UnlimitedKeys<'a>>>,
}

/// One limit of the route, for this request.
#[derive(Clone, Copy, Debug)]
pub struct LimitCheck<'a> {
    /// The limit's index among those of the route or the call: there are far fewer than 256.
    pub place: u8,
    /// The call of a batch that has its key; else 0.
    pub call: u8,
    /// The limit.
    pub limit: &'a Limit,
    /// The tier of the request's consumer, if the limit has one of this name.
    pub tier: Option<TierIndex>,
    /// Other policies than those of the limit or the tier: of the numbers that a call brings, or of an override of the key.
    pub overriding: Option<&'a [Policy]>,
    /// Whether the limit is enforced for this request: in a trial for some keys only.
    pub mode: Mode,
    /// Whether and how the limit applies.
    pub applicability: Applicability,
    /// The key holds the address of a proxy in place of that of a client that is not identified. It begins no automatic
    /// ban, and none refuses it: others share the address.
    pub shares_address: bool,
}

/// Whether and how a limit applies to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applicability {
    /// Its policies are charged this cost; their charges begin at this index.
    Charged(Cost, usize),
    /// The request's cost is 0.
    Free,
    /// An exemption applies, or the consumer's tier is unlimited.
    Exempt,
    /// A part of the key is missing, and the limit is skipped in that case.
    Skipped,
    /// A part of the key is missing, and the request is refused in that case.
    Missing,
    /// A part of the key has several values, and the request is refused in that case.
    Repeated,
    /// The body cannot be read, and the request is refused in that case.
    Unreadable(UnreadableBody),
}

impl<'a> RequestCharges<'a> {
    /// Computes the charges of a request to all limits of `route`.
    pub fn new(plan: &'a Plan, route: &'a Route, request: &RouteRequest<'_>, secret: &KeySecret) -> Self {
        let mut charges = Self::default();
        charges.add_limits(plan, route, request, secret, |_, _| true);
        charges
    }

    pub(super) fn clear(&mut self) {
        self.checks.clear();
        self.charges.clear();
        self.shares.clear();
        self.unlimited = None;
        (self.may_ban, self.takes_places, self.leaves_by_shares) = (false, false, false);
    }

    /// Adds the checks of all limits of the route, and the charges of those that are `charged`: the others are free.
    #[inline(always)]
    pub(super) fn add_limits(
        &mut self,
        plan: &'a Plan,
        route: &'a Route,
        request: &RouteRequest<'_>,
        secret: &KeySecret,
        charged: impl Fn(&Limit, &LimitUse) -> bool,
    ) {
        let matched = route.matched(request);
        for (index, limit_use) in route.limits.iter().enumerate() {
            let limit = plan.limit(limit_use.limit);
            let tier = limit.tier_of(matched);
            let mode = limit.mode_of(matched);
            let check = LimitCheck {
                place: small(index),
                call: 0,
                limit,
                tier,
                overriding: None,
                mode,
                applicability: Applicability::Free,
                shares_address: false,
            };
            let cost = limit_use.cost.on_admission(request).filter(|_| charged(limit, limit_use));
            self.add(check, cost, matched, secret);
        }
    }

    /// Adds the check of one limit, and its charges if it applies.
    #[inline]
    pub(super) fn add(
        &mut self,
        mut check: LimitCheck<'a>,
        cost: Option<Cost>,
        matched: MatchedRequest<'_>,
        secret: &KeySecret,
    ) {
        let limit = check.limit;
        check.applicability = self.charge(check, cost, matched, secret);
        if let Applicability::Charged(..) = check.applicability {
            check.shares_address = !matched.request.client.identified && limit.key.holds_address(matched);
            self.may_ban |= limit.ban.is_some() && !check.shares_address;
            self.takes_places |= limit.is_concurrency();
            if let Some(share_by) = &limit.share_by {
                self.leaves_by_shares |= !limit.is_concurrency() && check.mode == Mode::Enforce;
                self.share(check, share_by.claim(secret, matched));
            }
        }
        self.checks.push(check);
    }

    /// Adds the charges of one limit if it applies.
    fn charge(
        &mut self,
        check: LimitCheck<'a>,
        cost: Option<Cost>,
        matched: MatchedRequest<'_>,
        secret: &KeySecret,
    ) -> Applicability {
        let Some(cost) = cost else { return Applicability::Free };
        let limit = check.limit;
        // Exemptions are about requests.
        if limit.exempt.hold(matched) && !matched.request.is_descriptor() {
            return Applicability::Exempt;
        }
        if check.is_unlimited() {
            self.keep_unlimited(check, cost, matched, secret);
            return Applicability::Exempt;
        }
        let first = self.charges.len();
        let group = group_of(check.mode, check.place);
        let key_hash = match limit.key.claim(secret, matched) {
            KeyResult::Key(key_hash) => key_hash,
            KeyResult::Skip => return Applicability::Skipped,
            KeyResult::Deny => return Applicability::Missing,
            KeyResult::Repeated => return Applicability::Repeated,
            KeyResult::Unreadable(fault) => return Applicability::Unreadable(fault),
        };
        self.charges.extend(charges(check.policies(), key_hash, cost, group));
        Applicability::Charged(cost, first)
    }

    /// Adds the check of one limit, and its charges for the owner of this key.
    pub(super) fn add_key(&mut self, check: LimitCheck<'a>, key_hash: Fingerprint, cost: Cost) {
        if check.is_unlimited() {
            let check = LimitCheck { applicability: Applicability::Exempt, ..check };
            self.unlimited.get_or_insert_default().0.push(UnlimitedKey {
                check,
                key_hash,
                cost,
                share: None,
            });
            self.checks.push(check);
            return;
        }
        let (first, group) = (self.charges.len(), group_of(check.mode, check.place));
        self.may_ban |= check.limit.ban.is_some();
        self.takes_places |= check.limit.is_concurrency();
        self.charges.extend(charges(check.policies(), key_hash, cost, group));
        self.checks.push(LimitCheck { applicability: Applicability::Charged(cost, first), ..check });
    }

    /// Whether some charged limit is a concurrency limit.
    #[inline]
    pub fn takes_places(&self) -> bool {
        self.takes_places
    }

    /// Whether some charged limit is a leaky bucket with `share_by`.
    pub fn leaves_by_shares(&self) -> bool {
        self.leaves_by_shares
    }

    /// Whether the store decides the charges alone: no charged limit has bans, places or shares.
    #[inline]
    pub fn is_plain(&self) -> bool {
        !self.may_ban && !self.takes_places && !self.leaves_by_shares
    }

    /// The bans: each counts a refusal by its limit.
    pub fn bans(&self) -> SmallVec<[BanCharge<'a>; 1]> {
        let mut bans = SmallVec::new();
        for check in self.checks.iter().filter(|check| self.may_ban && !check.shares_address) {
            let (Some(ban), Some(key_hash)) = (&check.limit.ban, self.key_hash(check)) else { continue };
            let indices = check.indices();
            let (group, banned) = match check.mode {
                Mode::Enforce => (Group::Enforced, check.limit.banned(key_hash)),
                Mode::Shadow => (Group::Shadow(0), check.limit.banned_in_shadow(key_hash)),
            };
            bans.push(BanCharge {
                charge: ban.charge(key_hash, group),
                banned,
                of: (small(indices.start), small(indices.len())),
            });
        }
        bans
    }

    /// Whether all enforced limits admit the request.
    pub fn admits(&self, outcome: &Outcome) -> bool {
        let mut enforced = self.checks.iter().filter(|check| check.mode == Mode::Enforce);
        self.missing().is_none() && enforced.all(|check| !check.denies(outcome))
    }

    /// The refusal of an enforced limit with a missing key, or with several values, which takes precedence: the store
    /// need not be called.
    pub fn missing(&self) -> Option<Refusal<'a>> {
        let cause = |check: &LimitCheck<'_>| match check.applicability {
            _ if check.mode == Mode::Shadow => None,
            Applicability::Unreadable(fault) => Some((0, RefusalCause::Unreadable(fault))),
            Applicability::Repeated => Some((1, RefusalCause::Repeated)),
            Applicability::Missing => Some((2, RefusalCause::Missing)),
            _ => None,
        };
        let refused = self.checks.iter().filter_map(|check| Some((check, cause(check)?)));
        let (check, (_, why)) = refused.min_by_key(|(_, (rank, _))| *rank)?;
        Some(Refusal {
            limit: check.limit,
            wait: None,
            jitter: Micros(0),
            violated: check.policies().iter().map(|policy| &*policy.name).collect(),
            why,
        })
    }

    /// The refusal of a client that is banned by one of the limits, by hand also by shadow ones, and that limit's index
    /// on the route; of several bans the one that lasts longest. A limit with an exemption or without a charge does not
    /// ban. The store need not be called.
    #[cold]
    #[inline(never)]
    pub fn banned(&self, bans: &Bans, now: Timestamp) -> Option<BanRefusal<'a>> {
        self.refused_by(
            |check, key_hash| check.limit.refusing_ban(bans, key_hash, check.by_hand_only(), now),
            now,
        )
    }

    /// The refusal for a ban that the store has told of, and that this process does not know any more: its table was
    /// full, or the ban has ended or was lifted meanwhile. Nothing was decided, so the request is not admitted.
    #[cold]
    pub fn banned_until_known(&self, now: Timestamp) -> Option<BanRefusal<'a>> {
        let ban = ActiveBan { until: now.plus(Micros::SECOND), cause: BanCause::Refusals };
        let is_enforced = |check: &LimitCheck<'_>| check.mode == Mode::Enforce;
        let begins_bans = |check: &LimitCheck<'_>| check.limit.ban.is_some() && is_enforced(check);
        // A ban by hand may be of any limit.
        self.refused_by(|check, _| begins_bans(check).then_some(ban), now)
            .or_else(|| self.refused_by(|check, _| is_enforced(check).then_some(ban), now))
    }

    /// The refusal of the ban that lasts longest.
    fn refused_by(
        &self,
        find: impl Fn(&LimitCheck<'a>, Fingerprint) -> Option<ActiveBan>,
        now: Timestamp,
    ) -> Option<BanRefusal<'a>> {
        let ban = |(index, check): (usize, &LimitCheck<'a>)| {
            let Applicability::Charged(cost, _) = check.applicability else { return None };
            Some((find(check, self.key_hash(check)?)?, index, *check, cost))
        };
        let all = self.checks.iter().enumerate().rev().filter_map(ban);
        let (ActiveBan { until, cause }, index, check, cost) = all.max_by_key(|(ban, ..)| ban.until)?;
        let (limit, policy) = (check.limit, check.policies().first()?);
        let rest = until.since(now);
        let decision =
            Decision { verdict: Verdict::Deny(Wait::After(rest)), remaining: 0, reset_after: rest };
        let violated = check.policies().iter().map(|policy| &*policy.name).collect();
        let refusal = Refusal {
            limit,
            wait: Some(rest),
            jitter: Micros(0),
            violated,
            why: RefusalCause::Banned { until, rest, cause },
        };
        Some(BanRefusal {
            index,
            refusal,
            tightest: BindingLimit { policy, limit, decision, cost, asked: true, call: check.call },
        })
    }

    /// The key that a limit of this request charges; `None` if the limit charges none.
    pub fn key_hash(&self, check: &LimitCheck<'_>) -> Option<Fingerprint> {
        let Applicability::Charged(_, first) = check.applicability else { return None };
        self.charges.get(first).map(Charge::key_hash)
    }

    /// The first limit that was decided without the store; if the request is refused for that, one that requires it.
    pub fn decided_locally(&self, outcome: &Outcome) -> Option<&'a Limit> {
        let is_it = |check: &&LimitCheck<'a>| {
            check.indices().any(|index| outcome.decided_locally.contains(index))
                && (!outcome.unavailable
                    || check.limit.on_error == OnError::Deny
                    || check.limit.lease().is_some())
        };
        self.checks.iter().find(is_it).map(|check| check.limit)
    }

    /// The numbers of every enforced policy that was charged, in the order of the route's limits: those that have admitted
    /// the request earlier first, unless a limit refuses now.
    pub fn reported(&self, outcome: &Outcome, admitted: bool) -> Vec<BindingLimit<'a>> {
        let mut reported =
            if admitted { self.before.clone() } else { Vec::with_capacity(self.charges.len()) };
        for check in self.checks.iter().filter(|check| check.mode == Mode::Enforce) {
            let Applicability::Charged(cost, first) = check.applicability else { continue };
            let policies = (first..).zip(check.policies());
            reported
                .extend(policies.filter_map(|(index, policy)| check.reported(outcome, index, policy, cost)));
        }
        reported
    }

    #[cold]
    fn tightest_with_earlier(&self, now: Option<BindingLimit<'a>>) -> Option<BindingLimit<'a>> {
        let all = self.before.iter().copied().chain(now);
        all.reduce(|one, other| if other.is_tighter_than(&one) { other } else { one })
    }

    /// The admission that follows from the store's outcome.
    #[inline]
    pub fn decide(&self, outcome: &Outcome) -> Admission<'a> {
        let mut tightest: Option<BindingLimit<'a>> = None;
        let mut refused: SmallVec<[(Wait, BindingLimit<'a>); 2]> = SmallVec::new();
        let mut delay = Micros(0);
        for check in self.checks.iter().filter(|check| check.mode == Mode::Enforce) {
            let Applicability::Charged(cost, first) = check.applicability else { continue };
            for (index, policy) in (first..).zip(check.policies()) {
                let Some(this) = check.reported(outcome, index, policy, cost) else { continue };
                match this.decision.verdict {
                    Verdict::Allow => {}
                    Verdict::Delay(span) => delay = delay.max(span),
                    Verdict::Deny(wait) => refused.push((wait, this)),
                }
                // A concurrency limit is binding only when it refuses.
                if policy.algorithm.as_concurrency().is_none()
                    && tightest.as_ref().is_none_or(|tightest| this.is_tighter_than(tightest))
                {
                    tightest = Some(this);
                }
            }
        }
        // Stable: of equal waits the first limit on the route leads.
        refused.sort_by_key(|&(wait, _)| std::cmp::Reverse(wait));
        match refused.first() {
            None => {
                let tightest =
                    if self.before.is_empty() { tightest } else { self.tightest_with_earlier(tightest) };
                Admission { decision: AdmissionDecision::Admit(delay), tightest }
            }
            Some(&(wait, longest)) => {
                let violated = refused.iter().map(|(_, one)| &*one.policy.name).collect();
                let over = RefusalCause::Over { cost: longest.cost, left: longest.decision.remaining };
                let (wait, why) = match wait {
                    Wait::After(span) => {
                        (Some(span), self.over_share(longest.limit, outcome).unwrap_or(over))
                    }
                    Wait::Never => (None, over),
                    Wait::Unknown => self.without_place(longest.limit, outcome),
                };
                let refusal = Refusal { limit: longest.limit, wait, jitter: Micros(0), violated, why };
                Admission { decision: AdmissionDecision::Refuse(refusal), tightest: Some(longest) }
            }
        }
    }
}

/// The charges that those of a limit are decided with. `place`: the limit's, among those of the request.
fn group_of(mode: Mode, place: u8) -> Group {
    match mode {
        Mode::Enforce => Group::Enforced,
        Mode::Shadow => Group::Shadow(place),
    }
}

/// An index among the limits or charges of a request: `config` allows far fewer than 256 of each.
pub(in crate::plan) fn small(index: usize) -> u8 {
    u8::try_from(index).unwrap_or(u8::MAX)
}

/// The charges of a request with this owner: one per policy.
pub fn charges<'p>(
    policies: impl IntoIterator<Item = &'p Policy>,
    key_hash: Fingerprint,
    cost: Cost,
    group: Group,
) -> impl Iterator<Item = Charge<'p>> {
    policies.into_iter().map(move |policy| Charge {
        algorithm: &policy.algorithm,
        params: policy.params,
        key: key_hash.of_policy(policy.shared_key.identity),
        cost,
        group,
        shared_key: &policy.shared_key,
    })
}

impl<'a> LimitCheck<'a> {
    /// The policies for this request: those of its consumer's tier, or else of the limit.
    #[inline]
    pub fn policies(&self) -> &'a [Policy] {
        match self.overriding {
            Some(policies) => policies,
            None => self.limit.policies_of(self.tier),
        }
    }

    /// Whether the consumer's tier has no limit.
    #[inline]
    fn is_unlimited(&self) -> bool {
        self.overriding.is_none() && self.limit.policies_of(self.tier).is_empty()
    }

    /// Whether automatic bans neither begin for the key nor refuse it.
    pub fn by_hand_only(&self) -> bool {
        self.mode == Mode::Shadow || self.shares_address
    }

    /// What it is charged, if it is.
    pub fn cost(&self) -> Option<Cost> {
        if let Applicability::Charged(cost, _) = self.applicability { Some(cost) } else { None }
    }

    /// The indices of this limit's charges; none if it was not charged.
    pub fn indices(&self) -> Range<usize> {
        match self.applicability {
            Applicability::Charged(_, first) => first..first + self.policies().len(),
            _ => 0..0,
        }
    }

    /// The numbers of the policy with the charge at `index`; `None` if there is no decision on it.
    #[inline]
    fn reported(
        &self,
        outcome: &Outcome,
        index: usize,
        policy: &'a Policy,
        cost: Cost,
    ) -> Option<BindingLimit<'a>> {
        let decision = *outcome.decisions.get(index)?;
        let asked = !outcome.decided_locally.contains(index);
        // The store was not asked and the limit lets the request pass, so nothing was decided.
        let is_decided = asked || self.limit.on_error != OnError::Allow;
        let (limit, call) = (self.limit, self.call);
        is_decided.then_some(BindingLimit { policy, limit, decision, cost, asked, call })
    }

    /// Whether one of its policies refuses the request.
    pub fn denies(&self, outcome: &Outcome) -> bool {
        self.decisions(outcome).iter().any(Decision::denies)
    }

    /// The decisions on this limit's charges; empty if it was not charged or the store was not called.
    pub fn decisions<'o>(&self, outcome: &'o Outcome) -> &'o [Decision] {
        outcome.decisions.get(self.indices()).unwrap_or_default()
    }
}
