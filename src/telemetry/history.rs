//! The history: the last five minutes, second by second, for the curves of the dashboard.
//!
//! The control thread adds one second at a time, as a difference of the workers' counters ([`DeltaReader`]); the
//! workers only count. A second contains the names used in it, so unused routes cost no memory.

mod second;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use crate::clock;
use crate::limit::units::{Micros, Timestamp};
use crate::limit::wall_clock;
use crate::plan::{Backend, Limit, Plan};
use crate::store::Store;
use crate::store::memory::in_flight::PlaceUsage;
use crate::telemetry::metrics::{DeltaReader, Metrics, ServerName, VerdictCounts};
use crate::upstream::server_registry::ServerRegistry;
use second::{PresentStates, StoreTotal};
pub use second::{Requests, SecondSample, ServerSecond, StoreSecond, Times, UpstreamSecond};

/// The number of seconds kept.
pub const KEPT: usize = 300;
/// Seconds of the shorter of the two periods for limits.
const MINUTE: usize = 60;
/// Minutes that the verdicts of limits are kept.
const MINUTES: usize = 60;

/// The last seconds.
#[derive(Debug, Default)]
pub struct History {
    tap: DeltaReader,
    store: StoreTotal,
    /// Oldest first.
    columns: VecDeque<SecondSample>,
    /// The number of the newest.
    seq: u64,
    /// When the newest began, in seconds since 1970; 0: there is none.
    newest: u64,
    hours: HourlyHistory,
}

/// The sources of the counts.
#[derive(Clone, Copy, Debug)]
pub struct HistorySources<'a> {
    /// The workers' counters.
    pub metrics: &'a Metrics,
    /// The active plan.
    pub plan: &'a Plan,
    /// The servers.
    pub registry: &'a ServerRegistry,
    /// The store.
    pub store: &'a Store,
}

impl History {
    /// Ends all seconds before the one of `now`. The counts since the last call belong to the first of them; if there
    /// are more, this process was suspended, and the others are empty.
    pub fn take(&mut self, now: Timestamp, sources: HistorySources<'_>) {
        let newest = seconds(now).saturating_sub(1);
        if self.newest == 0 {
            self.newest = newest.saturating_sub(1);
        }
        if newest <= self.newest {
            return;
        }
        let news = sources.metrics.draw(&mut self.tap);
        self.hours.count(self.newest + 1, &news.limits);
        let states = || PresentStates { up: ups(sources), places: places(sources) };
        let column = SecondSample::new(news, self.store.draw(sources.store), states());
        self.push(column);
        // All seconds before a long suspension are too old anyway.
        self.seq += (newest - self.newest).saturating_sub(KEPT as u64);
        self.newest = self.newest.max(newest.saturating_sub(KEPT as u64));
        while self.newest < newest {
            self.push(SecondSample::empty(StoreSecond::idle(sources.store), states()));
        }
    }

    fn push(&mut self, column: SecondSample) {
        (self.seq, self.newest) = (self.seq + 1, self.newest + 1);
        self.columns.push_back(column);
        while self.columns.len() > KEPT {
            self.columns.pop_front();
        }
    }

    /// The number of the newest second; 0: there is none yet.
    pub fn seq(&self) -> u64 {
        self.seq
    }

    /// When the newest second began, in seconds since 1970.
    pub fn time(&self) -> u64 {
        wall_clock::system().wall_time(Timestamp(self.newest * Micros::SECOND.0)).seconds()
    }

    /// All seconds, oldest first.
    pub fn all(&self) -> impl Iterator<Item = &SecondSample> {
        self.columns.iter()
    }

    /// The seconds after the one of this number, oldest first; all of them if that one is not kept, or none is named.
    pub fn since(&self, seq: Option<u64>) -> impl ExactSizeIterator<Item = &SecondSample> {
        let first = self.seq - self.columns.len() as u64;
        let known = seq.filter(|seq| (first..=self.seq).contains(seq)).unwrap_or(first);
        // No more than `KEPT`.
        self.columns.range(usize::try_from(known - first).unwrap_or(0)..)
    }

    /// A limit's verdicts in the last 60 whole seconds.
    pub fn minute(&self, limit: &str) -> VerdictCounts {
        self.limit_recent(limit, MINUTE)
    }

    /// Each server's responses in the last 60 whole seconds; servers without responses are left out.
    pub fn servers_minute(&self) -> HashMap<&ServerName, ServerSecond> {
        self.servers_recent(MINUTE)
    }

    /// The same in the last whole seconds, of this number.
    pub fn servers_recent(&self, seconds: usize) -> HashMap<&ServerName, ServerSecond> {
        let mut sums: HashMap<&ServerName, ServerSecond> = HashMap::new();
        let last = self.columns.len().saturating_sub(seconds);
        for (name, second) in self.columns.range(last..).flat_map(SecondSample::servers) {
            sums.entry(name).or_default().add(second);
        }
        sums
    }

    /// The counts of each upstream in the last whole seconds together, without times and without the number of servers
    /// that are up.
    pub fn upstreams_recent(&self, seconds: usize) -> HashMap<Arc<str>, UpstreamSecond> {
        let mut sums: HashMap<Arc<str>, UpstreamSecond> = HashMap::new();
        for (name, second) in self.columns.iter().rev().take(seconds).flat_map(SecondSample::upstreams) {
            let sum = sums.entry(Arc::clone(name)).or_default();
            sum.answers += second.answers;
            sum.failed += second.failed;
            sum.over_budget += second.over_budget;
            sum.counts.add(&second.counts);
        }
        sums
    }

    /// A limit's verdicts in the last whole seconds, of this number.
    pub fn limit_recent(&self, limit: &str, seconds: usize) -> VerdictCounts {
        let mut sum = VerdictCounts::default();
        let last = self.columns.iter().rev().take(seconds);
        last.filter_map(|column| column.limit(limit)).for_each(|verdicts| sum.add(verdicts));
        sum
    }

    /// A limit's verdicts in the last 60 minutes, including the present one so far.
    pub fn hour(&self, limit: &str) -> VerdictCounts {
        self.hours.sum(self.newest, limit)
    }
}

/// The number of servers of each upstream that are up now.
fn ups(sources: HistorySources<'_>) -> Vec<(Arc<str>, u32)> {
    let now = clock::now();
    let up = |upstream: &Arc<crate::plan::Upstream>| {
        let down_after = upstream.down_after();
        let up = match &upstream.backend {
            Backend::Echo => 1,
            Backend::Servers(servers) => {
                let states = sources.registry.states(upstream);
                (0..servers.len()).filter(|index| states.down(*index, now, down_after).is_none()).count()
            }
        };
        (Arc::clone(&upstream.name), u32::try_from(up).unwrap_or(u32::MAX))
    };
    sources.plan.upstreams.iter().map(up).collect()
}

/// The places of concurrency limits now.
fn places(sources: HistorySources<'_>) -> Vec<(Arc<str>, PlaceUsage)> {
    let limits = || sources.plan.limits.iter().filter(|limit| limit.is_concurrency());
    if limits().next().is_none() {
        return Vec::new();
    }
    let usages = sources.store.in_flight();
    let of = |limit: &Limit| Some((Arc::clone(&limit.name), *usages.get(&limit.identity)?));
    limits().filter_map(of).collect()
}

/// The second that contains a moment, since 1970.
pub fn seconds(at: Timestamp) -> u64 {
    at.0 / 1_000_000
}

/// The verdicts of limits in the last hour, minute by minute: the minutes of each limit with verdicts in them.
#[derive(Debug, Default)]
struct HourlyHistory {
    limits: HashMap<Arc<str>, Box<[Minute; MINUTES]>>,
    /// The minute that was counted last, since 1970.
    last: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Minute {
    /// Since 1970.
    at: u64,
    verdicts: VerdictCounts,
}

impl HourlyHistory {
    /// Adds the verdicts of this second, counted since 1970.
    fn count(&mut self, second: u64, news: &HashMap<Arc<str>, VerdictCounts>) {
        let minute = second / 60;
        if minute != self.last {
            self.last = minute;
            self.limits.retain(|_, minutes| minutes.iter().any(|one| is_recent(one.at, minute)));
        }
        for (name, verdicts) in news {
            let minutes = match self.limits.get_mut(name) {
                Some(minutes) => minutes,
                None => self
                    .limits
                    .entry(Arc::clone(name))
                    .or_insert_with(|| Box::new([Minute::default(); MINUTES])),
            };
            let slot = &mut minutes[usize::try_from(minute).unwrap_or(0) % MINUTES];
            if slot.at != minute {
                *slot = Minute { at: minute, verdicts: VerdictCounts::default() };
            }
            slot.verdicts.add(verdicts);
        }
    }

    /// The limit's verdicts in the hour that ends with this second.
    fn sum(&self, second: u64, limit: &str) -> VerdictCounts {
        let mut sum = VerdictCounts::default();
        let minutes = self.limits.get(limit).into_iter().flat_map(|minutes| minutes.iter());
        minutes.filter(|one| is_recent(one.at, second / 60)).for_each(|one| sum.add(&one.verdicts));
        sum
    }
}

/// Whether it is one of the last 60 minutes.
fn is_recent(minute: u64, now: u64) -> bool {
    minute <= now && minute + MINUTES as u64 > now
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_hour_is_the_minute_that_runs_and_the_59_before() {
        let mut hours = HourlyHistory::default();
        let name: Arc<str> = "a".into();
        let news = HashMap::from([(Arc::clone(&name), VerdictCounts { counts: [1, 0, 2, 0] })]);
        let start = 60 * 1_000_000;
        for second in start..start + 7_200 {
            hours.count(second, &news);
            let whole = (second - start).min(59 * 60 + second % 60) + 1;
            assert_eq!(hours.sum(second, "a").counts, [whole, 0, 2 * whole, 0], "at {second}");
        }
        assert_eq!(hours.sum(start, "b"), VerdictCounts::default());
        hours.count(start + 4 * 3_600, &HashMap::new());
        assert!(hours.limits.is_empty(), "a limit that says nothing is forgotten");
    }
}
