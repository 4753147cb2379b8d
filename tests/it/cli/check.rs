//! `tollgate check`: where its file is named, its formats, `--strict` and `--no-env`.

use crate::harness::binary;
use std::io::Write as _;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::harness::config_folder::{ConfigFolder, SMALL};

const UNUSED: &str = "[limits.unused]\nalgorithm = \"gcra\"\nkey = \"ip\"\nrate = \"1/s\"\n";
const FAULT: &str = "# ä\n[[routes]]\npath = \"/x\"\nupstream = \"dem\"\n";

const DEAD: &str = "[[routes]]\npath = \"~^/old/\"\nrespond = { status = 410 }\n\
    [[routes]]\npath = \"~^/old/[0-9]+$\"\nrespond = { status = 410 }\n";

/// Status, standard output and standard error.
type Told = (Option<i32>, String, String);

fn tollgate(folder: &ConfigFolder, arguments: &[&str], environment: &[(&str, &str)], input: &str) -> Told {
    let mut child = Command::new(binary())
        .args(arguments)
        .current_dir(folder.path(""))
        .env("NO_COLOR", "1")
        .env_remove("TOLLGATE_CONFIG")
        .envs(environment.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    // A command that reads no input may be gone already.
    child.stdin.take().expect("piped").write_all(input.as_bytes()).ok();
    let output = child.wait_with_output().expect("it ends");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

fn check(folder: &ConfigFolder, arguments: &[&str]) -> Told {
    tollgate(folder, &[&["check"], arguments].concat(), &[], "")
}

#[test]
fn the_file_is_named_in_any_usual_way() {
    let folder = ConfigFolder::new(&[("gateway.toml", "= default"), ("x.toml", SMALL), ("d/a.toml", SMALL)]);
    for (arguments, environment, name) in [
        (&["check", "x.toml"][..], &[][..], "x.toml"),
        (&["check", "-c", "x.toml"], &[], "x.toml"),
        (&["-c", "x.toml", "check"], &[], "x.toml"),
        (&["check", "d"], &[], "d"),
        (&["check"], &[("TOLLGATE_CONFIG", "x.toml")], "x.toml"),
        (&["check", "-c", "x.toml"], &[("TOLLGATE_CONFIG", "gateway.toml")], "x.toml"),
        (&["check", "x.toml"], &[("TOLLGATE_CONFIG", "gateway.toml")], "x.toml"),
        (&["check", "-"], &[], "<stdin>"),
        (&["check", "-c", "-"], &[], "<stdin>"),
    ] {
        let (status, stdout, stderr) = tollgate(&folder, arguments, environment, SMALL);
        assert_eq!(status, Some(0), "{arguments:?}: {stderr}");
        assert!(stdout.starts_with(&format!("{name} is good: 1 route")), "{arguments:?}: {stdout}");
    }
    for (arguments, environment) in [(&["check"][..], &[][..]), (&["check"], &[("TOLLGATE_CONFIG", "")])] {
        let (status, _, stderr) = tollgate(&folder, arguments, environment, "");
        assert!(status == Some(2) && stderr.contains("gateway.toml:1:1"), "{stderr}");
    }
    for arguments in [&["check", "-c", "x.toml", "x.toml"][..], &["-c", "x.toml", "check", "x.toml"]] {
        let (status, _, stderr) = tollgate(&folder, arguments, &[], "");
        assert!(status == Some(2) && stderr.contains("the file is named twice"), "{stderr}");
    }
}

#[test]
fn standard_input_can_not_be_watched() {
    for arguments in
        [&["--watch", "-c", "-"][..], &["run", "--watch", "-c", "-"], &["-c", "-", "run", "--watch"]]
    {
        let (status, _, stderr) = tollgate(&ConfigFolder::new(&[]), arguments, &[], SMALL);
        let expected = "error: `--watch` cannot watch standard input (`-c -`)";
        assert!(status == Some(2) && stderr.starts_with(expected), "{arguments:?}: {stderr}");
    }
}

#[test]
fn json_is_a_list_whatever_is_found() {
    let folder = ConfigFolder::new(&[
        ("good.toml", SMALL),
        ("gateway.toml", &format!("include = \"r/a.toml\"\n{SMALL}{UNUSED}")),
        ("r/a.toml", FAULT),
    ]);
    assert_eq!(check(&folder, &["good.toml", "--format", "json"]), (Some(0), "[]\n".into(), String::new()));
    let (status, stdout, stderr) = check(&folder, &["--format", "json"]);
    let found: Value = serde_json::from_str(&stdout).expect("JSON");
    assert_eq!((status, stderr.as_str()), (Some(2), ""));
    assert_eq!(
        found,
        json!([{
            "severity": "error",
            "message": "there is no upstream `dem`",
            "help": "did you mean `demo`? the only upstream is `demo`",
            "file": "r/a.toml",
            "line": 4,
            "column": 12
        }])
    );
    let (status, stdout, _) = check(&folder, &["none.toml", "--format", "json"]);
    let found: Value = serde_json::from_str(&stdout).expect("JSON");
    assert_eq!((status, &found[0]["file"], &found[0]["line"]), (Some(2), &json!("none.toml"), &json!(1)));
}

#[test]
fn github_gets_a_workflow_command_each() {
    let folder = ConfigFolder::new(&[("a,b.toml", &format!("{SMALL}{FAULT}")), ("good.toml", SMALL)]);
    assert_eq!(
        check(&folder, &["--format", "github", "a,b.toml"]),
        (
            Some(2),
            "::error file=a%2Cb.toml,line=10,col=12,title=tollgate check::there is no upstream `dem`%0Ahelp: \
             did you mean `demo`? the only upstream is `demo`\n"
                .into(),
            String::new()
        )
    );
    assert_eq!(check(&folder, &["--format", "github", "good.toml"]), (Some(0), String::new(), String::new()));
}

#[test]
fn strict_refuses_warnings() {
    let folder = ConfigFolder::new(&[("gateway.toml", &format!("{SMALL}{UNUSED}"))]);
    for format in ["text", "json", "github"] {
        assert_eq!(check(&folder, &["--format", format]).0, Some(0));
        let (status, stdout, stderr) = check(&folder, &["--format", format, "--strict"]);
        assert_eq!(status, Some(2));
        assert_eq!(stdout.contains("no route uses"), format != "text", "{stdout}");
        assert_eq!(
            stderr.contains("error: 1 warning, which `--strict` refuses"),
            format == "text",
            "{stderr}"
        );
    }
}

#[test]
fn without_the_environment_a_check_says_what_it_left_out() {
    let toml = format!("{SMALL}[admin]\nlisten = \"127.0.0.1:9900\"\ntoken_env = \"NO_SUCH_1\"\n");
    let folder = ConfigFolder::new(&[("gateway.toml", &toml)]);
    assert_eq!(check(&folder, &[]).0, Some(2));
    let left_out = "not checked: gateway.toml:9:13: the environment variable `NO_SUCH_1` is not set\n";
    for (format, expected) in [("text", ""), ("json", "[]\n"), ("github", "")] {
        let told = check(&folder, &["--no-env", "--strict", "--format", format]);
        assert_eq!(told, (Some(0), expected.into(), left_out.into()));
    }
    let complete = tollgate(&folder, &["check", "--no-env"], &[("NO_SUCH_1", "x")], "");
    assert!(complete.0 == Some(0) && complete.1.contains("gateway.toml is good"), "{complete:?}");
}

/// `check` makes requests that ought to reach each route.
#[test]
fn strict_refuses_a_route_that_no_request_reaches() {
    let folder = ConfigFolder::new(&[("gateway.toml", &format!("{SMALL}{DEAD}"))]);
    let (status, stdout, stderr) = check(&folder, &["--format", "json", "--strict"]);
    assert_eq!((status, &*stderr), (Some(2), ""));
    let told: Value = serde_json::from_str(&stdout).expect("JSON");
    assert_eq!(
        told[0]["message"],
        json!("route `~^/old/[0-9]+$` can never match: route `~^/old/` takes all its requests")
    );
    assert_eq!(told.as_array().map(Vec::len), Some(1), "{stdout}");
    assert_eq!(check(&folder, &[]).0, Some(0));
}

/// The example of the documents, with the command that its workflow runs.
#[test]
fn the_pull_request_of_the_documents_is_checked() {
    let page =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/files.md")).expect("the page");
    let command = page
        .lines()
        .find_map(|line| line.trim().strip_prefix("- run: tollgate "))
        .expect("the workflow runs tollgate");
    assert_eq!(command, "check --format github --strict --no-env gateway.toml");
    let arguments: Vec<&str> = command.split(' ').collect();
    let main = "include = \"routes/*.toml\"\n[upstreams]\nshop = \"http://${SHOP_HOST}:8080\"\n\
                [[server.tls]]\ncert = \"cert.pem\"\nkey = \"key.pem\"\n";
    let folder = ConfigFolder::new(&[
        ("gateway.toml", main),
        ("routes/shop.toml", "[[routes]]\npath = \"/*\"\nupstream = \"shop\"\n"),
    ]);
    let (status, stdout, stderr) = tollgate(&folder, &arguments, &[], "");
    assert_eq!((status, stdout.as_str()), (Some(0), ""), "{stderr}");
    assert_eq!(stderr.lines().count(), 3, "{stderr}");
    folder.write("routes/shop.toml", "[[routes]]\npath = \"/*\"\nupstream = \"shopp\"\n");
    let (status, stdout, _) = tollgate(&folder, &arguments, &[], "");
    assert_eq!(status, Some(2));
    assert!(
        stdout.starts_with("::error file=routes/shop.toml,line=3,col=12,title=tollgate check::"),
        "{stdout}"
    );
}

/// A value with another meaning than in earlier versions is noted, and nothing is refused because of it.
#[test]
fn values_with_a_new_meaning_are_noted() {
    let file = format!(
        r#"{SMALL}
[[routes]]
path = "/x"
upstream = "demo"
headers = {{ user-agent = "*bot*", x-a = "~bot", x-b = "a*", x-c = "*", x-d = "\\*", x-e = "${{STAR}}", x-f = ["*bot*"], upgrade = "websocket" }}
query = {{ page = "*1", plain = "a~b" }}
cookies = {{ session = "*a*" }}
not = {{ headers = {{ x-g = "*bot*" }} }}
limits = ["keys"]
[limits.keys]
algorithm = "gcra"
key = "ip"
rate = "1/s"
exempt = ["header:x-key=${{STAR}}", "header:x-key=secret*", "header:x-key=b"]
"#
    );
    let folder = ConfigFolder::new(&[("gateway.toml", &file)]);
    let (status, stdout, stderr) = tollgate(&folder, &["check"], &[("STAR", "*")], "");
    assert_eq!(status, Some(0), "{stderr}");
    assert!(stdout.starts_with("gateway.toml is good"), "{stdout}");
    let notes: Vec<_> = stderr.lines().filter_map(|line| line.strip_prefix("note: gateway.toml:")).collect();
    let list = "put it into a list, `[\"…\"]`, if that is right; `\\\\*` and `\\\\~` are the characters";
    let characters = "`\\\\*` and `\\\\~` are the characters";
    let expected = [
        format!(
            "11:26: `user-agent` now stands for values that contain this text; before, for values that begin with this text; {list}"
        ),
        format!(
            "11:41: `x-a` now stands for values that a regular expression matches; before, for exactly this text; {list}"
        ),
        format!(
            "11:78: `x-d` now stands for exactly this text; before, for values that begin with this text; {list}"
        ),
        format!("11:91: `x-e` now stands for exactly this text; before, for any value; {list}"),
        format!(
            "12:18: `page` now stands for values that end with this text; before, for exactly this text; {list}"
        ),
        format!(
            "20:35: the exemption by `x-key` now stands for values that begin with this text; before, for exactly this text; {characters}"
        ),
    ];
    assert_eq!(notes, expected);
    let file = SMALL.replace("[[routes]]\n", "[[routes]]\nheaders = { x-a = \"*bot*\" }\n");
    let folder = ConfigFolder::new(&[("gateway.toml", &file)]);
    let (status, _, stderr) = check(&folder, &["--strict"]);
    assert!(status == Some(0) && stderr.starts_with("note: gateway.toml:4:19: `x-a` now"), "{stderr}");
}
