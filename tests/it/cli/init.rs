//! `tollgate init`, through the real binary: what it writes passes `check --strict` and `test`.

use std::io::Write as _;
use std::process::{Command, Stdio};

use crate::harness::config_folder::ConfigFolder;
use crate::harness::{TerminalProgram, binary};

/// Status, standard output and standard error.
type Told = (Option<i32>, String, String);

fn tollgate(folder: &ConfigFolder, arguments: &[&str]) -> Told {
    let mut child = Command::new(binary())
        .args(arguments)
        .current_dir(folder.path(""))
        .env("NO_COLOR", "1")
        .env_remove("TOLLGATE_CONFIG")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    // A command that reads no input may be gone already.
    child.stdin.take().expect("piped").write_all(b"\n\n\n\n").ok();
    let output = child.wait_with_output().expect("it ends");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

fn read(folder: &ConfigFolder, name: &str) -> String {
    std::fs::read_to_string(folder.path(name)).expect("it is there")
}

#[test]
fn what_it_writes_has_no_warning_and_passes_its_test() {
    for upstream in ["http://127.0.0.1:9000", "https://api.example.com", "echo"] {
        for clients in [
            &["--clients", "ip"][..],
            &["--clients", "api-key"],
            &["--clients", "proxy", "--trusted", "10.1.0.0/16, 2001:db8::1"],
        ] {
            for (rate, mode) in
                [("100/min", "shadow"), ("10/s burst 3", "enforce"), ("1000000000/s", "enforce")]
            {
                let folder = ConfigFolder::new(&[]);
                let asked = ["init", "--upstream", upstream, "--rate", rate, "--mode", mode];
                let arguments = [&asked, clients].concat();
                let (status, stdout, stderr) = tollgate(&folder, &arguments);
                assert_eq!((status, &*stderr), (Some(0), ""), "{arguments:?}: {stdout}");
                assert!(
                    stdout.starts_with("wrote gateway.toml and gateway.test.toml\n\nNext:\n"),
                    "{stdout}"
                );
                for command in [&["check", "--strict"][..], &["test"]] {
                    let (status, stdout, stderr) = tollgate(&folder, command);
                    let file = read(&folder, "gateway.toml");
                    assert_eq!((status, &*stderr), (Some(0), ""), "{arguments:?}: {stdout}\n{file}");
                }
                assert_eq!(read(&folder, "gateway.toml").contains("\nmode "), mode == "shadow");
            }
        }
    }
}

#[test]
fn no_default_is_taken_without_a_word() {
    let folder = ConfigFolder::new(&[]);
    let (status, _, stderr) = tollgate(&folder, &["init"]);
    assert_eq!(status, Some(2));
    assert!(
        stderr.contains("give --upstream, --clients, --rate, --mode, or take the defaults: `--yes`"),
        "{stderr}"
    );
    let (_, _, stderr) = tollgate(&folder, &["init", "--rate", "1/s", "--trusted", "10.0.0.1"]);
    assert!(stderr.contains("give --upstream, --mode, or"), "{stderr}");
    assert!(!folder.path("gateway.toml").exists());
    let (status, _, stderr) = tollgate(&folder, &["init", "--yes", "--no-test"]);
    assert_eq!((status, &*stderr), (Some(0), ""));
    assert!(!folder.path("gateway.test.toml").exists());
}

/// `--clients` answers its question beforehand.
#[test]
fn a_terminal_is_asked_until_the_answers_are_right() {
    let folder = ConfigFolder::new(&[]);
    let mut terminal = TerminalProgram::start_by(|command| {
        let arguments = ["init", "--clients", "api-key"];
        command.arg(binary()).args(arguments).env_remove("TOLLGATE_CONFIG").current_dir(folder.path(""));
    });
    terminal.wait_for("[http://127.0.0.1:9000] > ");
    terminal.press("echo\r");
    terminal.wait_for("[100/min] > ");
    terminal.press("ten\r");
    terminal.wait_for("`ten` is not a rate");
    terminal.press("5/s burst 9\r");
    terminal.wait_for("[no] > ");
    terminal.press("\r");
    terminal.wait_for("wrote gateway.toml and gateway.test.toml");
    assert_eq!(terminal.wait_for_exit(), Some(0));
    let file = read(&folder, "gateway.toml");
    for line in [
        "service = \"builtin:echo\" ",
        "key       = \"header:x-api-key\"",
        "burst     = 9 ",
        "mode      = \"shadow\"",
    ] {
        assert!(file.contains(line), "{line} is missing in\n{file}");
    }
}

#[test]
fn a_file_that_is_there_stays() {
    let folder = ConfigFolder::new(&[("gateway.test.toml", "mine"), ("mine.toml", "mine"), ("folder/x", "")]);
    for (arguments, part) in [
        (&["init", "--yes"][..], "`gateway.test.toml` is there already"),
        (&["init", "--yes", "-o", "mine.toml"], "`mine.toml` is there already"),
        (&["-c", "mine.toml", "init", "--yes"], "`mine.toml` is there already"),
        (&["init", "--yes", "-o", "folder"], "`folder` is a directory"),
    ] {
        let (status, _, stderr) = tollgate(&folder, arguments);
        assert_eq!(status, Some(2), "{arguments:?}");
        assert!(stderr.contains(part), "{arguments:?}: {stderr}");
    }
    assert_eq!(
        (read(&folder, "mine.toml"), read(&folder, "gateway.test.toml")),
        ("mine".into(), "mine".into())
    );
    assert!(!folder.path("gateway.toml").exists());
    let (status, stdout, _) = tollgate(&folder, &["init", "--yes", "-o", "mine.toml", "--force"]);
    assert_eq!(status, Some(0));
    assert!(stdout.contains("  tollgate check -c mine.toml "), "{stdout}");
    assert!(read(&folder, "mine.test.toml").contains("[[test]]"));
}

#[test]
fn a_dash_is_standard_output() {
    let folder = ConfigFolder::new(&[]);
    let (status, stdout, stderr) = tollgate(&folder, &["init", "--yes", "--upstream", "echo", "-o", "-"]);
    assert_eq!((status, &*stderr), (Some(0), ""));
    folder.write("shown.toml", &stdout);
    assert_eq!(tollgate(&folder, &["check", "--strict", "shown.toml"]).0, Some(0));
    assert!(!folder.path("gateway.toml").exists());
}

#[test]
fn a_bad_answer_is_refused_with_the_reason() {
    let folder = ConfigFolder::new(&[]);
    for (arguments, part) in [
        (&["--upstream", "localhost"][..], "`localhost` is not the URL of a server"),
        (&["--upstream", "http://a\"\nx = 1"], "error: "),
        (&["--rate", "ten"], "`ten` is not a rate"),
        (&["--rate", "10/s burst 0"], "`burst` cannot be `0`"),
        (&["--rate", "10/s bust 1"], "`10/s bust 1` is not a rate"),
        (&["--trusted", "10.0.0.0/99"], "`10.0.0.0/99` is not a network"),
        (&["--trusted", "10.0.0.1", "--clients", "ip"], "`--trusted` is for `--clients proxy`"),
        (&["--clients", "cookie"], "invalid value 'cookie'"),
    ] {
        let (status, _, stderr) = tollgate(&folder, &[&["init", "--yes"], arguments].concat());
        assert_eq!(status, Some(2), "{arguments:?}: {stderr}");
        assert!(stderr.contains(part), "{arguments:?}: {stderr}");
    }
    assert!(!folder.path("gateway.toml").exists());
}
