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

/// tollgate does not start with a socket on an address that its file does not name.
#[test]
fn the_socket_unit_has_the_address_of_the_shipped_files() {
    let unit = text("tollgate.socket");
    let sockets: Vec<_> = unit.lines().filter_map(|line| line.strip_prefix("ListenStream=")).collect();
    for file in ["gateway.toml", "packaging/gateway.toml"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
        let plan = tollgate::config::load(&path).expect("it is good").plan;
        let listens: Vec<_> =
            plan.server.listen.iter().map(|listener| listener.address.to_string()).collect();
        assert_eq!(sockets, listens, "{file}");
    }
}

/// systemd opens no socket for a service that runs.
#[test]
fn the_steps_of_the_page_stop_the_service_before_they_start_its_socket() {
    let page = std::fs::read_to_string(deploy("../docs/deploy.md")).expect("the page is there");
    let blocks = page.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
    let mut found = 0;
    for block in blocks.filter(|block| block.contains("enable --now")) {
        let step = |words: &str| block.lines().position(|line| line.contains(words));
        if let Some(socket) = step("enable --now tollgate.socket") {
            assert!(step("stop tollgate.service").is_some_and(|stop| stop < socket), "{block}");
            assert!(step("start tollgate.service").is_some_and(|start| start > socket), "{block}");
            found += 1;
        } else {
            assert!(!block.contains("tollgate.socket"), "{block}");
        }
    }
    assert_eq!(found, 1);
}
