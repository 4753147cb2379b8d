//! The command line, through the real binary.

use std::io::Read as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

use crate::harness::{Backend, Gateway, binary, everything_to};

const GOOD: &str = "[upstreams]\ndemo = \"builtin:echo\"\n\
    [limits.per-client]\nalgorithm = \"token-bucket\"\nkey = \"ip\"\nrate = \"10/s\"\nburst = 50\n\
    [[routes]]\npath = \"/*\"\nupstream = \"demo\"\nlimits = [\"per-client\"]\n";

fn tollgate(arguments: &[&str], folder: &Path) -> Output {
    Command::new(binary())
        .args(arguments)
        .current_dir(folder)
        .env("NO_COLOR", "1")
        .output()
        .expect("the binary starts")
}

fn folder_with(toml: &str) -> TempDir {
    let folder = tempfile::tempdir().expect("a temporary directory");
    std::fs::write(folder.path().join("gateway.toml"), toml).expect("it can be written");
    folder
}

fn texts(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

#[test]
fn help_tells_commands_examples_signals_and_exit_status() {
    let folder = tempfile::tempdir().unwrap();
    let output = tollgate(&["--help"], folder.path());
    assert_eq!(output.status.code(), Some(0));
    let (help, _) = texts(&output);
    for word in [
        "run",
        "check",
        "explain",
        "schema",
        "health",
        "top",
        "completions",
        "man",
        "--color",
        "--quiet",
        "--verbose",
        "--config",
        "--watch",
        "--takeover",
        "SIGHUP",
        "Exit status",
        "Examples",
    ] {
        assert!(help.contains(word), "{word} is missing in\n{help}");
    }
    for command in ["run", "check", "explain", "replay", "suggest", "schema", "health", "top"] {
        assert_eq!(tollgate(&[command, "--help"], folder.path()).status.code(), Some(0), "{command}");
    }
    let (version, _) = texts(&tollgate(&["--version"], folder.path()));
    assert_eq!(version, format!("tollgate {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn bad_usage_is_2_and_says_so_on_standard_error() {
    let folder = folder_with(GOOD);
    for arguments in [
        &["bogus"][..],
        &["--bogus"],
        &["check", "--watch"],
        &["--watch", "check"],
        &["--takeover", "check"],
        &["schema", "extra"],
        &["explain", "GET"],
        &["explain", "GET", "/", "--ip", "nowhere"],
        &["-c"],
    ] {
        let output = tollgate(arguments, folder.path());
        let (stdout, stderr) = texts(&output);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
        assert!(stdout.is_empty() && stderr.starts_with("error: "), "{arguments:?}: {stdout}{stderr}");
    }
}

#[test]
fn what_is_typed_by_habit_gets_its_remedy() {
    let folder = folder_with(GOOD);
    for (arguments, expected) in [
        (
            &["health", "x.toml"][..],
            "error: unexpected argument `x.toml`\n\n  tip: write `tollgate health -c x.toml`\n",
        ),
        (&["x.toml"], "error: there is no command `x.toml`\n\n  tip: write `tollgate -c x.toml`\n"),
        (&["validate"], "error: there is no command `validate`\n\n  tip: write `tollgate check`\n"),
        (&["-t"], "error: unexpected argument `-t`\n\n  tip: write `tollgate check`\n"),
    ] {
        let output = tollgate(arguments, folder.path());
        let (_, stderr) = texts(&output);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
        assert!(stderr.starts_with(expected), "{arguments:?}: {stderr}");
    }
}

#[test]
fn check_sums_a_good_file_up() {
    let folder = folder_with(GOOD);
    for arguments in
        [&["check"][..], &["check", "-c", "gateway.toml"], &["--config", "gateway.toml", "check"]]
    {
        let output = tollgate(arguments, folder.path());
        let (stdout, stderr) = texts(&output);
        assert_eq!(output.status.code(), Some(0), "{stderr}");
        assert!(stdout.contains("per-client") && stderr.is_empty(), "{stdout}{stderr}");
    }
}

#[test]
fn check_warns_on_standard_error_and_is_good() {
    let unused = "[limits.unused]\nalgorithm = \"gcra\"\nkey = \"ip\"\nrate = \"1/s\"\n";
    let output = tollgate(&["check"], folder_with(&format!("{GOOD}{unused}")).path());
    let (stdout, stderr) = texts(&output);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    assert!(stderr.contains("warning") && stderr.contains("`unused`"), "{stderr}");
    assert!(stdout.contains("per-client"), "{stdout}");
}

#[test]
fn all_faults_of_a_file_are_shown_at_once_and_are_2() {
    let faulty =
        GOOD.replace("token-bucket", "token-bukket").replace("upstream = \"demo\"", "upstream = \"unknown\"");
    let folder = folder_with(&faulty);
    for arguments in [&["check"][..], &["run"], &[], &["explain", "GET", "/"]] {
        let output = tollgate(arguments, folder.path());
        let (stdout, stderr) = texts(&output);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
        assert!(stdout.is_empty(), "{arguments:?}: {stdout}");
        assert!(stderr.starts_with("error: "), "{stderr}");
        for part in ["`token-bukket`", "`unknown`", "gateway.toml:", "help: "] {
            assert!(stderr.contains(part), "{arguments:?}: {part} is missing in\n{stderr}");
        }
    }
}

#[test]
fn a_file_that_is_not_there_is_2() {
    let folder = tempfile::tempdir().unwrap();
    for arguments in [&["check"][..], &[], &["run", "-c", "other.toml"], &["health"]] {
        let output = tollgate(arguments, folder.path());
        let (_, stderr) = texts(&output);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(stderr.starts_with("error: ") && stderr.contains(".toml`"), "{arguments:?}: {stderr}");
    }
}

#[test]
fn schema_prints_json() {
    let output = tollgate(&["schema"], tempfile::tempdir().unwrap().path());
    assert_eq!(output.status.code(), Some(0));
    let schema: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert!(schema["$schema"].as_str().is_some_and(|draft| draft.contains("json-schema.org")));
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure() {
    for arguments in [&["schema"][..], &["check"], &["--help"]] {
        let folder = folder_with(GOOD);
        let mut child = Command::new(binary())
            .args(arguments)
            .current_dir(folder.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let mut stderr = String::new();
        child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        assert_eq!((child.wait().unwrap().code(), stderr.as_str()), (Some(0), ""), "{arguments:?}");
    }
}

#[test]
fn a_full_disk_behind_standard_output_is_1() {
    let folder = folder_with(GOOD);
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("Linux has it");
    let output =
        Command::new(binary()).arg("schema").current_dir(folder.path()).stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(texts(&output).1.starts_with("error: "));
}

#[test]
fn health_is_0_for_a_living_gateway_1_for_none_and_2_without_an_address() {
    let backend = Backend::ok();
    let gateway = Gateway::start(&everything_to(&backend, "[admin]\nlisten = \"127.0.0.1:0\""));
    let named = |listen: &str| folder_with(&format!("[admin]\nlisten = \"{listen}\"\nnonsense = true\n"));
    let ask = |folder: &TempDir| tollgate(&["health"], folder.path());
    let living = ask(&named(&gateway.admin_addr().to_string()));
    assert_eq!((living.status.code(), texts(&living)), (Some(0), (String::new(), String::new())));
    // Without `[admin]` the first listener is connected to.
    let listening = |listen: &str| folder_with(&format!("[server]\nlisten = [{listen}]\n{GOOD}"));
    let address = gateway.addr();
    for listen in
        [format!("\"{address}\", \"192.0.2.1:1\""), format!("{{ address = \"{address}\", tls = false }}")]
    {
        let output = ask(&listening(&listen));
        assert_eq!(output.status.code(), Some(0), "{}", texts(&output).1);
    }
    // Bound, so that no other process takes the port, but not listening.
    let closed = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    closed.bind(&std::net::SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    let free = closed.local_addr().unwrap().as_socket().unwrap();
    let sick = Backend::answering("HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n");
    for (folder, status) in [
        (named(&free.to_string()), 1),
        (named(&sick.addr().to_string()), 1),
        (listening(&format!("\"{free}\"")), 1),
        (listening("\"127.0.0.1:0\""), 2),
        (listening("7"), 2),
        (named("127.0.0.1:0"), 2),
        (named("nonsense"), 2),
        (folder_with("= not toml"), 2),
    ] {
        let output = ask(&folder);
        let (_, stderr) = texts(&output);
        assert_eq!(output.status.code(), Some(status), "{stderr}");
        assert!(stderr.starts_with("error: "), "{stderr}");
    }
}

#[test]
fn health_needs_no_file_with_a_url() {
    let backend = Backend::ok();
    let gateway = Gateway::start(&everything_to(&backend, "[admin]\nlisten = \"127.0.0.1:0\""));
    let empty = TempDir::new().expect("a folder");
    let url = format!("http://{}", gateway.admin_addr());
    let living = tollgate(&["health", "--url", &url], empty.path());
    assert_eq!((living.status.code(), texts(&living)), (Some(0), (String::new(), String::new())));
    // Nor does a file with faults matter.
    let faulty = folder_with("= not toml");
    assert_eq!(tollgate(&["health", "--url", &url], faulty.path()).status.code(), Some(0));
    drop(gateway);
    let gone = tollgate(&["health", "--url", &url], empty.path());
    assert_eq!(gone.status.code(), Some(1), "{}", texts(&gone).1);
    for (arguments, help) in [
        (
            &["health"][..],
            "= help: name the file with `-c FILE`, or the gateway with `--url http://127.0.0.1:9900`",
        ),
        (&["health", "--url", "gateway"], "= help: write `--url http://127.0.0.1:9900`"),
    ] {
        let output = tollgate(arguments, empty.path());
        assert!(output.status.code() == Some(2) && texts(&output).1.contains(help), "{}", texts(&output).1);
    }
}

/// Address space is bounded here, so that no machine has enough of it.
#[test]
fn counters_that_the_system_has_no_memory_for_are_1_and_name_the_key() {
    for max_keys in [50_000_000, 1_000_000_000] {
        let toml = format!("[server]\nlisten = [\"127.0.0.1:0\"]\n[store]\nmax_keys = {max_keys}\n{GOOD}");
        let output = Command::new("sh")
            .args(["-c", "ulimit -v 1000000; exec \"$0\"", binary()])
            .current_dir(folder_with(&toml).path())
            .env("NO_COLOR", "1")
            .output()
            .expect("a shell");
        let (_, stderr) = texts(&output);
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        assert!(stderr.contains("error: ") && stderr.contains("`max_keys`"), "{stderr}");
        assert!(!stderr.contains("panicked"), "{stderr}");
    }
}

#[test]
fn an_address_in_use_is_1_and_names_the_address() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let server = format!("[server]\nlisten = [\"{address}\"]\n{GOOD}");
    let admin = format!("[server]\nlisten = [\"127.0.0.1:0\"]\n[admin]\nlisten = \"{address}\"\n{GOOD}");
    for toml in [server, admin] {
        let output = tollgate(&[], folder_with(&toml).path());
        let (stdout, stderr) = texts(&output);
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        assert!(
            stderr.contains("error: ") && stderr.contains(&address) && stderr.contains("ss -ltnp"),
            "{stderr}"
        );
        assert!(stdout.is_empty() && !stderr.contains("INFO listening"), "{stdout}{stderr}");
    }
}
