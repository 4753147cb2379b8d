//! Completions, the manual page, examples, colours, and explanations for programs.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::harness::{Gateway, binary};

const FILE: &str = "[upstreams]\ndemo = \"builtin:echo\"\n\
    [limits.per-client]\nalgorithm = \"token-bucket\"\nkey = \"ip\"\nrate = \"10/s\"\nburst = 50\n\
    [limits.keyed]\nalgorithm = \"fixed-window\"\nkey = \"header:x-key\"\nmissing = \"deny\"\nrate = \"9/s\"\n\
    [[routes]]\nname = \"free\"\npath = \"/free\"\nupstream = \"demo\"\n\
    [[routes]]\nname = \"keyed\"\npath = \"/keyed\"\nupstream = \"demo\"\nlimits = [\"keyed\"]\n\
    [[routes]]\nname = \"rest\"\npath = \"/rest/*\"\nupstream = \"demo\"\nlimits = [\"per-client\"]\n";

fn tollgate(arguments: &[&str], folder: &Path, environment: &[(&str, &str)]) -> Output {
    Command::new(binary())
        .args(arguments)
        .current_dir(folder)
        .env_remove("NO_COLOR")
        .env_remove("CLICOLOR_FORCE")
        .envs(environment.iter().copied())
        .output()
        .expect("the binary starts")
}

fn folder_with(toml: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a temporary directory");
    std::fs::write(folder.path().join("gateway.toml"), toml).expect("it can be written");
    folder
}

#[track_caller]
fn good(arguments: &[&str], folder: &Path) -> String {
    let output = tollgate(arguments, folder, &[]);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8")
}

const COMMANDS: [&str; 13] = [
    "run",
    "check",
    "init",
    "test",
    "explain",
    "replay",
    "suggest",
    "import",
    "schema",
    "health",
    "top",
    "completions",
    "man",
];

#[test]
fn every_shell_gets_the_commands() {
    let folder = tempfile::tempdir().unwrap();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = good(&["completions", shell], folder.path());
        for word in COMMANDS.iter().chain(&["takeover", "color"]) {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
    let unknown = tollgate(&["completions", "tcsh"], folder.path(), &[]);
    assert_eq!(unknown.status.code(), Some(2));
}

#[test]
fn the_manual_is_one_page_of_all_commands() {
    let page = good(&["man"], tempfile::tempdir().unwrap().path());
    assert!(page.contains(".TH tollgate 1"), "{page}");
    for command in COMMANDS {
        let title = format!(".SH \"TOLLGATE {}\"\n", command.to_uppercase());
        assert_eq!(page.matches(&title).count(), 1, "{title}");
    }
    assert_eq!(page.matches(".SS EXAMPLES").count(), COMMANDS.len());
    assert!(!page.contains("EXTRA") && !page.contains("Examples:"), "{page}");
    for words in ["SIGHUP", "\\-\\-live", "\\-\\-color", "tollgate check \\-c"] {
        assert!(page.contains(words), "{words} is missing in\n{page}");
    }
}

#[test]
fn every_help_has_examples() {
    let folder = tempfile::tempdir().unwrap();
    for command in COMMANDS {
        let help = good(&[command, "--help"], folder.path());
        let examples = help.split_once("Examples:\n").map_or("", |(_, examples)| examples);
        let lines = examples.lines().filter(|line| line.contains("tollgate")).count();
        assert!((2..=4).contains(&lines), "{command}:\n{help}");
    }
}

#[test]
fn the_switch_beats_clicolor_force_which_beats_no_color() {
    let folder = folder_with("nonsense = 1\n");
    let (force, no) = (("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1"));
    for (arguments, environment, coloured) in [
        (&["check"][..], &[][..], false),
        (&["check"], &[force], true),
        (&["check"], &[("CLICOLOR_FORCE", "0")], false),
        (&["check"], &[force, no], true),
        (&["check", "--color", "never"], &[force], false),
        (&["--color=always", "check"], &[no], true),
        (&["check", "--color", "auto"], &[force], true),
        (&["bogus", "--color=always"], &[no], true),
        (&["bogus", "--color=never"], &[force], false),
        (&["bogus"], &[force, no], true),
    ] {
        let output = tollgate(arguments, folder.path(), environment);
        assert_eq!(output.status.code(), Some(2));
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(stderr.contains('\u{1b}'), coloured, "{arguments:?} {environment:?}: {stderr:?}");
    }
    let wrong = tollgate(&["check", "--color", "sometimes"], folder.path(), &[]);
    assert_eq!(wrong.status.code(), Some(2));
    let both = tollgate(&["-q", "-v", "check"], folder.path(), &[]);
    assert_eq!(both.status.code(), Some(2));
}

fn explained(arguments: &[&str], folder: &Path) -> Value {
    let text = good(&[&["explain", "--json"], arguments].concat(), folder);
    serde_json::from_str(&text).expect("JSON")
}

#[test]
fn an_explanation_for_programs_has_the_facts_of_the_text() {
    let folder = folder_with(FILE);
    let charged = explained(&["GET", "http://a/rest/x?q=1", "--ip", "192.0.2.7"], folder.path());
    assert_eq!((&charged["client"], &charged["route"]["name"]), (&"192.0.2.7".into(), &"rest".into()));
    assert_eq!((&charged["verdict"], &charged["status"]), (&Value::Null, &Value::Null), "counters decide");
    let limit = &charged["limits"][0];
    assert_eq!(
        (&limit["name"], &limit["standing"], &limit["cost"]),
        (&"per-client".into(), &"charged".into(), &1.into())
    );
    assert_eq!((&limit["key"][0], &limit["policies"][0]["quota"]), (&"192.0.2.7".into(), &50.into()));
    assert_eq!(limit["policies"][0]["remaining"], Value::Null);
    assert_eq!(charged["others"].as_array().map(Vec::len), Some(2));
    for (path, verdict, status) in [
        ("/free", "admitted", Value::Null),
        ("/keyed", "refused", 429.into()),
        ("/nowhere", "no_route", 404.into()),
        ("/a%zz", "answered", 400.into()),
    ] {
        let told = explained(&["GET", path], folder.path());
        assert_eq!((&told["verdict"], &told["status"]), (&verdict.into(), &status), "{path}: {told:#}");
    }
    assert_eq!(explained(&["GET", "/keyed"], folder.path())["limit"], "keyed");
}

#[test]
fn the_running_gateway_tells_programs_the_same_names() {
    let gateway = Gateway::start(&format!("{FILE}[admin]\nlisten = \"127.0.0.1:0\"\n"));
    let folder = folder_with(&format!("{FILE}[admin]\nlisten = \"{}\"\n", gateway.admin_addr()));
    let request = ["GET", "http://a/rest/x", "--ip", "192.0.2.7"];
    let (offline, live) =
        (explained(&request, folder.path()), explained(&[&["--live"], &request[..]].concat(), folder.path()));
    let names = |value: &Value| value.as_object().expect("an object").keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&offline), names(&live));
    assert_eq!(names(&offline["limits"][0]), names(&live["limits"][0]));
    assert_eq!(names(&offline["limits"][0]["policies"][0]), names(&live["limits"][0]["policies"][0]));
    assert_eq!(
        (&live["verdict"], &live["limits"][0]["policies"][0]["remaining"]),
        (&"admitted".into(), &50.into())
    );
}
