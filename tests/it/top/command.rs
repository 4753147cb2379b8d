//! The options of `tollgate top`, its tokens, and its exit status.

use std::process::{Command, Stdio};

use crate::harness::{Gateway, Redis, TerminalProgram, binary, get_with, refuses_connections};

const SECRETS: [(&str, &str); 2] = [("READ", "read-secret"), ("OPERATE", "operate-secret")];
const TOKENS: &str = "[admin.tokens]\nreader = { token_env = \"READ\", may = [\"read\"] }\n\
                      operator = { token_env = \"OPERATE\", may = [\"operate\"] }\n";
const LIMIT: &str = "[upstreams]\ndemo = \"builtin:echo\"\n\
     [limits.per-key]\nalgorithm = \"fixed-window\"\nkey = \"header:x-key\"\nreveal = true\nrate = \"2/h\"\n\
     [[routes]]\nname = \"all\"\npath = \"/*\"\nupstream = \"demo\"\nlimits = [\"per-key\"]\n";

fn start(tokens: &str) -> Gateway {
    let gateway =
        Gateway::start_in(&format!("{LIMIT}[admin]\nlisten = \"127.0.0.1:0\"\n{tokens}"), &[], &SECRETS);
    for status in [200, 200, 429] {
        get_with(gateway.addr(), "/", "x-key: alice\r\n").expect(status);
    }
    gateway
}

/// Runs `tollgate top` without a terminal, in a folder with this file.
fn top(file: &str, arguments: &[&str], environment: &[(&str, &str)]) -> (Option<i32>, String, String) {
    let folder = tempfile::tempdir().expect("a temporary directory");
    if !file.is_empty() {
        std::fs::write(folder.path().join("gateway.toml"), file).expect("it can be written");
    }
    let output = Command::new(binary())
        .arg("top")
        .args(arguments)
        .env_remove("TOLLGATE_ADMIN_TOKEN")
        .envs(environment.iter().copied())
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .output()
        .expect("the binary starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[track_caller]
fn fails(told: &(Option<i32>, String, String), status: i32, word: &str) {
    assert_eq!((told.0, told.1.as_str()), (Some(status), ""), "{}", told.2);
    assert!(told.2.starts_with("error: ") && told.2.contains(word), "{word} is missing in {}", told.2);
}

#[test]
fn once_prints_all_views_as_text() {
    let gateway = start("");
    let file = format!("[admin]\nlisten = \"{}\"\n", gateway.admin_addr());
    let (code, text, stderr) = top(&file, &["--once"], &[]);
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    for word in [
        "tollgate ",
        ": serving, up ",
        "requests: admitted ",
        "\nLimits\n",
        "\nKeys of per-key\n",
        "alice",
        "\nBackends\n",
        "\nBans\n",
        "\nRoutes\n",
        "No key is banned.",
    ] {
        assert!(text.contains(word), "{word} is missing in\n{text}");
    }
    assert!(!text.contains('\u{1b}'), "{text:?}");
    let admin = gateway.admin_addr();
    drop(gateway);
    refuses_connections(admin);
    fails(&top(&file, &["--once"], &[]), 1, "no gateway answers at");
}

#[test]
fn without_the_shared_store_the_fleet_is_not_known() {
    let mut redis = Redis::start();
    let store = format!("[store]\nbackend = \"redis\"\nurl = \"{}\"\n", redis.url());
    redis.kill();
    let gateway = Gateway::start(&format!("{LIMIT}{store}[admin]\nlisten = \"127.0.0.1:0\"\n"));
    let file = format!("[admin]\nlisten = \"{}\"\n", gateway.admin_addr());
    let (code, text, stderr) = top(&file, &["--once", "--fleet"], &[]);
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    assert!(text.contains("The shared store cannot be asked for the other gateways."), "{text}");
    assert!(!text.contains("in memory"), "{text}");
}

#[test]
fn a_url_needs_no_file_and_no_good_one() {
    let gateway = start("");
    let url = format!("http://{}", gateway.admin_addr());
    for file in ["", "= not toml", "[admin]\nlisten = \"127.0.0.1:0\"\ntoken_env = \"NOT_SET\"\n"] {
        let (code, text, stderr) = top(file, &["--once", "--url", &url], &[]);
        assert!(code == Some(0) && text.contains("alice"), "{file}: {stderr}");
    }
}

#[test]
fn several_urls_are_a_row_each_and_their_sums() {
    let (one, other) = (start(""), start(""));
    let [first, second] = [&one, &other].map(|gateway| gateway.admin_addr());
    let urls = [first, second].map(|admin| format!("http://{admin}"));
    let arguments = ["--once", "--url", &urls[0], "--url", &urls[1]];
    let (code, text, stderr) = top("", &arguments, &[]);
    assert_eq!(code, Some(0), "{stderr}");
    assert!(text.starts_with("Gateways\n"), "{text}");
    for words in ["2 of 2 answer", &format!("at {first}:"), &format!("at {second}:"), "alice"] {
        assert!(text.contains(words), "{words} is missing in\n{text}");
    }
    let (code, rows, _) = top("", &[&arguments[..], &["--fleet"]].concat(), &[]);
    assert!(code == Some(0) && rows.lines().count() < 9 && rows.contains(&first.to_string()), "{rows}");
    drop(other);
    refuses_connections(second);
    let (code, text, stderr) = top("", &arguments, &[]);
    assert_eq!(code, Some(1), "one of them is away");
    assert!(text.contains("1 of 2 answer") && text.contains(&format!("at {first}:")), "{text}");
    assert!(stderr.contains(&format!("no gateway answers at {second}")), "{stderr}");
}

#[test]
fn a_key_shows_the_next_of_several_gateways() {
    let (one, other) = (start(""), start(""));
    let urls = [&one, &other].map(|gateway| format!("http://{}", gateway.admin_addr()));
    let terminal = TerminalProgram::start(&["top", "--url", &urls[0], "--url", &urls[1]], &[]);
    let [first, second] = [&one, &other].map(|gateway| format!("tollgate {}", gateway.admin_addr()));
    terminal.wait_for(&first);
    terminal.press("g");
    terminal.wait_for(&second);
    terminal.press("8");
    terminal.wait_for("2 of 2 answer");
    terminal.press("g");
    terminal.wait_for(&first);
}

#[test]
fn the_sentence_says_that_no_requests_come_and_is_about_now() {
    let gateway = Gateway::start(&format!("{LIMIT}[admin]\nlisten = \"127.0.0.1:0\"\n"));
    let file = format!("[admin]\nlisten = \"{}\"\n", gateway.admin_addr());
    let (_, text, _) = top(&file, &["--once"], &[]);
    let sentence = text.lines().nth(1).expect("a sentence");
    assert_eq!(sentence, "  No requests come", "{text}");
    assert!(text.contains("p50 – ms, p99 – ms"), "{text}");
}

#[test]
fn a_fault_of_usage_is_2_and_names_the_remedy() {
    let gateway = start("");
    let url = format!("http://{}", gateway.admin_addr());
    fails(
        &top("", &["--url", &url], &[]),
        2,
        "= help: run it in a terminal, or print one snapshot with `--once`",
    );
    fails(&top("", &["--url", "gateway"], &[]), 2, "= help: write `--url http://127.0.0.1:9900`");
    fails(&top("[log]\nlevel = \"info\"\n", &[], &[]), 2, "names no admin listener");
    fails(&top("", &[], &[]), 2, "gateway.toml");
}

#[test]
fn the_token_is_in_the_variable_of_the_file_or_of_the_url() {
    let gateway = start(TOKENS);
    let admin = format!("[admin]\nlisten = \"{}\"\n", gateway.admin_addr());
    let file = format!("{admin}{TOKENS}");
    let url = format!("http://{}", gateway.admin_addr());
    for (file, arguments, environment) in [
        (file.as_str(), &["--once"][..], [("READ", "read-secret")]),
        ("", &["--once", "--url", &url], [("TOLLGATE_ADMIN_TOKEN", "read-secret")]),
        (&file, &["--once", "--url", &url], [("OPERATE", "operate-secret")]),
    ] {
        let (code, text, stderr) = top(file, arguments, &environment);
        assert!(code == Some(0) && text.contains("alice"), "{arguments:?}: {stderr}");
    }
    fails(&top(&file, &["--once"], &[]), 2, "no environment variable");
    fails(&top("", &["--once", "--url", &url], &[]), 1, "answers 401");
    let wrong = [("TOLLGATE_ADMIN_TOKEN", "wrong")];
    fails(&top("", &["--once", "--url", &url], &wrong), 1, "answers 401");
    let mut terminal = TerminalProgram::start(&["top", "--url", &url], &wrong);
    assert_eq!(terminal.wait_for_exit(), Some(1));
    terminal.wait_for("answers 401");
    terminal.wait_for("TOLLGATE_ADMIN_TOKEN");
}

#[test]
fn a_token_that_may_only_read_changes_nothing() {
    let gateway = start(TOKENS);
    let url = format!("http://{}", gateway.admin_addr());
    let terminal =
        TerminalProgram::start(&["top", "--url", &url], &[("TOLLGATE_ADMIN_TOKEN", "read-secret")]);
    terminal.wait_for("alice");
    for keys in ["b\ry", "uy", "ry"] {
        terminal.press(keys);
        terminal.wait_for("Nothing has changed for alice: the gateway answers 403");
        terminal.press("3");
        terminal.wait_without("answers 403");
    }
}
