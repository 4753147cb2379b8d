//! A ledger as data: in a snapshot, and on its way to another process.

use std::collections::HashMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::series::{UsageHistory, UsageSeries, WindowUsage};
use super::window::{RowConsumer, UsageRow, UsageTotals};
use super::{UsageEntry, UsageSpan};
use crate::limit::wall_clock::WallTime;

/// All usage of a process. Times are in µs since 1970 by the wall clock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedUsage(Vec<SavedSeries>);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct SavedSeries {
    id: u128,
    keep_windows: u8,
    since: u64,
    stopped: Option<u64>,
    gaps: Vec<(u64, u64)>,
    windows: Vec<SavedWindow>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct SavedWindow {
    begin: u64,
    end: u64,
    rows: Vec<(SavedConsumer, i64, u64)>,
}

/// A [`RowConsumer`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum SavedConsumer {
    Named(Box<str>),
    Anonymous,
    Other,
}

/// A [`UsageEntry`].
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::store) struct UsageMessage {
    series: u128,
    window: (u64, u64),
    consumer: SavedConsumer,
    units: i64,
    requests: u64,
}

impl SavedUsage {
    pub(super) fn of(all: &HashMap<u128, Arc<UsageSeries>>) -> Self {
        Self(all.iter().map(|(id, series)| SavedSeries::of(*id, series)).collect())
    }

    pub(super) fn series(self) -> impl Iterator<Item = (u128, Arc<UsageSeries>)> {
        self.0.into_iter().map(|saved| (saved.id, Arc::new(saved.restored())))
    }
}

impl SavedSeries {
    fn of(id: u128, series: &UsageSeries) -> Self {
        let UsageHistory { keep_windows, since, stopped, gaps } = series.history();
        let window = |WindowUsage { span, rows }: WindowUsage| SavedWindow {
            begin: span.begin.0,
            end: span.end.0,
            rows: rows
                .into_iter()
                .map(|UsageRow { consumer, totals }| (consumer.into(), totals.units, totals.requests))
                .collect(),
        };
        Self {
            id,
            keep_windows,
            since: since.0,
            stopped: stopped.map(|at| at.0),
            gaps: gaps.into_iter().map(|(from, to)| (from.0, to.0)).collect(),
            windows: series.windows().into_iter().map(window).collect(),
        }
    }

    fn restored(self) -> UsageSeries {
        let history = UsageHistory {
            keep_windows: self.keep_windows,
            since: WallTime(self.since),
            stopped: self.stopped.map(WallTime),
            gaps: self.gaps.into_iter().map(|(from, to)| (WallTime(from), WallTime(to))).collect(),
        };
        let row = |(consumer, units, requests): (SavedConsumer, i64, u64)| UsageRow {
            consumer: consumer.into(),
            totals: UsageTotals { units, requests },
        };
        let window = |SavedWindow { begin, end, rows }: SavedWindow| WindowUsage {
            span: UsageSpan { begin: WallTime(begin), end: WallTime(end) },
            rows: rows.into_iter().map(row).collect(),
        };
        UsageSeries::restored(history, self.windows.into_iter().map(window).collect())
    }
}

impl UsageMessage {
    pub(in crate::store) fn of(entry: UsageEntry<'_>) -> Self {
        let UsageEntry { series, span, consumer, change } = entry;
        Self {
            series,
            window: (span.begin.0, span.end.0),
            consumer: RowConsumer::from(consumer).into(),
            units: change.units,
            requests: change.requests,
        }
    }

    /// Calls `record` with the entry.
    pub(in crate::store) fn record(self, record: impl FnOnce(UsageEntry<'_>)) {
        let Self { series, window: (begin, end), consumer, units, requests } = self;
        let consumer = RowConsumer::from(consumer);
        record(UsageEntry {
            series,
            span: UsageSpan { begin: WallTime(begin), end: WallTime(end) },
            consumer: consumer.as_consumer(),
            change: UsageTotals { units, requests },
        });
    }
}

impl From<RowConsumer> for SavedConsumer {
    fn from(consumer: RowConsumer) -> Self {
        match consumer {
            RowConsumer::Named(name) => Self::Named(name),
            RowConsumer::Anonymous => Self::Anonymous,
            RowConsumer::Other => Self::Other,
        }
    }
}

impl From<SavedConsumer> for RowConsumer {
    fn from(consumer: SavedConsumer) -> Self {
        match consumer {
            SavedConsumer::Named(name) => Self::Named(name),
            SavedConsumer::Anonymous => Self::Anonymous,
            SavedConsumer::Other => Self::Other,
        }
    }
}
