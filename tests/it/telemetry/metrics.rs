//! What is counted, how workers add up, and what outlives a reload.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use http::StatusCode;
use proptest::prelude::*;
use tollgate::config;
use tollgate::limit::units::{Micros, Timestamp};
use tollgate::plan::{Plan, UpstreamIndex};
use tollgate::route::RouteIndex;
use tollgate::store::Store;
use tollgate::telemetry::metrics::{
    ConnectionRejectReason, DecisionLabel, DeltaReader, LimitVerdict, Metrics, NO_ROUTE, ProcessCounts,
    RequestOutcome, WorkerMetrics,
};
use tollgate::upstream::server_registry::ServerRegistry;
use tollgate::upstream::{Failure, RetryReason};

use crate::harness::exposition::Page;
use crate::harness::pages::{pages, root};
use crate::harness::promql::{family_of, faults_in, metrics_in};

/// A plan with one route for each name; all send to `api` and use the limit `per-client`.
fn plan(routes: &[&str]) -> Plan {
    let head = "[server]\nlisten = [\"127.0.0.1:8080\", \"[::1]:8080\"]\nworkers = 2\n\
        [upstreams.api]\nservers = [\"http://10.0.0.1:9000\", \"http://10.0.0.2:9000\"]\n\
        [limits.per-client]\nalgorithm = \"token-bucket\"\nkey = \"ip\"\nrate = \"10/s\"\n";
    let route = |(place, name): (usize, &&str)| {
        let name = toml::Value::from(*name);
        format!(
            "[[routes]]\nname = {name}\npath = \"/{place}\"\nupstream = \"api\"\nlimits = [\"per-client\"]\n"
        )
    };
    let text = head.to_owned() + &routes.iter().enumerate().map(route).collect::<String>();
    match config::parse(text.as_bytes(), "test.toml", &|_| None) {
        Ok(loaded) => loaded.plan,
        Err(report) => panic!("{report}"),
    }
}

fn scrape(metrics: &Metrics, plan: &Plan) -> Page {
    Page::parse(&metrics.render(
        plan,
        &ServerRegistry::default(),
        &Store::new(10, None).unwrap(),
        ProcessCounts { access_log_dropped: 7, ..ProcessCounts::default() },
        None,
        Timestamp(0),
    ))
}

fn count(worker: &WorkerMetrics) {
    worker.request(Some(RouteIndex(0)), StatusCode::OK, Micros(1_500), Micros(0), true);
    worker.request(None, StatusCode::NOT_FOUND, Micros(10), Micros(0), false);
    worker.decision(RouteIndex(0), 0, DecisionLabel::Limited);
    worker.response(UpstreamIndex(0), 1, StatusCode::BAD_GATEWAY, Micros(20_000));
    worker.connection_opened(1);
}

#[test]
fn a_family_is_on_the_page_unless_the_plan_lacks_what_it_is_of() {
    let (metrics, plan) = (Metrics::new(1), plan(&["a"]));
    let worker = metrics.worker(0, &plan);
    count(&worker);
    worker.upstream_failed(UpstreamIndex(0), Failure::Connect);
    worker.retry(UpstreamIndex(0), 0, RetryReason::Failed(Failure::Connect));
    worker.connection_rejected(1, ConnectionRejectReason::Crowd);
    let page = scrape(&metrics, &plan);
    let shown: BTreeSet<&str> = page.kinds().into_iter().map(|(name, _)| name).collect();
    let absent: Vec<_> =
        Metrics::families().map(|family| family.name).filter(|name| !shown.contains(name)).collect();
    let of_bodies_mirrors_tiers_costs_queues_and_auths = [
        "tollgate_compression_input_bytes_total",
        "tollgate_compression_output_bytes_total",
        "tollgate_mirrored_requests_total",
        "tollgate_tier_decisions_total",
        "tollgate_reserved_units_total",
        "tollgate_settled_units_total",
        "tollgate_settlements_total",
        "tollgate_auth_total",
        "tollgate_queue_wait_seconds",
        "tollgate_queue_drops_total",
    ];
    let of_upstreams_and_calls = [
        "tollgate_upstream_breaker_open",
        "tollgate_upstream_breaker_openings_total",
        "tollgate_upstream_connections",
        "tollgate_upstream_pending",
        "tollgate_decision_calls_total",
    ];
    let of_a_shared_store = [
        "tollgate_store_calls_total",
        "tollgate_store_remembered_total",
        "tollgate_store_leased_total",
        "tollgate_store_unsettled_units_total",
        "tollgate_store_up",
        "tollgate_store_duration_seconds",
        "tollgate_fleet_gateways",
        "tollgate_fleet_files",
        "tollgate_fleet_clock_offset_seconds",
    ];
    let of_bans_and_shares = [
        "tollgate_bans",
        "tollgate_shadow_bans",
        "tollgate_bans_begun_total",
        "tollgate_bans_evicted_total",
        "tollgate_limit_keys",
        "tollgate_limit_max_keys",
    ];
    let of_concurrency_tls_and_traces = [
        "tollgate_concurrency_held",
        "tollgate_concurrency_max",
        "tollgate_concurrency_waiting",
        "tollgate_certificate_expiry_timestamp_seconds",
        "tollgate_acme_orders_total",
        "tollgate_acme_certificates",
        "tollgate_acme_lifetime_left_ratio",
        "tollgate_trace_exports_total",
        "tollgate_trace_spans_dropped_total",
    ];
    let expected = [
        &of_bodies_mirrors_tiers_costs_queues_and_auths[..],
        &of_upstreams_and_calls,
        &of_a_shared_store,
        &of_bans_and_shares,
        &of_concurrency_tls_and_traces,
    ];
    assert_eq!(absent, expected.concat());
}

/// Families of which no panel of `deploy/grafana-dashboard.json` has to show anything.
const WITHOUT_A_PANEL: [&str; 0] = [];

#[test]
fn every_family_has_its_row_in_the_documents_and_its_panel() {
    let declared: BTreeMap<&str, BTreeSet<&str>> =
        Metrics::families().map(|family| (family.name, family.labels.iter().copied().collect())).collect();
    let page = read("docs/monitoring.md");
    assert_eq!(rows(&page), declared);
    let dashboard = read("deploy/grafana-dashboard.json");
    let shown: BTreeSet<&str> =
        metrics_in(&dashboard).filter_map(family_of).map(|family| family.name).collect();
    let unseen = declared.into_keys().filter(|name| !shown.contains(name));
    assert_eq!(unseen.collect::<Vec<_>>(), WITHOUT_A_PANEL, "without a panel");
}

#[test]
fn what_the_documents_say_of_metrics_is_declared() {
    let pages: Vec<_> =
        pages().into_iter().filter(|page| !page.path.starts_with("docs/benchmarks/")).collect();
    assert!(pages.iter().flat_map(|page| metrics_in(&page.text)).count() > 150);
    for page in pages {
        assert_eq!(faults_in(&page.text), [""; 0], "{}", page.path);
    }
    assert_eq!(
        faults_in("sum by (a) (tollgate_bans{b=\"1\"}) / sum by (le, job) (tollgate_bans_total)"),
        [
            "`tollgate_bans` has no label `b`",
            "no metric `tollgate_bans_total`",
            "`tollgate_bans` has no label `a` to sum by"
        ]
    );
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).expect("it can be read")
}

/// The metrics of a page's list, each with its labels: an item such as ``- `a`, `b` (`label`): …`` has two of them.
fn rows(page: &str) -> BTreeMap<&str, BTreeSet<&str>> {
    let items = page.split("\n- `").skip(1).filter_map(|item| item.split(':').next());
    let mut rows = BTreeMap::new();
    for item in items.filter(|item| item.starts_with("tollgate_") || item.starts_with("process_")) {
        let (mut names, mut labels) = (Vec::new(), None);
        for (place, piece) in item.split('`').enumerate() {
            match (place % 2, &mut labels) {
                (0, None) => names.push(piece),
                (0, Some(labels)) => drop(BTreeSet::insert(labels, piece)),
                (_, _) if piece.contains('(') => labels = Some(BTreeSet::new()),
                (_, Some(_)) if piece.contains(')') => {
                    let labels = labels.take().unwrap_or_default();
                    rows.extend(names.drain(..).map(|name| (name, labels.clone())));
                }
                _ => {}
            }
        }
        rows.extend(names.into_iter().map(|name| (name, BTreeSet::new())));
    }
    rows
}

#[test]
fn what_is_counted_is_what_is_shown() {
    let (metrics, plan) = (Metrics::new(1), plan(&["a"]));
    let worker = metrics.worker(0, &plan);
    count(&worker);
    worker.connection_opened(1);
    worker.connection_closed(1);
    worker.bodies(Some(RouteIndex(0)), 3, 5);
    worker.bodies(None, 0, 70);
    worker.upstream_failed(UpstreamIndex(0), Failure::Timeout);
    worker.upstream_failed(UpstreamIndex(0), Failure::Upload);
    metrics.reloaded(true);
    metrics.reloaded(false);
    metrics.reloaded(false);
    let page = scrape(&metrics, &plan);
    for (name, labels, value) in [
        ("tollgate_requests_total", &[("route", "a"), ("code", "200")][..], 1.0),
        ("tollgate_requests_total", &[("route", NO_ROUTE), ("code", "404")], 1.0),
        (
            "tollgate_decisions_total",
            &[("route", "a"), ("limit", "per-client"), ("decision", "limited")],
            1.0,
        ),
        (
            "tollgate_decisions_total",
            &[("route", "a"), ("limit", "per-client"), ("decision", "allowed")],
            0.0,
        ),
        ("tollgate_request_duration_seconds_bucket", &[("route", "a"), ("le", "0.001")], 0.0),
        ("tollgate_request_duration_seconds_bucket", &[("route", "a"), ("le", "0.0025")], 1.0),
        ("tollgate_request_duration_seconds_sum", &[("route", "a")], 0.0015),
        ("tollgate_upstream_duration_seconds_sum", &[("upstream", "api")], 0.02),
        ("tollgate_upstream_up", &[("upstream", "api"), ("server", "10.0.0.2:9000")], 1.0),
        ("tollgate_connections", &[("listener", "[::1]:8080")], 1.0),
        ("tollgate_connections", &[("listener", "127.0.0.1:8080")], 0.0),
        ("tollgate_config_reloads_total", &[("result", "success")], 1.0),
        ("tollgate_config_reloads_total", &[("result", "failure")], 2.0),
        ("tollgate_config_last_reload_successful", &[], 0.0),
        ("tollgate_connections_accepted_total", &[("listener", "[::1]:8080")], 2.0),
        ("tollgate_max_connections", &[], 10_000.0),
        ("tollgate_request_body_bytes_total", &[("route", "a")], 3.0),
        ("tollgate_response_body_bytes_total", &[("route", "a")], 5.0),
        ("tollgate_response_body_bytes_total", &[("route", NO_ROUTE)], 70.0),
        ("tollgate_upstream_failures_total", &[("upstream", "api"), ("error", "timeout")], 1.0),
        ("tollgate_store_max_keys", &[], 10.0),
        ("tollgate_access_log_dropped_total", &[], 7.0),
        ("tollgate_build_info", &[("version", env!("CARGO_PKG_VERSION"))], 1.0),
    ] {
        assert_eq!(page.get(name, labels), Some(value), "{name} {labels:?}");
    }
    assert_eq!(
        page.sum("tollgate_upstream_failures_total", &[]),
        1.0,
        "a client's fault is not the upstream's"
    );
    metrics.reloaded(true);
    assert_eq!(scrape(&metrics, &plan).get("tollgate_config_last_reload_successful", &[]), Some(1.0));
}

#[test]
fn requests_are_in_flight_until_their_outcome() {
    let (metrics, plan) = (Metrics::new(2), plan(&["a", "b"]));
    let (one, other) = (metrics.worker(0, &plan), metrics.worker(1, &plan));
    let in_flight = || {
        ["a", "b"]
            .map(|route| scrape(&metrics, &plan).get("tollgate_requests_in_flight", &[("route", route)]))
    };
    assert_eq!(in_flight(), [Some(0.0); 2]);
    for worker in [&one, &one, &other] {
        worker.begun(RouteIndex(0));
    }
    other.begun(RouteIndex(1));
    assert_eq!(in_flight(), [Some(3.0), Some(1.0)]);
    one.outcome(Some(RouteIndex(0)), RequestOutcome::Refused);
    other.outcome(Some(RouteIndex(1)), RequestOutcome::Failed);
    assert_eq!(in_flight(), [Some(2.0), Some(0.0)]);
}

#[test]
fn responses_and_retries_count_at_their_server() {
    let (metrics, plan) = (Metrics::new(1), plan(&["a"]));
    let worker = metrics.worker(0, &plan);
    for status in [101, 200, 204, 304, 429, 502, 999] {
        worker.response(UpstreamIndex(0), 1, StatusCode::from_u16(status).unwrap(), Micros(1));
    }
    worker.retry(UpstreamIndex(0), 0, RetryReason::Failed(Failure::Reset));
    let page = scrape(&metrics, &plan);
    for (class, count) in [("1xx", 1.0), ("2xx", 2.0), ("3xx", 1.0), ("4xx", 1.0), ("5xx", 2.0)] {
        let labels = |server| [("upstream", "api"), ("server", server), ("class", class)];
        let of = |server| page.get("tollgate_upstream_responses_total", &labels(server));
        assert_eq!((of("10.0.0.1:9000"), of("10.0.0.2:9000")), (Some(0.0), Some(count)), "{class}");
    }
    let retry = [("upstream", "api"), ("server", "10.0.0.1:9000"), ("reason", "reset")];
    assert_eq!(page.get("tollgate_upstream_retries_total", &retry), Some(1.0));
    assert_eq!(page.sum("tollgate_upstream_retries_total", &[]), 1.0);
}

/// Each label is counted another number of times.
#[test]
fn every_label_has_its_own_count() {
    let (metrics, plan) = (Metrics::new(1), plan(&["a"]));
    let worker = metrics.worker(0, &plan);
    let times = |index: usize, count: &dyn Fn()| (0..=index).for_each(|_| count());
    for label in DecisionLabel::ALL {
        times(label as usize, &|| worker.decision(RouteIndex(0), 0, label));
    }
    for failure in Failure::ALL.into_iter().filter(|failure| *failure != Failure::Upload) {
        times(failure as usize, &|| worker.upstream_failed(UpstreamIndex(0), failure));
    }
    for reason in RetryReason::all() {
        times(reason.index(), &|| worker.retry(UpstreamIndex(0), 0, reason));
    }
    for reason in ConnectionRejectReason::ALL {
        times(reason as usize, &|| worker.connection_rejected(0, reason));
    }
    for outcome in RequestOutcome::ALL {
        times(outcome as usize, &|| worker.outcome(Some(RouteIndex(0)), outcome));
    }
    for verdict in LimitVerdict::ALL {
        times(verdict as usize, &|| worker.decided_locally(RouteIndex(0), 0, verdict));
    }
    let page = scrape(&metrics, &plan);
    let check = |name: &str, label: &str, words: Vec<&str>| {
        for (index, word) in words.into_iter().enumerate() {
            assert_eq!(page.sum(name, &[(label, word)]), index as f64 + 1.0, "{name} {word}");
        }
    };
    check("tollgate_decisions_total", "decision", DecisionLabel::ALL.map(DecisionLabel::as_str).into());
    let failures = Failure::ALL.into_iter().filter(|failure| *failure != Failure::Upload);
    check("tollgate_upstream_failures_total", "error", failures.map(Failure::as_str).collect());
    let retries = RetryReason::all().map(RetryReason::as_str).collect();
    check("tollgate_upstream_retries_total", "reason", retries);
    let rejections = ConnectionRejectReason::ALL.map(ConnectionRejectReason::as_str).into();
    check("tollgate_connections_refused_total", "reason", rejections);
    for (decision, count) in [("unauthenticated", 5.0), ("forbidden", 6.0), ("too_large", 7.0)] {
        let labels = [("route", "a"), ("limit", ""), ("decision", decision)];
        assert_eq!(page.get("tollgate_decisions_total", &labels), Some(count), "{decision}");
    }
    let mut reader = DeltaReader::default();
    let news = metrics.draw(&mut reader);
    assert_eq!(news.routes["a"].outcomes, [1, 2, 3, 4, 5, 6, 7]);
    // Allowed, delayed, limited or banned, and limited in shadow; each with what this process decided.
    assert_eq!(news.limits["per-client"].counts, [1 + 1, 2 + 2, 3 + 4 + 3, 5 + 4]);
    let news = metrics.draw(&mut reader);
    assert!(news.routes.is_empty() && news.limits.is_empty() && news.servers.is_empty());
}

#[test]
fn workers_add_up() {
    let (metrics, plan) = (Metrics::new(3), Arc::new(plan(&["a", "b"])));
    std::thread::scope(|scope| {
        for worker in 0..3 {
            let (metrics, plan) = (&metrics, &plan);
            scope.spawn(move || {
                let worker = metrics.worker(worker, plan);
                (0..1_000).for_each(|_| count(&worker));
            });
        }
    });
    let page = scrape(&metrics, &plan);
    assert_eq!(page.get("tollgate_requests_total", &[("route", "a"), ("code", "200")]), Some(3_000.0));
    assert_eq!(page.get("tollgate_connections", &[("listener", "[::1]:8080")]), Some(3_000.0));
    assert_eq!(page.get("tollgate_upstream_duration_seconds_count", &[("upstream", "api")]), Some(3_000.0));
    assert!(
        page.get("tollgate_request_duration_seconds_count", &[("route", "b")]).is_none(),
        "never asked for"
    );
}

#[test]
fn names_that_stay_keep_their_counters_wherever_they_move() {
    let (metrics, first) = (Metrics::new(1), plan(&["a", "b"]));
    let before = metrics.worker(0, &first);
    count(&before);
    let second = plan(&["c", "a"]);
    let after = metrics.worker(0, &second);
    after.request(Some(RouteIndex(1)), StatusCode::OK, Micros(1), Micros(0), true);
    // A request in flight still counts under the plan that it began with.
    before.request(Some(RouteIndex(0)), StatusCode::OK, Micros(1), Micros(0), true);
    before.connection_closed(1);
    let page = scrape(&metrics, &second);
    assert_eq!(page.get("tollgate_requests_total", &[("route", "a"), ("code", "200")]), Some(3.0));
    assert_eq!(page.sum("tollgate_upstream_responses_total", &[("class", "5xx")]), 1.0);
    let decision = [("route", "a"), ("limit", "per-client"), ("decision", "limited")];
    assert_eq!(page.get("tollgate_decisions_total", &decision), Some(1.0));
    assert_eq!(page.get("tollgate_connections", &[("listener", "[::1]:8080")]), Some(0.0));
}

#[test]
fn names_that_go_take_their_series_along() {
    let metrics = Metrics::new(1);
    for number in 0..100 {
        let plan = plan(&[&format!("route-{number}")]);
        count(&metrics.worker(0, &plan));
    }
    let last = plan(&["route-99"]);
    let text = metrics.render(
        &last,
        &ServerRegistry::default(),
        &Store::new(1, None).unwrap(),
        ProcessCounts::default(),
        None,
        Timestamp(0),
    );
    assert_eq!(text.matches("tollgate_requests_total{route=\"route-").count(), 1, "{text}");
}

#[test]
fn a_route_that_bears_the_name_for_none_shares_its_series() {
    let (metrics, plan) = (Metrics::new(1), plan(&[NO_ROUTE]));
    count(&metrics.worker(0, &plan));
    count(&metrics.worker(0, &plan));
    let page = scrape(&metrics, &plan);
    assert_eq!(page.get("tollgate_requests_total", &[("route", NO_ROUTE), ("code", "200")]), Some(2.0));
    assert_eq!(page.get("tollgate_requests_total", &[("route", NO_ROUTE), ("code", "404")]), Some(2.0));
}

#[test]
fn a_delay_by_a_limit_is_part_of_the_duration() {
    let (metrics, plan) = (Metrics::new(1), plan(&["a"]));
    let worker = metrics.worker(0, &plan);
    worker.request(Some(RouteIndex(0)), StatusCode::OK, Micros(1_500), Micros(0), true);
    worker.request(Some(RouteIndex(0)), StatusCode::OK, Micros(2_000_000), Micros(1_999_000), true);
    // The client left before its turn.
    worker.request(Some(RouteIndex(0)), StatusCode::OK, Micros(500_000), Micros(9_000_000), true);
    let page = scrape(&metrics, &plan);
    let count = page.get("tollgate_request_duration_seconds_count", &[("route", "a")]);
    let sum = page.get("tollgate_request_duration_seconds_sum", &[("route", "a")]);
    assert_eq!((count, sum), (Some(3.0), Some(2.5015)));
    let news = metrics.draw(&mut DeltaReader::default());
    let route = &news.routes["a"];
    let near = |shown: Option<Micros>, expected: u64| {
        assert!(shown.is_some_and(|shown| shown.0.abs_diff(expected) * 20 <= expected), "{shown:?}");
    };
    assert_eq!(route.latency.count(), 3);
    near(route.latency.quantile(1_000), 1_500);
    assert_eq!(route.delay.count(), 2);
    near(route.delay.quantile(500), 500_000);
    near(route.delay.quantile(1_000), 1_999_000);
}

#[test]
fn places_that_no_plan_has_are_ignored() {
    let (metrics, plan) = (Metrics::new(1), plan(&["a"]));
    let worker = metrics.worker(9, &plan);
    worker.request(Some(RouteIndex(7)), StatusCode::OK, Micros(u64::MAX), Micros(0), true);
    worker.decision(RouteIndex(0), 7, DecisionLabel::Allowed);
    worker.response(UpstreamIndex(7), 0, StatusCode::OK, Micros(1));
    worker.response(UpstreamIndex(0), 7, StatusCode::OK, Micros(1));
    worker.begun(RouteIndex(7));
    worker.retry(UpstreamIndex(7), 0, RetryReason::Failed(Failure::Connect));
    worker.connection_opened(7);
    scrape(&metrics, &plan);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever a route is called, the page stays well formed and says it.
    #[test]
    fn any_name_is_a_good_label(name in "\\PC{1,12}|[a\"\\\\\n]{1,6}") {
        let plan = {
            let mut plan = plan(&["a"]);
            plan.routes[0].name = name.as_str().into();
            plan
        };
        let metrics = Metrics::new(1);
        metrics.worker(0, &plan).request(Some(RouteIndex(0)), StatusCode::OK, Micros(1), Micros(0), true);
        let page = scrape(&metrics, &plan);
        prop_assert_eq!(page.get("tollgate_requests_total", &[("route", &name), ("code", "200")]), Some(1.0));
    }
}
