//! What is counted, how workers add up, and what outlives a reload.

use std::sync::Arc;

use http::StatusCode;
use proptest::prelude::*;
use tollgate::config;
use tollgate::limit::units::{Micros, Timestamp};
use tollgate::plan::{Plan, UpstreamIndex};
use tollgate::route::RouteIndex;
use tollgate::store::Store;
use tollgate::telemetry::metrics::{
    ConnectionRejectReason, DecisionLabel, Metrics, NO_ROUTE, ProcessCounts, RequestOutcome, WorkerMetrics,
};
use tollgate::upstream::server_registry::ServerRegistry;
use tollgate::upstream::{Failure, RetryReason};

use crate::harness::exposition::Page;

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
fn every_metric_of_the_contract_has_its_name_kind_and_labels() {
    let (metrics, plan) = (Metrics::new(1), plan(&["a"]));
    count(&metrics.worker(0, &plan));
    metrics.worker(0, &plan).upstream_failed(UpstreamIndex(0), Failure::Connect);
    metrics.worker(0, &plan).retry(UpstreamIndex(0), 0, RetryReason::Failed(Failure::Connect));
    metrics.worker(0, &plan).connection_rejected(1, ConnectionRejectReason::Crowd);
    let page = scrape(&metrics, &plan);
    let expected = [
        ("process_cpu_seconds_total", "counter", vec![]),
        ("process_max_fds", "gauge", vec![]),
        ("process_open_fds", "gauge", vec![]),
        ("process_resident_memory_bytes", "gauge", vec![]),
        ("process_start_time_seconds", "gauge", vec![]),
        ("tollgate_access_log_dropped_total", "counter", vec![]),
        ("tollgate_buffer_evictions_total", "counter", vec![]),
        ("tollgate_buffered_bytes", "gauge", vec![]),
        ("tollgate_build_info", "gauge", vec!["version"]),
        ("tollgate_clock_steps_total", "counter", vec![]),
        ("tollgate_config_last_reload_successful", "gauge", vec![]),
        ("tollgate_config_reloads_total", "counter", vec!["result"]),
        ("tollgate_connections", "gauge", vec!["listener"]),
        ("tollgate_connections_accepted_total", "counter", vec!["listener"]),
        ("tollgate_connections_refused_total", "counter", vec!["listener", "reason"]),
        ("tollgate_decisions_total", "counter", vec!["decision", "limit", "route"]),
        ("tollgate_max_connections", "gauge", vec![]),
        ("tollgate_request_body_bytes_total", "counter", vec!["route"]),
        ("tollgate_request_duration_seconds", "histogram", vec!["route"]),
        ("tollgate_requests_in_flight", "gauge", vec!["route"]),
        ("tollgate_requests_total", "counter", vec!["code", "route"]),
        ("tollgate_response_body_bytes_total", "counter", vec!["route"]),
        ("tollgate_store_errors_total", "counter", vec![]),
        ("tollgate_store_evictions_total", "counter", vec![]),
        ("tollgate_store_keys", "gauge", vec![]),
        ("tollgate_store_max_keys", "gauge", vec![]),
        ("tollgate_upstream_duration_seconds", "histogram", vec!["upstream"]),
        ("tollgate_upstream_ejections_total", "counter", vec!["server", "upstream"]),
        ("tollgate_upstream_failures_total", "counter", vec!["error", "upstream"]),
        ("tollgate_upstream_responses_total", "counter", vec!["class", "server", "upstream"]),
        ("tollgate_upstream_retries_total", "counter", vec!["reason", "server", "upstream"]),
        ("tollgate_upstream_up", "gauge", vec!["server", "upstream"]),
    ];
    let kinds: Vec<_> = expected.iter().map(|(name, kind, _)| (*name, *kind)).collect();
    assert_eq!(page.kinds(), kinds);
    for (name, _, labels) in expected {
        assert_eq!(page.labels_of(name).into_iter().collect::<Vec<_>>(), [labels], "{name}");
    }
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
    let news = metrics.draw(&mut tollgate::telemetry::metrics::DeltaReader::default());
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
