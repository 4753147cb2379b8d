//! Whatever a file with tests of limits says, the reader answers: tests or a report, never a panic.

use proptest::prelude::*;
use tollgate::config::parse_policy_tests;
use tollgate::plan::Plan;
use tollgate::policy_test;

use crate::harness::config::parse;

const CONFIG: &str = "[upstreams]\ndemo = \"builtin:echo\"\n[limits.a]\nalgorithm = \"gcra\"\nkey = \"json:/user\"\n\
    missing = \"shared\"\nrate = \"1/s\"\n[[routes]]\npath = \"/*\"\nupstream = \"demo\"\nlimits = [\"a\"]\n";

/// What stands in files, good and bad.
const TOKENS: [&str; 40] = [
    "[[test]]\n",
    "[test]\n",
    "name",
    "start",
    "steps",
    "at",
    "request",
    "ip",
    "headers",
    "body",
    "consumer",
    "times",
    "takes",
    "response",
    "expect",
    "limit",
    "retry_after",
    "shadow",
    " = ",
    " = ",
    " = ",
    "\"GET /\"",
    "\"GET http://a/\"",
    "\"POST /%00\"",
    "\"a\"",
    "\"1s\"",
    "\"0\"",
    "\"192.0.2.1\"",
    "200",
    "{ 200 = 1 }",
    "-1",
    "99999999999",
    "[",
    "]",
    "{",
    "}",
    ", ",
    "\n",
    "\"${A}\"",
    "\"\\r\\n\"",
];

const GOOD: &str = "[[test]]\nname = \"a\"\nstart = \"2026-01-01T00:00:00Z\"\nsteps = [\n  { at = \"0s\", request = \
    \"POST http://a/\", ip = \"192.0.2.1\", headers = { content-type = \"application/json\" }, body = '{\"user\":1}', \
    times = 3, takes = \"1s\", response = { status = 404, bytes = 1 }, expect = { 404 = 2, 429 = 1 }, limit = \"a\" },\n  \
    { request = \"GET /\", expect = 200, retry_after = \"1s\", shadow = [\"a\"] },\n]\n";

fn plan() -> Plan {
    match parse(CONFIG) {
        Ok(loaded) => loaded.plan,
        Err(report) => panic!("{report}"),
    }
}

/// Reads the file, and runs the tests if it has few requests.
fn answer(plan: &Plan, bytes: &[u8]) {
    match parse_policy_tests(&[("a.toml", bytes)], plan, &|_| None) {
        Ok(tests) => {
            for test in tests.iter().filter(|test| test.steps.iter().all(|step| step.times < 100)) {
                policy_test::run(plan, test).expect("memory");
            }
        }
        Err(report) => {
            assert!(report.errors() > 0);
            report.render(true);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn no_text_panics(parts in prop::collection::vec(0..TOKENS.len(), 0..40)) {
        let text: String = parts.into_iter().map(|part| TOKENS[part]).collect();
        answer(&plan(), text.as_bytes());
    }

    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        answer(&plan(), &bytes);
    }

    #[test]
    fn no_spoiled_file_panics(spoils in prop::collection::vec((any::<prop::sample::Index>(), 0..TOKENS.len(), 0..9_usize), 1..5)) {
        let mut bytes = GOOD.as_bytes().to_vec();
        for (at, token, length) in spoils {
            let start = at.index(bytes.len());
            let end = (start + length).min(bytes.len());
            bytes.splice(start..end, TOKENS[token].bytes());
        }
        answer(&plan(), &bytes);
    }
}
