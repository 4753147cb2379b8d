//! `GET limits/{limit}/keys`: the keys with the most requests.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::values::moment;
use super::{ApiError, Query, key_id, limit_named, override_report};
use crate::admin_api::keys::{KeyList, KeyOrder, KeyReport, ShareReport};
use crate::admin_api::operations::TOP_KEYS;
use crate::limit::units::Fingerprint;
use crate::plan::{KeyBan, Limit, Plan};
use crate::route::key::LABEL_END;
use crate::shared::Shared;
use crate::shared::worker_commands::{LimitKeys, WorkerCommand};
use crate::store::overrides::KeyOfLimit;
use crate::telemetry::history::seconds;
use crate::telemetry::key_stats::generations_begin;
use crate::telemetry::top_keys::{FOLLOWED, Ranking, Sketch, TopKey};

pub(super) async fn get(shared: &Shared, segment: &str, query: Query<'_>) -> Result<KeyList, ApiError> {
    let plan = shared.plan.load_full();
    let limit = plan.limit(limit_named(&plan, segment)?);
    let (top, by) = (query.top(TOP_KEYS)?, by(query)?);
    let ranking = ranking(shared, limit, LimitKeys::Counted).await;
    let bans = bans(shared, limit);
    let mut top_keys = ranking.top(top, by);
    // A banned key is listed however few requests it has.
    let rest = bans.keys().filter(|key_hash| top_keys.iter().all(|top_key| top_key.key_hash != **key_hash));
    let rest: Vec<Fingerprint> = rest.copied().take(TOP_KEYS.most).collect();
    top_keys.extend(rest.iter().filter_map(|key_hash| ranking.top_key(*key_hash)));
    let names =
        labels(shared, limit, LimitKeys::Counted, top_keys.iter().map(|top_key| top_key.key_hash).collect())
            .await;
    let silent = rest.into_iter().filter(|key_hash| ranking.top_key(*key_hash).is_none());
    let silent =
        silent.map(|key_hash| silent_key(key_hash, shared.store.bans().label(limit.banned(key_hash))));
    let mut keys: Vec<KeyReport> =
        top_keys.iter().map(|top_key| one(limit, top_key, &names)).chain(silent).collect();
    for (key_hash, ban) in &bans {
        let id = key_id(*key_hash);
        for key in keys.iter_mut().filter(|key| key.id == id) {
            key.banned_until = Some(moment(ban.ban.until));
            key.ban_in_shadow = Some(ban.in_shadow);
        }
    }
    put_tiers(&plan, limit, &mut keys);
    put_overrides(shared, limit, &mut keys);
    let total = ranking.total;
    Ok(KeyList {
        limit: limit.name.to_string(),
        mode: limit.mode.as_str().to_owned(),
        span: span(shared),
        requests: total.admitted + total.refused,
        admitted: total.admitted,
        refused: total.refused,
        error: ranking.error,
        followed: FOLLOWED,
        keys,
        shares: shares(shared, limit, top).await,
    })
}

/// The keys of `share_by` with the most requests.
pub(super) async fn shares(shared: &Shared, limit: &Limit, top: usize) -> Vec<ShareReport> {
    if limit.share_by.is_none() {
        return Vec::new();
    }
    let ranking = ranking(shared, limit, LimitKeys::Shares).await;
    let top_keys = ranking.top(top, KeyOrder::Requests);
    let key_hashes = top_keys.iter().map(|top_key| top_key.key_hash).collect();
    let names = labels(shared, limit, LimitKeys::Shares, key_hashes).await;
    let part = |some: u64, all: u64| if all == 0 { 0.0 } else { some.min(all) as f64 / all as f64 };
    let total = ranking.total;
    let share = |top_key: &TopKey| ShareReport {
        key: names.get(&top_key.key_hash).map(|label| values(label)),
        requests: top_key.requests,
        admitted: top_key.admitted,
        refused: top_key.refused,
        demand: part(top_key.requests, total.admitted + total.refused),
        share: part(top_key.admitted, total.admitted),
    };
    top_keys.iter().map(share).collect()
}

fn by(query: Query<'_>) -> Result<KeyOrder, ApiError> {
    let Some(by) = query.text("by") else { return Ok(KeyOrder::default()) };
    let known = KeyOrder::ALL.into_iter().find(|order| order.as_str() == by);
    known.ok_or_else(|| ApiError::bad("`by` is `refused`, `admitted`, `requests` or `units`"))
}

/// Seconds that the counts cover.
fn span(shared: &Shared) -> u64 {
    let now = shared.clock.now();
    seconds(now).saturating_sub(generations_begin(now).max(seconds(shared.control.started)))
}

/// The key statistics of all workers.
async fn ranking(shared: &Shared, limit: &Limit, keys: LimitKeys) -> Ranking {
    let command = |reply| WorkerCommand::Talkers(Arc::clone(&limit.name), keys, reply);
    let sketches: Vec<Sketch> = shared.worker_commands.ask_all(command).await.into_iter().flatten().collect();
    Ranking::of(&sketches)
}

/// The texts of these keys.
pub(super) async fn labels(
    shared: &Shared,
    limit: &Limit,
    keys: LimitKeys,
    key_hashes: Arc<[Fingerprint]>,
) -> HashMap<Fingerprint, String> {
    let command =
        |reply| WorkerCommand::Labels(Arc::clone(&limit.name), keys, Arc::clone(&key_hashes), reply);
    shared.worker_commands.ask_all(command).await.into_iter().flatten().collect()
}

/// One key, if it is tracked: its text, and its requests.
pub(super) async fn followed(
    shared: &Shared,
    limit: &Limit,
    key_hash: Fingerprint,
) -> Option<(Vec<String>, TopKey)> {
    let top_key = ranking(shared, limit, LimitKeys::Counted).await.top_key(key_hash)?;
    let labels = labels(shared, limit, LimitKeys::Counted, Arc::new([key_hash])).await;
    Some((values(labels.get(&key_hash)?), top_key))
}

fn one(limit: &Limit, top_key: &TopKey, names: &HashMap<Fingerprint, String>) -> KeyReport {
    KeyReport {
        id: key_id(top_key.key_hash),
        key: names.get(&top_key.key_hash).map(|label| values(label)),
        requests: top_key.requests,
        admitted: top_key.admitted,
        refused: top_key.refused,
        units: limit.settles().then_some(top_key.units),
        last: Some(moment(top_key.last)),
        ..KeyReport::default()
    }
}

/// Adds the tier of each key's consumer: its name, or `null`.
fn put_tiers(plan: &Plan, limit: &Limit, keys: &mut [KeyReport]) {
    let value = |key: &KeyReport| limit.tier_value(key.key.as_ref()?).cloned();
    let values: HashSet<String> = keys.iter().filter_map(value).collect();
    let has_names = !values.is_empty() && limit.mapped_tier.is_none();
    let tiers = if has_names { plan.tiers_of(&values) } else { HashMap::new() };
    for key in keys {
        let tier = value(key).and_then(|value| limit.tier_of_value(&value, |name| tiers.get(name).copied()));
        key.tier = limit.tier_name(tier).map(str::to_owned);
    }
}

/// Adds the overrides of keys.
fn put_overrides(shared: &Shared, limit: &Limit, keys: &mut [KeyReport]) {
    if shared.store.overrides().is_empty() {
        return;
    }
    for key in keys {
        let key_hash = super::key_hash(key.id.trim_start_matches("id:"));
        let of = |key_hash| override_report::of(limit, KeyOfLimit::new(limit.identity, key_hash), shared);
        key.overridden = key_hash.ok().and_then(of);
    }
}

/// A key that is banned and not tracked.
fn silent_key(key_hash: Fingerprint, label: Option<Arc<str>>) -> KeyReport {
    KeyReport { id: key_id(key_hash), key: label.map(|label| values(&label)), ..KeyReport::default() }
}

/// The banned keys, each with the ban that refuses it, if there is one, and ends last.
fn bans(shared: &Shared, limit: &Limit) -> HashMap<Fingerprint, KeyBan> {
    let mut bans = limit.bans(shared.store.bans(), shared.clock.now());
    bans.sort_unstable_by_key(|one| (!one.in_shadow, one.ban.until));
    // Of one key, the last stays.
    bans.into_iter().map(|one| (one.key_hash, one)).collect()
}

/// The values of the key's parts. A part with the same value for all clients has none.
pub(super) fn values(label: &str) -> Vec<String> {
    label.split_terminator(LABEL_END).map(str::to_owned).collect()
}
