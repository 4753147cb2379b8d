//! `tollgate test` and a running gateway agree: the requests of the same file get the same answers from both.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use toml::{Table, Value};

use crate::harness::{Client, Gateway, binary};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/policy_tests");

/// The request of a step as bytes on a connection.
fn on_the_wire(step: &Table) -> String {
    let request = step["request"].as_str().expect("a request");
    let (method, url) = request.split_once(' ').expect("method and URL");
    let (host, target) = match url.strip_prefix("http://") {
        Some(rest) => rest.split_at(rest.find('/').expect("a path")),
        None => ("test", url),
    };
    let body = step.get("body").and_then(Value::as_str).unwrap_or_default();
    let mut lines = String::new();
    for (name, value) in step.get("headers").and_then(Value::as_table).into_iter().flatten() {
        let values = value.as_array().cloned().unwrap_or_else(|| vec![value.clone()]);
        for value in values {
            lines.push_str(&format!("{name}: {}\r\n", value.as_str().expect("a string")));
        }
    }
    if !body.is_empty() {
        lines.push_str(&format!("content-length: {}\r\n", body.len()));
    }
    format!("{method} {target} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n{lines}\r\n{body}")
}

/// The number of answers by status that a step expects.
fn expected(step: &Table) -> BTreeMap<u16, i64> {
    let times = step.get("times").and_then(Value::as_integer).unwrap_or(1);
    match &step["expect"] {
        Value::Integer(status) => BTreeMap::from([(u16::try_from(*status).expect("a status"), times)]),
        Value::Table(counts) => counts
            .iter()
            .map(|(status, count)| (status.parse().expect("a status"), count.as_integer().expect("a number")))
            .collect(),
        other => panic!("{other}"),
    }
}

#[test]
fn a_running_gateway_answers_as_the_tests_expect() {
    let run = Command::new(binary()).args(["test", "agreeing.toml"]).current_dir(FOLDER).output();
    let run = run.expect("the binary starts");
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stdout));
    let path = |name: &str| Path::new(FOLDER).join(name);
    let read = |name: &str| std::fs::read_to_string(path(name)).expect("it is there");
    let consumers = path("consumers.csv").display().to_string();
    let config = read("gateway.toml").replace("consumers.csv", &consumers);
    let file: Table = read("agreeing.toml").parse().expect("TOML");
    for test in file["test"].as_array().expect("tests") {
        // Each test begins with unused counters.
        let gateway = Gateway::start(&config);
        for step in test["steps"].as_array().expect("steps") {
            let step = step.as_table().expect("a step");
            let (expected, request) = (expected(step), on_the_wire(step));
            let mut answers: BTreeMap<u16, i64> = BTreeMap::new();
            for _ in 0..expected.values().sum() {
                *answers.entry(Client::connect(gateway.addr()).exchange(&request).status).or_default() += 1;
            }
            assert_eq!(answers, expected, "{}: {request}", test["name"]);
        }
    }
}
