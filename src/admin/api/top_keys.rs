//! `GET limits/{limit}/keys`: the keys with the most requests.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::values::moment;
use super::{ApiError, Query, key_id, limit_named, override_report};
use crate::admin_api::keys::{KeyList, KeyOrder, KeyReport};
use crate::admin_api::operations::TOP_KEYS;
use crate::limit::units::Fingerprint;
use crate::plan::{KeyBan, Limit, Plan};
use crate::route::key::LABEL_END;
use crate::shared::Shared;
use crate::shared::worker_commands::WorkerCommand;
use crate::store::overrides::KeyOfLimit;
use crate::telemetry::history::seconds;
use crate::telemetry::key_stats::generations_begin;
use crate::telemetry::top_keys::{FOLLOWED, Ranking, Sketch, TopKey};

pub(super) async fn get(shared: &Shared, segment: &str, query: Query<'_>) -> Result<KeyList, ApiError> {
    let plan = shared.plan.load_full();
    let limit = plan.limit(limit_named(&plan, segment)?);
    let (top, by) = (query.top(TOP_KEYS)?, by(query)?);
    let ranking = ranking(shared, limit).await;
    let bans = bans(shared, limit);
    let mut top_keys = ranking.top(top, by);
    // A banned key is listed however few requests it has.
    let rest = bans.keys().filter(|key_hash| top_keys.iter().all(|top_key| top_key.key_hash != **key_hash));
    let rest: Vec<Fingerprint> = rest.copied().take(TOP_KEYS.most).collect();
    top_keys.extend(rest.iter().filter_map(|key_hash| ranking.top_key(*key_hash)));
    let names = labels(shared, limit, top_keys.iter().map(|top_key| top_key.key_hash).collect()).await;
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
    })
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
async fn ranking(shared: &Shared, limit: &Limit) -> Ranking {
    let command = |reply| WorkerCommand::Talkers(Arc::clone(&limit.name), reply);
    let sketches: Vec<Sketch> = shared.worker_commands.ask_all(command).await.into_iter().flatten().collect();
    Ranking::of(&sketches)
}

/// The texts of these keys.
pub(super) async fn labels(
    shared: &Shared,
    limit: &Limit,
    key_hashes: Arc<[Fingerprint]>,
) -> HashMap<Fingerprint, String> {
    let command = |reply| WorkerCommand::Labels(Arc::clone(&limit.name), Arc::clone(&key_hashes), reply);
    shared.worker_commands.ask_all(command).await.into_iter().flatten().collect()
}

/// One key, if it is tracked: its text, and its requests.
pub(super) async fn followed(
    shared: &Shared,
    limit: &Limit,
    key_hash: Fingerprint,
) -> Option<(Vec<String>, TopKey)> {
    let top_key = ranking(shared, limit).await.top_key(key_hash)?;
    let labels = labels(shared, limit, Arc::new([key_hash])).await;
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
    let at = limit.consumer_at().filter(|_| !limit.tiers.is_empty());
    let name = |key: &KeyReport| Some(key.key.as_ref()?.get(at?)?.clone());
    let names: HashSet<String> = keys.iter().filter_map(name).collect();
    let tiers = if names.is_empty() { HashMap::new() } else { plan.tiers_of(&names) };
    for key in keys {
        let tier = name(key).and_then(|name| limit.tier(tiers.get(&name).copied()));
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
        let of = |key_hash| override_report::of(limit, KeyOfLimit::new(limit.identity(), key_hash), shared);
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
