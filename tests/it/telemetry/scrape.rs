//! The page that the binary serves after traffic of every kind, read as Prometheus reads it.

use std::collections::BTreeSet;

use tollgate::telemetry::metrics::{Family, Metrics};

use crate::harness::busy::{Busy, NAMED, SECRETS};
use crate::harness::exposition::Page;
use crate::harness::promtool;

#[test]
fn prometheus_own_tool_takes_the_page_and_warns_of_nothing() {
    let busy = Busy::start();
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("metrics");
    std::fs::write(&file, busy.text()).expect("it can be written");
    assert_eq!(promtool(&["check", "metrics"], &file), "");
}

#[test]
fn every_request_is_counted_once_over_all_workers() {
    let busy = Busy::start();
    let page = Page::parse(&busy.text());
    let requests = |route, code| page.sum("tollgate_requests_total", &[("route", route), ("code", code)]);
    assert_eq!(page.sum("tollgate_requests_total", &[]), busy.sent as f64);
    assert_eq!(page.sum("tollgate_request_duration_seconds_count", &[]), busy.sent as f64);
    for (route, code, count) in [
        (NAMED, "200", 23.0),
        ("limited", "200", 2.0),
        ("limited", "429", 3.0),
        ("away", "502", 1.0),
        ("none", "404", 2.0),
    ] {
        assert_eq!(requests(route, code), count, "{route} {code}");
    }
    let decisions =
        |limit, decision| page.sum("tollgate_decisions_total", &[("limit", limit), ("decision", decision)]);
    for (limit, decision, count) in [
        ("two", "allowed", 2.0),
        ("two", "limited", 3.0),
        ("in-turn", "allowed", 1.0),
        ("in-turn", "delayed", 1.0),
        ("shadow", "allowed", 1.0),
        ("shadow", "shadow_limited", 1.0),
        ("exempted", "exempt", 1.0),
    ] {
        assert_eq!(decisions(limit, decision), count, "{limit} {decision}");
    }
    for (name, labels, count) in [
        ("tollgate_upstream_duration_seconds_count", &[("upstream", "api")][..], 33.0),
        ("tollgate_upstream_failures_total", &[("upstream", "away"), ("error", "connect")], 1.0),
        ("tollgate_upstream_failures_total", &[("upstream", "retried")], 0.0),
        ("tollgate_upstream_retries_total", &[("upstream", "retried"), ("reason", "connect")], 1.0),
        ("tollgate_upstream_responses_total", &[("upstream", "retried"), ("class", "2xx")], 1.0),
        ("tollgate_upstream_responses_total", &[("upstream", "api"), ("class", "2xx")], 33.0),
        ("tollgate_upstream_responses_total", &[("class", "5xx")], 0.0),
        ("tollgate_reserved_units_total", &[("limit", "settled")], 5.0),
        ("tollgate_settled_units_total", &[("limit", "settled"), ("direction", "refunded")], 4.0),
        ("tollgate_settled_units_total", &[("limit", "settled"), ("direction", "charged")], 0.0),
        ("tollgate_settlements_total", &[("limit", "settled"), ("result", "measured")], 1.0),
        ("tollgate_settlements_total", &[], 1.0),
        ("tollgate_store_unsettled_units_total", &[], 0.0),
        ("tollgate_request_body_bytes_total", &[], 7.0),
        ("tollgate_response_body_bytes_total", &[("route", NAMED)], 46.0),
        ("tollgate_connections_accepted_total", &[], busy.sent as f64 + 1.0),
    ] {
        assert_eq!(page.sum(name, labels), count, "{name} {labels:?}");
    }
}

#[test]
fn labels_hold_what_the_file_says_and_nothing_of_a_client() {
    let busy = Busy::start();
    let text = busy.text();
    let page = Page::parse(&text);
    assert!(page.label_values().contains(NAMED));
    assert!(text.contains("route=\"a \\\"quoted\\\" \\\\name\""), "{text}");
    for secret in SECRETS {
        assert!(!text.contains(secret), "{secret} in\n{text}");
    }
}

#[test]
fn families_stand_on_the_page_as_they_are_declared_and_in_this_order() {
    let busy = Busy::start();
    let text = busy.text();
    let page = Page::parse(&text);
    let comments: Vec<&str> = text.lines().filter(|line| line.starts_with('#')).collect();
    let declared = Metrics::families().flat_map(|Family { name, kind, help, .. }| {
        [format!("# HELP {name} {help}"), format!("# TYPE {name} {}", kind.as_str())]
    });
    assert_eq!(comments, declared.collect::<Vec<_>>());
    for Family { name, labels, .. } in Metrics::families() {
        let labels: BTreeSet<&str> = labels.iter().copied().collect();
        assert_eq!(page.labels_of(name), [labels.into_iter().collect()].into(), "{name}");
    }
}

#[test]
fn the_process_tells_of_itself() {
    let busy = Busy::start();
    let page = Page::parse(&busy.text());
    let value = |name| page.get(name, &[]).unwrap_or_else(|| panic!("no {name}"));
    let now =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970").as_secs_f64();
    let age = now - value("process_start_time_seconds");
    assert!((-2.0..600.0).contains(&age), "{age} s");
    let resident = busy.gateway.resident_kib() as f64 * 1024.0;
    let told = value("process_resident_memory_bytes");
    assert!(told > resident / 2.0 && told < resident * 2.0, "{told} of {resident}");
    let open = std::fs::read_dir(format!("/proc/{}/fd", busy.gateway.pid())).expect("it runs").count() as f64;
    assert!((value("process_open_fds") - open).abs() < 20.0, "{open}");
    assert!(value("process_open_fds") < value("process_max_fds"));
    assert!(value("process_cpu_seconds_total") > 0.0 && value("process_cpu_seconds_total") < 600.0);
    let left = value("tollgate_certificate_expiry_timestamp_seconds") - now;
    assert!(left > 86_400.0, "{left}");
}
