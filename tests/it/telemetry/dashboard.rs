//! `deploy/grafana-dashboard.json`: what Grafana shows.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use serde_json::{Value, json};

use crate::harness::busy::Busy;
use crate::harness::exposition::Page;
use crate::harness::promql::{can_have, faults_in};
use crate::harness::promtool;

fn dashboard() -> Value {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/grafana-dashboard.json");
    serde_json::from_str(&std::fs::read_to_string(file).expect("it can be read")).expect("JSON")
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// The panels but for the headings of rows.
fn panels(dashboard: &Value) -> impl Iterator<Item = &Value> {
    list(dashboard, "panels").iter().filter(|panel| panel["type"] != "row")
}

/// Everything that it asks Prometheus.
fn expressions(dashboard: &Value) -> Vec<&str> {
    let targets = panels(dashboard).flat_map(|panel| list(panel, "targets"));
    let marks = list(&dashboard["annotations"], "list");
    targets.chain(marks).map(|target| target["expr"].as_str().expect("an expression")).collect()
}

#[test]
fn grafana_can_import_it() {
    let dashboard = dashboard();
    let number = |value: &Value| value.as_u64().expect("a number");
    assert!(number(&dashboard["schemaVersion"]) >= 39 && dashboard["uid"].is_string());
    let all = list(&dashboard, "panels");
    let ids: BTreeSet<u64> = all.iter().map(|panel| number(&panel["id"])).collect();
    assert_eq!(ids.len(), all.len(), "no id twice");
    let variables: Vec<_> = list(&dashboard["templating"], "list")
        .iter()
        .filter_map(|variable| variable["name"].as_str())
        .collect();
    assert_eq!(variables, ["datasource", "job", "instance"]);
    let mut places = BTreeSet::new();
    for panel in all {
        let [left, top, width, height] = ["x", "y", "w", "h"].map(|key| number(&panel["gridPos"][key]));
        assert!(left + width <= 24, "{panel}");
        for place in (left..left + width).flat_map(|x| (top..top + height).map(move |y| (x, y))) {
            assert!(places.insert(place), "it covers another: {panel}");
        }
    }
    for panel in panels(&dashboard) {
        for source in list(panel, "targets").iter().chain([panel]) {
            assert_eq!(source["datasource"]["uid"], "${datasource}", "{panel}");
        }
        assert!(panel["description"].is_string() && panel["fieldConfig"]["defaults"]["unit"].is_string());
    }
}

#[test]
fn it_looks_at_metrics_and_labels_that_are_declared() {
    let dashboard = dashboard();
    for expression in expressions(&dashboard) {
        assert_eq!(faults_in(expression), [""; 0], "{expression}");
    }
    for target in panels(&dashboard).flat_map(|panel| list(panel, "targets")) {
        let (expression, legend) =
            (target["expr"].as_str().expect("text"), target["legendFormat"].as_str().unwrap_or_default());
        for label in legend.split("{{").skip(1).filter_map(|rest| rest.split("}}").next()) {
            assert!(can_have(expression, label), "`{label}` in {legend}: {expression}");
        }
    }
}

/// Prometheus itself computes each panel, from the page that was served.
#[test]
fn every_panel_has_something_to_show() {
    let dashboard = dashboard();
    let page = Page::parse(&Busy::start().text());
    let series: Vec<Value> = page
        .all()
        .map(|((name, labels), value)| {
            json!({ "series": series(name, labels), "values": format!("{value}+60x20") })
        })
        .collect();
    let questions: Vec<Value> = expressions(&dashboard)
        .into_iter()
        .map(|expression| {
            let expression = expression
                .replace("$__rate_interval", "5m")
                .replace("$job", "tollgate")
                .replace("$instance", "here|there");
            assert!(!expression.replace("${1}", "").contains('$'), "{expression}");
            let sample = json!({ "labels": "{}", "value": 1 });
            json!({ "expr": format!("count({expression}) > bool 0"), "eval_time": "15m", "exp_samples": [sample] })
        })
        .collect();
    let test = json!({ "evaluation_interval": "1m", "tests": [{
        "interval": "1m", "input_series": series, "promql_expr_test": questions,
    }]});
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("panels.yml");
    std::fs::write(&file, test.to_string()).expect("it can be written");
    promtool(&["test", "rules", file.to_str().expect("text")], &file);
}

/// A series as Prometheus stores it, scraped from a target named `here`.
fn series(name: &str, labels: &[(String, String)]) -> String {
    let mut text = format!("{name}{{job=\"tollgate\", instance=\"here\"");
    for (label, value) in labels {
        let value = value.replace('\\', "\\\\").replace('"', "\\\"");
        _ = write!(text, ", {label}=\"{value}\"");
    }
    text + "}"
}
