//! The last minutes, second by second: what is counted falls into one second, and none is missing.

use std::sync::Arc;

use proptest::prelude::*;
use tollgate::config;
use tollgate::limit::units::{Micros, Timestamp};
use tollgate::plan::{Plan, UpstreamIndex};
use tollgate::route::RouteIndex;
use tollgate::store::Store;
use tollgate::telemetry::history::{History, HistorySources, KEPT};
use tollgate::telemetry::metrics::{DecisionLabel, LimitVerdict, Metrics, RequestOutcome, WorkerMetrics};
use tollgate::upstream::server_registry::ServerRegistry;

const START: u64 = 1_700_000_000;

fn plan(routes: &[&str]) -> Plan {
    let head = "[upstreams.api]\nservers = [\"http://10.0.0.1:9000\", \"http://10.0.0.2:9000\"]\n\
        [limits.few]\nalgorithm = \"gcra\"\nkey = \"ip\"\nrate = \"10/s\"\n";
    let route = |name: &&str| {
        format!("[[routes]]\nname = \"{name}\"\npath = \"/{name}\"\nupstream = \"api\"\nlimits = [\"few\"]\n")
    };
    let text = head.to_owned() + &routes.iter().map(route).collect::<String>();
    config::parse(text.as_bytes(), "test.toml", &|_| None).unwrap().plan
}

/// All that samples are taken of.
struct World {
    metrics: Arc<Metrics>,
    plan: Plan,
    registry: ServerRegistry,
    store: Store,
    samples: History,
}

impl World {
    fn new(routes: &[&str]) -> Self {
        let (metrics, plan) = (Metrics::new(2), plan(routes));
        let store = Store::new(10, None).unwrap();
        let mut world =
            Self { metrics, plan, registry: ServerRegistry::default(), store, samples: History::default() };
        world.take(START * 1_000_000);
        world
    }

    fn worker(&self, number: usize) -> WorkerMetrics {
        self.metrics.worker(number, &self.plan)
    }

    /// Takes a sample at this time, in microseconds since 1970.
    fn take(&mut self, at: u64) {
        let Self { metrics, plan, registry, store, samples } = self;
        samples.take(Timestamp(at), HistorySources { metrics, plan, registry, store });
    }

    /// The sum over all seconds of the requests of a fate.
    fn sum(&self, outcome: RequestOutcome) -> u64 {
        self.samples.all().map(|column| column.all.outcomes[outcome as usize]).sum()
    }
}

fn count(worker: &WorkerMetrics, outcome: RequestOutcome) {
    let admitted = outcome != RequestOutcome::Refused;
    worker.request(Some(RouteIndex(0)), http::StatusCode::OK, Micros(1_500), Micros(0), admitted);
    worker.outcome(Some(RouteIndex(0)), outcome);
    let label =
        if outcome == RequestOutcome::Refused { DecisionLabel::Limited } else { DecisionLabel::Allowed };
    worker.decision(RouteIndex(0), 0, label);
    worker.response(UpstreamIndex(0), 1, http::StatusCode::OK, Micros(20_000));
}

#[test]
fn a_second_is_what_was_counted_in_it() {
    let mut world = World::new(&["a"]);
    let workers = [world.worker(0), world.worker(1)];
    assert_eq!((world.samples.seq(), world.samples.time()), (1, START - 1));
    for second in 0..5 {
        (0..second).for_each(|_| workers.iter().for_each(|worker| count(worker, RequestOutcome::Admitted)));
        count(&workers[0], RequestOutcome::Refused);
        workers[1].failed_attempts(UpstreamIndex(0), 3);
        world.take((START + second) * 1_000_000 + 999_999);
        assert_eq!(world.samples.time() + 1, START + second, "a second is told when it is over");
        world.take((START + second + 1) * 1_000_000);
    }
    assert_eq!((world.samples.seq(), world.samples.time()), (6, START + 4));
    for (second, column) in (0..).zip(world.samples.since(Some(1))) {
        assert_eq!(column.all.outcomes, [2 * second, 0, 1, 0, 0, 0, 0]);
        let (route, limit, upstream) = (&column.routes()[0], &column.limits()[0], &column.upstreams()[0]);
        assert_eq!((&*route.0, route.1.outcomes), ("a", [2 * second, 0, 1, 0, 0, 0, 0]));
        assert_eq!((&*limit.0, limit.1.counts), ("few", [2 * second, 0, 1, 0]));
        let told = (upstream.1.answers, upstream.1.failed, upstream.1.up);
        assert_eq!((&*upstream.0, told), ("api", (2 * second + 1, 3, 2)));
        // Of admitted requests, within a twentieth.
        let near = |time: u32| time.abs_diff(1_500) * 20 <= 1_500;
        assert_eq!(
            column.all.times.map(|times| (near(times.p50), near(times.p99))),
            (second > 0).then_some((true, true))
        );
    }
    assert_eq!(world.samples.minute("few").counts, [20, 0, 5, 0]);
    assert_eq!(world.samples.hour("few").of(LimitVerdict::Refused), 5);
    assert_eq!(world.samples.minute("none").counts, [0; 4]);
}

#[test]
fn seconds_in_which_the_process_was_held_are_empty() {
    let mut world = World::new(&["a"]);
    let worker = world.worker(0);
    count(&worker, RequestOutcome::Failed);
    world.take((START + 10) * 1_000_000);
    assert_eq!((world.samples.seq(), world.samples.time()), (11, START + 9));
    let counts: Vec<u64> = world.samples.since(Some(1)).map(|column| column.all.outcomes[3]).collect();
    assert_eq!(counts, [1, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert!(world.samples.all().all(|column| column.all.times.is_some() == (column.all.outcomes[3] > 0)));
    // Long: nothing of before is kept, and the numbers go on.
    count(&worker, RequestOutcome::Failed);
    world.take((START + 100_000) * 1_000_000);
    assert_eq!((world.samples.seq(), world.samples.time()), (100_001, START + 99_999));
    assert_eq!((world.samples.all().count(), world.sum(RequestOutcome::Failed)), (KEPT, 0));
    // A clock that stands still adds nothing.
    world.take((START + 100_000) * 1_000_000);
    assert_eq!(world.samples.seq(), 100_001);
}

#[test]
fn only_the_last_are_kept() {
    let mut world = World::new(&["a"]);
    let worker = world.worker(0);
    for second in 1..=KEPT as u64 + 50 {
        count(&worker, RequestOutcome::Admitted);
        world.take((START + second) * 1_000_000);
    }
    assert_eq!((world.samples.all().count(), world.sum(RequestOutcome::Admitted)), (KEPT, KEPT as u64));
    let seq = world.samples.seq();
    for (since, count) in
        [(Some(seq), 0), (Some(seq - 7), 7), (Some(seq - 300), KEPT), (Some(seq - 301), KEPT)]
    {
        assert_eq!(world.samples.since(since).len(), count, "{since:?} of {seq}");
    }
    for strange in [None, Some(0), Some(seq + 1), Some(u64::MAX)] {
        assert_eq!(world.samples.since(strange).len(), KEPT, "{strange:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Whatever reloads come in between, and whenever samples are taken: what a route that stays counts is told once.
    #[test]
    fn each_count_is_told_once(steps in proptest::collection::vec((0_u8..6, 0_usize..2), 1..80)) {
        const PLANS: [&[&str]; 3] = [&["stays"], &["stays", "b"], &["stays", "c", "d"]];
        let mut world = World::new(PLANS[0]);
        let mut workers = [world.worker(0), world.worker(1)];
        let (mut counted, mut second) = (0, START);
        for (step, number) in steps {
            match step {
                0..=2 => {
                    count(&workers[number], RequestOutcome::Admitted);
                    counted += 1;
                }
                3 => {
                    second += 1;
                    world.take(second * 1_000_000);
                }
                plan => {
                    world.plan = self::plan(PLANS[usize::from(plan) - 4 + number]);
                    workers[number] = world.worker(number);
                }
            }
        }
        world.take((second + 1) * 1_000_000);
        prop_assert_eq!(world.sum(RequestOutcome::Admitted), counted);
        prop_assert_eq!(world.samples.hour("few").of(LimitVerdict::Admitted), counted);
    }
}
