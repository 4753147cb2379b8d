//! `GET refusals`: who was refused lately, and why.

use serde_json::{Value, json};

use super::time::moment;
use super::{Fault, Query, key_id, talkers};
use crate::shared::Shared;
use crate::telemetry::refusals::{Kept, Refusal};

pub(super) fn tell(shared: &Shared, query: Query<'_>) -> Result<Value, Fault> {
    let since = query.number("since", "the `seq` of an earlier answer")?;
    let told = shared.refusals.since(since);
    Ok(json!({
        "started": moment(shared.steering.started), "seq": told.seq, "skipped": told.skipped,
        "refusals": told.refusals.iter().map(|kept| one(kept)).collect::<Vec<_>>(),
    }))
}

fn one(Kept { seq, refusal, .. }: &Kept) -> Value {
    let Refusal { time, method, host, path, route, status, client, by, reason } = refusal;
    let by = by.as_ref();
    let key = by.and_then(|by| by.key.as_ref());
    json!({
        "seq": seq, "time": moment(*time), "method": method.as_ref().map(|method| method.as_str()),
        "host": host, "path": path, "route": route.as_deref(), "status": status.as_u16(),
        "client": client.map(|client| client.to_string()),
        "limit": by.map(|by| &*by.limit), "id": key.map(|(owner, _)| key_id(*owner)),
        "key": key.map(|(_, label)| talkers::values(label)), "cost": by.and_then(|by| by.cost),
        "retry_after": by.and_then(|by| by.retry_after), "reason": reason,
    })
}
