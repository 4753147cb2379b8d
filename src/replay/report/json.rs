//! The result of a replay as JSON.

use std::cmp::Reverse;
use std::collections::HashMap;

use serde_json::{Value, json};

use super::LogSummary;
use crate::limit::units::{Micros, Timestamp};
use crate::limit::wall_clock;
use crate::plan::{LimitIndex, Plan};
use crate::replay::run::Replay;
use crate::replay::statistics::ReplayStatistics;
use crate::replay::statistics::clients::PERSON_RULE;
use crate::replay::statistics::keys::KeyRefusals;
use crate::telemetry::access_log::rfc3339;

/// The maximum number of refused keys of one limit, and of clients.
const MAX_LISTED: usize = 1_000;

/// The result. Its fields are described in `docs/replay.md`.
pub fn report(replay: &Replay<'_>, log: &LogSummary) -> Value {
    let sums = replay.statistics();
    let hit = sums.clients.hit();
    let clients = hit.iter().take(MAX_LISTED).map(|client| {
        json!({
            "client": client.address,
            "requests": client.requests,
            "refused": client.refused,
            "looks_like_a_person": client.looks_like_a_person,
        })
    });
    json!({
        "requests": sums.requests,
        "refused": sums.refused,
        "shadow_refused": sums.shadow_refused,
        "delayed": sums.delayed,
        "answered": sums.answered,
        "skipped": log.skipped,
        "lines": log.lines,
        "from": sums.span.map(|(first, _)| time(first)),
        "to": sums.span.map(|(_, last)| time(last)),
        "interrupted": log.interrupted,
        "clients": sums.clients.len(),
        "clients_refused": hit.len(),
        "clients_losing_most": hit.iter().filter(|client| client.loses_most()).count(),
        "limits": limits(sums),
        "routes": routes(sums),
        "refused_keys": refused_keys(sums),
        "refused_clients": clients.collect::<Vec<_>>(),
        "person_rule": PERSON_RULE,
        "against": against(replay),
        "log_decisions": own_decisions(sums, log),
        "problems": log.problems,
        "notes": log.notes,
    })
}

fn limits(sums: &ReplayStatistics<'_>) -> Vec<Value> {
    let all = sums.plan.limits.iter().zip(&sums.limits);
    let limit = all.map(|(limit, counts)| {
        let mean = counts.delay_sum.0.checked_div(counts.delayed).unwrap_or_default();
        json!({
            "name": &*limit.name,
            "mode": limit.mode.as_str(),
            "trial": limit.trial.as_ref().map(|trial| trial.share()),
            "requests": counts.requests,
            "refused": counts.refused,
            "delayed": counts.delayed,
            "delay_mean_ms": milliseconds(Micros(mean)),
            "delay_max_ms": milliseconds(counts.delay_max),
            "exempt": counts.exempt,
            "keys": counts.keys.len(),
            "keys_refused": counts.keys.refused(),
        })
    });
    limit.collect()
}

fn routes(sums: &ReplayStatistics<'_>) -> Vec<Value> {
    let all = sums.plan.routes.iter().zip(&sums.routes);
    let route = all.map(|(route, counts)| {
        json!({
            "name": &*route.name,
            "requests": counts.requests,
            "refused": counts.refused,
            "shadow_refused": counts.shadow_refused,
            "delayed": counts.delayed,
        })
    });
    route.collect()
}

fn refused_keys(sums: &ReplayStatistics<'_>) -> Vec<Value> {
    let mut keys = Vec::new();
    for (limit, counts) in sums.plan.limits.iter().zip(&sums.limits) {
        let hit = counts.keys.hit_hardest(MAX_LISTED).into_iter();
        keys.extend(hit.map(|(key, count)| (&*limit.name, key, count)));
    }
    keys.sort_by_key(|(.., count)| Reverse(count.refused));
    let key = |(limit, key, count): (&str, &str, KeyRefusals)| json!({ "limit": limit, "key": key, "refused": count.refused, "requests": count.requests });
    keys.into_iter().map(key).collect()
}

fn against(replay: &Replay<'_>) -> Value {
    let Some((baseline, comparison)) = replay.compared() else { return Value::Null };
    let limits = |plan: &Plan, counts: &HashMap<LimitIndex, u64>| {
        let of = |index| counts.get(&LimitIndex(index)).copied();
        let counted = plan.limits.iter().enumerate().filter_map(|(index, limit)| Some((limit, of(index)?)));
        counted
            .map(|(limit, requests)| json!({ "limit": &*limit.name, "requests": requests }))
            .collect::<Vec<_>>()
    };
    json!({
        "refused": baseline.refused,
        "newly_refused": comparison.newly_refused,
        "newly_admitted": comparison.newly_admitted,
        "newly_refused_by": limits(replay.statistics().plan, &comparison.refused_by),
        "newly_admitted_from": limits(baseline.plan, &comparison.admitted_from),
    })
}

fn own_decisions(sums: &ReplayStatistics<'_>, log: &LogSummary) -> Value {
    let own = &sums.own;
    if own.is_empty() {
        return Value::Null;
    }
    let first = own.first.iter().map(|difference| {
        json!({
            "file": log.files.get(difference.place.file as usize),
            "line": difference.place.line,
            "log": difference.logged,
            "replay": difference.replayed,
        })
    });
    json!({
        "same": own.same,
        "different": own.different,
        "not_comparable": own.not_comparable,
        "first_differences": first.collect::<Vec<_>>(),
    })
}

#[expect(clippy::cast_precision_loss, reason = "spans lie below 2^53")]
fn milliseconds(span: Micros) -> f64 {
    span.0 as f64 / 1_000.0
}

fn time(time: Timestamp) -> String {
    String::from_utf8_lossy(&rfc3339(wall_clock::system().wall_time(time))).into_owned()
}
