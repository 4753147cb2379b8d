//! `GET bans`: the active bans; `POST` and `DELETE` of a key's ban.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;

use super::key::KeyRef;
use super::values::moment;
use super::{ApiError, ApiRequest, ApiResult, Query, key_id, top_keys};
use crate::admin_api::bans::{BanList, BanReport, BanRequest};
use crate::admin_api::operations::TOP_BANS;
use crate::limit::span;
use crate::limit::units::{Fingerprint, Micros};
use crate::plan::{KeyBan, Limit, Plan};
use crate::shared::Shared;
use crate::shared::worker_commands::{LimitKeys, WorkerCommand};
use crate::store::Unreachable;
use crate::store::bans::BanFault;

/// What a ban's body holds.
const FOR: &str = "`for` is how long, `1s` to `366day`: a whole number with `ms`, `s`, `min`, `h` or `day`";

/// A ban of a limit in the plan.
type ListedBan<'g> = (&'g Limit, KeyBan);

/// Lists the bans that end first, also those in shadow. Bans of limits that a reload removed are left out, since they
/// refuse no request.
pub(super) async fn get(shared: &Shared, query: Query<'_>) -> Result<BanList, ApiError> {
    let top = query.top(TOP_BANS)?;
    let plan = shared.plan.load_full();
    let mut bans = in_force(shared, &plan);
    let total = bans.len();
    bans.truncate(top);
    let labels = labels(shared, &bans).await;
    let bans = bans.iter().map(|ban| one(ban, &labels)).collect();
    Ok(BanList { time: moment(shared.clock.now()), total: total as u64, bans })
}

fn in_force<'g>(shared: &Shared, plan: &'g Plan) -> Vec<ListedBan<'g>> {
    let now = shared.clock.now();
    let of = |limit: &'g Limit| limit.bans(shared.store.bans(), now).into_iter().map(move |ban| (limit, ban));
    let mut bans: Vec<ListedBan<'g>> = plan.limits.iter().flat_map(of).collect();
    bans.sort_by_key(|(_, one)| (one.ban.until, one.key_hash.0));
    bans
}

/// By limit, the texts of its banned keys: as named when they were banned, else as workers know them.
async fn labels(shared: &Shared, bans: &[ListedBan<'_>]) -> HashMap<(Arc<str>, Fingerprint), String> {
    let mut labels = HashMap::new();
    let mut unnamed: HashMap<Arc<str>, (&Limit, Vec<Fingerprint>)> = HashMap::new();
    for (limit, KeyBan { key_hash, .. }) in bans {
        match shared.store.bans().label(limit.banned(*key_hash)) {
            Some(label) => _ = labels.insert((Arc::clone(&limit.name), *key_hash), label.to_string()),
            None => unnamed.entry(Arc::clone(&limit.name)).or_insert((limit, Vec::new())).1.push(*key_hash),
        }
    }
    for (name, (limit, key_hashes)) in unnamed {
        let known = top_keys::labels(shared, limit, LimitKeys::Counted, key_hashes.into()).await;
        labels.extend(known.into_iter().map(|(key_hash, label)| ((Arc::clone(&name), key_hash), label)));
    }
    labels
}

fn one(
    (limit, KeyBan { key_hash, ban, in_shadow }): &ListedBan<'_>,
    labels: &HashMap<(Arc<str>, Fingerprint), String>,
) -> BanReport {
    let label = labels.get(&(Arc::clone(&limit.name), *key_hash));
    BanReport {
        limit: limit.name.to_string(),
        mode: limit.mode.as_str().to_owned(),
        id: key_id(*key_hash),
        key: label.map(|label| top_keys::values(label)),
        banned_until: moment(ban.until),
        cause: limit.ban_cause(ban.cause).to_string(),
        in_shadow: *in_shadow,
    }
}

/// Bans the key for a time, in place of an earlier ban.
pub(super) async fn begin(one: &KeyRef, asked: &ApiRequest<'_>) -> ApiResult {
    let span = span::read(&asked.body::<BanRequest>(FOR)?.span).ok().filter(|span| *span >= Micros::SECOND);
    let span = span.ok_or_else(|| ApiError::bad(FOR))?;
    let before = one.ban_ends(asked.shared);
    set(one, asked, Some(span)).await?;
    if let Some(label) = one.label(asked.shared).await {
        asked.shared.store.bans().set_label(one.banned(), label);
    }
    one.log(asked, &format!("bans for {:?}", Duration::from_micros(span.0)));
    one.changed(asked, one.ban_ends(asked.shared) != before).await
}

/// Ends the ban, if there is one.
pub(super) async fn end(one: &KeyRef, asked: &ApiRequest<'_>) -> ApiResult {
    let was_banned = one.ban_ends(asked.shared).is_some();
    set(one, asked, None).await?;
    one.log(asked, "ends the ban of");
    one.changed(asked, was_banned).await
}

async fn set(one: &KeyRef, asked: &ApiRequest<'_>, span: Option<Micros>) -> Result<(), ApiError> {
    let answer =
        asked.shared.worker_commands.ask_one(|reply| WorkerCommand::Ban(one.banned(), span, reply)).await;
    Ok(answer.unwrap_or(Err(Unreachable.into()))?)
}

impl From<BanFault> for ApiError {
    fn from(fault: BanFault) -> Self {
        match fault {
            BanFault::Unreachable(unreachable) => unreachable.into(),
            BanFault::TooMany => Self::new(StatusCode::CONFLICT, fault.to_string()),
        }
    }
}
