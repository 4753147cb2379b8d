//! The scripts of `make release` and the workflows that call them. `make release-test` makes a release and tests it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value as Json;
use serde_yaml_ng::Value;

use crate::harness::pages::root;
use crate::harness::tools;

const TARGET: &str = "x86_64-unknown-linux-gnu";

fn output(command: &mut Command) -> String {
    let output = command.current_dir(root()).output().expect("it starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {stderr}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

fn packaging(script: &str) -> Command {
    Command::new(root().join("packaging").join(script))
}

/// The files of packaging/ that this interpreter runs.
fn scripts(interpreter: &str) -> Vec<PathBuf> {
    let first = format!("#!/usr/bin/env {interpreter}\n");
    let files = fs::read_dir(root().join("packaging")).expect("a directory");
    let files = files.map(|file| file.expect("a file").path()).filter(|path| path.is_file());
    let found: Vec<_> =
        files.filter(|path| fs::read_to_string(path).expect("UTF-8").starts_with(&first)).collect();
    assert!(!found.is_empty(), "no script of {interpreter}");
    found
}

/// The jobs of a workflow, and its `run` lines.
fn workflow(name: &str) -> (Value, Vec<String>) {
    let text = fs::read_to_string(root().join(".github/workflows").join(name)).expect("it can be read");
    let workflow: Value = serde_yaml_ng::from_str(&text).expect("YAML");
    let steps = steps(&workflow);
    let runs = steps.iter().filter_map(|step| step["run"].as_str().map(str::to_owned)).collect();
    (workflow, runs)
}

fn steps(workflow: &Value) -> Vec<Value> {
    let jobs = workflow["jobs"].as_mapping().expect("jobs");
    jobs.values().flat_map(|job| job["steps"].as_sequence().expect("steps").clone()).collect()
}

fn manifest() -> toml::Table {
    fs::read_to_string(root().join("Cargo.toml")).expect("it can be read").parse().expect("TOML")
}

#[test]
fn the_scripts_parse() {
    for script in scripts("bash") {
        output(Command::new("bash").arg("-n").arg(&script));
    }
    let parse = "import ast, sys; ast.parse(open(sys.argv[1]).read())";
    for script in scripts("python3") {
        output(tools::python(&[]).args(["-c", parse]).arg(&script));
    }
}

#[test]
fn shellcheck_finds_nothing_wrong_with_the_scripts() {
    let Some(mut command) = tools::tool("shellcheck") else { return };
    output(command.args(scripts("bash")));
}

#[test]
fn make_runs_the_scripts() {
    for target in ["release", "release-test"] {
        let printed = output(Command::new("make").args(["--dry-run", "--no-print-directory", target]));
        assert_eq!(printed.trim(), format!("packaging/{target}"));
    }
}

#[test]
fn the_workflows_call_make() {
    let (_, ci) = workflow("ci.yml");
    // Tests of network namespaces need root, so `make test` stands behind sudo.
    let targets: Vec<&str> = ci.iter().filter_map(|run| Some(&run[run.find("make ")?..])).collect();
    assert_eq!(targets, ["make test", "make lint", "make release"]);
    let (_, release) = workflow("release.yml");
    assert!(release.iter().any(|run| run.ends_with("make release-test")), "{release:?}");
    assert!(release.iter().any(|run| run == "cargo publish --locked --allow-dirty"), "{release:?}");
}

#[test]
fn the_workflows_have_few_rights_and_pinned_actions() {
    let version = manifest()["package"]["rust-version"].as_str().expect("text").to_owned();
    for name in ["ci.yml", "release.yml"] {
        let (workflow, runs) = workflow(name);
        let rights = workflow["permissions"].as_mapping().expect("permissions");
        assert_eq!(rights.len(), 1, "{name}");
        assert_eq!(workflow["permissions"]["contents"], "read", "{name}");
        for action in steps(&workflow).iter().filter_map(|step| step["uses"].as_str()) {
            let (action, pin) = action.split_once('@').expect("a version");
            let major =
                pin.strip_prefix('v').is_some_and(|pin| pin.bytes().all(|byte| byte.is_ascii_digit()));
            let rust = action == "dtolnay/rust-toolchain" && pin.starts_with(&version);
            assert!(major || rust || pin.len() == 40, "{name}: {action}@{pin}");
        }
        for run in runs {
            output(Command::new("bash").args(["-n", "-c", &run]));
        }
    }
}

#[test]
fn the_glibc_floor_is_stated() {
    let floor = output(&mut packaging("glibc-floor"));
    let page = fs::read_to_string(root().join("docs/releasing.md")).expect("the page");
    assert!(page.contains(&format!("glibc {}", floor.trim())), "docs/releasing.md does not state {floor}");
    let needed = output(packaging("glibc-floor").arg(env!("CARGO_BIN_EXE_tollgate")));
    assert!(needed.starts_with("2."), "the debug binary needs {needed}");
}

/// `name version` of the crates that can be in the binary, each with its directory. More than are in it: features that
/// only tests enable bring along some others.
fn possible_crates() -> BTreeMap<String, PathBuf> {
    let mut command = Command::new(env!("CARGO"));
    command.args(["metadata", "--format-version", "1", "--locked", "--filter-platform", TARGET]);
    let metadata: Json = serde_json::from_str(&output(&mut command)).expect("JSON");
    let by_id = |list: &Json| -> BTreeMap<String, Json> {
        let items = list.as_array().expect("a list").iter();
        items.map(|item| (item["id"].as_str().expect("an id").to_owned(), item.clone())).collect()
    };
    let (packages, nodes) = (by_id(&metadata["packages"]), by_id(&metadata["resolve"]["nodes"]));
    let mut waiting = vec![metadata["resolve"]["root"].as_str().expect("an id").to_owned()];
    let (mut seen, mut found) = (BTreeSet::new(), BTreeMap::new());
    while let Some(id) = waiting.pop() {
        let package = &packages[&id];
        let kinds = package["targets"].as_array().expect("targets").iter().map(|target| &target["kind"][0]);
        if !seen.insert(id.clone()) || kinds.into_iter().any(|kind| kind == "proc-macro") {
            continue;
        }
        for used in nodes[&id]["deps"].as_array().expect("a list") {
            let mut kinds = used["dep_kinds"].as_array().expect("a list").iter();
            if kinds.any(|kind| kind["kind"].is_null()) {
                waiting.push(used["pkg"].as_str().expect("an id").to_owned());
            }
        }
        let text = |key: &str| package[key].as_str().expect("text");
        let directory = Path::new(text("manifest_path")).parent().expect("a directory").to_owned();
        found.insert(format!("{} {}", text("name"), text("version")), directory);
    }
    found
}

#[test]
fn the_list_of_crates_is_that_of_the_binary() {
    let printed = output(packaging("crates").arg(TARGET));
    let listed: BTreeSet<&str> = printed.lines().collect();
    let possible = possible_crates();
    let unknown: Vec<_> = listed.iter().filter(|name| !possible.contains_key(**name)).collect();
    assert!(unknown.is_empty(), "not in the binary: {unknown:?}");
    let names: BTreeSet<&str> = listed.iter().filter_map(|name| name.split(' ').next()).collect();
    // The library of cryptography that only `make run` takes.
    let direct = manifest()["dependencies"].as_table().expect("a table").clone();
    for name in direct.keys().filter(|name| *name != "ring") {
        assert!(names.contains(name.as_str()), "{name} is in the binary");
    }
    for name in ["insta", "proptest", "serde_derive", "cc", "ring"] {
        assert!(!names.contains(name), "{name} is not in the binary");
    }
}

#[test]
fn the_licences_are_those_of_all_parts() {
    let text = output(packaging("licenses").arg(TARGET));
    let crates = output(packaging("crates").arg(TARGET));
    for name in crates.lines().filter(|name| !name.starts_with("tollgate ")) {
        assert!(text.contains(&format!("\n{name} (")), "{name} is not in the list");
        assert!(text.contains(&format!("\n{name}: ")), "{name} has no text");
    }
    let possible = possible_crates();
    for (name, file) in [
        ("tikv-jemalloc-sys", "jemalloc/COPYING"),
        ("zstd-sys", "zstd/LICENSE"),
        ("aws-lc-sys", "aws-lc/LICENSE"),
    ] {
        let (title, directory) =
            possible.iter().find(|(title, _)| title.starts_with(name)).expect("it is a dependency");
        let licence = fs::read_to_string(directory.join(file)).expect("it can be read");
        let line = licence.lines().map(str::trim_end).max_by_key(|line| line.len()).expect("a line");
        assert!(text.contains(&format!("{title}: {file}")) && text.contains(line), "{title}: {file}");
    }
    for part in ["uPlot", "Rust's standard library", "Leon Sorokin"] {
        assert!(text.contains(part), "{part}");
    }
    assert!(!text.contains("GNU GENERAL PUBLIC LICENSE"), "zstd is taken under the BSD licence");
}
