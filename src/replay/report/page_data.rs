//! What the page of a replay shows, as JSON: see [`page`](super::html::page).

use serde_json::{Value, json};

use super::{LogSummary, json};
use crate::limit::units::Timestamp;
use crate::plan::Limit;
use crate::replay::run::Replay;
use crate::replay::statistics::LimitStatistics;
use crate::replay::statistics::timeline::{Calendar, StepCount, Timeline};
use crate::telemetry::access_log::rfc3339;

/// Columns of a chart.
const COLUMNS: usize = 720;

/// The data of the page. `peaks` are those of the keys of each limit, in file order.
pub fn page_data(replay: &Replay<'_>, log: &LogSummary, peaks: &[Value]) -> Value {
    let sums = replay.statistics();
    let all = sums.plan.limits.iter().zip(&sums.limits).enumerate();
    let limit = |(index, (limit, counts)): (usize, (&Limit, &LimitStatistics))| json!({ "name": &*limit.name, "timeline": timeline(&counts.timeline), "peaks": peaks.get(index) });
    json!({
        "kind": "replay",
        "report": json::report(replay, log),
        "timeline": timeline(&sums.timeline),
        "limits": all.map(limit).collect::<Vec<_>>(),
        "calendar": calendar(&sums.calendar),
        "log": log_data(log),
    })
}

/// What is known of the log itself.
pub fn log_data(log: &LogSummary) -> Value {
    json!({
        "files": log.files,
        "lines": log.lines,
        "problems": log.problems,
        "notes": log.notes,
        "interrupted": log.interrupted,
    })
}

fn timeline(timeline: &Timeline) -> Value {
    let (each, columns) = timeline.columns(COLUMNS);
    let (requests, refused) = apart(&columns);
    json!({
        "begin": String::from_utf8_lossy(&rfc3339(timeline.begin())),
        "step_seconds": timeline.step().0 / 1_000_000 * each as u64,
        "requests": requests,
        "refused": refused,
    })
}

fn calendar(calendar: &Calendar) -> Vec<Value> {
    let day = |(day, hours): (u64, &[StepCount; 24])| {
        let (requests, refused) = apart(hours);
        json!({ "day": date(day), "requests": requests, "refused": refused })
    };
    calendar.days().map(day).collect()
}

fn apart(counts: &[StepCount]) -> (Vec<u64>, Vec<u64>) {
    counts.iter().map(|count| (count.requests, count.refused)).unzip()
}

/// The date of a day since 1970.
fn date(day: u64) -> String {
    let time = Timestamp(day.saturating_mul(86_400 * 1_000_000));
    String::from_utf8_lossy(&rfc3339(time)).chars().take(10).collect()
}
