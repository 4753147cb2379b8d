//! The windows of one limit.

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use super::UsageSpan;
use super::window::{UsageConsumer, UsageRow, UsageTotals, UsageWindow};
use crate::limit::wall_clock::WallTime;

/// The spans without records that are remembered. Of more, the oldest two become one.
const MAX_GAPS: usize = 64;

/// The windows of one limit.
#[derive(Debug)]
pub(super) struct UsageSeries {
    /// The newest first; read at each record.
    windows: ArcSwap<Vec<Arc<UsageWindow>>>,
    history: Mutex<UsageHistory>,
}

/// What is known of the records of a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct UsageHistory {
    /// The number of windows before the present one that are kept.
    pub(super) keep_windows: u8,
    /// When it began.
    pub(super) since: WallTime,
    /// When it ended; `None`: it goes on.
    pub(super) stopped: Option<WallTime>,
    /// Spans in which records were lost, or not made.
    pub(super) gaps: Vec<(WallTime, WallTime)>,
}

/// A window of a limit as this process knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageReport {
    /// When the limit began to keep usage.
    pub since: WallTime,
    /// Records of the window may be missing from this moment on; `None`: none are.
    pub incomplete_since: Option<WallTime>,
    /// In no order.
    pub rows: Vec<UsageRow>,
}

/// A window of a limit as the other processes of a fleet know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedUsage {
    /// When the first process began to keep usage.
    pub since: Option<WallTime>,
    /// Records of the window may be missing from this moment on; `None`: none are.
    pub incomplete_since: Option<WallTime>,
    /// In no order. A consumer may have several.
    pub rows: Vec<UsageRow>,
}

/// A window with its rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WindowUsage {
    /// The window.
    pub span: UsageSpan,
    /// In no order.
    pub rows: Vec<UsageRow>,
}

impl UsageReport {
    /// With the rows of other processes.
    #[must_use]
    pub fn with(self, others: SharedUsage) -> Self {
        let mut sums = HashMap::<_, UsageTotals>::new();
        for UsageRow { consumer, totals } in self.rows.into_iter().chain(others.rows) {
            sums.entry(consumer).or_default().add(totals);
        }
        Self {
            since: others.since.map_or(self.since, |since| since.min(self.since)),
            incomplete_since: self.incomplete_since.into_iter().chain(others.incomplete_since).min(),
            rows: sums.into_iter().map(|(consumer, totals)| UsageRow { consumer, totals }).collect(),
        }
    }
}

impl UsageHistory {
    /// When the first gap begins that touches the window.
    fn incomplete_since(&self, span: UsageSpan) -> Option<WallTime> {
        let touching = self.gaps.iter().filter(|(from, to)| *from < span.end && *to >= span.begin);
        touching.map(|(from, _)| (*from).max(span.begin)).min()
    }

    fn lose(&mut self, since: WallTime, until: WallTime) {
        if self.gaps.len() >= MAX_GAPS && self.gaps.len() > 1 {
            let (_, to) = self.gaps.remove(1);
            if let Some(first) = self.gaps.first_mut() {
                first.1 = first.1.max(to);
            }
        }
        self.gaps.push((since, until.max(since)));
    }
}

impl UsageSeries {
    /// It begins now.
    pub(super) fn new(now: WallTime) -> Self {
        let history = UsageHistory { keep_windows: u8::MAX, since: now, stopped: None, gaps: Vec::new() };
        Self::restored(history, Vec::new())
    }

    /// It goes on with these windows.
    pub(super) fn restored(history: UsageHistory, mut windows: Vec<WindowUsage>) -> Self {
        windows.sort_unstable_by_key(|window| std::cmp::Reverse(window.span));
        windows.truncate(usize::from(history.keep_windows) + 1);
        let windows = windows.into_iter().map(|WindowUsage { span, rows }| {
            let window = UsageWindow::new(span);
            rows.iter().for_each(|row| window.add(row.consumer.as_consumer(), row.totals));
            Arc::new(window)
        });
        Self { windows: ArcSwap::from_pointee(windows.collect()), history: Mutex::new(history) }
    }

    /// Goes on, if it had ended, and keeps this number of earlier windows.
    pub(super) fn resume(&self, keep_windows: u8, now: WallTime) {
        let mut history = self.history.lock();
        history.keep_windows = keep_windows;
        if let Some(stopped) = history.stopped.take() {
            history.lose(stopped, now);
        }
        let kept: Vec<_> =
            self.windows.load().iter().take(usize::from(keep_windows) + 1).map(Arc::clone).collect();
        self.windows.store(Arc::new(kept));
    }

    /// Ends, unless it has ended before.
    pub(super) fn stop(&self, now: WallTime) {
        self.history.lock().stopped.get_or_insert(now);
    }

    pub(super) fn stopped(&self) -> Option<WallTime> {
        self.history.lock().stopped
    }

    pub(super) fn lose(&self, since: WallTime, until: WallTime) {
        self.history.lock().lose(since, until);
    }

    pub(super) fn history(&self) -> UsageHistory {
        self.history.lock().clone()
    }

    #[inline]
    pub(super) fn add(&self, span: UsageSpan, consumer: UsageConsumer<'_>, change: UsageTotals) {
        let windows = self.windows.load();
        match windows.iter().find(|window| window.span() == span) {
            Some(window) => window.add(consumer, change),
            None => self.begin(span, consumer, change),
        }
    }

    /// Begins a window, and drops those that are no longer kept.
    #[cold]
    fn begin(&self, span: UsageSpan, consumer: UsageConsumer<'_>, change: UsageTotals) {
        let history = self.history.lock();
        let mut windows = Vec::clone(&self.windows.load());
        // Another thread may have begun it.
        if windows.iter().all(|window| window.span() != span) {
            windows.push(Arc::new(UsageWindow::new(span)));
            windows.sort_unstable_by_key(|window| std::cmp::Reverse(window.span()));
            windows.truncate(usize::from(history.keep_windows) + 1);
            self.windows.store(Arc::new(windows));
        }
        drop(history);
        if let Some(window) = self.windows.load().iter().find(|window| window.span() == span) {
            window.add(consumer, change);
        }
    }

    /// One window of it.
    pub(super) fn report(&self, span: UsageSpan) -> UsageReport {
        let windows = self.windows.load();
        let window = windows.iter().find(|window| window.span() == span);
        let history = self.history.lock();
        UsageReport {
            since: history.since,
            incomplete_since: history.incomplete_since(span),
            rows: window.map(|window| window.rows()).unwrap_or_default(),
        }
    }

    /// Rows of one window that have changed since the last call. `None`: there are none.
    pub(super) fn take_changed(&self, most: usize) -> Option<(UsageSpan, Vec<UsageRow>)> {
        self.windows.load().iter().find_map(|window| {
            let rows = window.take_changed(most);
            (!rows.is_empty()).then(|| (window.span(), rows))
        })
    }

    /// All rows have changed.
    pub(super) fn rewrite(&self) {
        self.windows.load().iter().for_each(|window| window.rewrite());
    }

    pub(super) fn spans(&self) -> Vec<UsageSpan> {
        self.windows.load().iter().map(|window| window.span()).collect()
    }

    /// All windows.
    pub(super) fn windows(&self) -> Vec<WindowUsage> {
        let windows = self.windows.load();
        windows.iter().map(|window| WindowUsage { span: window.span(), rows: window.rows() }).collect()
    }

    /// All rows, each with its window.
    pub(super) fn rows(&self) -> impl Iterator<Item = (UsageSpan, UsageRow)> {
        let all = self.windows().into_iter();
        all.flat_map(|WindowUsage { span, rows }| rows.into_iter().map(move |row| (span, row)))
    }
}
