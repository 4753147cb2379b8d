//! The descriptors of a call: what each of them charges, and its numbers in the answer.

use std::rc::Rc;

use super::call::RuledCall;
use crate::limit::calendar::CalendarUnit;
use crate::limit::units::{Cost, Micros, Rate, Timestamp};
use crate::limit::{Algorithm, Decision, Verdict, Wait};
use crate::plan::admission::LimitCheck;
use crate::plan::decision::{CallCharges, CallItem, Ruling};
use crate::plan::descriptors::DescriptorRule;
use crate::plan::{Mode, Plan, Policy};
use crate::proxy::worker::WorkerPlan;
use crate::rate_limit_service::{
    CurrentLimit, DescriptorStatus, Duration, HeaderValue, RateLimitCode, RateLimitDescriptor,
    RateLimitOverride, RateLimitRequest, seconds_of, unit_of,
};
use crate::route::RouteRequest;
use crate::route::content::RequestContent;
use crate::route::descriptor::{DescriptorEntry, write_entries};
use crate::route::key::KeySecret;
use crate::route::mask::{Masking, ShortIds};

/// A descriptor of a call.
pub(super) struct CalledDescriptor<'p> {
    /// Its entries, as keys see them.
    pub(super) content: RequestContent,
    /// `None`: no rule is for it, so that no limit applies.
    pub(super) rule: Option<&'p DescriptorRule>,
    pub(super) usage: DescriptorUse,
    /// The numbers that it brings, in place of those of its limit.
    overriding: Overriding,
}

/// Whether a descriptor brings numbers of its own.
enum Overriding {
    /// It does not, or its rule takes none.
    No,
    /// A policy with these numbers.
    By(Rc<Policy>),
    /// A policy of the least numbers, and none of them is to pass: it says 0.
    Nothing(Rc<Policy>),
}

/// What a descriptor does to its limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DescriptorUse {
    /// They are charged these hits.
    Charged(u64),
    /// They are asked, and not charged.
    Asked,
    /// They are charged, whether they admit it or not.
    Reported(u64),
}

/// The charges of a call, by what its descriptors do.
#[derive(Default)]
pub(super) struct DescriptorCharges<'p> {
    pub(super) charged: CallCharges<'p>,
    pub(super) asked: CallCharges<'p>,
    pub(super) reported: CallCharges<'p>,
}

impl<'p> CalledDescriptor<'p> {
    /// The descriptors of a message.
    pub(super) fn of(plan: &'p WorkerPlan, message: RateLimitRequest, now: Timestamp) -> Vec<Self> {
        let hits = u64::from(message.hits_addend.max(1));
        let domain = message.domain;
        let one = |descriptor: RateLimitDescriptor| {
            let entries = descriptor.entries.into_iter();
            let entries: Vec<_> =
                entries.map(|entry| DescriptorEntry { name: entry.key, value: entry.value }).collect();
            let rule = plan.descriptors.find(&domain, &entries);
            let own = descriptor.hits_addend.map(|own| own.value);
            let usage = match (own, rule.is_some_and(|rule| rule.report)) {
                (own, true) => DescriptorUse::Reported(own.unwrap_or(hits)),
                (Some(0), false) => DescriptorUse::Asked,
                (own, false) => DescriptorUse::Charged(own.unwrap_or(hits)),
            };
            let limit = descriptor.limit.filter(|_| rule.is_some_and(|rule| rule.overrides));
            let overriding = rule.zip(limit).and_then(|(rule, limit)| overriding(plan, rule, limit, now));
            let overriding = overriding.unwrap_or(Overriding::No);
            Self { content: RequestContent::Descriptor(entries), rule, usage, overriding }
        };
        message.descriptors.into_iter().map(one).collect()
    }

    /// The policy with the numbers that it brings.
    fn policy(&self) -> Option<&Policy> {
        match &self.overriding {
            Overriding::No => None,
            Overriding::By(policy) | Overriding::Nothing(policy) => Some(policy),
        }
    }

    /// Its entries.
    fn entries(&self) -> &[DescriptorEntry] {
        if let RequestContent::Descriptor(entries) = &self.content { entries } else { &[] }
    }
}

impl<'p> DescriptorCharges<'p> {
    /// The charges of these descriptors. `call` is the call itself, of which keys see nothing else.
    pub(super) fn of(
        plan: &'p Plan,
        descriptors: &'p [CalledDescriptor<'p>],
        call: RouteRequest<'_>,
        secret: &KeySecret,
    ) -> Self {
        let mut all = Self::default();
        for (item, descriptor) in descriptors.iter().enumerate() {
            let Some(rule) = descriptor.rule else { continue };
            let (charges, hits) = match descriptor.usage {
                DescriptorUse::Charged(hits) => (&mut all.charged, hits),
                DescriptorUse::Asked => (&mut all.asked, 1),
                DescriptorUse::Reported(0) => continue,
                DescriptorUse::Reported(hits) => (&mut all.reported, hits),
            };
            let request = RouteRequest { content: &descriptor.content, ..call };
            let cost = match (&descriptor.overriding, descriptor.usage) {
                (Overriding::Nothing(_), DescriptorUse::Charged(_) | DescriptorUse::Asked) => {
                    units(rule.cost, u64::MAX)
                }
                _ => units(rule.cost, hits),
            };
            let matched = plan.route(rule.route).matched(&request);
            let overriding = descriptor.policy();
            charges.add(CallItem { plan, item, route: rule.route, cost, overriding }, matched, secret);
        }
        all
    }

    /// The greatest number of charges that are decided at once.
    pub(super) fn most(&self) -> usize {
        let all = [&self.charged, &self.asked, &self.reported];
        all.into_iter().map(|charges| charges.charges.charges.len()).max().unwrap_or_default()
    }
}

/// The numbers of a descriptor in place of those of its rule's limit. A period that is not known overrides nothing.
fn overriding(
    plan: &WorkerPlan,
    rule: &DescriptorRule,
    limit: RateLimitOverride,
    now: Timestamp,
) -> Option<Overriding> {
    let [limit_use] = &*plan.route(rule.route).limits else { return None };
    let own = &plan.limit(limit_use.limit).policies.first()?.algorithm;
    let period = match seconds_of(limit.unit) {
        _ if unit(own, now) == Some(limit.unit) => own.rate()?.period(),
        seconds => Micros(seconds? * Micros::SECOND.0),
    };
    let rate = Rate::new(limit.requests_per_unit.clamp(1, Cost::MAX), period)?;
    let policy = plan.overriding.borrow_mut().get(plan, limit_use.limit, rate, &plan.counters)?;
    Some(if limit.requests_per_unit == 0 { Overriding::Nothing(policy) } else { Overriding::By(policy) })
}

/// Units of so many hits. More than a cost can be are the most that it can be.
fn units(cost: Cost, hits: u64) -> Cost {
    let units = u64::from(cost.units()).saturating_mul(hits).min(Cost::MAX.into());
    u32::try_from(units).ok().and_then(Cost::new).unwrap_or(cost)
}

/// The descriptors as text: in place of a path. `,` separates entries, `;` descriptors, and `*` begins the hits.
pub(super) fn shown(descriptors: &[CalledDescriptor<'_>], ids: &ShortIds) -> String {
    let mut text = String::from("/");
    for (index, descriptor) in descriptors.iter().enumerate() {
        if index > 0 {
            text.push(';');
        }
        let is_known = |entry: &DescriptorEntry| {
            let patterns = descriptor.rule.map(|rule| rule.entries.as_slice()).unwrap_or_default();
            patterns.iter().any(|pattern| {
                pattern.name.as_bytes() == entry.name
                    && pattern.value.as_deref().is_some_and(|value| value.as_bytes() == entry.value)
            })
        };
        write_entries(descriptor.entries(), is_known, Masking::Ids(ids), &mut text);
        match descriptor.usage {
            DescriptorUse::Charged(1) | DescriptorUse::Reported(1) => {}
            DescriptorUse::Charged(hits) | DescriptorUse::Reported(hits) => {
                text.push_str(&format!("*{hits}"))
            }
            DescriptorUse::Asked => text.push_str("*0"),
        }
    }
    text
}

/// The numbers of the descriptor at this index.
pub(super) fn status(
    item: usize,
    descriptor: &CalledDescriptor<'_>,
    ruled: &RuledCall<'_>,
    now: Timestamp,
) -> DescriptorStatus {
    let ok = DescriptorStatus { code: RateLimitCode::Ok.into(), ..DescriptorStatus::default() };
    if descriptor.rule.is_none() || matches!(descriptor.usage, DescriptorUse::Reported(_)) {
        return ok;
    }
    let over = DescriptorStatus { code: RateLimitCode::OverLimit.into(), ..ok.clone() };
    match &ruled.ruling {
        Ruling::Unavailable | Ruling::Unkeyed(_) => over,
        Ruling::Banned { ban, .. } => match ruled.check(ban.index) {
            Some((owner, _)) if owner.item == item => {
                DescriptorStatus { duration_until_reset: ban.refusal.wait.map(duration), ..over }
            }
            _ => ok,
        },
        Ruling::Decided(_) => match tightest(item, ruled) {
            None => ok,
            Some((policy, decision)) => {
                let wait = match decision.verdict {
                    Verdict::Deny(Wait::After(wait)) => wait,
                    _ => decision.reset_after,
                };
                DescriptorStatus {
                    code: if decision.denies() { over.code } else { ok.code },
                    current_limit: current_limit(policy, now),
                    limit_remaining: u32::try_from(decision.remaining).unwrap_or(u32::MAX),
                    duration_until_reset: Some(duration(wait)),
                }
            }
        },
    }
}

/// The policy that refuses the descriptor, the longest wait first; or else the one with the least left.
fn tightest<'r>(item: usize, ruled: &'r RuledCall<'_>) -> Option<(&'r Policy, Decision)> {
    let checks = ruled.charges.owners.iter().zip(&ruled.charges.charges.checks);
    let of_item = checks.filter(|(owner, check)| owner.item == item && check.mode == Mode::Enforce);
    let decisions = |check: &'r LimitCheck<'_>| check.policies().iter().zip(check.decisions(&ruled.outcome));
    let all = of_item.flat_map(|(_, check)| decisions(check)).map(|(policy, decision)| (policy, *decision));
    all.min_by_key(|(_, decision)| match decision.verdict {
        Verdict::Deny(wait) => (0, std::cmp::Reverse(Some(wait)), 0),
        _ => (1, std::cmp::Reverse(None), decision.remaining),
    })
}

/// The limit in Envoy's words, if its period is one of Envoy's units.
fn current_limit(policy: &Policy, now: Timestamp) -> Option<CurrentLimit> {
    let unit = unit(&policy.algorithm, now)?;
    let requests_per_unit = u32::try_from(policy.algorithm.quota()).ok()?;
    Some(CurrentLimit { requests_per_unit, unit, name: policy.name.to_string() })
}

/// Envoy's unit of an algorithm's window, if there is one.
fn unit(algorithm: &Algorithm, now: Timestamp) -> Option<i32> {
    match algorithm.calendar().map(|calendar| calendar.unit()) {
        Some(CalendarUnit::Day) => Some(4),
        Some(CalendarUnit::Week | CalendarUnit::WeekFromSunday) => Some(7),
        Some(CalendarUnit::Month(_)) => Some(5),
        Some(CalendarUnit::Year) => Some(6),
        None => {
            let window = algorithm.window_at(now);
            let is_whole = window.0.is_multiple_of(Micros::SECOND.0);
            unit_of(window.0 / Micros::SECOND.0).filter(|_| is_whole)
        }
    }
}

fn duration(span: Micros) -> Duration {
    let (seconds, rest) = (span.0 / Micros::SECOND.0, span.0 % Micros::SECOND.0);
    // Spans lie below 2^53.
    Duration {
        seconds: i64::try_from(seconds).unwrap_or(i64::MAX),
        nanos: i32::try_from(rest * 1_000).unwrap_or_default(),
    }
}

/// The lines of a head that Envoy adds to the response for its client. It has a date and a length of its own.
pub(super) fn fields_of(head: &[u8]) -> Vec<HeaderValue> {
    const OWN: [&str; 4] = ["connection", "content-length", "date", "x-request-id"];
    let text = String::from_utf8_lossy(head);
    let lines = text.split("\r\n").take_while(|line| !line.is_empty());
    let fields = lines.filter_map(|line| line.split_once(": "));
    fields
        .filter(|(name, _)| !OWN.contains(name))
        .map(|(name, value)| HeaderValue { key: name.to_owned(), value: value.to_owned() })
        .collect()
}
