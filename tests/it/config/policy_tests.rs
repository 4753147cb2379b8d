//! Files with tests of limits: the report of each key with each wrong type.

use std::path::Path;

use crate::harness::config::{FOLDER, parse};
use tollgate::config::{parse_policy_tests, test_schema};
use tollgate::plan::Plan;

const CONFIG: &str = "[upstreams]\ndemo = \"builtin:echo\"\n[limits.per-client]\nalgorithm = \"gcra\"\nkey = \"ip\"\n\
    rate = \"1/s\"\n[[routes]]\npath = \"/*\"\nupstream = \"demo\"\nlimits = [\"per-client\"]\n";

/// A value of each type.
const VALUES: [&str; 7] = ["\"text\"", "7", "1.5", "true", "2026-01-01", "[[]]", "{ a = 1 }"];

fn plan() -> Plan {
    match parse(CONFIG) {
        Ok(loaded) => loaded.plan,
        Err(report) => panic!("{report}"),
    }
}

/// The faults of a file in one line each, with their remedies.
fn faults(plan: &Plan, text: &str) -> Vec<String> {
    match parse_policy_tests(&[("gateway.test.toml", text.as_bytes())], plan, &|_| None) {
        Ok(_) => vec!["no fault".to_owned()],
        Err(report) => {
            let findings = report.findings().into_iter();
            findings.map(|finding| format!("{} (help: {})", finding.message, finding.help)).collect()
        }
    }
}

fn assert_snapshot(name: &str, lines: &[String]) {
    insta::with_settings!({
        snapshot_path => Path::new(FOLDER).join("policy_tests"),
        prepend_module_to_snapshot => false,
        omit_expression => true,
    }, { insta::assert_snapshot!(name, lines.join("\n")) });
}

#[test]
fn each_key_with_each_wrong_type_gives_its_report() {
    let plan = plan();
    let mut lines = Vec::new();
    let keys = [
        "at",
        "request",
        "ip",
        "listener",
        "headers",
        "body",
        "consumer",
        "tier",
        "times",
        "takes",
        "response",
        "expect",
        "limit",
        "retry_after",
        "shadow",
    ];
    for key in keys {
        for value in VALUES {
            let others = [("request", "\"GET /\""), ("expect", "200")];
            let others = others.iter().filter(|(name, _)| *name != key);
            let others: String = others.map(|(name, value)| format!(", {name} = {value}")).collect();
            let step = format!("{{ {key} = {value}{others} }}");
            let file = format!("[[test]]\nname = \"one\"\nsteps = [{step}]\n");
            lines.push(format!("{key} = {value}: {}", faults(&plan, &file).join(" | ")));
        }
    }
    for key in ["name", "start", "steps"] {
        for value in VALUES {
            let others = [("name", "\"one\""), ("steps", "[{ request = \"GET /\", expect = 200 }]")];
            let others = others.iter().filter(|(name, _)| *name != key);
            let others: String = others.map(|(name, value)| format!("{name} = {value}\n")).collect();
            let file = format!("[[test]]\n{key} = {value}\n{others}");
            lines.push(format!("{key} = {value}: {}", faults(&plan, &file).join(" | ")));
        }
    }
    assert_snapshot("types", &lines);
}

#[test]
fn each_other_fault_gives_its_report() {
    let plan = plan();
    let step = |step: &str| format!("[[test]]\nname = \"one\"\nsteps = [{{ {step} }}]\n");
    let files = [
        String::new(),
        "test = []".to_owned(),
        "[test]\nname = \"one\"".to_owned(),
        "[[tests]]\nname = \"one\"".to_owned(),
        "[[test]]\nname = \"one".to_owned(),
        "[[test]]".to_owned(),
        "[[test]]\nname = \"one\"\nsteps = []".to_owned(),
        "[[test]]\nname = \" \"\nstart = \"1969-01-01T00:00:00Z\"\nsteps = [{}]".to_owned(),
        step("expect = 200").replace("expect", "expct"),
        step("request = \"GET\", expect = 200"),
        step("request = \"GET search\", expect = 200"),
        step("request = \"GET http://\", expect = 200"),
        step("request = \"GET /\\n\", expect = 200"),
        step("request = \"descriptors http://shop/a=b\", expect = 200"),
        step("request = \"GET /\", expect = 99"),
        step("request = \"GET /\", expect = { 600 = 1 }"),
        step("request = \"GET /\", expect = { ok = 1 }"),
        step("request = \"GET /\", expect = { 200 = -1 }"),
        step("request = \"GET /\", expect = {}"),
        step("request = \"GET /\", expect = { 200 = 2 }, times = 3"),
        step("request = \"GET /\", expect = 200, times = 0"),
        step("request = \"GET /\", expect = 200, limit = \"per-clint\""),
        step("request = \"GET /\", expect = 200, shadow = [\"none\"]"),
        step("request = \"GET /\", expect = 200, listener = \"none\""),
        step("request = \"GET /\", expect = 200, consumer = \"none\""),
        step("request = \"GET /\", expect = 200, retry_after = \"1500ms\""),
        step("request = \"GET /\", expect = 200, headers = { \"a:b\" = \"x\", c = \"\\r\\n\" }"),
        step("request = \"GET /\", expect = 200, response = { status = 99, byte = 1 }"),
        step("request = \"GET /\", expect = 200, at = \"400day\""),
        step("request = \"GET /${NONE}\", expect = 200"),
        step(
            "at = \"2s\", request = \"GET /\", expect = 200 }, { at = \"1s\", request = \"GET /\", expect = 200",
        ),
        step("request = \"GET /\", expect = 200").repeat(2),
    ];
    let lines: Vec<_> =
        files.iter().map(|file| format!("{file:?}:\n    {}", faults(&plan, file).join("\n    "))).collect();
    assert_snapshot("faults", &lines);
}

#[test]
fn the_schema_of_tests_is_json_with_each_key() {
    let schema: serde_json::Value = serde_json::from_str(&test_schema()).expect("JSON");
    let steps = &schema["$defs"]["test_step"]["properties"];
    for key in ["at", "request", "expect", "shadow", "retry_after"] {
        assert!(steps[key]["description"].is_string(), "{key}: {schema:#}");
    }
}
