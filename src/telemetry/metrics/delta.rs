//! Deltas: the counts since the last read, as differences of the workers' counters. The workers only count.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use super::counters::{
    DecisionCounters, RouteCounters, ServerCounters, SettlementCounters, UpstreamCounters,
};
use super::series::{Named, RouteSeries, Series, UpstreamSeries};
use super::{DecisionLabel, LimitVerdict, Metrics, RequestOutcome, SettlementResult, StatusClass};
use crate::counter::{Counter, FineTotal, RequestTime};
use crate::upstream::RetryReason;

/// The values at the last read.
#[derive(Debug, Default)]
pub struct DeltaReader {
    workers: Vec<Seen>,
}

/// The counts since the last read, by name; names without counts are left out.
#[derive(Debug, Default)]
pub struct Delta {
    /// The counts of routes.
    pub routes: HashMap<Arc<str>, Answered>,
    /// The counts of limits, on all routes together.
    pub limits: HashMap<Arc<str>, VerdictCounts>,
    /// The costs settled after responses, of limits that settle some.
    pub settled: HashMap<Arc<str>, SettledCounts>,
    /// The counts of upstreams.
    pub upstreams: HashMap<Arc<str>, Attempts>,
    /// The attempts at servers.
    pub servers: HashMap<ServerName, ServerAttempts>,
}

/// An upstream's name and a server's `host:port`.
pub type ServerName = (Arc<str>, Arc<str>);

/// Completed requests.
#[derive(Clone, Debug, Default)]
pub struct Answered {
    /// In the order of [`RequestOutcome::ALL`].
    pub outcomes: [u64; RequestOutcome::ALL.len()],
    /// The durations of those that were admitted, without delays by leaky buckets.
    pub latency: FineTotal<RequestTime>,
    /// The delays of delayed requests.
    pub delay: FineTotal<RequestTime>,
}

/// The verdicts of a limit, without requests that are exempt, or that another limit refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VerdictCounts {
    /// In the order of [`LimitVerdict::ALL`].
    pub counts: [u64; LimitVerdict::ALL.len()],
}

/// The costs of a limit that were settled after responses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SettledCounts {
    /// The number of settled requests.
    pub requests: u64,
    /// Units: reserved, charged afterwards, given back.
    units: [u64; 3],
}

/// Attempts at an upstream.
#[derive(Clone, Debug, Default)]
pub struct Attempts {
    /// The answered ones: times until the response head.
    pub duration: FineTotal<RequestTime>,
    /// The number of failed ones.
    pub failed: u64,
    /// Those that were not retried since the retry budget was used up.
    pub over_budget: u64,
}

/// Attempts at one server.
#[derive(Clone, Debug, Default)]
pub struct ServerAttempts {
    /// Responses and retries.
    pub counts: ServerCounts,
    /// Times until the response head.
    pub duration: FineTotal<RequestTime>,
}

/// The responses of one server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerCounts {
    /// Final responses, in the order of [`StatusClass::ALL`].
    pub classes: [u64; StatusClass::ALL.len()],
    /// Failed attempts that were retried.
    pub retries: u64,
}

impl ServerCounts {
    /// Final responses of all classes.
    pub fn responses(&self) -> u64 {
        self.classes.iter().sum()
    }

    /// Final responses of this class.
    pub fn class(&self, class: StatusClass) -> u64 {
        // The enum's discriminants count from 0, in the order of `ALL`.
        self.classes[class as usize]
    }

    /// Adds those of another server or another time.
    pub fn add(&mut self, other: &Self) {
        add(&mut self.classes, &other.classes);
        self.retries += other.retries;
    }
}

impl SettledCounts {
    /// The units that the requests cost in the end.
    pub fn units(&self) -> u64 {
        let [reserved, charged, refunded] = self.units;
        (reserved + charged).saturating_sub(refunded)
    }
}

impl VerdictCounts {
    /// The number of these verdicts.
    pub fn of(&self, verdict: LimitVerdict) -> u64 {
        // The enum's discriminants count from 0, in the order of `ALL`.
        self.counts[verdict as usize]
    }

    /// The refusals, those in shadow too.
    pub fn refused(&self) -> u64 {
        self.of(LimitVerdict::Refused) + self.of(LimitVerdict::RefusedInShadow)
    }

    /// Adds those of another limit or another time.
    pub fn add(&mut self, other: &Self) {
        add(&mut self.counts, &other.counts);
    }
}

/// The values of some counters, as numbers.
trait Total: Default {
    type Cells;
    fn of(cells: &Self::Cells) -> Self;
    fn since(&self, earlier: &Self) -> Self;
    fn merge(&mut self, other: &Self);
    fn is_nothing(&self) -> bool;
}

fn add<const N: usize>(sums: &mut [u64; N], more: &[u64; N]) {
    sums.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
}

fn less<const N: usize>(counts: &[u64; N], earlier: &[u64; N]) -> [u64; N] {
    std::array::from_fn(|index| counts[index].saturating_sub(earlier[index]))
}

impl Total for Answered {
    type Cells = RouteCounters;

    fn of(cells: &RouteCounters) -> Self {
        let (latency, delay) = cells.latencies();
        Self { outcomes: RequestOutcome::ALL.map(|outcome| cells.outcome(outcome).get()), latency, delay }
    }

    fn since(&self, earlier: &Self) -> Self {
        Self {
            outcomes: less(&self.outcomes, &earlier.outcomes),
            latency: self.latency.since(&earlier.latency),
            delay: self.delay.since(&earlier.delay),
        }
    }

    fn merge(&mut self, other: &Self) {
        add(&mut self.outcomes, &other.outcomes);
        self.latency.merge(&other.latency);
        self.delay.merge(&other.delay);
    }

    fn is_nothing(&self) -> bool {
        self.outcomes.iter().all(|count| *count == 0) && self.latency.count() == 0 && self.delay.count() == 0
    }
}

impl Answered {
    /// Adds those of another route.
    pub fn add(&mut self, other: &Self) {
        self.merge(other);
    }
}

impl Total for VerdictCounts {
    type Cells = DecisionCounters;

    fn of(cells: &DecisionCounters) -> Self {
        let labels = [
            DecisionLabel::Allowed,
            DecisionLabel::Delayed,
            DecisionLabel::Limited,
            DecisionLabel::ShadowLimited,
        ];
        let mut counts = labels.map(|label| cells.of(label).get());
        counts[LimitVerdict::Refused as usize] += cells.of(DecisionLabel::Banned).get();
        add(&mut counts, &LimitVerdict::ALL.map(|verdict| cells.decided_locally(verdict).get()));
        Self { counts }
    }

    fn since(&self, earlier: &Self) -> Self {
        Self { counts: less(&self.counts, &earlier.counts) }
    }

    fn merge(&mut self, other: &Self) {
        self.add(other);
    }

    fn is_nothing(&self) -> bool {
        self.counts.iter().all(|count| *count == 0)
    }
}

impl Total for SettledCounts {
    type Cells = SettlementCounters;

    fn of(cells: &SettlementCounters) -> Self {
        Self {
            requests: SettlementResult::ALL.iter().map(|result| cells.result(*result).get()).sum(),
            units: [&cells.reserved, &cells.charged, &cells.refunded].map(Counter::get),
        }
    }

    fn since(&self, earlier: &Self) -> Self {
        Self {
            requests: self.requests.saturating_sub(earlier.requests),
            units: less(&self.units, &earlier.units),
        }
    }

    fn merge(&mut self, other: &Self) {
        self.requests += other.requests;
        add(&mut self.units, &other.units);
    }

    fn is_nothing(&self) -> bool {
        self.requests == 0 && self.units == [0; 3]
    }
}

impl Total for Attempts {
    type Cells = UpstreamCounters;

    fn of(cells: &UpstreamCounters) -> Self {
        let mut duration = FineTotal::default();
        duration.add(&cells.duration);
        Self { duration, failed: cells.failed_attempts.get(), over_budget: cells.over_budget.get() }
    }

    fn since(&self, earlier: &Self) -> Self {
        Self {
            duration: self.duration.since(&earlier.duration),
            failed: self.failed.saturating_sub(earlier.failed),
            over_budget: self.over_budget.saturating_sub(earlier.over_budget),
        }
    }

    fn merge(&mut self, other: &Self) {
        self.duration.merge(&other.duration);
        self.failed += other.failed;
        self.over_budget += other.over_budget;
    }

    fn is_nothing(&self) -> bool {
        self.failed == 0 && self.over_budget == 0 && self.duration.count() == 0
    }
}

impl Total for ServerAttempts {
    type Cells = ServerCounters;

    fn of(cells: &ServerCounters) -> Self {
        let mut duration = FineTotal::default();
        duration.add(&cells.duration);
        let counts = ServerCounts {
            classes: StatusClass::ALL.map(|class| cells.class(class).get()),
            retries: RetryReason::all().map(|why| cells.retried(why).get()).sum(),
        };
        Self { counts, duration }
    }

    fn since(&self, earlier: &Self) -> Self {
        let counts = ServerCounts {
            classes: less(&self.counts.classes, &earlier.counts.classes),
            retries: self.counts.retries.saturating_sub(earlier.counts.retries),
        };
        Self { counts, duration: self.duration.since(&earlier.duration) }
    }

    fn merge(&mut self, other: &Self) {
        self.counts.add(&other.counts);
        self.duration.merge(&other.duration);
    }

    fn is_nothing(&self) -> bool {
        self.counts.retries == 0 && self.counts.responses() == 0
    }
}

/// The values of a name at the last read; none until it is used.
type Last<T> = Option<Box<T>>;

/// The values of one worker at the last read.
#[derive(Debug, Default)]
struct Seen {
    series: Arc<Series>,
    unrouted: Last<Answered>,
    routes: Vec<RouteSeen>,
    settlements: Vec<Last<SettledCounts>>,
    upstreams: Vec<UpstreamSeen>,
}

#[derive(Debug, Default)]
struct UpstreamSeen {
    attempts: Last<Attempts>,
    servers: Vec<Last<ServerAttempts>>,
}

#[derive(Debug, Default)]
struct RouteSeen {
    answers: Last<Answered>,
    limits: Vec<Last<VerdictCounts>>,
    failures: Vec<Last<VerdictCounts>>,
}

impl Metrics {
    /// The counts since the last read of `tap`, or since the start. Exact: each count is in one delta. Counts of a
    /// request in flight when a reload removes its route are in none, and in no metric.
    pub fn draw(&self, tap: &mut DeltaReader) -> Delta {
        let mut news = Delta::default();
        tap.workers.resize_with(self.workers.len(), Seen::default);
        for (seen, series) in tap.workers.iter_mut().zip(&self.workers) {
            let series = series.load_full();
            // Counters about to be dropped have counted until now.
            seen.draw(&mut news);
            if !Arc::ptr_eq(&seen.series, &series) {
                *seen = std::mem::take(seen).under(series);
                seen.draw(&mut news);
            }
        }
        news
    }
}

impl Seen {
    fn draw(&mut self, news: &mut Delta) {
        let Self { series, unrouted, routes, settlements, upstreams } = self;
        let name = |name: &Arc<str>| Arc::clone(name);
        draw(&series.unrouted, unrouted, name, &mut news.routes);
        for (route, seen) in series.routes.iter().zip(routes) {
            draw(&route.answers, &mut seen.answers, name, &mut news.routes);
            let limits = route.limits.iter().zip(&mut seen.limits);
            for (limit, seen) in limits.chain(route.failures.iter().zip(&mut seen.failures)) {
                draw(limit, seen, name, &mut news.limits);
            }
        }
        for (limit, seen) in series.settlements.iter().zip(settlements) {
            draw(limit, seen, name, &mut news.settled);
        }
        for (upstream, seen) in series.upstreams.iter().zip(upstreams) {
            draw(&upstream.exchanges, &mut seen.attempts, name, &mut news.upstreams);
            let server_name = |server: &Arc<str>| (Arc::clone(&upstream.exchanges.name), Arc::clone(server));
            for (server, seen) in upstream.servers.iter().zip(&mut seen.servers) {
                draw(server, seen, server_name, &mut news.servers);
            }
        }
    }

    /// The same of the worker's next plan.
    fn under(self, series: Arc<Series>) -> Self {
        let unrouted = if self.series.unrouted.is_same(&series.unrouted) { self.unrouted } else { None };
        let mut routes: HashMap<&str, (&RouteSeries, RouteSeen)> =
            self.series.routes.iter().zip(self.routes).map(|pair| (&*pair.0.answers.name, pair)).collect();
        let routes = series.routes.iter().map(|route| match routes.remove(&*route.answers.name) {
            None => RouteSeen {
                answers: None,
                limits: route.limits.iter().map(|_| None).collect(),
                failures: route.failures.iter().map(|_| None).collect(),
            },
            Some((old, seen)) => RouteSeen {
                answers: seen.answers.filter(|_| old.answers.is_same(&route.answers)),
                limits: carry(&old.limits, seen.limits, &route.limits),
                failures: carry(&old.failures, seen.failures, &route.failures),
            },
        });
        let mut upstreams: HashMap<&str, (&UpstreamSeries, UpstreamSeen)> = self
            .series
            .upstreams
            .iter()
            .zip(self.upstreams)
            .map(|pair| (&*pair.0.exchanges.name, pair))
            .collect();
        let upstreams =
            series.upstreams.iter().map(|upstream| match upstreams.remove(&*upstream.exchanges.name) {
                None => {
                    UpstreamSeen { attempts: None, servers: upstream.servers.iter().map(|_| None).collect() }
                }
                Some((old, seen)) => UpstreamSeen {
                    attempts: seen.attempts.filter(|_| old.exchanges.is_same(&upstream.exchanges)),
                    servers: carry(&old.servers, seen.servers, &upstream.servers),
                },
            });
        Self {
            unrouted,
            routes: routes.collect(),
            settlements: carry(&self.series.settlements, self.settlements, &series.settlements),
            upstreams: upstreams.collect(),
            series: Arc::clone(&series),
        }
    }
}

fn draw<T: Total, K: Eq + Hash>(
    named: &Named<T::Cells>,
    last: &mut Last<T>,
    key: impl FnOnce(&Arc<str>) -> K,
    news: &mut HashMap<K, T>,
) {
    let Some(cells) = named.used() else { return };
    let (total, last) = (T::of(cells), last.get_or_insert_default());
    let since = total.since(last);
    if !since.is_nothing() {
        news.entry(key(&named.name)).or_default().merge(&since);
        **last = total;
    }
}

/// The last values of the same counters under another plan.
fn carry<T: Total>(old: &[Named<T::Cells>], last: Vec<Last<T>>, new: &[Named<T::Cells>]) -> Vec<Last<T>> {
    let mut seen: HashMap<&str, (&Named<T::Cells>, Last<T>)> =
        old.iter().zip(last).map(|pair| (&*pair.0.name, pair)).collect();
    let mut last_of = |named: &Named<T::Cells>| {
        let (old, last) = seen.remove(&*named.name)?;
        last.filter(|_| old.is_same(named))
    };
    new.iter().map(&mut last_of).collect()
}
