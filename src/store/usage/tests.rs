//! The ledger beside a model: a map of sums.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::limit::calendar::CalendarUnit;
use crate::time_zones;

const HOUR: u64 = 3_600_000_000;
const DAY: u64 = 24 * HOUR;
/// 2026-11-20, at midnight.
const NOW: u64 = 1_795_132_800_000_000;

fn settings(limit: &str, keep_windows: u8) -> UsageSettings {
    UsageSettings::new(limit, time_zones::calendar(CalendarUnit::Day, "UTC").unwrap(), keep_windows)
}

fn ledger(settings: &[UsageSettings]) -> UsageLedger {
    let ledger = UsageLedger::default();
    ledger.configure(settings, WallTime(NOW));
    ledger
}

fn entry<'a>(
    of: &UsageSettings,
    at: u64,
    consumer: UsageConsumer<'a>,
    units: i64,
    requests: u64,
) -> UsageEntry<'a> {
    let change = UsageTotals { units, requests };
    UsageEntry { series: of.id(), span: of.span_of(WallTime(at)), consumer, change }
}

fn read(ledger: &UsageLedger, of: &UsageSettings, at: u64) -> UsageReport {
    ledger.read(of, of.span_of(WallTime(at))).unwrap()
}

fn rows(ledger: &UsageLedger, of: &UsageSettings, at: u64) -> BTreeMap<RowConsumer, (i64, u64)> {
    let rows = read(ledger, of, at).rows.into_iter();
    rows.map(|row| (row.consumer, (row.totals.units, row.totals.requests))).collect()
}

fn row(consumer: UsageConsumer<'_>, units: i64, requests: u64) -> (RowConsumer, (i64, u64)) {
    (consumer.into(), (units, requests))
}

#[test]
fn windows_are_those_of_the_calendar() {
    let of = settings("tokens", 2);
    let spans = of.spans_at(Timestamp(NOW + 5 * HOUR));
    let begins: Vec<_> = spans.iter().map(|span| span.begin.0).collect();
    assert_eq!(begins, [NOW, NOW - DAY, NOW - 2 * DAY]);
    assert!(spans.iter().all(|span| span.end.0 - span.begin.0 == DAY));
    // Another calendar has other windows.
    let weeks = time_zones::calendar(CalendarUnit::Week, "UTC").unwrap();
    assert_ne!(UsageSettings::new("tokens", weeks, 2).id(), of.id());
    assert_ne!(settings("other", 2).id(), of.id());
}

#[test]
fn a_correction_counts_in_the_window_of_its_admission() {
    let of = settings("tokens", 1);
    let ledger = ledger(std::slice::from_ref(&of));
    let anna = UsageConsumer::Named("anna");
    ledger.record(entry(&of, NOW, anna, 100, 1));
    ledger.record(entry(&of, NOW + DAY, anna, 100, 1));
    ledger.record(entry(&of, NOW, anna, -70, 0));
    assert_eq!(rows(&ledger, &of, NOW), [row(anna, 30, 1)].into());
    assert_eq!(rows(&ledger, &of, NOW + DAY), [row(anna, 100, 1)].into());
    // A window that is no longer kept is gone, and stays so.
    ledger.record(entry(&of, NOW + 2 * DAY, anna, 1, 1));
    ledger.record(entry(&of, NOW, anna, 5, 0));
    assert_eq!(rows(&ledger, &of, NOW), BTreeMap::new());
    assert_eq!(rows(&ledger, &of, NOW + DAY), [row(anna, 100, 1)].into());
}

#[test]
fn names_are_bounded_and_the_sum_is_not() {
    let of = settings("tokens", 1);
    let ledger = ledger(std::slice::from_ref(&of));
    for number in 0..MAX_CONSUMERS + 3 {
        ledger.record(entry(&of, NOW, UsageConsumer::Named(&number.to_string()), 2, 1));
    }
    let (first, last) = ("0", (MAX_CONSUMERS + 2).to_string());
    ledger.record(entry(&of, NOW, UsageConsumer::Named(first), 5, 0));
    ledger.record(entry(&of, NOW, UsageConsumer::Named(&last), 5, 0));
    let found = rows(&ledger, &of, NOW);
    assert_eq!(found.len(), MAX_CONSUMERS + 1);
    assert_eq!(found[&RowConsumer::Named(first.into())], (7, 1));
    assert_eq!(found[&RowConsumer::Other], (11, 3));

    let long = "x".repeat(MAX_NAME + 1);
    let at = NOW + DAY;
    ledger.record(entry(&of, at, UsageConsumer::Named(&long), 3, 1));
    ledger.record(entry(&of, at, UsageConsumer::Named(&long[1..]), 4, 1));
    let named = row(UsageConsumer::Named(&long[1..]), 4, 1);
    assert_eq!(rows(&ledger, &of, at), [row(UsageConsumer::Other, 3, 1), named].into());
}

#[test]
fn a_limit_that_ends_and_goes_on_has_a_gap() {
    let (of, other) = (settings("tokens", 1), settings("other", 1));
    let ledger = ledger(&[of.clone(), other.clone()]);
    let anna = UsageConsumer::Named("anna");
    ledger.record(entry(&of, NOW, anna, 3, 1));
    let (ended, again) = (WallTime(NOW + HOUR), WallTime(NOW + 2 * HOUR));
    ledger.configure([&other], ended);
    ledger.configure([&of, &other], again);
    ledger.record(entry(&of, NOW, anna, 4, 1));
    assert_eq!(rows(&ledger, &of, NOW), [row(anna, 7, 2)].into());
    let found = read(&ledger, &of, NOW);
    assert_eq!((found.since, found.incomplete_since), (WallTime(NOW), Some(ended)));
    assert_eq!(read(&ledger, &of, NOW + DAY).incomplete_since, None);
    assert_eq!(read(&ledger, &other, NOW).incomplete_since, None);
}

#[test]
fn a_crash_is_told_of_in_each_window_that_it_touches() {
    let of = settings("tokens", 3);
    let earlier = ledger(std::slice::from_ref(&of));
    let anna = UsageConsumer::Named("anna");
    earlier.record(entry(&of, NOW, anna, 3, 1));
    let restored = |lost_since: Option<u64>| {
        let ledger = UsageLedger::default();
        let saved = serde_json::to_string(&earlier.saved()).unwrap();
        let now = WallTime(NOW + DAY + HOUR);
        ledger.restore(serde_json::from_str(&saved).unwrap(), lost_since.map(WallTime), now);
        ledger.configure([&of], now);
        ledger
    };
    let complete = restored(None);
    assert_eq!(complete.saved(), earlier.saved());
    assert_eq!(read(&complete, &of, NOW).incomplete_since, None);
    // From an hour before midnight on.
    let crashed = restored(Some(NOW + 23 * HOUR));
    assert_eq!(rows(&crashed, &of, NOW), [row(anna, 3, 1)].into());
    assert_eq!(read(&crashed, &of, NOW).incomplete_since, Some(WallTime(NOW + 23 * HOUR)));
    assert_eq!(read(&crashed, &of, NOW + DAY).incomplete_since, Some(WallTime(NOW + DAY)));
    for complete in [NOW - DAY, NOW + 2 * DAY] {
        assert_eq!(read(&crashed, &of, complete).incomplete_since, None);
    }
}

#[test]
fn many_gaps_are_bounded_and_none_is_forgotten() {
    let of = settings("tokens", 12);
    let ledger = ledger(std::slice::from_ref(&of));
    for day in 0..1_000 {
        ledger.note_loss(WallTime(NOW + day * DAY / 100 + 5));
    }
    for day in 0..10 {
        assert!(read(&ledger, &of, NOW + day * DAY).incomplete_since.is_some(), "{day}");
    }
    assert!(ledger.saved() == ledger.saved());
}

/// A step of a random history.
#[derive(Clone, Copy, Debug)]
enum Step {
    Record {
        limit: usize,
        day: u64,
        consumer: u8,
        units: i64,
        requests: u64,
    },
    /// The process ends as planned, and another one goes on from its file.
    Restart,
    Reload,
}

fn step() -> impl Strategy<Value = Step> {
    let record = (0..2_usize, 0..3_u64, 0..6_u8, -50..100_i64, 0..2_u64).prop_map(
        |(limit, day, consumer, units, requests)| Step::Record { limit, day, consumer, units, requests },
    );
    prop_oneof![8 => record, 1 => Just(Step::Restart), 1 => Just(Step::Reload)]
}

proptest! {
    /// In whatever order: the sums are those of a map.
    #[test]
    fn sums_are_those_of_a_map(steps in proptest::collection::vec(step(), 0..200)) {
        let limits = [settings("one", 12), settings("two", 12)];
        let names = ["a", "b", "c", "d"];
        let mut ledger = ledger(&limits);
        let mut model: BTreeMap<(usize, u64), BTreeMap<RowConsumer, (i64, u64)>> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Record { limit, day, consumer, units, requests } => {
                    let consumer = match names.get(usize::from(consumer)) {
                        Some(name) => UsageConsumer::Named(name),
                        None if consumer == 4 => UsageConsumer::Anonymous,
                        None => UsageConsumer::Other,
                    };
                    ledger.record(entry(&limits[limit], NOW + day * DAY, consumer, units, requests));
                    let sums = model.entry((limit, day)).or_default().entry(consumer.into()).or_default();
                    *sums = (sums.0 + units, sums.1 + requests);
                }
                Step::Restart => {
                    let next = UsageLedger::default();
                    next.restore(ledger.saved(), None, WallTime(NOW));
                    next.configure(&limits, WallTime(NOW));
                    ledger = next;
                }
                Step::Reload => ledger.configure(&limits, WallTime(NOW)),
            }
        }
        for (limit, of) in limits.iter().enumerate() {
            for day in 0..3 {
                let expected = model.remove(&(limit, day)).unwrap_or_default();
                prop_assert_eq!(rows(&ledger, of, NOW + day * DAY), expected);
                prop_assert_eq!(read(&ledger, of, NOW + day * DAY).incomplete_since, None);
            }
        }
    }
}
