//! One second of the history.

use std::collections::HashMap;
use std::sync::Arc;

use crate::counter::{CallTime, FineTotal, Scale};
use crate::store::Store;
use crate::store::memory::in_flight::PlaceUsage;
use crate::store::redis::SharedStore;
use crate::telemetry::metrics::{
    Answered, Attempts, Delta, RequestOutcome, ServerAttempts, ServerCounts, ServerName, SettledCounts,
    VerdictCounts,
};

/// The maximum number of routes, limits and upstreams each in one second; those with the most requests.
const MAX_NAMES: usize = 1_000;

/// One second. Lists are in the order of their names.
#[derive(Debug, Default)]
pub struct SecondSample {
    /// All requests that ended in it.
    pub all: Requests,
    routes: Vec<(Arc<str>, Requests)>,
    limits: Vec<(Arc<str>, VerdictCounts)>,
    settled: Vec<(Arc<str>, SettledCounts)>,
    places: Vec<(Arc<str>, PlaceUsage)>,
    upstreams: Vec<(Arc<str>, UpstreamSecond)>,
    servers: Vec<(ServerName, ServerSecond)>,
    /// The store.
    pub store: StoreSecond,
}

/// What is at the end of a second.
#[derive(Debug, Default)]
pub(super) struct PresentStates {
    /// The servers of each upstream that are up.
    pub(super) up: Vec<(Arc<str>, u32)>,
    /// The places of concurrency limits.
    pub(super) places: Vec<(Arc<str>, PlaceUsage)>,
}

/// Requests that ended in a second.
#[derive(Clone, Copy, Debug, Default)]
pub struct Requests {
    /// In the order of [`RequestOutcome::ALL`].
    pub outcomes: [u64; RequestOutcome::ALL.len()],
    /// The durations of admitted ones, without delays by leaky buckets; `None`: none was admitted.
    pub times: Option<Times>,
    /// The delays of the delayed ones; `None`: there were none.
    pub delays: Option<Times>,
}

/// Durations within a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// The median, in microseconds.
    pub p50: u32,
    /// The 99th percentile, in microseconds.
    pub p99: u32,
}

/// An upstream in a second.
#[derive(Clone, Copy, Debug, Default)]
pub struct UpstreamSecond {
    /// Attempts that were answered.
    pub answers: u64,
    /// Attempts that were not.
    pub failed: u64,
    /// Attempts that were not retried since the retry budget was used up.
    pub over_budget: u64,
    /// The times until the response head.
    pub times: Option<Times>,
    /// Responses by class, and retries, of all servers together.
    pub counts: ServerCounts,
    /// Servers that are up, at the end of the second.
    pub up: u32,
}

/// A server in a second.
#[derive(Clone, Copy, Debug, Default)]
pub struct ServerSecond {
    /// Its responses, and its failed attempts that were retried.
    pub counts: ServerCounts,
    /// The times until the response head; of several seconds, those of the last one with responses.
    pub times: Option<Times>,
}

impl ServerSecond {
    /// Adds a later second.
    pub(super) fn add(&mut self, later: &Self) {
        self.counts.add(&later.counts);
        self.times = later.times.or(self.times);
    }
}

/// The store in a second.
#[derive(Clone, Copy, Debug, Default)]
pub struct StoreSecond {
    /// Counters held in this process, at the end of the second.
    pub keys: u64,
    /// Live counters evicted.
    pub evictions: u64,
    /// Requests decided without the shared store.
    pub errors: u64,
    /// The durations of calls to the shared store.
    pub times: Option<Times>,
}

impl StoreSecond {
    /// A second without requests.
    pub(super) fn idle(store: &Store) -> Self {
        Self { keys: store.keys(), ..Self::default() }
    }
}

impl SecondSample {
    pub(super) fn new(news: Delta, store: StoreSecond, states: PresentStates) -> Self {
        let mut all = Answered::default();
        news.routes.values().for_each(|route| all.add(route));
        let mut upstreams: HashMap<Arc<str>, UpstreamSecond> =
            news.upstreams.into_iter().map(|(name, attempts)| (name, attempts.into())).collect();
        for (name, up) in states.up {
            upstreams.entry(name).or_default().up = up;
        }
        for ((upstream, _), ServerAttempts { counts, .. }) in &news.servers {
            if let Some(upstream) = upstreams.get_mut(upstream) {
                upstream.counts.add(counts);
            }
        }
        let servers = news.servers.into_iter().map(|(name, attempts)| (name, ServerSecond::from(attempts)));
        let routes = news.routes.into_iter().map(|(name, route)| (name, Requests::from(&route)));
        Self {
            all: Requests::from(&all),
            routes: busiest(routes, |route| route.outcomes.iter().sum()),
            limits: busiest(news.limits.into_iter(), |limit| limit.counts.iter().sum()),
            settled: busiest(news.settled.into_iter(), SettledCounts::units),
            places: busiest(states.places.into_iter(), |places| places.held + places.waiting),
            upstreams: busiest(upstreams.into_iter(), |upstream| upstream.answers + upstream.failed),
            servers: busiest(servers, |server| server.counts.responses()),
            store,
        }
    }

    /// A second without requests.
    pub(super) fn empty(store: StoreSecond, states: PresentStates) -> Self {
        Self::new(Delta::default(), store, states)
    }

    /// The routes with requests.
    pub fn routes(&self) -> &[(Arc<str>, Requests)] {
        &self.routes
    }

    /// The limits with verdicts.
    pub fn limits(&self) -> &[(Arc<str>, VerdictCounts)] {
        &self.limits
    }

    /// The limits with costs that were settled.
    pub fn settled(&self) -> &[(Arc<str>, SettledCounts)] {
        &self.settled
    }

    /// The concurrency limits with requests in flight or waiting, at the end of the second.
    pub fn places(&self) -> &[(Arc<str>, PlaceUsage)] {
        &self.places
    }

    /// The upstreams, used or not.
    pub fn upstreams(&self) -> &[(Arc<str>, UpstreamSecond)] {
        &self.upstreams
    }

    /// The servers with responses, or with a failed attempt that was retried.
    pub(super) fn servers(&self) -> &[(ServerName, ServerSecond)] {
        &self.servers
    }

    pub(super) fn limit(&self, name: &str) -> Option<&VerdictCounts> {
        let index = self.limits.binary_search_by(|(one, _)| (**one).cmp(name)).ok()?;
        self.limits.get(index).map(|(_, verdicts)| verdicts)
    }
}

/// At most [`MAX_NAMES`] of them, in the order of their names.
fn busiest<K: Ord, T>(items: impl Iterator<Item = (K, T)>, weight: impl Fn(&T) -> u64) -> Vec<(K, T)> {
    let mut kept: Vec<_> = items.collect();
    if kept.len() > MAX_NAMES {
        kept.sort_by_key(|(_, item)| std::cmp::Reverse(weight(item)));
        kept.truncate(MAX_NAMES);
    }
    kept.sort_by(|one, other| one.0.cmp(&other.0));
    kept.shrink_to_fit();
    kept
}

impl Times {
    fn of<S: Scale>(durations: &FineTotal<S>) -> Option<Self> {
        let quantile = |thousandths| {
            durations.quantile(thousandths).map(|span| u32::try_from(span.0).unwrap_or(u32::MAX))
        };
        Some(Self { p50: quantile(500)?, p99: quantile(990)? })
    }
}

impl From<&Answered> for Requests {
    fn from(answered: &Answered) -> Self {
        Self {
            outcomes: answered.outcomes,
            times: Times::of(&answered.latency),
            delays: Times::of(&answered.delay),
        }
    }
}

impl From<Attempts> for UpstreamSecond {
    fn from(attempts: Attempts) -> Self {
        let Attempts { duration, failed, over_budget } = attempts;
        Self {
            answers: duration.count(),
            failed,
            over_budget,
            times: Times::of(&duration),
            ..Self::default()
        }
    }
}

impl From<ServerAttempts> for ServerSecond {
    fn from(attempts: ServerAttempts) -> Self {
        Self { counts: attempts.counts, times: Times::of(&attempts.duration) }
    }
}

/// The store's totals at the last read.
#[derive(Debug, Default)]
pub(super) struct StoreTotal {
    evictions: u64,
    errors: u64,
    duration: FineTotal<CallTime>,
}

impl StoreTotal {
    fn of(store: &Store) -> Self {
        let counts = store.shared().as_deref().map(SharedStore::counts).unwrap_or_default();
        let mut duration = FineTotal::default();
        counts.iter().for_each(|counts| duration.add(&counts.duration));
        let errors = counts.iter().map(|counts| counts.errors.get()).sum();
        Self { evictions: store.evictions(), errors, duration }
    }

    /// The changes since the last call.
    pub(super) fn draw(&mut self, store: &Store) -> StoreSecond {
        let total = Self::of(store);
        let last = std::mem::replace(self, total);
        StoreSecond {
            keys: store.keys(),
            evictions: self.evictions.saturating_sub(last.evictions),
            // A reload to another shared store starts the counts anew.
            errors: self.errors.checked_sub(last.errors).unwrap_or(self.errors),
            times: Times::of(&self.duration.since(&last.duration)),
        }
    }
}
