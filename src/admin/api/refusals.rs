//! `GET refusals`: samples of recently refused requests, with the reasons.

use serde_json::{Value, json};

use super::values::moment;
use super::{ApiError, Query, key_id, top_keys};
use crate::shared::Shared;
use crate::telemetry::refusal_samples::{KeptRefusal, SampledRefusal};

pub(super) fn get(shared: &Shared, query: Query<'_>) -> Result<Value, ApiError> {
    let since = query.number("since", "the `seq` of an earlier answer")?;
    let page = shared.refusals.since(since);
    Ok(json!({
        "started": moment(shared.control.started), "seq": page.seq, "skipped": page.skipped,
        "refusals": page.refusals.iter().map(|kept| one(kept)).collect::<Vec<_>>(),
    }))
}

fn one(KeptRefusal { seq, refusal, .. }: &KeptRefusal) -> Value {
    let SampledRefusal { time, method, host, path, route, status, client, by, reason } = refusal;
    let by = by.as_ref();
    let key = by.and_then(|by| by.key.as_ref());
    json!({
        "seq": seq, "time": moment(*time), "method": method.as_ref().map(|method| method.as_str()),
        "host": host, "path": path, "route": route.as_deref(), "status": status.as_u16(),
        "client": client.map(|client| client.to_string()),
        "limit": by.map(|by| &*by.limit), "id": key.map(|(key_hash, _)| key_id(*key_hash)),
        "key": key.map(|(_, label)| top_keys::values(label)), "cost": by.and_then(|by| by.cost),
        "retry_after": by.and_then(|by| by.retry_after), "reason": reason,
    })
}
