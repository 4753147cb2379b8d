//! `tollgate explain`, through the real binary: the request from the command line, the answer on standard output.

use std::process::{Command, Output};

const CONFIG: &str = "[upstreams]\ndemo = \"builtin:echo\"\n\
    [limits.per-key]\nalgorithm = \"token-bucket\"\nkey = \"header:x-api-key\"\nrate = \"10/s\"\nreveal = true\n\
    [limits.per-client]\nalgorithm = \"gcra\"\nkey = \"ip\"\nrate = \"1/s\"\n\
    ban = { after = 20, within = \"10min\", for = [\"1h\", \"1day\"] }\n\
    [[routes]]\nname = \"search\"\nhosts = [\"api.example.com\"]\npath = \"/search/*\"\nmethods = [\"GET\"]\n\
    upstream = \"demo\"\nlimits = [\"per-key\", \"per-client\"]\n\
    [[routes]]\nname = \"rest\"\npath = \"/*\"\nupstream = \"demo\"\n";

fn explain(arguments: &[&str]) -> Output {
    let folder = tempfile::tempdir().expect("a temporary directory");
    std::fs::write(folder.path().join("gateway.toml"), CONFIG).expect("it can be written");
    Command::new(env!("CARGO_BIN_EXE_tollgate"))
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
