//! The descriptors of a call: the answer's numbers of each.

use super::call::RuledCall;
use crate::limit::calendar::CalendarUnit;
use crate::limit::units::{Cost, Micros, Rate, Timestamp};
use crate::limit::{Algorithm, Decision, Verdict, Wait};
use crate::plan::admission::LimitCheck;
use crate::plan::decision::{CalledDescriptor, DescriptorUse, Overriding, Ruling};
use crate::plan::descriptors::DescriptorRule;
use crate::plan::{Mode, Policy};
use crate::proxy::worker::WorkerPlan;
use crate::rate_limit_service::{
    CurrentLimit, DescriptorStatus, Duration, HeaderValue, RateLimitCode, RateLimitDescriptor,
    RateLimitOverride, RateLimitRequest, seconds_of, unit_of,
};
use crate::route::descriptor::DescriptorEntry;

/// The descriptors of a message.
pub(super) fn called(
    plan: &WorkerPlan,
    message: RateLimitRequest,
    now: Timestamp,
) -> Vec<CalledDescriptor<'_>> {
    let hits = u64::from(message.hits_addend.max(1));
    let domain = message.domain;
    let one = |descriptor: RateLimitDescriptor| {
        let entries = descriptor.entries.into_iter();
        let entries = entries.map(|entry| DescriptorEntry { name: entry.key, value: entry.value }).collect();
        let own = descriptor.hits_addend.map(|own| own.value);
        let mut called = CalledDescriptor::new(plan, &domain, entries, (own, hits));
        if let (Some(rule), Some(limit)) = (called.rule, descriptor.limit)
            && rule.overrides
        {
            called.overriding = overriding(plan, rule, limit, now);
        }
        called
    };
    message.descriptors.into_iter().map(one).collect()
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
    Some(Overriding { policy, passes: limit.requests_per_unit > 0 })
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
                // An override by zero is charged to a counter of one unit, which it does not fit.
                let passes = descriptor.overriding.as_ref().is_none_or(|overriding| overriding.passes);
                let shown = |count: u32| if passes { count } else { 0 };
                let mut current_limit = current_limit(policy, now);
                if let Some(limit) = &mut current_limit {
                    limit.requests_per_unit = shown(limit.requests_per_unit);
                }
                DescriptorStatus {
                    code: if decision.denies() { over.code } else { ok.code },
                    current_limit,
                    limit_remaining: shown(u32::try_from(decision.remaining).unwrap_or(u32::MAX)),
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
