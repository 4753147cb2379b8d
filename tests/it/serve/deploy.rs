//! The systemd units of `deploy/` are good as they stand.

use std::path::{Path, PathBuf};

use crate::harness::{binary, tools};

fn deploy(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy").join(file)
}

fn text(file: &str) -> String {
    std::fs::read_to_string(deploy(file)).expect("it can be read")
}

#[test]
fn systemd_finds_nothing_wrong_with_the_units() {
    let Some(mut command) = tools::tool("systemd-analyze") else { return };
    let directory = tempfile::tempdir().expect("a temporary directory");
    let units = ["tollgate.service", "tollgate.socket"].map(|file| directory.path().join(file));
    for unit in &units {
        let file = unit.file_name().and_then(|name| name.to_str()).expect("a name");
        std::fs::write(unit, text(file).replace("/usr/local/bin/tollgate", binary())).expect("written");
    }
    let output = command.args(["verify", "--man=no"]).args(&units).output().expect("it starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    // It may have something to say of this machine's own units, too.
    assert!(output.status.success() && !stderr.contains("tollgate"), "{}: {stderr}", output.status);
}
