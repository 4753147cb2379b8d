//! Gateways and their server beside a model: a map of sums.
//!
//! Whatever the order of records, writes, ends, crashes and losses of the server's data: what all processes tell together is
//! the sum of what was recorded, less what a crash or a loss has taken.

use std::collections::BTreeMap;
use std::sync::Arc;

use fastrand::Rng;
use tollgate::limit::calendar::CalendarUnit;
use tollgate::limit::wall_clock::WallTime;
use tollgate::store::redis::settings::RedisSettings;
use tollgate::store::usage::{RowConsumer, UsageConsumer, UsageEntry, UsageSettings, UsageSpan, UsageTotals};
use tollgate::store::{Counters, Store};
use tollgate::time_zones;

use crate::harness::Redis;
use crate::harness::asker::{run, single};

type Rows = BTreeMap<RowConsumer, (i64, u64)>;

const DAY: u64 = 86_400_000_000;
/// 2026-11-20, at midnight.
const NOW: u64 = 1_795_132_800_000_000;
const STEPS: usize = 600;

/// A process.
struct Process {
    run: u64,
    store: Store,
    counters: Counters,
    /// What it has recorded, by the window's number.
    recorded: BTreeMap<u64, Rows>,
    /// What it has written.
    written: BTreeMap<u64, Rows>,
}

/// All processes, and what the server has of those that are gone.
struct Model {
    limit: UsageSettings,
    settings: Arc<RedisSettings>,
    processes: Vec<Process>,
    gone: BTreeMap<u64, Rows>,
    runs: u64,
    seed: u64,
}

fn add(all: &mut BTreeMap<u64, Rows>, others: &BTreeMap<u64, Rows>) {
    for (day, rows) in others {
        for (consumer, (units, requests)) in rows {
            let sums = all.entry(*day).or_default().entry(consumer.clone()).or_default();
            *sums = (sums.0 + units, sums.1 + requests);
        }
    }
}

impl Model {
    fn span(&self, day: u64) -> UsageSpan {
        self.limit.span_of(WallTime(NOW + day * DAY))
    }

    fn begin(&mut self) {
        self.runs += 1;
        let store = Store::new(10, Some(Arc::clone(&self.settings))).unwrap();
        store.usage().configure([&self.limit], WallTime(NOW));
        let counters = store.open(0);
        let (recorded, written) = (BTreeMap::new(), BTreeMap::new());
        self.processes.push(Process { run: self.runs, store, counters, recorded, written });
    }

    fn record(&mut self, rng: &mut Rng) {
        let day = rng.u64(..3);
        let span = self.span(day);
        let name = format!("consumer-{}", rng.u8(..8));
        let consumer = match rng.u8(..10) {
            0 => UsageConsumer::Anonymous,
            1 => UsageConsumer::Other,
            _ => UsageConsumer::Named(&name),
        };
        let change = UsageTotals { units: rng.i64(-50..200), requests: rng.u64(..2) };
        let at = rng.usize(..self.processes.len());
        let process = &mut self.processes[at];
        process.store.usage().record(UsageEntry { series: self.limit.id(), span, consumer, change });
        let one = BTreeMap::from([(day, Rows::from([(consumer.into(), (change.units, change.requests))]))]);
        add(&mut process.recorded, &one);
    }

    async fn write(&mut self, at: usize, ends: bool) {
        let process = &mut self.processes[at];
        let written =
            process.counters.keep_usage(process.store.usage(), process.run, [&self.limit], ends).await;
        written.expect("the server answers");
        process.written.clone_from(&process.recorded);
    }

    /// What each process tells is the sum of all that the server knows, and of its own.
    async fn check(&self) {
        for process in &self.processes {
            for day in 0..3 {
                let mut expected = self.gone.clone();
                add(&mut expected, &process.recorded);
                for other in self.processes.iter().filter(|other| other.run != process.run) {
                    add(&mut expected, &other.written);
                }
                let span = self.span(day);
                let read = process.counters.read_usage(process.run, &self.limit, span).await;
                let others = read.expect("the server answers").expect("it is shared");
                let own = process.store.usage().read(&self.limit, span).expect("it is kept");
                let rows = own.with(others).rows.into_iter();
                let rows: Rows =
                    rows.map(|row| (row.consumer, (row.totals.units, row.totals.requests))).collect();
                assert_eq!(rows, expected.remove(&day).unwrap_or_default(), "seed {}", self.seed);
            }
        }
    }
}

#[test]
fn what_all_processes_tell_is_what_was_recorded() {
    let redis = Redis::start();
    let seed = fastrand::u64(..);
    let mut rng = Rng::with_seed(seed);
    run(async {
        let calendar = time_zones::calendar(CalendarUnit::Day, "UTC").expect("a calendar");
        let mut model = Model {
            limit: UsageSettings::new("tokens", calendar, 12),
            settings: Arc::new(single(&redis)),
            processes: Vec::new(),
            gone: BTreeMap::new(),
            runs: 0,
            seed,
        };
        (0..3).for_each(|_| model.begin());
        for _ in 0..STEPS {
            let at = rng.usize(..model.processes.len());
            match rng.u8(..100) {
                0..70 => model.record(&mut rng),
                70..88 => model.write(at, false).await,
                88..92 => {
                    model.write(at, true).await;
                    let ended = model.processes.remove(at);
                    add(&mut model.gone, &ended.written);
                    model.begin();
                }
                92..94 => {
                    let crashed = model.processes.remove(at);
                    add(&mut model.gone, &crashed.written);
                    model.begin();
                }
                94..96 => {
                    // A second write finds that the first one has met an empty server.
                    redis.set(&["FLUSHALL"]);
                    model.gone.clear();
                    model.processes.iter_mut().for_each(|process| process.written.clear());
                    for _ in 0..2 {
                        for number in 0..model.processes.len() {
                            model.record_at(number);
                            model.write(number, false).await;
                        }
                    }
                }
                _ => model.check().await,
            }
        }
        model.check().await;
    });
}

impl Model {
    /// One unit more in a process, so that it has something to write.
    fn record_at(&mut self, number: usize) {
        let (span, consumer) = (self.span(0), UsageConsumer::Named("consumer-0"));
        let process = &mut self.processes[number];
        let change = UsageTotals { units: 1, requests: 1 };
        process.store.usage().record(UsageEntry { series: self.limit.id(), span, consumer, change });
        let one = BTreeMap::from([(0, Rows::from([(consumer.into(), (1, 1))]))]);
        add(&mut process.recorded, &one);
    }
}

/// Thousands of rows, which no call has at once, are read, moved and read again.
#[test]
fn many_rows_are_written_read_and_moved() {
    let redis = Redis::start();
    run(async {
        let calendar = time_zones::calendar(CalendarUnit::Day, "UTC").expect("a calendar");
        let mut model = Model {
            limit: UsageSettings::new("tokens", calendar, 12),
            settings: Arc::new(single(&redis)),
            processes: Vec::new(),
            gone: BTreeMap::new(),
            runs: 0,
            seed: 0,
        };
        (0..2).for_each(|_| model.begin());
        let span = model.span(0);
        let series = model.limit.id();
        for number in 0..3_000_u64 {
            let name = format!("{}-{number}", "x".repeat(usize::try_from(number % 250).unwrap_or_default()));
            let consumer = UsageConsumer::Named(&name);
            let change = UsageTotals { units: number.cast_signed(), requests: 1 };
            for process in &mut model.processes {
                process.store.usage().record(UsageEntry { series, span, consumer, change });
                let sums = (change.units, change.requests);
                process.recorded.entry(0).or_default().insert(consumer.into(), sums);
            }
        }
        for number in 0..2 {
            model.write(number, false).await;
        }
        model.check().await;
        model.write(0, true).await;
        let ended = model.processes.remove(0);
        add(&mut model.gone, &ended.written);
        model.check().await;
        assert!(!redis.keys().iter().any(|key| key.contains(&format!("{:016x}", ended.run))));
    });
}
