//! `POST reload` and `POST drain`: the same as SIGHUP and SIGTERM.

use std::time::Duration;

use http::StatusCode;
use serde_json::{Value, json};

use super::{ApiError, ApiRequest, ApiResult};
use crate::shared::Life;
use crate::shared::control::Reload;

/// How long a reload is waited for.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum number of errors in the response.
const MAX_FAULTS: usize = 20;

/// Waits for the end of a reload that began after this call.
pub(super) async fn reload(asked: &ApiRequest<'_>) -> ApiResult {
    let control = &asked.shared.control;
    let mut config_status = control.config_status.clone();
    let before = config_status.borrow().begun;
    tracing::info!("reload requested by {} through the admin API", asked.caller);
    // Full: a reload is due that has not begun.
    let _ = control.reload.try_send(());
    let done = config_status
        .wait_for(|config_status| config_status.last.as_ref().is_some_and(|last| last.number > before));
    match tokio::time::timeout(TIMEOUT, done).await {
        Ok(Ok(config_status)) => Ok(config_status
            .last
            .as_ref()
            .map_or_else(unknown, |last| reload_result(last, &config_status.version))),
        _ => Err(ApiError::new(
            StatusCode::GATEWAY_TIMEOUT,
            "the reload takes long: `status` will tell how it ends",
        )),
    }
}

fn reload_result(reload: &Reload, version: &str) -> (StatusCode, Value) {
    match &reload.result {
        Ok(good) => {
            let warnings = good.lines.get(..MAX_FAULTS).unwrap_or(&good.lines);
            let ended = good.ended_bans.iter().map(
                |ended| json!({ "limit": &*ended.limit, "bans": ended.count, "in_shadow": ended.in_shadow }),
            );
            let value = json!({
                "result": "success", "version": version, "changed": good.changed, "warnings": warnings,
                "ended_bans": ended.collect::<Vec<_>>(),
            });
            (StatusCode::OK, value)
        }
        Err(faults) => {
            let faults = faults.get(..MAX_FAULTS).unwrap_or(faults);
            (StatusCode::UNPROCESSABLE_ENTITY, json!({ "result": "failure", "faults": faults }))
        }
    }
}

/// Never happens: the awaited reload has a result.
fn unknown() -> (StatusCode, Value) {
    (StatusCode::OK, Value::Null)
}

/// The process ends when its requests have ended.
pub(super) fn drain(asked: &ApiRequest<'_>) -> (StatusCode, Value) {
    tracing::info!("shutdown requested by {} through the admin API", asked.caller);
    // Full: it has been asked for.
    let changed =
        *asked.shared.life.borrow() == Life::Running && asked.shared.control.drain.try_send(()).is_ok();
    (StatusCode::ACCEPTED, json!({ "life": "draining", "changed": changed }))
}
