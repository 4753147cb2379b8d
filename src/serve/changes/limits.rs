//! What a reload changed about a limit.

use std::sync::Arc;
use std::time::Duration;

use super::{Subject, plain};
use crate::limit::display::ShortDisplay;
use crate::limit::lease::Lease;
use crate::plan::{Limit, Policy};
use crate::route::key::Key;

/// Names the rates whose counters start afresh: those that no counter of the limit had, and those whose calendar is
/// another one, so that states are not converted.
fn fresh_counters(subject: &mut Subject<'_>, last: &Limit, next: &Limit) {
    let is_kept = |policy: &Policy| {
        last.all_policies().any(|before| {
            let (one, other) = (&before.algorithm, &policy.algorithm);
            before.shared_key.identity == policy.shared_key.identity && one.calendar() == other.calendar()
        })
    };
    for policy in next.policies.iter().filter(|policy| !is_kept(policy)) {
        let rate = rates(std::slice::from_ref(policy)).0;
        subject.line(&format!("counters of rate {rate} start afresh"));
    }
}

pub(super) fn limit(subject: &mut Subject<'_>, last: &Limit, next: &Limit) {
    let algorithm = |limit: &Limit| limit.policies.first().map_or("", |policy| policy.algorithm.name());
    subject.shown("algorithm", algorithm(last), algorithm(next));
    policies(subject, "", &last.policies, &next.policies);
    // Counters of another algorithm or key are all new.
    if last.identity == next.identity {
        fresh_counters(subject, last, next);
    }
    for tier in &last.tiers {
        let name = plain(&tier.name);
        match next.tier(Some(&tier.name)) {
            Some(index) => {
                policies(subject, &format!("tier {name} "), &tier.policies, next.policies_of(Some(index)));
                subject.written(&format!("tier {name} weight"), tier.weight, next.weight(Some(index)));
            }
            None => subject.line(&format!("tier {name} removed")),
        }
    }
    for tier in next.tiers.iter().filter(|tier| last.tier(Some(&tier.name)).is_none()) {
        let rates = rates(&tier.policies).0;
        let noun = if rates.starts_with("max ") || tier.policies.is_empty() { "" } else { "rate " };
        subject.line(&format!("tier {} added: {noun}{rates}", plain(&tier.name)));
    }
    let mapped = |limit: &Limit| {
        let mapped = limit.mapped_tier.as_ref();
        mapped.map_or_else(String::new, |mapped| format!("map:{}({})", mapped.name, mapped.part))
    };
    subject.shown("tier", mapped(last), mapped(next));
    let map = |limit: &Limit| limit.mapped_tier.as_ref().map(|mapped| Arc::clone(&mapped.map));
    subject.hidden("map of tiers", &map(last), &map(next));
    let ban = |limit: &Limit| limit.ban.as_ref().map_or_else(String::new, |ban| ban.algorithm.to_string());
    subject.shown("ban", ban(last), ban(next));
    subject.shown("key", &last.key, &next.key);
    let share_by = |limit: &Limit| limit.share_by.as_ref().map_or_else(String::new, Key::to_string);
    subject.shown("share_by", share_by(last), share_by(next));
    subject.written("missing", last.key.missing, next.key.missing);
    subject.hidden("repeated", &last.key.repeated, &next.key.repeated);
    subject.hidden("unreadable", &last.key.unreadable_is_missing, &next.key.unreadable_is_missing);
    let fold = |limit: &Limit| if limit.key.folds_case { "lower" } else { "" };
    subject.shown("fold", fold(last), fold(next));
    subject.written("mode", last.mode, next.mode);
    let share = |limit: &Limit| limit.trial.map_or_else(String::new, |trial| trial.percent());
    subject.shown("trial", share(last), share(next));
    let jitter = |limit: &Limit| {
        limit.retry_jitter.map_or_else(String::new, |most| format!("{:?}", Duration::from_micros(most.0)))
    };
    subject.shown("retry_jitter", jitter(last), jitter(next));
    let share = |limit: &Limit| limit.max_keys.map_or_else(String::new, |most| most.to_string());
    subject.shown("max_keys", share(last), share(next));
    let keeps = |limit: &Limit| limit.usage.is_some();
    subject.shown("usage", keeps(last), keeps(next));
    if let (Some(last), Some(next)) = (&last.usage, &next.usage) {
        subject.shown("keep_windows", last.keep_windows(), next.keep_windows());
    }
    subject.written("on_error", last.on_error, next.on_error);
    let lease = |limit: &Limit| {
        let span = |lease: &Lease| format!("{:?}", Duration::from_micros(lease.duration().0));
        limit.lease().map_or_else(String::new, span)
    };
    subject.shown("lease", lease(last), lease(next));
    if !last.exempt.iter().eq(next.exempt.iter()) {
        subject.line("exempt changed");
    }
    subject.hidden("reject", &last.reject, &next.reject);
    subject.shown("before_auth", last.before_auth, next.before_auth);
    subject.shown("reveal", last.reveal, next.reveal);
}

/// `rate 100/h → 200/h` or `max 5 → 10`, and the same of the burst or the queue.
fn policies(subject: &mut Subject<'_>, of: &str, last: &[Policy], next: &[Policy]) {
    let lines = subject.lines.len();
    numbers(subject, of, last, next);
    let mut pairs = last.iter().zip(next).map(|(last, next)| (last.algorithm, next.algorithm));
    let differs = pairs.any(|(last, next)| last.name() == next.name() && last != next);
    // `max_wait`, `spacing` and `count_denied` stand in neither.
    if differs && subject.lines.len() == lines {
        let words = |policies: &[Policy]| {
            policies.iter().map(|policy| policy.algorithm.to_string()).collect::<Vec<_>>().join("; and ")
        };
        let (last, next) = (words(last), words(next));
        match last == next {
            true => subject.line(&format!("{of}parameters changed")),
            false => subject.shown(&format!("{of}numbers"), last, next),
        }
    }
}

/// The rates, and the burst or the queue.
fn numbers(subject: &mut Subject<'_>, of: &str, last: &[Policy], next: &[Policy]) {
    let ((rate, more), (next_rate, next_more)) = (rates(last), rates(next));
    match (rate.strip_prefix("max "), next_rate.strip_prefix("max ")) {
        (Some(max), Some(next_max)) => subject.shown(&format!("{of}max"), max, next_max),
        _ => subject.shown(&format!("{of}rate"), rate, next_rate),
    }
    match (more.split_once(' '), next_more.split_once(' ')) {
        (Some((word, count)), Some((next_word, next_count))) if word == next_word => {
            subject.shown(&format!("{of}{word}"), count, next_count);
        }
        // A concurrency limit without a queue names none.
        (Some(("queue", count)), None) => subject.shown(&format!("{of}queue"), count, "0"),
        (None, Some(("queue", count))) => subject.shown(&format!("{of}queue"), "0", count),
        _ => {}
    }
}

/// The rates of policies, and their burst or queue: `100/h` and `burst 50`, or `max 5` and `queue 10`. Where these differ,
/// they stand in the order of the rates.
fn rates(policies: &[Policy]) -> (String, String) {
    if policies.is_empty() {
        return ("unlimited".to_owned(), String::new());
    }
    let short: Vec<_> = policies.iter().map(|policy| ShortDisplay(&policy.algorithm).to_string()).collect();
    let (rates, mut more): (Vec<_>, Vec<_>) =
        short.iter().map(|text| text.split_once(", ").unwrap_or((text.as_str(), ""))).unzip();
    if more.iter().all(|one| Some(one) == more.first()) || more.contains(&"") {
        more.truncate(1);
    }
    // The word stands once.
    more.iter_mut().skip(1).for_each(|more| *more = more.split_once(' ').map_or(*more, |(_, count)| count));
    (rates.join(", "), more.join(", "))
}
