//! `deploy/alerts.yml`: what Prometheus is to alert of.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_yaml_ng::Value;

use crate::harness::promql::{can_have, faults_in, metrics_in};
use crate::harness::promtool;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn deploy(file: &str) -> PathBuf {
    root().join("deploy").join(file)
}

fn yaml(file: &str) -> Value {
    let text = std::fs::read_to_string(deploy(file)).expect("it can be read");
    serde_yaml_ng::from_str(&text).expect("YAML")
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_sequence().map(Vec::as_slice).unwrap_or_default()
}

fn rules() -> Vec<Value> {
    list(&yaml("alerts.yml"), "groups").iter().flat_map(|group| list(group, "rules").to_vec()).collect()
}

fn text<'a>(rule: &'a Value, key: &str) -> &'a str {
    rule[key].as_str().unwrap_or_else(|| panic!("no {key} in {rule:?}"))
}

#[test]
fn each_fires_when_it_should_and_only_then() {
    for arguments in [["check", "rules", "alerts.yml"], ["test", "rules", "alerts.test.yml"]] {
        let [first, second, file] = arguments;
        let file = deploy(file);
        promtool(&[first, second, file.to_str().expect("text")], &file);
    }
}

#[test]
fn each_is_seen_to_fire_by_the_test() {
    let tests = yaml("alerts.test.yml");
    let expected = list(&tests, "tests")
        .iter()
        .flat_map(|test| list(test, "promql_expr_test"))
        .flat_map(|expression| list(expression, "exp_samples"))
        .map(|sample| text(sample, "labels").to_owned());
    let expected: BTreeSet<String> = expected.collect();
    let rules = rules();
    let all = rules.iter().map(|rule| format!("{{alertname=\"{}\"}}", text(rule, "alert")));
    assert_eq!(all.collect::<BTreeSet<_>>(), expected);
    assert_eq!(rules.len(), expected.len(), "no name twice");
}

#[test]
fn each_says_what_to_do_and_where_to_read_on() {
    for rule in rules() {
        let annotations = &rule["annotations"];
        assert!(!text(annotations, "summary").is_empty() && !text(annotations, "description").is_empty());
        assert!(["warning", "critical"].contains(&text(&rule["labels"], "severity")), "{rule:?}");
        let (file, section) = text(annotations, "runbook").split_once('#').expect("a section");
        let document = std::fs::read_to_string(root().join("docs").join(file)).expect("a document");
        let found = document.lines().filter(|line| line.starts_with('#')).any(|line| anchor(line) == section);
        assert!(found, "{file} has no section #{section}");
    }
}

/// How a heading is linked to.
fn anchor(heading: &str) -> String {
    let words = heading.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
    words.chars().filter(|char| char.is_alphanumeric() || matches!(char, '-' | '_')).collect()
}

#[test]
fn they_look_at_metrics_and_labels_that_are_declared() {
    let rules = rules();
    let metrics: BTreeSet<&str> = rules.iter().flat_map(|rule| metrics_in(text(rule, "expr"))).collect();
    assert!(metrics.len() > 15, "{metrics:?}");
    for rule in &rules {
        let (expression, annotations) = (text(rule, "expr"), &rule["annotations"]);
        assert_eq!(faults_in(expression), [""; 0], "{expression}");
        for words in [text(annotations, "summary"), text(annotations, "description")] {
            for label in words.split("$labels.").skip(1).map(word) {
                assert!(can_have(expression, label), "`{label}` in {words}");
            }
        }
    }
    let tests = yaml("alerts.test.yml");
    for series in list(&tests, "tests").iter().flat_map(|test| list(test, "input_series")) {
        assert_eq!(faults_in(text(series, "series")), [""; 0], "{series:?}");
    }
}

fn word(text: &str) -> &str {
    text.split(|char: char| !char.is_ascii_alphanumeric() && char != '_').next().unwrap_or_default()
}
