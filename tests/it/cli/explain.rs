//! `tollgate explain`, through the real binary: the request from the command line, the answer on standard output.

use crate::harness::binary;
use std::process::{Command, Output};

const CONFIG: &str = "[upstreams]\ndemo = \"builtin:echo\"\n\
    [limits.per-key]\nalgorithm = \"token-bucket\"\nkey = \"header:x-api-key\"\nrate = \"10/s\"\nreveal = true\n\
    [limits.per-client]\nalgorithm = \"gcra\"\nkey = \"ip\"\nrate = \"1/s\"\n\
    ban = { after = 20, within = \"10min\", for = [\"1h\", \"1day\"] }\n\
    [[routes]]\nname = \"search\"\nhosts = [\"api.example.com\"]\npath = \"/search/*\"\nmethods = [\"GET\"]\n\
    upstream = \"demo\"\nlimits = [\"per-key\", \"per-client\"]\n\
    [[routes]]\nname = \"rest\"\npath = \"/*\"\nupstream = \"demo\"\n";

fn explain(arguments: &[&str]) -> Output {
    explain_in(CONFIG, arguments)
}

fn explain_in(config: &str, arguments: &[&str]) -> Output {
    let folder = tempfile::tempdir().expect("a temporary directory");
    std::fs::write(folder.path().join("gateway.toml"), config).expect("it can be written");
    Command::new(binary())
        .arg("explain")
        .args(arguments)
        .current_dir(folder.path())
        .output()
        .expect("the binary starts")
}

#[test]
fn it_tells_the_route_the_keys_and_why_not_the_others() {
    let output = explain(&[
        "GET",
        "http://api.example.com//search/%61?q=1",
        "-H",
        "x-api-key: k1",
        "--ip",
        "192.0.2.7",
    ]);
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(0), "{stdout}{}", String::from_utf8_lossy(&output.stderr));
    for part in ["`search`", "/search/a", "per-key", "k1", "per-client", "192.0.2.7", "`rest`"] {
        assert!(stdout.contains(part), "{part} is missing in\n{stdout}");
    }
    let ban = "  ban     20 refusals in 10 minutes: banned for an hour, then a day";
    assert!(stdout.lines().any(|line| line == ban), "{stdout}");
    let output = explain(&["POST", "/search/a", "--header", "host: api.example.com"]);
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(stdout.lines().any(|line| line.starts_with("route") && line.contains("`rest`")), "{stdout}");
}

#[test]
fn it_tells_that_get_includes_head() {
    let output = explain(&["HEAD", "http://api.example.com/search/a"]);
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(stdout.contains("`GET` includes `HEAD`"), "{stdout}");
}

/// A client that a trusted proxy names unreadably may be any of those that `deny` names.
#[test]
fn it_tells_that_a_client_is_not_identified() {
    let config = format!("[server]\ntrusted_proxies = [\"10.0.0.1\"]\ndeny = [\"192.0.2.0/24\"]\n{CONFIG}");
    let output = explain_in(&config, &["GET", "/", "--ip", "10.0.0.1", "-H", "x-forwarded-for: junk"]);
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(stdout.contains("or the client is not identified"), "{stdout}");
}

#[test]
fn it_tells_the_units_and_where_they_come_from() {
    for (cost, url, line) in [
        (
            "{ reserve = 5, settle = \"json:/usage/total_tokens\" }",
            "/search/a",
            "charges 5 now, settled by json:/usage/total_tokens",
        ),
        (
            "{ reserve = 0, settle = [\"json:/a\", \"header:x-cost\"], per = 10, max = 50, missing = 7 }",
            "/search/a",
            "charges nothing now, settled by json:/a + header:x-cost per 10, at most 50, or 7 where it is missing",
        ),
        (
            "{ reserve = 1, settle = \"status\", status = { 401 = 5, \"2xx\" = 0 } }",
            "/search/a",
            "charges 1 now, settled by status (401: 5, 2xx: 0)",
        ),
        (
            "{ from = \"query:limit\", per = 10 }",
            "/search/a?limit=45",
            "charges 5 (query:limit is 45 per 10, at least 1)",
        ),
        ("{ from = \"query:limit\", min = 0 }", "/search/a?limit=0", "charges nothing (query:limit is 0)"),
        ("{ from = \"query:limit\" }", "/search/a?limit=0", "charges 1 (query:limit is 0, at least 1)"),
        ("{ from = \"query:limit\", missing = 3 }", "/search/a", "charges 3 (query:limit is missing)"),
        (
            "{ from = \"body-bytes\", per = 1024 }",
            "/search/a",
            "charges 2 (body-bytes is 2000 per 1024, at least 1)",
        ),
        ("3", "/search/a", "charges 3"),
    ] {
        let config = CONFIG.replacen(
            "limits = [\"per-key\", \"per-client\"]",
            &format!("cost = {cost}\nlimits = [\"per-key\"]"),
            1,
        );
        let url = format!("http://api.example.com{url}");
        let output = explain_in(&config, &["GET", &url, "-H", "x-api-key: k1", "-H", "content-length: 2000"]);
        let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
        let expected = format!("limit     `per-key` {line}");
        assert!(
            stdout.lines().any(|line| line == expected),
            "{expected} is missing in\n{stdout}{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

#[test]
fn what_is_no_request_is_bad_usage() {
    for arguments in
        [&["GET", "no/slash"][..], &["GET", "ftp://a/"], &["GET", "/\n"], &["GET", "/", "-H", "no colon"]]
    {
        let output = explain(arguments);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
        assert!(stderr.starts_with("error: ") && stderr.contains("help: "), "{arguments:?}: {stderr}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn a_trial_is_told_with_the_part_of_this_key() {
    let words = |share: &str, key: &str| {
        let config = CONFIG.replace("reveal = true", &format!("reveal = true\ntrial = {share}"));
        let output = explain_in(
            &config,
            &["GET", "http://api.example.com/search/a", "-H", &format!("x-api-key: {key}")],
        );
        String::from_utf8(output.stdout).expect("text")
    };
    let is_in =
        |text: &str| text.contains("`per-key` (trial: enforced for 50 % of the keys, also for this one)");
    let is_out =
        |text: &str| text.contains("`per-key` (trial: enforced for 50 % of the keys, not for this one)");
    let told: Vec<_> = (0..12).map(|number| words("0.5", &format!("k{number}"))).collect();
    assert!(told.iter().all(|text| is_in(text) != is_out(text)), "{told:?}");
    assert!(told.iter().any(|text| is_in(text)) && told.iter().any(|text| is_out(text)), "{told:?}");
    assert!(words("0", "k").contains("(trial: enforced for 0 % of the keys, not for this one)"));
}
