//! `tollgate test`, through the real binary: which tests pass, what the first difference tells, and where tests are found.

use std::process::Command;

use serde_json::Value;

use crate::harness::binary;
use crate::harness::config_folder::ConfigFolder;

const CONFIG: &str = include_str!("../../policy_tests/gateway.toml");
const CONSUMERS: &str = include_str!("../../policy_tests/consumers.csv");
const AGREEING: &str = include_str!("../../policy_tests/agreeing.toml");
const LATER: &str = include_str!("../../policy_tests/later.toml");

/// Status, standard output and standard error.
type Told = (Option<i32>, String, String);

fn folder(files: &[(&str, &str)]) -> ConfigFolder {
    let all = [&[("gateway.toml", CONFIG), ("consumers.csv", CONSUMERS)], files].concat();
    ConfigFolder::new(&all)
}

fn tollgate(folder: &ConfigFolder, arguments: &[&str]) -> Told {
    let output = Command::new(binary())
        .args(arguments)
        .current_dir(folder.path(""))
        .env("NO_COLOR", "1")
        .env_remove("TOLLGATE_CONFIG")
        .output()
        .expect("the binary starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// The tests with this one step on `/search`.
fn one(step: &str) -> String {
    format!("[[test]]\nname = \"one\"\nsteps = [\n  {{ request = \"GET /search\", {step} }},\n]\n")
}

#[test]
fn tests_that_hold_pass() {
    let folder = folder(&[("gateway.test.toml", AGREEING), ("later.toml", LATER)]);
    let (status, stdout, stderr) = tollgate(&folder, &["test", "gateway.test.toml", "later.toml"]);
    assert_eq!((status, &*stderr), (Some(0), ""), "{stdout}");
    assert!(stdout.starts_with("ok   a client has 14 searches at once\n"), "{stdout}");
    assert!(stdout.ends_with("\n\n11 tests passed\n"), "{stdout}");
}

#[test]
fn the_first_difference_is_told_with_its_explanation() {
    let tests = format!(
        "{}{}",
        one("expect = 200"),
        one("times = 15, expect = 200 }, { request = \"GET /nowhere\", expect = 200").replace("one", "two")
    );
    let folder = folder(&[("gateway.test.toml", &tests)]);
    let (status, stdout, _) = tollgate(&folder, &["test"]);
    assert_eq!(status, Some(1), "{stdout}");
    let expected = "ok   one\nFAIL two\n\n\
        gateway.test.toml:9: step 1 of `two`: at 0s, GET /search, 15 times\n\
        \u{20} expected   15 × 200\n\
        \u{20} got        14 × 200, 1 × 429\n\
        \u{20} decision   request 15 of 15: 429, limited by `per-client`, 0 left, retry-after 258\n\
        \u{20} explain    GET /search\n\
        \u{20}            client    127.0.0.1: the peer itself, a trusted proxy that names no client\n\
        \u{20}            route     `/search`\n";
    assert!(stdout.starts_with(expected), "{stdout}");
    assert!(stdout.contains("             limit     `per-client` charges 1\n"), "{stdout}");
    assert!(stdout.ends_with("\n\n1 of 2 tests failed\n"), "{stdout}");
}

#[test]
fn each_expectation_can_fail() {
    for (step, expected, got) in [
        ("expect = { 200 = 0, 429 = 1 }", "1 × 429", "1 × 200"),
        (
            "times = 15, expect = { 200 = 14, 429 = 1 }, limit = \"narrow\"",
            "`narrow`",
            "refused by `per-client`",
        ),
        ("expect = 200, limit = \"narrow\"", "refused by `narrow`", "refused by no limit"),
        (
            "times = 15, expect = { 200 = 14, 429 = 1 }, retry_after = \"2s\"",
            "`retry-after: 2`",
            "`retry-after: 258`",
        ),
        ("expect = 200, retry_after = \"2s\"", "`retry-after: 2`", "no refusal"),
        ("times = 2, expect = 200, shadow = [\"narrow\"]", "`narrow` in shadow", "no limit in shadow"),
    ] {
        let folder = folder(&[("gateway.test.toml", &one(step))]);
        let (status, stdout, stderr) = tollgate(&folder, &["test"]);
        assert_eq!(status, Some(1), "{step}: {stdout}{stderr}");
        let line =
            |name: &str| stdout.lines().find(|line| line.trim_start().starts_with(name)).unwrap_or_default();
        assert!(line("expected ").contains(expected), "{step}: {stdout}");
        assert!(line("got ").contains(got), "{step}: {stdout}");
    }
}

/// The route and the key depend on it.
#[test]
fn an_explanation_knows_the_body() {
    let step = |path: &str, body: &str| {
        format!(
            "[[test]]\nname = \"one\"\nsteps = [{{ request = \"POST {path}\", expect = 404, body = '{body}', \
             headers = {{ content-type = \"application/json\" }} }}]\n"
        )
    };
    for (path, body, parts) in [
        ("/calls", r#"{"method":"admin"}"#, ["got        1 × 403", "route     `calls of operators`"]),
        ("/users", r#"{"user":"ada"}"#, ["got        1 × 200", "limit     `per-user` charges 1"]),
    ] {
        let folder = folder(&[("gateway.test.toml", &step(path, body))]);
        let (status, stdout, stderr) = tollgate(&folder, &["test"]);
        assert_eq!(status, Some(1), "{stdout}{stderr}");
        parts.iter().for_each(|part| assert!(stdout.contains(part), "{part} is missing in\n{stdout}"));
    }
}

/// Only a running gateway verifies passwords and tokens.
#[test]
fn a_credential_that_is_not_verified_is_no_answer() {
    let config = "[upstreams]\ndemo = \"builtin:echo\"\n[auth.staff]\ntype = \"basic\"\nfile = \"users\"\n\
        [[routes]]\npath = \"/*\"\nupstream = \"demo\"\nauth = \"staff\"\n";
    let users = "ada:$2y$04$abcdefghijklmnopqrstuuK1dqGB1qJYpjI5mWcEpFbRyQZ8kzGq6\n";
    let step = |more: &str| {
        format!("[[test]]\nname = \"one\"\nsteps = [{{ request = \"GET /\", expect = 200, {more} }}]\n")
    };
    let basic = step("headers = { authorization = \"Basic YWRhOng=\" }");
    let folder =
        ConfigFolder::new(&[("gateway.toml", config), ("users", users), ("gateway.test.toml", &basic)]);
    let (status, stdout, stderr) = tollgate(&folder, &["test"]);
    assert_eq!(status, Some(1), "{stdout}{stderr}");
    assert!(stdout.contains("got        1 × not verified\n"), "{stdout}");
    assert!(stdout.contains("name whose it is: `consumer = \"NAME\"`"), "{stdout}");
    folder.write("gateway.test.toml", step("consumer = \"ada\""));
    assert_eq!(tollgate(&folder, &["test"]).0, Some(0));
}

#[test]
fn programs_get_an_array_of_results() {
    let tests = format!("{}{}", one("expect = 200"), one("expect = 404").replace("one", "two"));
    let folder = folder(&[("gateway.test.toml", &tests)]);
    let (status, stdout, _) = tollgate(&folder, &["test", "--json"]);
    assert_eq!(status, Some(1), "{stdout}");
    let results: Value = serde_json::from_str(&stdout).expect("JSON");
    assert_eq!(results[0]["passed"], true);
    assert_eq!((&results[0]["name"], &results[0]["line"]), (&"one".into(), &1.into()));
    let failed = &results[1];
    assert_eq!((&failed["passed"], &failed["step"], &failed["line"]), (&false.into(), &1.into(), &9.into()));
    assert_eq!((&failed["expected"], &failed["got"]), (&"1 × 404".into(), &"1 × 200".into()));
    assert_eq!(failed["file"], "gateway.test.toml");
    assert!(failed["explain"].as_str().is_some_and(|text| text.contains("`/search`")), "{stdout}");
}

#[test]
fn a_filter_runs_those_whose_name_contains_it() {
    let tests = format!("{}{}", one("expect = 200"), one("expect = 404").replace("one", "two"));
    let folder = folder(&[("gateway.test.toml", &tests)]);
    let (status, stdout, _) = tollgate(&folder, &["test", "--filter", "ne"]);
    assert_eq!((status, &*stdout), (Some(0), "ok   one\n\n1 test passed\n"));
    let (status, _, stderr) = tollgate(&folder, &["test", "--filter", "three"]);
    assert_eq!(status, Some(2));
    assert!(stderr.contains("no test has a name with `three`"), "{stderr}");
}

#[test]
fn the_tests_lie_beside_the_configuration() {
    let good = one("expect = 200");
    let folder = folder(&[
        ("conf/gateway.toml", CONFIG),
        ("conf/consumers.csv", CONSUMERS),
        ("conf.test.toml", &good),
        ("other.toml", CONFIG),
        ("other.test.toml", &good),
        ("tests/a.toml", &good),
        ("tests/b.toml", &good.replace("one", "b")),
        ("empty/x.txt", ""),
    ]);
    for (arguments, count) in [
        (&["test", "-c", "conf"][..], "1 test"),
        (&["test", "-c", "other.toml"], "1 test"),
        (&["test", "tests"], "2 tests"),
        (&["test", "tests", "-c", "other.toml"], "2 tests"),
    ] {
        let (status, stdout, stderr) = tollgate(&folder, arguments);
        assert_eq!(status, Some(0), "{arguments:?}: {stdout}{stderr}");
        assert!(stdout.ends_with(&format!("\n{count} passed\n")), "{arguments:?}: {stdout}");
    }
    for (arguments, part) in [
        (&["test"][..], "cannot read `gateway.test.toml`: there is no such file"),
        (&["test", "-c", "-"], "a configuration from standard input has no file with tests beside it"),
        (&["test", "empty"], "there is no `*.toml` in `empty`"),
        (&["test", "other.test.toml", "other.test.toml"], "`other.test.toml` is named twice"),
        (&["test", "tests", "other.test.toml"], "a test with this name is in tests/a.toml:1, too"),
        (&["test", "-c", "nowhere.toml"], "cannot read `nowhere.toml`"),
    ] {
        let (status, stdout, stderr) = tollgate(&folder, arguments);
        assert_eq!(status, Some(2), "{arguments:?}: {stdout}{stderr}");
        assert!(stderr.contains(part), "{arguments:?}: {stderr}");
    }
}

/// A configuration that reads all files of its directory would read the tests, too.
#[test]
fn tests_in_the_configuration_are_a_fault_with_a_remedy() {
    let folder = folder(&[("conf/a.toml", CONFIG), ("conf/b.toml", &one("expect = 200"))]);
    folder.write("conf/consumers.csv", CONSUMERS);
    let (status, _, stderr) = tollgate(&folder, &["check", "conf"]);
    assert_eq!(status, Some(2));
    assert!(stderr.contains("unknown key `test`"), "{stderr}");
    assert!(stderr.contains("which `tollgate test` reads"), "{stderr}");
}

#[test]
fn the_bounds_are_those_of_the_page() {
    let steps = "{ request = \"GET /search\", expect = 200 },\n".repeat(10_001);
    let many = format!("[[test]]\nname = \"one\"\nsteps = [\n{steps}]\n");
    let requests = "{ request = \"GET /search\", times = 1000000, expect = 200 },\n".repeat(11);
    let requests = format!("[[test]]\nname = \"one\"\nsteps = [\n{requests}]\n");
    let large = format!("{}# {}", one("expect = 200"), "x".repeat(1 << 20));
    for (tests, part) in [
        (&*many, "all tests together have 10001 steps"),
        (&*requests, "all tests together send 11000000 requests"),
        (&*large, "the files with tests are larger than 1 MiB"),
        (&*one("times = 1000001, expect = 200"), "`times` cannot be `1000001`"),
    ] {
        let folder = folder(&[("gateway.test.toml", tests)]);
        let (status, _, stderr) = tollgate(&folder, &["test"]);
        assert_eq!(status, Some(2), "{part}: {stderr}");
        assert!(stderr.contains(part), "{part}: {stderr}");
    }
}
