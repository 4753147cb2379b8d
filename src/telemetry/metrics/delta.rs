//! Deltas: the counts since the last read, as differences of the workers' counters. The workers only count.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use super::Metrics;
use super::decisions::{SettledCounts, VerdictCounts};
use super::routes::Answered;
use super::series::{Named, Series};
use super::totals::Total;
use super::upstreams::{Attempts, ServerAttempts};

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

/// The values of one worker at the last read.
#[derive(Debug, Default)]
struct Seen {
    /// Keeps the counters: no others have their addresses meanwhile.
    series: Arc<Series>,
    routes: Last<Answered>,
    limits: Last<VerdictCounts>,
    settled: Last<SettledCounts>,
    upstreams: Last<Attempts>,
    servers: Last<ServerAttempts>,
}

/// The values at the last read, by the address of their counters.
type Last<T> = HashMap<usize, Box<T>>;

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
                let last = std::mem::replace(&mut seen.series, series);
                seen.draw(&mut news);
                // Only now their addresses may be those of others.
                drop(last);
            }
        }
        news
    }
}

impl Seen {
    fn draw(&mut self, news: &mut Delta) {
        let Self { series, routes, limits, settled, upstreams, servers } = self;
        draw(series.routes.all(), routes, |[route]| Arc::clone(route), &mut news.routes);
        draw(
            series.limits.iter().chain(series.failures.iter()),
            limits,
            |[_, limit]| Arc::clone(limit),
            &mut news.limits,
        );
        draw(series.settlements.iter(), settled, |[limit]| Arc::clone(limit), &mut news.settled);
        draw(series.upstreams.iter(), upstreams, |[upstream]| Arc::clone(upstream), &mut news.upstreams);
        let name = |[upstream, server]: &[_; 2]| (Arc::clone(upstream), Arc::clone(server));
        draw(series.servers.iter(), servers, name, &mut news.servers);
    }
}

/// Adds the counts since the last read, and remembers the values of these counters only.
fn draw<'s, T: Total, K: Eq + Hash, const N: usize>(
    counters: impl Iterator<Item = &'s Named<T::Cells, N>>,
    last: &mut Last<T>,
    name: impl Fn(&[Arc<str>; N]) -> K,
    news: &mut HashMap<K, T>,
) where
    T::Cells: 's,
{
    let capacity = last.len();
    let mut seen = std::mem::replace(last, HashMap::with_capacity(capacity));
    for named in counters {
        let Some(cells) = named.used() else { continue };
        let address = std::ptr::from_ref(cells).addr();
        let (total, mut earlier) = (T::of(cells), seen.remove(&address).unwrap_or_default());
        let since = total.since(&earlier);
        if !since.is_zero() {
            news.entry(name(&named.labels)).or_default().add(&since);
            *earlier = total;
        }
        last.insert(address, earlier);
    }
}
