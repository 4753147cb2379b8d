//! `GET refusals`: samples of recently refused requests, with the reasons.

use super::values::moment;
use super::{ApiError, Query, key_id, top_keys};
use crate::admin_api::refusals::{RefusalList, RefusalReport};
use crate::shared::Shared;
use crate::telemetry::refusal_samples::{KeptRefusal, SampledRefusal};

pub(super) fn get(shared: &Shared, query: Query<'_>) -> Result<RefusalList, ApiError> {
    let since = query.number("since", "the `seq` of an earlier answer")?;
    let page = shared.refusals.since(since);
    Ok(RefusalList {
        started: moment(shared.control.started),
        seq: page.seq,
        skipped: page.skipped,
        refusals: page.refusals.iter().map(|kept| one(kept)).collect(),
    })
}

fn one(KeptRefusal { seq, refusal, .. }: &KeptRefusal) -> RefusalReport {
    let SampledRefusal { time, method, host, path, route, status, client, by, server, reason } = refusal;
    let by = by.as_ref();
    let key = by.and_then(|by| by.key.as_ref());
    RefusalReport {
        seq: *seq,
        time: moment(*time),
        method: method.as_ref().map(ToString::to_string),
        host: host.clone(),
        path: path.clone(),
        route: route.as_deref().map(str::to_owned),
        status: status.as_u16(),
        client: client.map(|client| client.to_string()),
        limit: by.map(|by| by.limit.to_string()),
        id: key.map(|(key_hash, _)| key_id(*key_hash)),
        key: key.map(|(_, label)| top_keys::values(label)),
        cost: by.and_then(|by| by.cost),
        retry_after: by.and_then(|by| by.retry_after),
        server: server.clone(),
        reason: reason.to_string(),
    }
}
