//! Usage: the consumers that a calendar limit has charged, and how many units, window by window.
//!
//! A counter knows a key by its hash, and forgets a window once the next one begins. The ledger keeps names: for a limit
//! of 100,000 units a month it says that `anna` was charged 3,000 units by 2 requests in November. An entry is added to
//! the window in which its request was admitted, also by a correction that follows in the next window, so that the sums
//! of a window do not change once its requests have ended.
//!
//! One ledger serves the process. Its rows are spread over shards by their names, each under a lock of its own; a reader
//! sees each change that was made before. A process that has handed its counters over ([`hand_over`](super::hand_over))
//! tells its successor of changes.

mod saved;
mod series;
mod window;

use std::collections::HashMap;
use std::fmt;
use std::hash::Hasher as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::{ArcSwap, ArcSwapOption};
use parking_lot::Mutex;
use siphasher::sip128::{Hasher128 as _, SipHasher24};

use crate::limit::calendar::CalendarWindows;
use crate::limit::units::Timestamp;
use crate::limit::wall_clock::{self, WallTime};
pub use saved::SavedUsage;
pub(super) use saved::UsageMessage;
use series::UsageSeries;
pub use series::{SharedUsage, UsageReport, WindowUsage};
pub use window::{RowConsumer, UsageConsumer, UsageRow, UsageTotals};

/// The most consumers of a limit and a window that have a row each. Those beyond share one.
pub const MAX_CONSUMERS: usize = 100_000;
/// The longest name of a consumer with a row of its own, in bytes.
pub const MAX_NAME: usize = 256;
/// The most limits without usage whose windows are kept, for a reload that gives it back.
const MAX_STOPPED: usize = 64;

/// `usage` of a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageSettings {
    /// Names limit and calendar, the same in all processes.
    id: u128,
    windows: CalendarWindows,
    /// The number of earlier windows that are kept.
    keep_windows: u8,
}

/// A window of a limit, by the wall clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UsageSpan {
    /// Its begin.
    pub begin: WallTime,
    /// Its end: the begin of the next one.
    pub end: WallTime,
}

impl UsageSettings {
    /// Usage of the limit with this name, in these windows.
    pub fn new(limit: &str, windows: CalendarWindows, keep_windows: u8) -> Self {
        let mut hasher = SipHasher24::new_with_keys(0, 0);
        for text in [limit, windows.name()] {
            hasher.write(&(text.len() as u64).to_le_bytes());
            hasher.write(text.as_bytes());
        }
        Self { id: hasher.finish128().as_u128(), windows, keep_windows }
    }

    /// Names limit and calendar, the same in all processes.
    pub fn id(&self) -> u128 {
        self.id
    }

    /// The calendar of its windows.
    pub fn windows(&self) -> CalendarWindows {
        self.windows
    }

    /// The number of earlier windows that are kept.
    pub fn keep_windows(&self) -> u8 {
        self.keep_windows
    }

    /// What it means, behind the other words of its limit.
    pub fn words(&self) -> String {
        match self.keep_windows {
            1 => "; keeps the usage of consumers".to_owned(),
            kept => format!("; keeps the usage of consumers for {kept} windows before the present one"),
        }
    }

    /// The window in which a charge at `at` counts.
    #[inline]
    pub fn span_at(&self, at: Timestamp) -> UsageSpan {
        let named = |wall| self.windows.window(wall);
        let begin = wall_clock::system().stepped(|clock| clock.begin(at, named));
        self.span_of(begin.unwrap_or(WallTime(at.0)))
    }

    /// The window of a moment by the wall clock.
    pub fn span_of(&self, wall: WallTime) -> UsageSpan {
        let (begin, end) = self.windows.window(wall);
        UsageSpan { begin, end }
    }

    /// The window of `at` and those before it that are kept: the newest first.
    pub fn spans_at(&self, at: Timestamp) -> Vec<UsageSpan> {
        let mut spans = vec![self.span_at(at)];
        for _ in 0..self.keep_windows {
            let Some(before) = spans.last().and_then(|span| span.begin.0.checked_sub(1)) else { break };
            let span = self.span_of(WallTime(before));
            // The calendar's first window has none before it.
            if spans.last().is_some_and(|last| span.begin >= last.begin) {
                break;
            }
            spans.push(span);
        }
        spans
    }
}

/// The usage of all limits that keep it.
#[derive(Debug, Default)]
pub struct UsageLedger {
    own: Ledger,
    /// The process that has the counters now.
    successor: ArcSwapOption<UsageSuccessor>,
    /// What it was told, in case that it ends.
    told: Ledger,
    /// The number of the last call that has written it to a shared store.
    calls: AtomicU64,
}

/// What a process is told that has taken the counters over.
pub struct UsageSuccessor {
    /// A change.
    pub record: Box<dyn Fn(UsageEntry<'_>) + Send + Sync>,
    /// Requests in flight at this moment end without their usage.
    pub lose: Box<dyn Fn(WallTime) + Send + Sync>,
}

impl fmt::Debug for UsageSuccessor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UsageSuccessor")
    }
}

/// Series by the ids of their settings.
#[derive(Debug, Default)]
struct Ledger {
    series: ArcSwap<HashMap<u128, Arc<UsageSeries>>>,
    /// Held by a change of the map.
    change: Mutex<()>,
}

/// A change of a row, with its place.
#[derive(Clone, Copy, Debug)]
pub struct UsageEntry<'a> {
    /// [`UsageSettings::id`].
    pub series: u128,
    /// The window of the request's admission.
    pub span: UsageSpan,
    /// The consumer.
    pub consumer: UsageConsumer<'a>,
    /// What is added.
    pub change: UsageTotals,
}

impl UsageLedger {
    /// Keeps the usage of these limits from `now` on. That of others ends, and stays for a time.
    pub fn configure<'s>(&self, settings: impl IntoIterator<Item = &'s UsageSettings>, now: WallTime) {
        self.own.change(|all| {
            let mut kept = Vec::new();
            for one in settings {
                kept.push(one.id);
                let begin = || Arc::new(UsageSeries::new(now));
                all.entry(one.id).or_insert_with(begin).resume(one.keep_windows, now);
            }
            for (_, series) in all.iter().filter(|(id, _)| !kept.contains(id)) {
                series.stop(now);
            }
            let mut stopped: Vec<_> =
                all.iter().filter_map(|(id, series)| Some((series.stopped()?, *id))).collect();
            stopped.sort_unstable();
            for (_, id) in stopped.iter().rev().skip(MAX_STOPPED) {
                all.remove(id);
            }
        });
    }

    /// Adds to a row, here or in the process that has the counters now.
    #[inline]
    pub fn record(&self, entry: UsageEntry<'_>) {
        match &*self.successor.load() {
            Some(successor) => {
                self.told.add(entry, true);
                (successor.record)(entry);
            }
            None => self.own.add(entry, false),
        }
    }

    /// Requests that are in flight at `now` end with the process, and their costs are not settled.
    pub fn note_loss(&self, now: WallTime) {
        match &*self.successor.load() {
            Some(successor) => (successor.lose)(now),
            None => self.own.lose(now, now),
        }
    }

    /// From now on the successor keeps the usage. What workers record at this moment ends here.
    pub(super) fn hand_over_to(&self, successor: UsageSuccessor) {
        self.successor.store(Some(Arc::new(successor)));
    }

    /// The successor is gone: what it was told counts here.
    pub(super) fn take_back(&self) {
        self.successor.store(None);
        let told = self.told.take();
        for (series, its) in told {
            for (span, row) in its.rows() {
                let consumer = row.consumer.as_consumer();
                self.own.add(UsageEntry { series, span, consumer, change: row.totals }, false);
            }
        }
    }

    /// The usage of a limit in the window with this begin. `None`: it is not kept.
    pub fn read(&self, settings: &UsageSettings, span: UsageSpan) -> Option<UsageReport> {
        Some(self.own.find(settings.id)?.report(span))
    }

    /// Rows of a window that have changed since the last call, at most this many. `None`: there are none.
    pub(super) fn take_changed(
        &self,
        settings: &UsageSettings,
        most: usize,
    ) -> Option<(UsageSpan, Vec<UsageRow>)> {
        self.own.find(settings.id)?.take_changed(most)
    }

    /// Has [`Self::take_changed`] take all rows, from the first on.
    pub(super) fn rewrite(&self, settings: &UsageSettings) {
        if let Some(series) = self.own.find(settings.id) {
            series.rewrite();
        }
    }

    /// The windows with rows.
    pub(super) fn spans(&self, settings: &UsageSettings) -> Vec<UsageSpan> {
        self.own.find(settings.id).map(|series| series.spans()).unwrap_or_default()
    }

    /// When the limit began to keep usage.
    pub(super) fn since(&self, settings: &UsageSettings) -> WallTime {
        self.own.find(settings.id).map(|series| series.history().since).unwrap_or_default()
    }

    /// The number of a call that writes rows to a shared store: larger than all before.
    pub(super) fn next_call(&self) -> u64 {
        self.calls.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// All of it, for a file or for another process.
    pub(super) fn saved(&self) -> SavedUsage {
        SavedUsage::of(&self.own.series.load())
    }

    /// Puts all into an empty ledger. `lost_since`: what was recorded between this moment and `now` is lost.
    pub(super) fn restore(&self, saved: SavedUsage, lost_since: Option<WallTime>, now: WallTime) {
        self.own.change(|all| all.extend(saved.series()));
        if let Some(since) = lost_since {
            self.own.lose(since, now);
        }
    }
}

impl Ledger {
    fn find(&self, id: u128) -> Option<Arc<UsageSeries>> {
        self.series.load().get(&id).map(Arc::clone)
    }

    /// `creates`: a series that is not there is begun.
    #[inline]
    fn add(&self, UsageEntry { series, span, consumer, change }: UsageEntry<'_>, creates: bool) {
        let all = self.series.load();
        match all.get(&series) {
            Some(found) => found.add(span, consumer, change),
            None if creates => {
                self.change(|all| {
                    all.entry(series).or_insert_with(|| Arc::new(UsageSeries::new(span.begin)));
                });
                if let Some(found) = self.find(series) {
                    found.add(span, consumer, change);
                }
            }
            // A process before this one, or a plan that has ended, keeps usage that this one does not.
            None => {}
        }
    }

    fn lose(&self, since: WallTime, until: WallTime) {
        for series in self.series.load().values() {
            series.lose(since, until);
        }
    }

    fn take(&self) -> HashMap<u128, Arc<UsageSeries>> {
        let _change = self.change.lock();
        Arc::unwrap_or_clone(self.series.swap(Arc::default()))
    }

    fn change(&self, change: impl FnOnce(&mut HashMap<u128, Arc<UsageSeries>>)) {
        let _change = self.change.lock();
        let mut all = HashMap::clone(&self.series.load());
        change(&mut all);
        self.series.store(Arc::new(all));
    }
}

#[cfg(test)]
mod tests;
