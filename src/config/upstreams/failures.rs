//! What an upstream does about servers that fail: `eject`, `breaker`, `health` and `retry`.

use std::time::Duration;

use crate::config::keys::{SOME, Schema, count, duration, keys, share};
use crate::config::report::quoted;
use crate::config::table::ConfigTable;
use crate::config::text::SyntaxError;
use crate::config::value::ConfigValue;
use crate::plan::{BreakerRule, Eject, HealthCheck, Retry, StatusSet};

/// Failures or answers in a row.
const MAX_IN_A_ROW: u64 = 1_000_000;
/// Bytes of a health check's path.
const MAX_PATH: usize = 1_024;

keys! {
    /// When a server that fails requests is left alone for a while. Default { failures = 5, for = "10s" }.
    pub(super) EJECT: EjectKeys = "eject" {
        /// Failures in a row, 1 to 10^6; 0 = never.
        failures: u32 = count(0, MAX_IN_A_ROW) => 5;
        /// For how long; twice as long each time that it fails on its return, up to 5 minutes.
        span as "for": Duration = duration() => Duration::from_secs(10);
        /// The statuses of responses that are failures: 400 to 599, "4xx", "5xx". Default: none.
        statuses = Schema::List(SOME, &Schema::Text);
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
    /// How servers are asked whether they are well: GET in the `protocol` of the upstream; 2xx and 3xx are good.
    /// Default: they are not asked.
    pub(super) HEALTH: HealthKeys = "health" {
        /// Path and query, up to 1024 bytes, as they are sent.
        path = Schema::Name, required "\"/healthz\"";
        /// From one question to the next.
        interval: Duration = duration() => Duration::from_secs(5);
        /// From connecting to the head of the answer.
        timeout: Duration = duration() => Duration::from_secs(1);
        /// Good answers in a row that make a server healthy again, 1 to 10^6.
        healthy: u32 = count(1, MAX_IN_A_ROW) => 2;
        /// Bad answers in a row that make it unhealthy, 1 to 10^6.
        unhealthy: u32 = count(1, MAX_IN_A_ROW) => 3;
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
        retry_on as "on" = Schema::List(SOME, &Schema::Text);
    }
}

/// `eject`. Without it the rule has the defaults.
pub(super) fn eject(mut table: ConfigTable<'_>) -> Option<Eject> {
    let failures = table.value(&EJECT.failures);
    let span = table.value(&EJECT.span);
    let statuses = table.or(&EJECT.statuses, StatusSet::NONE, |value| statuses(&value));
    table.finish();
    (failures > 0).then_some(Eject { failures, span, statuses })
}

/// A list of statuses and classes.
fn statuses(value: &ConfigValue<'_>) -> Option<StatusSet> {
    let mut set = StatusSet::NONE;
    value.some_of(|item| status(&item, &mut set, "`\"5xx\"`, `\"429\"`"))?;
    Some(set)
}

fn status(value: &ConfigValue<'_>, set: &mut StatusSet, examples: &str) -> Option<()> {
    let text = value.text()?;
    if set.add(text.as_str()).is_none() {
        value.fault(
            format!("{} is not an error status", quoted(text.as_str())),
            format!("write a status from 400 to 599, or a class: {examples}"),
        );
        return None;
    }
    Some(())
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

pub(super) fn health(value: &ConfigValue<'_>) -> Option<HealthCheck> {
    let path = value.written().filter(|text| health_path(text).is_ok() && !text.contains(['"', '$']));
    match (value.written(), value.written_boolean()) {
        (Some(_), _) => {
            let help = format!("write `health = {{ path = \"{}\" }}`", path.unwrap_or("/healthz"));
            return value.mismatch("a table", help);
        }
        (_, Some(true)) => {
            return value
                .mismatch("a table", "write `health = { path = \"/healthz\" }` with a path of the servers");
        }
        (_, Some(false)) => {
            return value.mismatch("a table", "leave it out: servers are not asked without `health`");
        }
        _ => {}
    }
    let mut table = value.table("`health`")?;
    let path = table.require(&HEALTH.path, |value| value.text()?.parse("a path", health_path));
    let interval = table.value(&HEALTH.interval);
    let timeout = table.value(&HEALTH.timeout);
    let healthy = table.value(&HEALTH.healthy);
    let unhealthy = table.value(&HEALTH.unhealthy);
    table.finish();
    Some(HealthCheck { path: path?, interval, timeout, healthy, unhealthy })
}

fn health_path(text: &str) -> Result<Box<str>, SyntaxError> {
    let visible = text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#');
    if text.starts_with('/') && visible && text.len() <= MAX_PATH {
        return Ok(text.into());
    }
    let message = format!("{} is not a path to ask for", quoted(text));
    Err(SyntaxError::new(
        message,
        format!("write up to {MAX_PATH} bytes as they are sent: `/healthz`, `/status?brief=1`"),
    ))
}

/// `retry`. Without it the rule has the defaults.
pub(super) fn retry(mut table: ConfigTable<'_>) -> Retry {
    let attempts = table.value(&RETRY.attempts);
    let budget_permille = permille(table.value(&RETRY.budget));
    let mut timeout = false;
    let statuses = table.or(&RETRY.retry_on, StatusSet::NONE, |value| {
        let mut set = StatusSet::NONE;
        value.some_of(|item| match item.text()?.as_str() {
            "timeout" => {
                timeout = true;
                Some(())
            }
            _ => status(&item, &mut set, "`\"503\"`, `\"5xx\"`; or `\"timeout\"`"),
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
