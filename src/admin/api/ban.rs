//! `POST` and `DELETE` of a key's ban.

use std::time::Duration;

use http::StatusCode;
use serde_json::Value;

use super::key::KeyRef;
use super::{ApiError, ApiRequest, ApiResult, only};
use crate::limit::span;
use crate::limit::units::Micros;
use crate::shared::worker_commands::WorkerCommand;
use crate::store::Unreachable;
use crate::store::bans::BanFault;

/// Bans the key for a time, in place of an earlier ban.
pub(super) async fn begin(one: &KeyRef, asked: &ApiRequest<'_>) -> ApiResult {
    only(&asked.body, &["for"])?;
    let text = asked.body.get("for").and_then(Value::as_str);
    let span = text.and_then(|text| span::read(text).ok()).filter(|span| *span >= Micros::SECOND);
    let span = span.ok_or_else(|| {
        ApiError::bad(
            "`for` is how long, `1s` to `366day`: a whole number with `ms`, `s`, `min`, `h` or `day`",
        )
    })?;
    let before = one.ban_ends(asked.shared);
    set(one, asked, Some(span)).await?;
    if let Some(label) = one.label(asked.shared).await {
        asked.shared.store.bans().name(one.banned(), label);
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
        asked.shared.worker_commands.ask_one(|tell| WorkerCommand::Ban(one.banned(), span, tell)).await;
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
