//! `PUT` and `DELETE` of a key's override.

use std::time::Duration;

use http::StatusCode;
use jiff::Timestamp as Moment;

use super::key::KeyRef;
use super::override_report::{now, report, words};
use super::{ApiError, ApiRequest, ApiResult};
use crate::admin_api::overrides::{EndTime, OverrideRequest, RateTexts};
use crate::clock;
use crate::limit::span;
use crate::limit::units::{Cost, EXACT, Micros};
use crate::limit::wall_clock::WallTime;
use crate::plan::{Limit, Policy};
use crate::shared::Shared;
use crate::shared::worker_commands::WorkerCommand;
use crate::store::Unreachable;
use crate::store::overrides::{KeyOfLimit, KeyOverride, OverrideFault, OverrideNumbers, OverrideRate};

/// What a body holds.
const HELP: &str = "`rate` is a rate with a period of the limit, such as `200/min`, or a list with one for each of its rates; \
                    `burst` a whole number; `until` a moment, such as `2026-12-31T23:59:59Z`";

/// Sets the override of a key, in place of an earlier one.
pub(super) async fn set(one: &KeyRef, asked: &ApiRequest<'_>) -> ApiResult {
    let (shared, limit) = (asked.shared, one.limit());
    let OverrideRequest { rate, burst, until } = asked.body(HELP)?;
    let numbers = OverrideNumbers { rates: rates(limit, &rate)?, burst };
    check(one, shared, &numbers)?;
    let until = until.map(|until| end(&until)).transpose()?;
    if until.is_some_and(|until| until <= now(shared)) {
        return Err(ApiError::bad("`until` has passed"));
    }
    let label = one.label(shared).await;
    let set = KeyOverride { numbers, until: until.map(|until| until.0), label };
    let numbers = words(&report(limit, &set, shared), &set);
    let changed = change(one, asked, Some(set)).await?;
    one.log(asked, &format!("sets {numbers} for"));
    one.changed(asked, changed).await
}

/// Takes the override of a key back, if there is one.
pub(super) async fn remove(one: &KeyRef, asked: &ApiRequest<'_>) -> ApiResult {
    let changed = change(one, asked, None).await?;
    one.log(asked, "takes back the override of");
    one.changed(asked, changed).await
}

async fn change(one: &KeyRef, asked: &ApiRequest<'_>, set: Option<KeyOverride>) -> Result<bool, ApiError> {
    let command = |reply| WorkerCommand::Override(key_of(one), set, reply);
    let answer = asked.shared.worker_commands.ask_one(command).await;
    Ok(answer.unwrap_or(Err(Unreachable.into()))?)
}

impl From<OverrideFault> for ApiError {
    fn from(fault: OverrideFault) -> Self {
        match fault {
            OverrideFault::Unreachable(unreachable) => unreachable.into(),
            OverrideFault::TooMany => Self::new(StatusCode::CONFLICT, fault.to_string()),
        }
    }
}

/// The key in the table of overrides.
fn key_of(one: &KeyRef) -> KeyOfLimit {
    KeyOfLimit::new(one.limit().identity, one.key_hash)
}

/// A rate in place of each of the limit's.
fn rates(limit: &Limit, rate: &RateTexts) -> Result<Vec<OverrideRate>, ApiError> {
    let texts = match rate {
        RateTexts::One(text) => std::slice::from_ref(text),
        RateTexts::Several(texts) => texts,
    };
    let given: Vec<OverrideRate> = texts.iter().map(|text| parse(text)).collect::<Result<_, _>>()?;
    let of = |policy: &Policy| {
        let wanted = policy.algorithm.rate()?.period();
        let mut found = given.iter().filter(|rate| rate.period == wanted.0);
        let rate = *found.next()?;
        found.next().is_none().then_some(rate)
    };
    let rates: Option<_> = limit.policies.iter().map(of).collect();
    rates.filter(|_| given.len() == limit.policies.len()).ok_or_else(|| {
        let own = limit.policies.iter().filter_map(|policy| policy.algorithm.written_rate());
        let own: Vec<String> = own.map(|rate| format!("`{rate}`")).collect();
        let periods = || limit.policies.iter().filter_map(|policy| Some(policy.algorithm.rate()?.period()));
        let is_ambiguous =
            periods().enumerate().any(|(at, period)| periods().take(at).any(|one| one == period));
        ApiError::bad(match own.is_empty() {
            true => "the limit has no rate".to_owned(),
            false if is_ambiguous => {
                format!(
                    "the limit has {}: no override can name one of two with the same period",
                    own.join(", ")
                )
            }
            false => format!("the limit has {}: name each of its periods once", own.join(", ")),
        })
    })
}

fn parse(text: &str) -> Result<OverrideRate, ApiError> {
    let fault = || ApiError::bad(format!("{HELP}: `{}` is no rate", text.escape_debug()));
    let (count, period) = text.split_once('/').ok_or_else(fault)?;
    let count = count.parse().ok().filter(|count| Cost::new(*count).is_some()).ok_or_else(fault)?;
    let day = Micros(86_400_000_000);
    let period = match period {
        "week" => Micros(7 * day.0),
        "month" => Micros(31 * day.0),
        "year" => Micros(366 * day.0),
        unit if unit.bytes().all(|byte| byte.is_ascii_alphabetic()) => {
            span::read(&format!("1{unit}")).map_err(|_| fault())?
        }
        period => span::read(period).map_err(|_| fault())?,
    };
    Ok(OverrideRate { count, period: period.0 })
}

fn check(one: &KeyRef, shared: &Shared, numbers: &OverrideNumbers) -> Result<(), ApiError> {
    let limit = one.limit();
    if numbers.burst.is_some_and(|burst| Cost::new(burst).is_none()) {
        return Err(ApiError::bad(HELP));
    }
    let keeps_events = limit.policies.iter().any(|policy| policy.algorithm.keeps_events());
    let most = limit.max_keys.map_or(shared.store.max_keys(), |most| most.get().min(shared.store.max_keys()));
    if keeps_events && numbers.rates.iter().any(|rate| u64::from(rate.count) > most) {
        return Err(ApiError::bad(format!("the store holds only {most} events of a sliding log")));
    }
    let known = shared.store.known(shared.clock.now());
    let policies = known.memory.and_then(|memory| one.plan.policies_with(limit, numbers.clone(), memory));
    match policies {
        Some(_) => Ok(()),
        None if limit.can_have(numbers) => {
            let detail = "there are too many overrides with different numbers";
            Err(ApiError::new(StatusCode::CONFLICT, detail))
        }
        None if numbers.burst.is_some() => Err(ApiError::bad("the limit has no `burst`")),
        None => Err(ApiError::bad("the limit cannot have another rate")),
    }
}

fn end(until: &EndTime) -> Result<WallTime, ApiError> {
    let micros = match until {
        EndTime::Seconds(seconds) => Duration::try_from_secs_f64(*seconds).ok().map(clock::micros),
        EndTime::Text(text) => {
            let moment = text.parse().ok().map(Moment::as_microsecond);
            moment.and_then(|moment| u64::try_from(moment).ok()).map(Micros)
        }
    };
    // Times of decisions are below 2^53.
    let micros = micros.filter(|micros| micros.0 < EXACT);
    micros.map(|micros| WallTime(micros.0)).ok_or_else(|| ApiError::bad(HELP))
}
