//! `POST reload` and `POST drain`: the same as SIGHUP and SIGTERM.

use std::time::Duration;

use http::StatusCode;

use super::{ApiAnswer, ApiError, ApiRequest, ApiResult};
use crate::admin_api::changes::{EndedBansReport, ReloadFailure, ReloadSuccess, ShutdownReport};
use crate::shared::Life;
use crate::shared::control::{EndedBans, Reload};

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
    let done = tokio::time::timeout(TIMEOUT, done).await.ok().and_then(Result::ok);
    match done.as_ref().and_then(|status| Some((status.last.as_ref()?, &status.version))) {
        Some((last, version)) => reload_result(last, version),
        None => Err(ApiError::new(
            StatusCode::GATEWAY_TIMEOUT,
            "the reload takes long: `status` will tell how it ends",
        )),
    }
}

fn reload_result(reload: &Reload, version: &str) -> ApiResult {
    match &reload.result {
        Ok(good) => {
            let warnings = good.lines.get(..MAX_FAULTS).unwrap_or(&good.lines);
            let ended = |ended: &EndedBans| EndedBansReport {
                limit: ended.limit.to_string(),
                bans: ended.count,
                in_shadow: ended.in_shadow,
            };
            super::good(ReloadSuccess {
                result: "success".to_owned(),
                version: version.to_owned(),
                changed: good.changed,
                warnings: warnings.to_vec(),
                ended_bans: good.ended_bans.iter().map(ended).collect(),
            })
        }
        Err(faults) => {
            let faults = faults.get(..MAX_FAULTS).unwrap_or(faults).to_vec();
            let failure = ReloadFailure { result: "failure".to_owned(), faults };
            Ok(ApiAnswer::new(StatusCode::UNPROCESSABLE_ENTITY, &failure))
        }
    }
}

/// The process ends when its requests have ended.
pub(super) fn drain(asked: &ApiRequest<'_>) -> ApiResult {
    tracing::info!("shutdown requested by {} through the admin API", asked.caller);
    // Full: it has been asked for.
    let changed =
        *asked.shared.life.borrow() == Life::Running && asked.shared.control.drain.try_send(()).is_ok();
    Ok(ApiAnswer::new(StatusCode::ACCEPTED, &ShutdownReport { life: "draining".to_owned(), changed }))
}
