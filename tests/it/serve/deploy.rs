//! What `deploy/` holds is good as it stands.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize as _;
use serde_yaml_ng::Value;

use crate::harness::tools;

const BINARY: &str = env!("CARGO_BIN_EXE_tollgate");

fn deploy(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy").join(file)
}

fn text(file: &str) -> String {
    std::fs::read_to_string(deploy(file)).expect("it can be read")
}

/// The object of this kind in the manifest.
fn object(kind: &str) -> Value {
    let text = text("kubernetes.yaml");
    let documents = serde_yaml_ng::Deserializer::from_str(&text);
    let mut objects = documents.map(|document| Value::deserialize(document).expect("YAML"));
    objects.find(|object| object["kind"] == kind).unwrap_or_else(|| panic!("no {kind}"))
}

#[test]
fn the_manifests_file_passes_the_check() {
    let toml = object("ConfigMap")["data"]["gateway.toml"].as_str().expect("text").to_owned();
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("gateway.toml");
    std::fs::write(&file, toml).expect("it can be written");
    let mut command = Command::new(BINARY);
    command.arg("check").arg("-c").arg(file).env("TOLLGATE_ADMIN_TOKEN", "secret");
    let output = command.output().expect("it starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && stderr.is_empty(), "{stderr}");
}

#[test]
fn the_manifest_agrees_with_its_file() {
    let toml = object("ConfigMap")["data"]["gateway.toml"].as_str().expect("text").to_owned();
    let toml: toml::Table = toml.parse().expect("TOML");
    let pod = object("Deployment")["spec"]["template"]["spec"].clone();
    let container = &pod["containers"][0];
    let ports: Vec<String> = container["ports"]
        .as_sequence()
        .expect("ports")
        .iter()
        .map(|port| format!("0.0.0.0:{}", port["containerPort"].as_u64().expect("a number")))
        .collect();
    let admin = toml["admin"]["listen"].as_str().expect("text");
    assert_eq!(ports, [toml["server"]["listen"][0].as_str().expect("text"), admin]);
    assert_eq!(container["env"][0]["name"].as_str(), toml["admin"]["token_env"].as_str());
    let drain = toml["server"]["drain_timeout"].as_str().and_then(|text| text.strip_suffix('s'));
    let drain: u64 = drain.and_then(|seconds| seconds.parse().ok()).expect("seconds");
    let sleep = &container["lifecycle"]["preStop"]["exec"]["command"][1];
    let sleep: u64 = sleep.as_str().and_then(|seconds| seconds.parse().ok()).expect("seconds");
    assert!(pod["terminationGracePeriodSeconds"].as_u64() > Some(drain + sleep));
    assert_eq!(container["securityContext"]["readOnlyRootFilesystem"].as_bool(), Some(true));
    assert_eq!(pod["securityContext"]["runAsNonRoot"].as_bool(), Some(true));
}

#[test]
fn the_probes_are_answered_without_the_token() {
    let toml = "[admin]\nlisten = \"0.0.0.0:0\"\ntoken_env = \"TOLLGATE_ADMIN_TOKEN\"";
    let backend = crate::harness::Backend::ok();
    let gateway = crate::harness::Gateway::start(&crate::harness::everything_to(&backend, toml));
    let probes = object("Deployment")["spec"]["template"]["spec"]["containers"][0].clone();
    for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
        gateway.admin(probes[probe]["httpGet"]["path"].as_str().expect("a path")).expect(200);
    }
    gateway.admin("/metrics").expect(401);
}

#[test]
fn systemd_finds_nothing_wrong_with_the_units() {
    let Some(mut command) = tools::tool("systemd-analyze") else { return };
    let directory = tempfile::tempdir().expect("a temporary directory");
    let units = ["tollgate.service", "tollgate.socket"].map(|file| directory.path().join(file));
    for unit in &units {
        let file = unit.file_name().and_then(|name| name.to_str()).expect("a name");
        std::fs::write(unit, text(file).replace("/usr/local/bin/tollgate", BINARY)).expect("written");
    }
    let output = command.args(["verify", "--man=no"]).args(&units).output().expect("it starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    // It may have something to say of this machine's own units, too.
    assert!(output.status.success() && !stderr.contains("tollgate"), "{}: {stderr}", output.status);
}
