//! `POST charge` of a key: the counterpart of `grant`. With an idempotency key it is charged once, however often it is
//! sent.

use http::{HeaderMap, StatusCode};

use super::key::{KeyRef, units};
use super::{ApiError, ApiRequest, ApiResult, good, key_id};
use crate::admin_api::changes::ChargeReport;
use crate::admin_api::keys::KeyState;
use crate::admin_api::operations::{IDEMPOTENCY_KEY, MAX_IDEMPOTENCY_KEY};
use crate::limit::units::Cost;
use crate::plan::admin::AdminRight;
use crate::store::{IdempotentCharge, KeyOperation, OperationFault};

/// Charges the key in all policies of the limit.
pub(super) async fn charge(one: &KeyRef, asked: &ApiRequest<'_>) -> ApiResult {
    if one.limit().is_concurrency() {
        let message =
            "the limit counts requests in flight: only requests take places, so there is nothing to charge";
        return Err(ApiError::new(StatusCode::CONFLICT, message));
    }
    let units = units(asked, "charged")?;
    let once = idempotency_key(asked.headers)?.map(|key| once(key, one, asked, units));
    let repeated = !one.execute(asked, KeyOperation::Charge(units, once)).await?.changed;
    if !repeated {
        one.record_usage(asked.shared, units.units().into()).await;
    }
    one.log(
        asked,
        &format!("{} {} units to", if repeated { "has charged" } else { "charges" }, units.units()),
    );
    // The charge is made: without the state of the key, too, it is no failure.
    if asked.caller.rights.allow(AdminRight::Read)
        && let Ok(state) = one.look(asked).await
    {
        let (charged, repeated, changed) = (Some(units.units()), Some(repeated), Some(!repeated));
        return good(KeyState { charged, repeated, changed, ..state });
    }
    good(ChargeReport {
        limit: one.limit().name.to_string(),
        id: key_id(one.key_hash),
        charged: units.units(),
        repeated,
        changed: !repeated,
    })
}

/// The idempotency key, if the request has one.
fn idempotency_key(headers: &HeaderMap) -> Result<Option<&[u8]>, ApiError> {
    let mut values = headers.get_all(IDEMPOTENCY_KEY).iter();
    let Some(key) = values.next() else { return Ok(None) };
    let is_valid =
        (1..=MAX_IDEMPOTENCY_KEY).contains(&key.len()) && key.as_bytes().iter().all(u8::is_ascii_graphic);
    if !is_valid || values.next().is_some() {
        let message = format!(
            "`{IDEMPOTENCY_KEY}` is one value of 1 to {MAX_IDEMPOTENCY_KEY} visible ASCII characters, without spaces"
        );
        return Err(ApiError::bad(message));
    }
    Ok(Some(key.as_bytes()))
}

/// Names the charge. The idempotency keys of different tokens are separate, so that the client with one token cannot use
/// up the keys of another.
fn once(key: &[u8], one: &KeyRef, asked: &ApiRequest<'_>, units: Cost) -> IdempotentCharge {
    let token = asked.caller.token.as_deref().unwrap_or_default();
    let (limit, key_hash) = (one.limit().name.as_bytes(), one.key_hash.0.to_be_bytes());
    IdempotentCharge {
        id: hash(&[token.as_bytes(), key]),
        request: hash(&[limit, &key_hash, &units.units().to_be_bytes()]),
    }
}

/// A hash of these parts, the same in all gateways of a fleet.
fn hash(parts: &[&[u8]]) -> u128 {
    let mut hasher = blake3::Hasher::new();
    for part in parts {
        hasher.update(&(part.len() as u64).to_be_bytes()).update(part);
    }
    let mut half = [0; 16];
    hasher.finalize_xof().fill(&mut half);
    u128::from_be_bytes(half)
}

impl From<OperationFault> for ApiError {
    fn from(fault: OperationFault) -> Self {
        match fault {
            OperationFault::Unreachable(unreachable) => unreachable.into(),
            OperationFault::OtherCharge => Self::new(StatusCode::UNPROCESSABLE_ENTITY, fault.to_string()),
            OperationFault::TooMany => Self::new(StatusCode::SERVICE_UNAVAILABLE, fault.to_string()),
        }
    }
}
