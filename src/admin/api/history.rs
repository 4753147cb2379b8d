//! `GET samples`: the last minutes, second by second.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use super::values::moment;
use super::{ApiError, Query};
use crate::admin_api::samples::{LimitSamples, RequestSamples, SampleList, StoreSamples, UpstreamSamples};
use crate::admin_api::servers::ServerReport;
use crate::clock;
use crate::plan::{Plan, Upstream};
use crate::shared::Shared;
use crate::store::memory::in_flight::PlaceUsage;
use crate::telemetry::history::{History, Requests, SecondSample, ServerSecond, Times, UpstreamSecond};
use crate::telemetry::metrics::{
    LimitVerdict, NO_ROUTE, RequestOutcome, ServerName, SettledCounts, StatusClass, VerdictCounts,
};
use crate::upstream::server_state::DownReason;

/// The maximum number of routes, limits and upstreams each: the busiest.
const MAX_NAMES: usize = 200;
/// The maximum number of servers of an upstream.
const MAX_SERVERS: usize = 100;

pub(super) fn get(shared: &Shared, query: Query<'_>) -> Result<SampleList, ApiError> {
    let since = query.number("since", "the `seq` of an earlier answer")?;
    let (plan, samples) = (shared.plan.load(), shared.samples.lock());
    let columns: Vec<&SecondSample> = samples.since(since).collect();
    Ok(SampleList {
        started: moment(shared.control.started),
        config: shared.control.config_status.borrow().version.clone(),
        seq: samples.seq(),
        time: samples.time(),
        count: columns.len() as u64,
        all: requests(&columns.iter().map(|column| column.all).collect::<Vec<_>>()),
        routes: routes(&plan, &samples, &columns),
        limits: limits(&plan, &samples, &columns),
        upstreams: upstreams(shared, &plan, &samples, &columns),
        store: store(&columns),
    })
}

fn routes(plan: &Plan, samples: &History, columns: &[&SecondSample]) -> BTreeMap<String, RequestSamples> {
    let weight = |requests: &Requests| requests.outcomes.iter().sum();
    let busy = weights(samples, |column| column.routes(), weight);
    let unrouted = busy.contains_key(NO_ROUTE).then_some(NO_ROUTE);
    let names = plan.routes.iter().map(|route| &*route.name).chain(unrouted);
    lists(&busiest(names, &busy), columns, |column| column.routes(), requests)
}

fn limits(plan: &Plan, samples: &History, columns: &[&SecondSample]) -> BTreeMap<String, LimitSamples> {
    let busy = weights(samples, |column| column.limits(), VerdictCounts::refused);
    let names = busiest(plan.limits.iter().map(|limit| &*limit.name), &busy);
    let in_shadow = |verdicts: &VerdictCounts| verdicts.of(LimitVerdict::RefusedInShadow);
    let refusals = |list: &[VerdictCounts]| LimitSamples {
        refused: numbers(list, VerdictCounts::refused),
        in_shadow: numbers(list, in_shadow),
        ..LimitSamples::default()
    };
    let mut listed = lists(&names, columns, |column| column.limits(), refusals);
    let settling = plan.limits.iter().filter(|limit| limit.settles()).map(|limit| &*limit.name);
    let settling = settling.filter(|name| names.contains(name)).collect();
    let settled =
        |list: &[SettledCounts]| (numbers(list, |one| one.requests), numbers(list, SettledCounts::units));
    for (name, counts) in lists(&settling, columns, |column| column.settled(), settled) {
        if let Some(limit) = listed.get_mut(&name) {
            (limit.settled, limit.units) = (Some(counts.0), Some(counts.1));
        }
    }
    let with_places = plan.limits.iter().filter(|limit| limit.is_concurrency());
    let adaptive = |name: &str| plan.limits.iter().any(|limit| &*limit.name == name && limit.is_adaptive());
    let with_places = with_places.map(|limit| &*limit.name).filter(|name| names.contains(name)).collect();
    let places = |list: &[PlaceUsage]| {
        [
            numbers(list, |places| places.held),
            numbers(list, |places| places.waiting),
            numbers(list, |places| places.max),
        ]
    };
    for (name, [held, waiting, max]) in lists(&with_places, columns, |column| column.places(), places) {
        let found_max = adaptive(&name).then_some(max);
        if let Some(limit) = listed.get_mut(&name) {
            (limit.held, limit.waiting, limit.found_max) = (Some(held), Some(waiting), found_max);
        }
    }
    listed
}

fn upstreams(
    shared: &Shared,
    plan: &Plan,
    samples: &History,
    columns: &[&SecondSample],
) -> BTreeMap<String, UpstreamSamples> {
    let weight = |upstream: &UpstreamSecond| upstream.answers + upstream.failed;
    let busy = weights(samples, |column| column.upstreams(), weight);
    let names = busiest(plan.upstreams.iter().map(|upstream| &*upstream.name), &busy);
    let minute = samples.servers_minute();
    let mut listed = lists(&names, columns, |column| column.upstreams(), upstream);
    for upstream in &plan.upstreams {
        if let Some(of) = listed.get_mut(&*upstream.name) {
            of.servers = servers(shared, upstream, &minute);
        }
    }
    listed
}

/// The load of each over all stored seconds.
fn weights<T>(
    samples: &History,
    items: impl Fn(&SecondSample) -> &[(Arc<str>, T)],
    weight: impl Fn(&T) -> u64,
) -> HashMap<Arc<str>, u64> {
    let mut sums = HashMap::new();
    for (name, item) in samples.all().flat_map(items) {
        match sums.get_mut(name) {
            Some(sum) => *sum += weight(item),
            None => _ = sums.insert(Arc::clone(name), weight(item)),
        }
    }
    sums
}

/// The busiest of these names; of equal ones the first.
fn busiest<'n>(names: impl Iterator<Item = &'n str>, busy: &HashMap<Arc<str>, u64>) -> HashSet<&'n str> {
    let mut names: Vec<&str> = names.collect();
    if names.len() > MAX_NAMES {
        names.sort_by_key(|name| std::cmp::Reverse(busy.get(*name)));
        names.truncate(MAX_NAMES);
    }
    names.into_iter().collect()
}

/// By name, the samples of all seconds.
fn lists<T: Copy + Default, L>(
    names: &HashSet<&str>,
    columns: &[&SecondSample],
    items: impl Fn(&SecondSample) -> &[(Arc<str>, T)],
    samples: impl Fn(&[T]) -> L,
) -> BTreeMap<String, L> {
    let mut lists: HashMap<&str, Vec<T>> = HashMap::new();
    for (index, column) in columns.iter().enumerate() {
        for (name, item) in items(column) {
            if let Some(name) = names.get(&**name) {
                let list = lists.entry(name).or_insert_with(|| vec![T::default(); columns.len()]);
                list[index] = *item;
            }
        }
    }
    let nothing = vec![T::default(); columns.len()];
    let list = |name: &&str| ((*name).to_owned(), samples(lists.get(name).unwrap_or(&nothing)));
    names.iter().map(list).collect()
}

fn numbers<T>(list: &[T], number: impl Fn(&T) -> u64) -> Vec<u64> {
    list.iter().map(number).collect()
}

fn requests(list: &[Requests]) -> RequestSamples {
    let outcome = |outcome: RequestOutcome| numbers(list, |requests| requests.outcomes[outcome as usize]);
    let mut refused = outcome(RequestOutcome::Refused);
    for kind in RequestOutcome::REJECTIONS {
        refused.iter_mut().zip(outcome(kind)).for_each(|(all, one)| *all += one);
    }
    RequestSamples {
        admitted: outcome(RequestOutcome::Admitted),
        delayed: outcome(RequestOutcome::Delayed),
        refused,
        failed: outcome(RequestOutcome::Failed),
        unauthenticated: outcome(RequestOutcome::Unauthenticated),
        forbidden: outcome(RequestOutcome::Forbidden),
        too_large: outcome(RequestOutcome::TooLarge),
        p50_ms: times(list, |one| one.times, |times| times.p50),
        p99_ms: times(list, |one| one.times, |times| times.p99),
        delay_p50_ms: times(list, |one| one.delays, |times| times.p50),
        delay_p99_ms: times(list, |one| one.delays, |times| times.p99),
    }
}

fn upstream(list: &[UpstreamSecond]) -> UpstreamSamples {
    UpstreamSamples {
        answers: numbers(list, |one| one.answers),
        failed: numbers(list, |one| one.failed),
        p50_ms: times(list, |one| one.times, |times| times.p50),
        p99_ms: times(list, |one| one.times, |times| times.p99),
        up: numbers(list, |one| one.up.into()),
        classes: classes(|class| numbers(list, |one| one.counts.class(class))),
        retries: numbers(list, |one| one.counts.retries),
        servers: Vec::new(),
    }
}

fn store(columns: &[&SecondSample]) -> StoreSamples {
    StoreSamples {
        keys: numbers(columns, |column| column.store.keys),
        evictions: numbers(columns, |column| column.store.evictions),
        errors: numbers(columns, |column| column.store.errors),
        p50_ms: times(columns, |column| column.store.times, |times| times.p50),
        p99_ms: times(columns, |column| column.store.times, |times| times.p99),
    }
}

/// Microseconds in milliseconds with two decimals.
fn milliseconds(micros: u32) -> f64 {
    f64::from(micros.div_ceil(10)) / 100.0
}

/// In milliseconds.
fn times<T>(
    list: &[T],
    times: impl Fn(&T) -> Option<Times>,
    pick: impl Fn(Times) -> u32,
) -> Vec<Option<f64>> {
    list.iter().map(|one| times(one).map(|times| milliseconds(pick(times)))).collect()
}

/// By the name of each class.
fn classes<T>(count: impl Fn(StatusClass) -> T) -> BTreeMap<String, T> {
    StatusClass::ALL.map(|class| (class.as_str().to_owned(), count(class))).into_iter().collect()
}

/// The present servers, why one is down, and each one's responses in the last minute.
fn servers(
    shared: &Shared,
    upstream: &Upstream,
    minute: &HashMap<&ServerName, ServerSecond>,
) -> Vec<ServerReport> {
    let (now, server_states) = (clock::now(), shared.server_registry.states(upstream));
    let servers = upstream.endpoints().iter().enumerate().take(MAX_SERVERS);
    let listed = servers.map(|(index, server)| {
        let down = server_states.down(index, now, upstream.down_after());
        let name = (Arc::clone(&upstream.name), Arc::clone(&server.authority));
        let ServerSecond { counts, times } = minute.get(&name).copied().unwrap_or_default();
        let state = server_states.get(index);
        ServerReport {
            server: server.authority.to_string(),
            up: down.is_none(),
            why: down.map(DownReason::as_str).map(str::to_owned),
            reason: down.map(|down| server_states.reason(index, down).to_string()),
            drained: state.is_some_and(|state| state.is_drained()),
            in_flight: state.map_or(0, |state| state.requests_in_flight()),
            p50_ms: times.map(|times| milliseconds(times.p50)),
            p99_ms: times.map(|times| milliseconds(times.p99)),
            minute: classes(|class| counts.class(class)),
            retries: counts.retries,
        }
    });
    listed.collect()
}
