//! The page of `--report` in headless Chromium. The tests are in `tests/dashboard/report.py`. A test here runs some of those there.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use tollgate::replay::report::html;

use crate::harness::{binary, tools};

const SCRIPT: &str = "tests/dashboard/report.py";

/// Runs tests on the page that the program makes of the fixture.
fn run_tests(names: &[&str]) {
    tools::browser();
    let fixture = std::fs::read_to_string("tests/dashboard/report.json").expect("the fixture can be read");
    let fixture: Value = serde_json::from_str(&fixture).expect("the fixture is JSON");
    let answer = fixture["answer"].as_str().expect("the fixture has an answer");
    let folder = tempfile::tempdir().expect("a folder");
    let page = folder.path().join("out.html");
    std::fs::write(&page, html::page(&fixture, answer)).expect("the page can be written");
    assert_page(&page, &[], names);
}

/// Runs tests of the script on a page.
fn assert_page(page: &Path, options: &[&str], names: &[&str]) {
    let mut script = tools::python(&[]);
    script.arg(SCRIPT).arg("--page").arg(page).args(options);
    script.args(names.iter().map(|name| format!("Report.test_{name}")));
    let output = script.output().expect("it can be run");
    assert!(
        output.status.success(),
        "{SCRIPT} failed\n{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

/// The tests by their names in `report.py` without `test_`. Each group is one test, which starts one browser.
macro_rules! tests {
    ($($group:ident: $($name:ident)*;)*) => {
        const TESTS: &[&str] = &[$($(stringify!($name)),*),*];
        mod page {
            $(#[test]
            fn $group() {
                super::run_tests(&[$(stringify!($name)),*]);
            })*
        }
    };
}

tests! {
    text:
        the_answer_comes_first
        the_page_as_it_is
        text_of_clients_stays_text
        without_javascript
        a_printed_page_has_no_controls;
    tables:
        columns_sort_by_click_and_key
        the_filter_keeps_rows_with_its_text
        empty_sections_are_absent
        a_thousand_rows
        suggestions;
    charts:
        charts_are_read_with_pointer_and_keys
        the_heat_map_states_its_scale
        light_and_dark
        a_phone_of_360_pixels
        a_single_request_has_charts;
}

#[test]
fn every_test_of_the_page_is_run() {
    let script = std::fs::read_to_string(SCRIPT).expect("the script can be read");
    let names = script.lines().filter_map(|line| line.trim().strip_prefix("def test_")?.split('(').next());
    let (mut names, mut tests) = (names.collect::<Vec<_>>(), TESTS.to_vec());
    names.sort_unstable();
    tests.sort_unstable();
    assert_eq!(names, tests, "the list in this file is that of report.py");
}

const CONFIG: &str = r#"
[upstreams.echo]
servers = ["builtin:echo"]

[limits.tenant]
algorithm = "token-bucket"
key = "header:x-tenant"
reveal = true
rate = "1/s"
burst = 3

[limits.slow]
algorithm = "leaky-bucket"
key = "ip"
rate = "20/s"
queue = 9
mode = "shadow"

[[routes]]
name = "<b>all & more</b>"
path = "/*"
upstream = "echo"
limits = ["tenant", "slow"]
"#;

/// Two hours of forty tenants, one of which floods, and the faults that a log may have.
fn log() -> String {
    let mut text = "no line </script><img src=x onerror=alert(1)>\n".to_owned();
    let mut line = |millis: u64, client: u64, tenant: &str| {
        let (second, milli) = (1_700_006_400 + millis / 1_000, millis % 1_000);
        writeln!(
            text,
            r#"{{"t":{second}.{milli:03},"c":"192.0.2.{client}","p":"/a","h":"{tenant}","d":0.05}}"#
        )
        .expect("memory");
    };
    for at in 0..4_000 {
        line(at * 1_800, at % 40, &format!("tenant-{}", at % 40));
    }
    for at in 0..3_000 {
        line(3_600_000 + at * 20, 99, "</script><img src=x onerror=alert(1)>");
    }
    text
}

/// The pages that the program itself makes, with text of attackers in keys, routes and lines.
#[test]
fn pages_of_the_program_have_their_sections_and_no_errors() {
    const MAP: &str = "start=$.t,client=$.c,path=$.p,duration=$.d,header:x-tenant=$.h";
    tools::browser();
    let folder = tempfile::tempdir().expect("a folder");
    for (name, content) in [
        ("gateway.toml", CONFIG.to_owned()),
        ("other.toml", CONFIG.replace("burst = 3", "burst = 9")),
        ("log", log()),
    ] {
        std::fs::write(folder.path().join(name), content).expect("it can be written");
    }
    let replay = "against,timeline,calendar,limits,routes,peaks,keys,clients,problems";
    let suggest = "suggestion-1,problems";
    for (arguments, sections) in [
        (&["replay", "log", "--against", "other.toml"][..], replay),
        (&["suggest", "log", "--key", "header:x-tenant"][..], suggest),
    ] {
        let output = Command::new(binary())
            .args(arguments)
            .args(["--map", MAP, "--report", "out.html"])
            .current_dir(folder.path())
            .output()
            .expect("the program runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let page = folder.path().join("out.html");
        assert_page(&page, &["--sections", sections], &["the_page_as_it_is"]);
    }
}
