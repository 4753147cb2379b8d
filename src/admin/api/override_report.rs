//! What the API tells of the override of a key.

use jiff::Timestamp as Moment;

use super::values::wall_moment;
use crate::admin_api::overrides::OverrideReport;
use crate::limit::wall_clock::{self, WallTime};
use crate::plan::{Limit, Policy};
use crate::shared::Shared;
use crate::store::overrides::{KeyOfLimit, KeyOverride};

/// The override of a key, if it has one.
pub(super) fn of(limit: &Limit, key: KeyOfLimit, shared: &Shared) -> Option<OverrideReport> {
    let overrides = shared.store.overrides();
    if overrides.is_empty() {
        return None;
    }
    Some(report(limit, &overrides.find(key, now(shared))?, shared))
}

/// An override, as it is told of.
pub(super) fn report(limit: &Limit, set: &KeyOverride, shared: &Shared) -> OverrideReport {
    let text = |policy: &Policy| {
        let count = set.numbers.count_in(policy.algorithm.rate()?.period())?;
        policy.algorithm.with_numbers(count, None)?.written_rate()
    };
    let store = &shared.plan.load().store;
    OverrideReport {
        rate: limit.policies.iter().filter_map(text).collect(),
        burst: set.numbers.burst,
        until: set.until.map(|until| wall_moment(WallTime(until))),
        persistent: store.shared.is_some() || store.snapshot.is_some(),
    }
}

/// In one phrase, for the log.
pub(super) fn words(report: &OverrideReport, set: &KeyOverride) -> String {
    let burst = report.burst.map(|burst| format!(", burst {burst}")).unwrap_or_default();
    let until = set.until.and_then(|until| Moment::from_microsecond(i64::try_from(until).ok()?).ok());
    let until = until.map(|until| format!(" until {until}")).unwrap_or_default();
    format!("{}{burst}{until}", report.rate.join(", "))
}

/// The time of the wall clock, by which overrides end.
pub(super) fn now(shared: &Shared) -> WallTime {
    wall_clock::system().wall_time(shared.clock.now())
}
