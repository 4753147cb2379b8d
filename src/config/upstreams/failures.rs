//! What an upstream does about servers that fail: `eject`, `breaker` and `retry`.

use std::time::Duration;

use crate::config::keys::{SOME, Schema, count, duration, keys, share};
use crate::config::report::quoted;
use crate::config::table::ConfigTable;
use crate::config::value::ConfigValue;
use crate::plan::{BreakerRule, Eject, Retry, StatusSet};

/// Failures or answers in a row.
pub(super) const MAX_IN_A_ROW: u64 = 1_000_000;
/// The least status of an error.
const ERROR: u16 = 400;
/// An item of a list of error statuses, in the schema.
const STATUS: Schema = Schema::Either(&[Schema::Text, Schema::Whole(400, 599)]);

keys! {
    /// When a server that fails requests is left alone for a while. Default { failures = 5, for = "10s" }.
    pub(super) EJECT: EjectKeys = "eject" {
        /// Failures in a row, 1 to 10^6; 0 = never.
        failures: u32 = count(0, MAX_IN_A_ROW) => 5;
        /// For how long; twice as long each time that it fails on its return, up to 5 minutes.
        span as "for": Duration = duration() => Duration::from_secs(10);
        /// The statuses of responses that are failures: 400 to 599, "4xx", "5xx". Default: none.
        statuses = Schema::List(SOME, &STATUS);
    }
}

keys! {
    /// When requests are answered 503 at once, since too many attempts at the servers fail. Default: never.
    pub(super) BREAKER: BreakerKeys = "breaker" {
        /// The share of failed attempts, 5xx responses among them, of the last 10 s, above 0 to 1.
        failures: f64 = share() => 0.5;
        /// It opens only with at least this many attempts in 10 s, 1 to 10^6.
        requests: u32 = count(1, MAX_IN_A_ROW) => 20;
        /// How long it is open; then one request at a time tries the upstream.
        span as "for": Duration = duration() => Duration::from_secs(10);
    }
}

keys! {
    /// When another attempt is made, on another server where there is one. Default { attempts = 2, budget = 0.2 }.
    pub(super) RETRY: RetryKeys = "retry" {
        /// Attempts for one request, the first included, 1 to 10.
        attempts: u32 = count(1, 10) => 2;
        /// The share of recent requests that may be repeated, 0 to 1.
        budget: f64 = share() => 0.2;
        /// Responses after which an idempotent request is repeated: statuses 400 to 599, "4xx", "5xx"; and
        /// "timeout". Default: none.
        retry_on as "on" = Schema::List(SOME, &STATUS);
    }
}

/// `eject`. Without it the rule has the defaults.
pub(super) fn eject(mut table: ConfigTable<'_>) -> Option<Eject> {
    let failures = table.value(&EJECT.failures);
    let span = table.value(&EJECT.span);
    let statuses = table.or(&EJECT.statuses, StatusSet::NONE, |value| statuses(&value, ERROR));
    table.finish();
    (failures > 0).then_some(Eject { failures, span, statuses })
}

/// A list of statuses and classes, of `min` or more.
pub(super) fn statuses(value: &ConfigValue<'_>, min: u16) -> Option<StatusSet> {
    let examples = if min < ERROR { "`\"2xx\"`, `204`" } else { "`\"5xx\"`, `\"429\"`" };
    let mut set = StatusSet::NONE;
    value.some_of(|item| status(&item, &mut set, min, examples))?;
    Some(set)
}

fn status(value: &ConfigValue<'_>, set: &mut StatusSet, min: u16, examples: &str) -> Option<()> {
    if value.is_whole() {
        return set.add(&value.whole(u64::from(min)..=599)?.to_string(), min);
    }
    let text = value.text()?;
    let added = set.add(text.as_str(), min);
    if added.is_none() {
        let what = if min < ERROR { "a status of an answer" } else { "an error status" };
        value.fault(
            format!("{} is not {what}", quoted(text.as_str())),
            format!("write a status from {min} to 599, or a class: {examples}"),
        );
    }
    added
}

pub(super) fn breaker(value: &ConfigValue<'_>) -> Option<BreakerRule> {
    let mut table = value.table("`breaker`")?;
    let share = table.or_default(&BREAKER.failures, |value| {
        let share = value.share()?;
        if permille(share) == 0 {
            value.fault(
                "a breaker with `failures = 0` would open without a failure",
                "write a share such as `0.5`",
            );
            return None;
        }
        Some(share)
    });
    let requests = table.value(&BREAKER.requests);
    let span = table.value(&BREAKER.span);
    table.finish();
    Some(BreakerRule { failures_permille: permille(share), requests, span })
}

/// `retry` of an upstream with so many servers, if these are known. Without it the rule has the defaults.
pub(super) fn retry(mut table: ConfigTable<'_>, servers: Option<usize>) -> Retry {
    let attempts = table.value(&RETRY.attempts);
    let budget_permille = permille(table.value(&RETRY.budget));
    if let Some(span) = table.given(RETRY.retry_on.name)
        && (attempts == 1 || matches!(servers, Some(0 | 1)))
    {
        let message = match attempts {
            1 => "`on` has no effect: `attempts = 1` retries nothing",
            _ => "`on` has no effect: there is no second server to retry at",
        };
        table.diagnostics().warn(span, message, "leave it out");
    }
    let mut timeout = false;
    let statuses = table.or(&RETRY.retry_on, StatusSet::NONE, |value| {
        let mut set = StatusSet::NONE;
        value.some_of(|item| match item.text()?.as_str() {
            "timeout" => {
                timeout = true;
                Some(())
            }
            _ => status(&item, &mut set, ERROR, "`\"503\"`, `\"5xx\"`; or `\"timeout\"`"),
        })?;
        Some(set)
    });
    table.finish();
    Retry { attempts, budget_permille, statuses, timeout }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share lies between 0 and 1")]
fn permille(share: f64) -> u32 {
    (share * 1_000.0).round() as u32
}
