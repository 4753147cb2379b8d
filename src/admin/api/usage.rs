//! `GET limits/{limit}/usage`: the units that each consumer was charged in a window.

mod csv;

use std::cmp::Reverse;
use std::collections::HashMap;

use http::StatusCode;
use jiff::Timestamp as Moment;
use percent_encoding::percent_decode_str;

use super::{ApiAnswer, ApiError, ApiRequest, ApiResult, Query, good, limit_named};
use crate::admin_api::operations::TOP_CONSUMERS;
use crate::admin_api::usage::{ConsumerUsage, UsageList, UsageSums, UsageWindowSpan};
use crate::limit::display::ShortDisplay;
use crate::limit::units::Timestamp;
use crate::limit::wall_clock::WallTime;
use crate::plan::{Limit, LimitIndex, Plan, Policy};
use crate::route::key::PathForm;
use crate::shared::Shared;
use crate::shared::worker_commands::WorkerCommand;
use crate::store::Unreachable;
use crate::store::usage::{RowConsumer, UsageReport, UsageRow, UsageSettings, UsageSpan, UsageTotals};

/// The values of `window`.
const WINDOWS: &str = "`current`, `previous`, or the begin of a window of `windows`: `2026-11-01T00:00:00Z`";

/// A limit with usage, and the window that is asked for.
struct UsageQuestion<'p> {
    plan: &'p Plan,
    index: LimitIndex,
    settings: &'p UsageSettings,
    now: Timestamp,
    /// The newest first.
    windows: Vec<UsageSpan>,
    span: UsageSpan,
}

/// The listed rows, and the sums of all.
struct ListedUsage {
    rows: Vec<UsageRow>,
    total: UsageTotals,
}

pub(super) async fn get(asked: &ApiRequest<'_>, limit: &str) -> ApiResult {
    let (shared, query) = (asked.shared, asked.query);
    let plan = shared.plan.load_full();
    let question = UsageQuestion::read(&plan, shared, limit, query)?;
    let top = query.top(TOP_CONSUMERS)?;
    let format = query.text("format").unwrap_or("json");
    if !["json", "csv"].contains(&format) {
        return Err(ApiError::bad("`format` is `json` or `csv`"));
    }
    let UsageReport { since, incomplete_since, rows } = question.report(shared).await?;
    let listed = ListedUsage::new(rows, top);
    match format {
        "csv" => Ok(ApiAnswer::csv::<UsageList>(csv::write(&listed.rows, question.span))),
        _ => good(question.list(shared, (since, incomplete_since), listed)),
    }
}

impl<'p> UsageQuestion<'p> {
    fn read(plan: &'p Plan, shared: &Shared, limit: &str, query: Query<'_>) -> Result<Self, ApiError> {
        let index = limit_named(plan, limit)?;
        let limit = plan.limit(index);
        let settings = limit.usage.as_ref().ok_or_else(|| {
            let name = &limit.name;
            let message = format!("limit `{name}` keeps no usage: write `usage = true` in [limits.{name}]");
            ApiError::new(StatusCode::NOT_FOUND, message)
        })?;
        let now = shared.clock.now();
        let windows = settings.spans_at(now);
        let of_begin = |text: &str| {
            let begin = text.parse().ok().map(Moment::as_microsecond)?;
            windows.iter().find(|span| u64::try_from(begin) == Ok(span.begin.0)).copied()
        };
        // The query builders of most languages escape the colons of a time.
        let asked = percent_decode_str(query.text("window").unwrap_or("current")).decode_utf8_lossy();
        let span = match &*asked {
            "current" => windows.first().copied(),
            "previous" => windows.get(1).copied(),
            text => of_begin(text),
        };
        let span = span.ok_or_else(|| ApiError::bad(format!("`window` is {WINDOWS}")))?;
        Ok(Self { plan, index, settings, now, windows, span })
    }

    fn limit(&self) -> &'p Limit {
        self.plan.limit(self.index)
    }

    /// The rows of this process, and of those that share its store.
    async fn report(&self, shared: &Shared) -> Result<UsageReport, ApiError> {
        let nothing =
            || UsageReport { since: self.wall_now(shared), incomplete_since: None, rows: Vec::new() };
        let others = |reply| WorkerCommand::Usage(self.settings.clone(), self.span, reply);
        let others = match &self.plan.store.shared {
            Some(_) => shared.worker_commands.ask_one(others).await.unwrap_or(Err(Unreachable))?,
            None => None,
        };
        let own = shared.store.usage().read(self.settings, self.span).unwrap_or_else(nothing);
        Ok(others.map_or(own.clone(), |others| own.with(others)))
    }

    fn wall_now(&self, shared: &Shared) -> WallTime {
        self.span.begin.max(shared.clock.wall_now())
    }

    fn list(
        &self,
        shared: &Shared,
        (since, incomplete_since): (WallTime, Option<WallTime>),
        ListedUsage { rows, total }: ListedUsage,
    ) -> UsageList {
        let names = rows.iter().filter_map(|row| match &row.consumer {
            RowConsumer::Named(name) => Some(name.to_string()),
            RowConsumer::Anonymous | RowConsumer::Other => None,
        });
        let tiers = self.plan.tiers_of(&names.collect());
        let consumers = rows.into_iter().map(|row| self.consumer(shared, row, &tiers, since));
        let policy = self.policy_of(&self.limit().policies);
        let had_records = |span: &&UsageSpan| *span == &self.span || span.end > since;
        UsageList {
            limit: self.limit().name.to_string(),
            policy: policy.map(|policy| ShortDisplay(&policy.algorithm).to_string()).unwrap_or_default(),
            window: UsageWindowSpan { begin: text(self.span.begin), end: text(self.span.end) },
            windows: self.windows.iter().filter(had_records).map(|span| text(span.begin)).collect(),
            since: text(since),
            incomplete_since: incomplete_since.map(text),
            total: UsageSums { units: total.units, requests: total.requests },
            consumers: consumers.collect(),
        }
    }

    /// The policy of these whose windows they are.
    fn policy_of<'q>(&self, policies: &'q [Policy]) -> Option<&'q Policy> {
        policies.iter().find(|policy| policy.algorithm.calendar() == Some(self.settings.windows()))
    }

    fn consumer(
        &self,
        shared: &Shared,
        UsageRow { consumer, totals }: UsageRow,
        tiers: &HashMap<String, &str>,
        since: WallTime,
    ) -> ConsumerUsage {
        let UsageTotals { units, requests } = totals;
        let other = consumer == RowConsumer::Other;
        let RowConsumer::Named(name) = consumer else {
            return ConsumerUsage { other, units, requests, ..ConsumerUsage::default() };
        };
        let limit = self.limit();
        let values = [String::from(name)];
        let tier = limit
            .tier_value(&values)
            .and_then(|value| limit.tier_of_value(value, |name| tiers.get(name).copied()));
        // The tier of a consumer that no file lists stands in its credential, or in another part of its requests.
        let is_known = limit.tiers.is_empty() || tier.is_some() || tiers.contains_key(&values[0]);
        let quota = if is_known { self.quota(shared, &values, limit.policies_of(tier)) } else { None };
        let share = quota.filter(|quota| *quota > 0).map(|quota| units as f64 / quota as f64);
        ConsumerUsage {
            tier: limit.tier_name(tier).map(str::to_owned),
            units,
            requests,
            quota,
            share,
            exhausted_at: quota.and_then(|quota| self.exhausted_at(shared, units, quota, since)).map(text),
            other,
            consumer: values.into_iter().next(),
        }
    }

    /// The quota of a consumer: that of its override, or of these policies.
    fn quota(&self, shared: &Shared, values: &[String], policies: &[Policy]) -> Option<u64> {
        let limit = self.limit();
        let (secret, rule) = (shared.secret(self.plan), &self.plan.server.client);
        let paths = PathForm { matching: self.plan.server.path_matching, merge_slashes: false };
        let overridden = limit
            .key
            .owner_of(values, &secret, rule, paths)
            .ok()
            .and_then(|key_hash| self.plan.overridden(limit, key_hash, shared.store.known(self.now)));
        let policy = self.policy_of(overridden.unwrap_or(policies))?;
        Some(policy.algorithm.quota())
    }

    /// When the units are used up that are charged evenly since the window or its records began.
    fn exhausted_at(&self, shared: &Shared, units: i64, quota: u64, since: WallTime) -> Option<WallTime> {
        let UsageSpan { begin, end } = self.span;
        let (begin, now) = (begin.max(since), shared.clock.wall_now());
        let units = u64::try_from(units).ok().filter(|units| *units > 0)?;
        if now >= end || now <= begin {
            return None;
        }
        let span = u128::from(now.since(begin).0) * u128::from(quota) / u128::from(units);
        let at = WallTime(begin.0.saturating_add(u64::try_from(span).unwrap_or(u64::MAX)));
        (at < end).then_some(at)
    }
}

impl ListedUsage {
    /// The rows with the most units; equal ones by name.
    fn new(mut rows: Vec<UsageRow>, top: usize) -> Self {
        let mut total = UsageTotals::default();
        rows.iter().for_each(|row| total.add(row.totals));
        rows.sort_unstable_by(|one, other| {
            let by_units = Reverse(one.totals.units).cmp(&Reverse(other.totals.units));
            by_units.then_with(|| one.consumer.cmp(&other.consumer))
        });
        rows.truncate(top);
        Self { rows, total }
    }
}

/// A moment in RFC 3339, in whole milliseconds.
fn text(at: WallTime) -> String {
    let moment = i64::try_from(at.0 / 1_000).ok().and_then(|at| Moment::from_millisecond(at).ok());
    moment.unwrap_or_default().to_string()
}

#[cfg(test)]
mod tests;
