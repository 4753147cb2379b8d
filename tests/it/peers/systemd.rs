//! The steps of docs/deploy.md without the Debian package: each line, as it is printed, in a copy of this machine with a
//! systemd of its own.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use crate::harness::pages::root;
use crate::harness::system::System;
use crate::harness::{binary, tools};

/// Where the clone is in the copy.
const CLONE: &str = "/tmp/clone";

/// The block of shell commands with this line.
fn block(page: &str, line: &str) -> String {
    let mut blocks = page.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
    blocks.find(|block| block.contains(line)).expect("the page has such a block").to_owned()
}

/// A clone whose program is built already: `cargo` does nothing.
fn clone(system: &System) {
    let place = system.path(CLONE);
    for directory in ["deploy", "packaging", "target/release", "bin"] {
        fs::create_dir_all(place.join(directory)).expect("it can be made");
    }
    let copied = ["packaging/gateway.toml", "deploy/tollgate.service", "deploy/tollgate.socket"];
    for file in copied {
        fs::copy(root().join(file), place.join(file)).expect("it can be copied");
    }
    let stripped =
        tools::needed("strip").arg("-o").arg(place.join("target/release/tollgate")).arg(binary()).status();
    assert!(stripped.is_ok_and(|status| status.success()));
    let cargo = place.join("bin/cargo");
    fs::write(&cargo, "#!/bin/sh\n[ \"$*\" = 'build --release --locked' ]\n").expect("it can be written");
    fs::set_permissions(cargo, fs::Permissions::from_mode(0o755)).expect("its owner may");
}

/// Runs the lines one by one, as root in the clone. Gives what each prints.
fn follow(system: &System, block: &str) -> Vec<String> {
    let run = |line: &str| {
        let line = format!("cd {CLONE} && PATH={CLONE}/bin:/usr/local/bin:$PATH && {line}");
        system.good(&["bash", "-c", &line])
    };
    block.lines().map(run).collect()
}

fn property(system: &System, unit: &str, name: &str) -> String {
    system.good(&["systemctl", "show", "--value", "--property", name, unit])
}

#[test]
fn the_steps_of_the_page_work_as_printed() {
    let Some(system) = System::start() else { return };
    clone(&system);
    let page = fs::read_to_string(root().join("docs/deploy.md")).expect("the page");
    let printed = follow(&system, &block(&page, "deploy/tollgate.service"));
    assert!(printed.last().is_some_and(|status| status.contains("active (running)")), "{printed:?}");
    assert_eq!(property(&system, "tollgate.service", "ActiveState"), "active");
    assert!(Path::new(&system.path("/usr/local/share/man/man1/tollgate.1")).exists());
    let served =
        || system.good(&["curl", "-sS", "-o", "/dev/null", "-w", "%{http_code}", "http://127.0.0.1:8080/"]);
    assert_eq!(served(), "200");
    let process = property(&system, "tollgate.service", "MainPID");
    assert_ne!(
        system.good(&["stat", "-c", "%u", &format!("/proc/{process}")]),
        "0",
        "it has a user of its own"
    );

    let log = system.good(&["journalctl", "--no-pager", "--quiet", "--output=cat", "-u", "tollgate.service"]);
    assert!(log.contains("INFO listening on") && !log.contains("WARN"), "{log}");

    let printed = follow(&system, &block(&page, "enable --now tollgate.socket"));
    let addresses: Vec<_> = printed.iter().filter(|line| line.contains("127.0.0.1:8080")).collect();
    assert_eq!(addresses.len(), 2, "both files have the address: {printed:?}");
    for unit in ["tollgate.service", "tollgate.socket"] {
        assert_eq!(property(&system, unit, "ActiveState"), "active", "{unit}");
    }
    assert_ne!(property(&system, "tollgate.service", "MainPID"), process);
    assert_eq!(served(), "200");
    // No connection is refused while the service restarts: systemd holds the socket.
    system.good(&["systemctl", "restart", "tollgate.service"]);
    assert_eq!(served(), "200");
}

/// A file of another listener: the unit of the page says what is wrong, and the remedy of the page mends it.
#[test]
fn a_socket_on_another_address_is_told_and_mended_as_the_page_says() {
    let Some(system) = System::start() else { return };
    clone(&system);
    let page = fs::read_to_string(root().join("docs/deploy.md")).expect("the page");
    let socket = system.path(&format!("{CLONE}/deploy/tollgate.socket"));
    let unit = fs::read_to_string(&socket).expect("the unit");
    fs::write(&socket, unit.replace("127.0.0.1:8080", "127.0.0.1:8081")).expect("it can be written");
    follow(&system, &block(&page, "deploy/tollgate.service"));
    let steps = block(&page, "enable --now tollgate.socket");
    let (before, last) = steps.trim_end().rsplit_once('\n').expect("lines");
    follow(&system, before);
    let started = system.run(&["systemctl", "start", "tollgate.service"]);
    assert!(!started.0, "{}", started.1);
    let log = system.good(&["journalctl", "--no-pager", "--quiet", "--output=cat", "-u", "tollgate.service"]);
    assert!(log.contains("an inherited socket listens on"), "{log}");
    fs::write(system.path("/etc/systemd/system/tollgate.socket"), unit).expect("it can be written");
    system.good(&["systemctl", "daemon-reload"]);
    let named = ["tollgate.service", "tollgate.socket"];
    system.run(&["systemctl", "stop", named[0], named[1]]);
    system.good(&["systemctl", "reset-failed", named[0], named[1]]);
    follow(&system, "systemctl enable --now tollgate.socket");
    follow(&system, last);
    assert_eq!(property(&system, "tollgate.service", "ActiveState"), "active");
}
