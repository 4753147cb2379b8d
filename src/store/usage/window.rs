//! One window of one limit: a row for each consumer.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::{MAX_CONSUMERS, MAX_NAME, UsageSpan};

/// The shards of a window: a name stands in one of them.
const SHARDS: usize = 64;

/// Whose usage it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum UsageConsumer<'a> {
    /// A consumer with this name.
    Named(&'a str),
    /// Requests without a consumer.
    Anonymous,
    /// Consumers without a row of their own: there are too many, or the name is too long or not known.
    Other,
}

/// [`UsageConsumer`], owned.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RowConsumer {
    /// A consumer with this name.
    Named(Box<str>),
    /// Requests without a consumer.
    Anonymous,
    /// Consumers without a row of their own.
    Other,
}

/// What was charged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UsageTotals {
    /// Units: fewer than none where an administrator has given back more than this window has charged.
    pub units: i64,
    /// Requests that were charged.
    pub requests: u64,
}

/// A row of a window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageRow {
    /// Whose it is.
    pub consumer: RowConsumer,
    /// Its sums.
    pub totals: UsageTotals,
}

/// The sums of a row in memory.
#[derive(Clone, Copy, Debug, Default)]
struct StoredRow {
    totals: UsageTotals,
    /// Since it was written to a shared store.
    is_changed: bool,
}

/// Rows by the names of their consumers.
type NamedRows = HashMap<Box<str>, StoredRow>;

/// The rows of one window.
#[derive(Debug)]
pub(super) struct UsageWindow {
    span: UsageSpan,
    hasher: RandomState,
    shards: Box<[Mutex<NamedRows>]>,
    /// The number of names in all shards.
    names: AtomicUsize,
    anonymous: Mutex<Option<StoredRow>>,
    other: Mutex<Option<StoredRow>>,
    /// Some row has changed.
    is_changed: AtomicBool,
}

impl UsageTotals {
    /// Units of a request that is admitted.
    pub fn admitted(units: u32) -> Self {
        Self { units: units.into(), requests: 1 }
    }

    /// Units that are charged or given back beside requests.
    pub fn units(units: i64) -> Self {
        Self { units, requests: 0 }
    }

    /// Adds the other ones.
    pub fn add(&mut self, other: Self) {
        self.units = self.units.saturating_add(other.units);
        self.requests = self.requests.saturating_add(other.requests);
    }
}

impl RowConsumer {
    /// The same, borrowed.
    pub fn as_consumer(&self) -> UsageConsumer<'_> {
        match self {
            Self::Named(name) => UsageConsumer::Named(name),
            Self::Anonymous => UsageConsumer::Anonymous,
            Self::Other => UsageConsumer::Other,
        }
    }
}

impl From<UsageConsumer<'_>> for RowConsumer {
    fn from(consumer: UsageConsumer<'_>) -> Self {
        match consumer {
            UsageConsumer::Named(name) => Self::Named(name.into()),
            UsageConsumer::Anonymous => Self::Anonymous,
            UsageConsumer::Other => Self::Other,
        }
    }
}

impl StoredRow {
    fn add(&mut self, change: UsageTotals) {
        self.totals.add(change);
        self.is_changed = true;
    }

    /// The sums, if they have changed.
    fn take(&mut self) -> Option<UsageTotals> {
        std::mem::take(&mut self.is_changed).then_some(self.totals)
    }
}

impl UsageWindow {
    pub(super) fn new(span: UsageSpan) -> Self {
        let shards = std::iter::repeat_with(Mutex::default).take(SHARDS).collect();
        Self {
            span,
            hasher: RandomState::new(),
            shards,
            names: AtomicUsize::new(0),
            anonymous: Mutex::default(),
            other: Mutex::default(),
            is_changed: AtomicBool::new(false),
        }
    }

    pub(super) fn span(&self) -> UsageSpan {
        self.span
    }

    pub(super) fn add(&self, consumer: UsageConsumer<'_>, change: UsageTotals) {
        match consumer {
            UsageConsumer::Named(name) if name.len() <= MAX_NAME && self.add_named(name, change) => {}
            UsageConsumer::Anonymous => self.anonymous.lock().get_or_insert_default().add(change),
            UsageConsumer::Named(_) | UsageConsumer::Other => {
                self.other.lock().get_or_insert_default().add(change);
            }
        }
        // After the row: `take_changed` takes the mark before it looks at rows.
        self.is_changed.store(true, Ordering::Release);
    }

    /// False: there are as many names as there can be, and this is none of them.
    fn add_named(&self, name: &str, change: UsageTotals) -> bool {
        let shard = usize::try_from(self.hasher.hash_one(name) % SHARDS as u64).unwrap_or_default();
        let Some(shard) = self.shards.get(shard) else { return false };
        let mut rows = shard.lock();
        if let Some(row) = rows.get_mut(name) {
            row.add(change);
            return true;
        }
        // A name is never taken away, so that one without a row stays without.
        let has_room = |names: usize| (names < MAX_CONSUMERS).then_some(names + 1);
        if self.names.fetch_update(Ordering::Relaxed, Ordering::Relaxed, has_room).is_err() {
            return false;
        }
        rows.insert(name.into(), StoredRow { totals: change, is_changed: true });
        true
    }

    /// The rows that requests without a consumer of their own have.
    fn shared_rows(&self) -> [(RowConsumer, &Mutex<Option<StoredRow>>); 2] {
        [(RowConsumer::Anonymous, &self.anonymous), (RowConsumer::Other, &self.other)]
    }

    /// All rows, in no order.
    pub(super) fn rows(&self) -> Vec<UsageRow> {
        let mut all = Vec::with_capacity(self.names.load(Ordering::Relaxed) + 2);
        for shard in &self.shards {
            all.extend(shard.lock().iter().map(|(name, row)| UsageRow {
                consumer: RowConsumer::Named(name.clone()),
                totals: row.totals,
            }));
        }
        let shared = self.shared_rows().into_iter();
        all.extend(shared.filter_map(|(consumer, row)| {
            let totals = (*row.lock())?.totals;
            Some(UsageRow { consumer, totals })
        }));
        all
    }

    /// Rows that have changed since they were taken last, at most this many.
    pub(super) fn take_changed(&self, most: usize) -> Vec<UsageRow> {
        let mut changed = Vec::new();
        if !self.is_changed.swap(false, Ordering::Acquire) {
            return changed;
        }
        for (consumer, row) in self.shared_rows() {
            let totals = row.lock().as_mut().and_then(StoredRow::take);
            changed.extend(totals.map(|totals| UsageRow { consumer, totals }));
        }
        for shard in &self.shards {
            for (name, row) in shard.lock().iter_mut() {
                if changed.len() >= most {
                    self.is_changed.store(true, Ordering::Release);
                    return changed;
                }
                let consumer = || RowConsumer::Named(name.clone());
                changed.extend(row.take().map(|totals| UsageRow { consumer: consumer(), totals }));
            }
        }
        changed
    }

    /// All rows have changed.
    pub(super) fn rewrite(&self) {
        for (_, row) in self.shared_rows() {
            row.lock().iter_mut().for_each(|row| row.is_changed = true);
        }
        for shard in &self.shards {
            shard.lock().values_mut().for_each(|row| row.is_changed = true);
        }
        self.is_changed.store(true, Ordering::Release);
    }
}
