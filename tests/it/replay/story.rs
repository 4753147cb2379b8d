//! `docs/replay.md`, as a reader would follow it: from an nginx log to limits that are enforced.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::harness::nginx_day::{ATTACKER, OFFICE, SCRAPER, nginx_day};
use crate::harness::page_session::{commands, lines_match, run};
use crate::harness::pages::{Block, pages};
use crate::harness::{Gateway, binary};

const ALONE: &str = "text session of this page";
const BESIDE_GATEWAY: &str = "text session beside the gateway of this page";
/// The day of the page.
const SEED: u64 = 7;

fn blocks() -> Vec<Block> {
    pages().into_iter().find(|page| page.path == "docs/replay.md").expect("the page is there").blocks()
}

fn put_program(directory: &Path, name: &str, script: &str) {
    let path = directory.join("bin").join(name);
    fs::write(&path, script).expect("it can be written");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("it is ours");
}

/// The gateway runs with the files of the directory. A link to its log is in the directory.
fn start(directory: &Path) -> Gateway {
    let absolute = |name: &str| format!("{:?}", directory.join(name));
    let toml = fs::read_to_string(directory.join("gateway.toml")).expect("the page has made it");
    let toml = toml
        .replace("127.0.0.1:8080", "127.0.0.1:0")
        .replace("127.0.0.1:9900", "127.0.0.1:0")
        .replace("\"limits.toml\"", &absolute("limits.toml"))
        .replace("\"tollgate.log\"", &absolute("tollgate.log"));
    let gateway = Gateway::start(&toml);
    let curl = format!(
        "#!/bin/sh\nPATH=${{PATH#*:}} exec curl -sS --connect-to localhost:8080:{} --connect-to localhost:9900:{} \"$@\"\n",
        gateway.addr(),
        gateway.admin_addr()
    );
    put_program(directory, "curl", &curl);
    // As with systemd, it returns when the gateway has reloaded.
    let reload = format!(
        "#!/bin/sh\nPATH=${{PATH#*:}}\nkill -HUP {}\n\
         until curl -sS http://{}/metrics | grep -q 'config_reloads_total.*success.* 1$'; do :; done\n",
        gateway.pid(),
        gateway.admin_addr()
    );
    put_program(directory, "systemctl", &reload);
    gateway
}

fn replayed(directory: &Path, file: &str) -> Value {
    let json = run(directory, &format!("tollgate replay --json {file}"));
    serde_json::from_str(&json).unwrap_or_else(|error| panic!("{error}: {json}"))
}

fn refused_clients(report: &Value) -> Vec<&str> {
    report["refused_clients"].as_array().unwrap().iter().map(|one| one["client"].as_str().unwrap()).collect()
}

#[test]
fn a_reader_comes_from_a_log_to_enforced_limits() {
    let (folder, blocks) = (tempfile::tempdir().unwrap(), blocks());
    let directory = folder.path();
    fs::write(directory.join("access.log"), nginx_day(SEED)).unwrap();
    fs::create_dir(directory.join("bin")).unwrap();
    symlink(binary(), directory.join("bin/tollgate")).unwrap();
    for block in &blocks {
        if let Some(file) = block.info.strip_prefix("text saved as ") {
            fs::write(directory.join(file), &block.text).unwrap();
        }
    }
    let (mut faults, mut gateway) = (Vec::new(), None);
    for block in blocks.iter().filter(|block| block.info == ALONE || block.info == BESIDE_GATEWAY) {
        if block.info == BESIDE_GATEWAY && gateway.is_none() {
            gateway = Some(start(directory));
        }
        for (command, expected) in commands(block) {
            let printed = run(directory, &command);
            let lines: Vec<_> = printed.trim_end().lines().collect();
            if !lines_match(&expected, &lines) {
                let (place, expected) = (block.place(), expected.join("\n"));
                faults.push(format!("{place}: `{command}` prints\n{printed}\n--- and not\n{expected}"));
            }
        }
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n\n"));
    let gateway = gateway.expect("the page has a part with a gateway");
    // What the page says, as numbers.
    let day = replayed(directory, "access.log");
    let hit = refused_clients(&day);
    assert_eq!(hit.len(), 2, "{hit:?}");
    assert!(hit.contains(&SCRAPER) && hit.contains(&ATTACKER) && !hit.contains(&OFFICE), "{hit:?}");
    let people = day["refused_clients"].as_array().unwrap();
    assert!(people.iter().all(|one| one["looks_like_a_person"] == false), "{people:?}");
    let own = replayed(directory, "tollgate.log");
    assert_eq!(own["requests"], 120);
    gateway.wait_for_log("reloaded");
}

/// The story does not hang on one day.
#[test]
fn another_day_gives_limits_that_refuse_the_same_two() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("access.log"), nginx_day(SEED + 1)).unwrap();
    let suggested =
        Command::new(binary()).args(["suggest", "access.log"]).current_dir(folder.path()).output().unwrap();
    let toml = String::from_utf8(suggested.stdout).unwrap();
    let toml = toml.replace("mode = \"shadow\"", "exempt = [\"ip:198.51.100.0/24\"]\nmode = \"enforce\"");
    let file = format!(
        "[server]\nlisten = [\"127.0.0.1:8080\"]\n[upstreams.shop]\nservers = [\"builtin:echo\"]\n[[routes]]\npath = \"/*\"\n\
         upstream = \"shop\"\nlimits = [\"per-ip\"]\n{toml}"
    );
    fs::write(folder.path().join("gateway.toml"), file).unwrap();
    fs::create_dir(folder.path().join("bin")).unwrap();
    symlink(binary(), folder.path().join("bin/tollgate")).unwrap();
    let report = replayed(folder.path(), "access.log");
    let mut hit = refused_clients(&report);
    hit.sort_unstable();
    assert_eq!(hit, [SCRAPER, ATTACKER], "{toml}");
}
