//! The program log: its form, its level, and faults of a file that is read again.

use std::process::{Command, Stdio};

use rustix::process::Signal;
use serde_json::Value;

use crate::harness::{Backend, Gateway, binary, eventually, everything_to, free_address};

fn records(gateway: &Gateway) -> Vec<Value> {
    let lines = gateway.stderr_lines();
    lines
        .iter()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("no JSON: {line}")))
        .collect()
}

#[test]
fn each_fault_of_a_reloaded_file_is_one_record() {
    let backend = Backend::ok();
    let toml = everything_to(&backend, "[log]\nprogram = \"json\"\n");
    let gateway = Gateway::start(&toml);
    let unused = "[limits.unused]\nalgorithm = \"gcra\"\nkey = \"ip\"\nrate = \"1/s\"\n";
    gateway.reload(&format!("{toml}{unused}"), "\"message\":\"reloaded");
    gateway.reload(&format!("{toml}nonsense = 1\nlevel = \"loud\"\n"), "not reloaded");
    let records = records(&gateway);
    assert!(records.iter().all(|record| record["timestamp"].is_string() && record["message"].is_string()));
    let faults: Vec<_> = records.iter().filter(|record| record["severity"] == "error").collect();
    assert_eq!(faults.len(), 2, "{records:?}");
    for fault in faults {
        assert_eq!(fault["level"], "ERROR");
        assert_eq!(fault["file"].as_str(), gateway.config_path().to_str());
        for field in ["line", "column"] {
            assert!(fault[field].is_u64(), "{field}: {fault}");
        }
        assert!(fault["help"].as_str().is_some_and(|help| !help.is_empty()), "{fault}");
    }
    let warning = records.iter().find(|record| record["severity"] == "warning").expect("a warning");
    assert!(warning["message"].as_str().is_some_and(|text| text.contains("`unused`")), "{warning}");
}

#[test]
fn a_reload_changes_the_form() {
    let backend = Backend::ok();
    let gateway = Gateway::start(&everything_to(&backend, ""));
    gateway.reload(&everything_to(&backend, "[log]\nprogram = \"json\"\n"), "\"message\":\"reloaded");
    gateway.reload(&everything_to(&backend, ""), "INFO reloaded");
}

#[test]
fn the_level_of_the_command_line_overrules_the_file() {
    let backend = Backend::ok();
    let silent = everything_to(&backend, "[log]\nlevel = \"error\"\n");
    // It says at the level `info` where it listens, which the harness waits for.
    let gateway = Gateway::start_with(&silent, &["-v"]);
    gateway.reload(&everything_to(&backend, "[log]\nlevel = \"off\"\n"), "INFO reloaded");
}

#[test]
fn a_quiet_program_says_only_what_is_wrong() {
    let backend = Backend::ok();
    let folder = tempfile::tempdir().expect("a temporary directory");
    let unused = "[limits.unused]\nalgorithm = \"gcra\"\nkey = \"ip\"\nrate = \"1/s\"\n";
    for (switch, warns) in [("-q", true), ("-qq", false)] {
        let address = free_address();
        let toml = format!(
            "[server]\nlisten = [\"{address}\"]\n{}{unused}",
            everything_to(&backend, "[log]\nlevel = \"debug\"\nprogram = \"json\"\n")
        );
        std::fs::write(folder.path().join("gateway.toml"), toml).expect("it can be written");
        let mut command = Command::new(binary());
        command.arg(switch).current_dir(folder.path()).stdin(Stdio::null());
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        eventually("the gateway to listen", || std::net::TcpStream::connect(address).ok());
        let process = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw).expect("an id");
        rustix::process::kill_process(process, Signal::TERM).expect("it takes signals");
        let output = child.wait_with_output().expect("it ends");
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!stderr.contains("\"INFO\""), "{switch}: {stderr}");
        assert_eq!(stderr.contains("`unused`"), warns, "{switch}: {stderr}");
    }
}
