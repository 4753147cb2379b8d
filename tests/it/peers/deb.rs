//! The Debian package: installed, upgraded, removed and purged in a copy of this machine with a systemd of its own.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use crate::harness::package_builder::PackageBuilder;
use crate::harness::system::System;
use crate::harness::{Load, eventually, tools};

/// Where the package's file has its listener.
const ADDRESS: &str = "127.0.0.1:8080";

/// The service in the copy.
struct Machine {
    system: System,
}

impl Machine {
    fn start() -> Option<Self> {
        let (system, builder) = (System::start()?, PackageBuilder::new());
        for version in ["1.0", "2.0"] {
            let place = system.path(&format!("/tmp/{version}.deb"));
            std::fs::copy(builder.package(version, version, "none"), place).expect("it can be copied");
        }
        Some(Self { system })
    }

    /// Installs this version, upgrades to it, or installs it anew, as an administrator does who keeps changed files. Gives what is printed.
    fn install(&self, version: &str) -> String {
        let package = format!("/tmp/{version}.deb");
        let keep = ["dpkg", "--force-confold", "--force-unsafe-io", "--install", &package];
        let printed = self.system.good(&keep);
        let installed = self.system.good(&["dpkg-query", "-W", "-f", "${Status} ${Version}", "tollgate"]);
        assert_eq!(installed, format!("install ok installed {version}-1"), "{printed}");
        printed
    }

    /// The files that are the package's by their names.
    fn files(&self) -> String {
        self.system.good(&["find", "/etc", "/usr", "/var/lib", "/var/log", "-name", "*tollgate*"])
    }

    fn property(&self, name: &str) -> String {
        self.system.good(&["systemctl", "show", "--value", "--property", name, "tollgate.service"])
    }

    fn log(&self) -> String {
        self.system.good(&[
            "journalctl",
            "--no-pager",
            "--quiet",
            "--output=cat",
            "_SYSTEMD_UNIT=tollgate.service",
            "+",
            "UNIT=tollgate.service",
        ])
    }

    fn configure(&self, change: impl Fn(&str) -> String) {
        let path = self.system.path("/etc/tollgate/gateway.toml");
        let before = std::fs::read_to_string(&path).expect("it is there");
        std::fs::write(path, change(&before)).expect("it can be written");
    }

    /// The statuses of requests that are sent while `work` is done. No request fails otherwise.
    fn under_load<T>(&self, work: impl FnOnce() -> T) -> (BTreeMap<u16, usize>, T) {
        let address = ADDRESS.parse().expect("an address");
        Load { requests: 100, concurrency: 4 }.during(address, || self.system.enter_network(), work)
    }

    /// Upgrades under load and asserts that no request failed and another process serves.
    fn upgrade_under_load(&self, version: &str) -> usize {
        let [before, restarts] = ["MainPID", "NRestarts"].map(|name| self.property(name));
        let (statuses, printed) = self.under_load(|| self.install(version));
        let after = self.property("MainPID");
        assert_ne!(before, after, "{printed}");
        assert!(
            printed.contains(&format!("process {after} has taken over from process {before}")),
            "{printed}"
        );
        assert_eq!(self.property("NRestarts"), restarts);
        assert!(statuses.keys().all(|status| [200, 429].contains(status)), "{statuses:?}");
        assert_eq!(self.property("ActiveState"), "active");
        let binary = self.system.good(&["readlink", &format!("/proc/{after}/exe")]);
        assert_eq!(binary, "/usr/bin/tollgate", "the new file");
        statuses.values().sum()
    }
}

#[test]
fn a_package_is_installed_upgraded_removed_and_purged() {
    let Some(machine) = Machine::start() else { return };
    let before = machine.files();
    is_installed_and_serves(&machine);
    let requests = machine.upgrade_under_load("2.0");
    eprintln!("{requests} requests during the upgrade");
    keeps_a_changed_file_and_rotates_logs(&machine);
    keeps_serving_where_the_new_version_finds_faults(&machine);
    follows_the_service_manager(&machine);
    obeys_a_policy_against_starts(&machine);
    serves_by_the_socket_of_the_package(&machine);
    is_removed_and_purged(&machine);
    assert_eq!(machine.files(), before, "nothing is left");
}

fn is_installed_and_serves(machine: &Machine) {
    machine.install("1.0");
    assert_eq!(machine.property("ActiveState"), "active", "{}", machine.log());
    assert_eq!(machine.system.good(&["systemctl", "is-enabled", "tollgate.service"]), "enabled");
    let (statuses, ()) = machine.under_load(|| ());
    assert_eq!(statuses.keys().copied().collect::<Vec<_>>(), [200, 429], "the demonstration refuses");
    let process = machine.property("MainPID");
    let user = machine.system.good(&["stat", "-c", "%U", &format!("/proc/{process}")]);
    assert_eq!(user, "tollgate");
    assert!(machine.system.good(&["tollgate", "--version"]).starts_with("tollgate "));
    machine.system.good(&["test", "-s", "/usr/share/man/man1/tollgate.1.gz"]);
}

fn keeps_a_changed_file_and_rotates_logs(machine: &Machine) {
    machine.configure(|file| format!("{file}\n[log]\nfile = \"/var/log/tollgate/access.log\"\n"));
    machine.system.good(&["systemctl", "reload", "tollgate"]);
    machine.upgrade_under_load("2.0");
    let file =
        std::fs::read_to_string(machine.system.path("/etc/tollgate/gateway.toml")).expect("it is there");
    assert!(file.ends_with("[log]\nfile = \"/var/log/tollgate/access.log\"\n"));
    let log = |name: &str| std::fs::read_to_string(machine.system.path(&format!("/var/log/tollgate/{name}")));
    eventually("lines in the file", || log("access.log").ok().filter(|text| !text.is_empty()));
    machine.system.good(&["logrotate", "--force", "/etc/logrotate.d/tollgate"]);
    // The load goes on until then: the gateway writes to the moved file until it has handled the signal.
    machine.under_load(|| {
        eventually("lines in the new file", || log("access.log").ok().filter(|text| !text.is_empty()));
    });
    assert!(log("access.log.1").is_ok_and(|text| !text.is_empty()));
}

fn keeps_serving_where_the_new_version_finds_faults(machine: &Machine) {
    let process = machine.property("MainPID");
    // A fault that the file alone shows.
    machine.configure(|file| {
        file.replacen("workers = 1\n", "", 1).replacen("[server]\n", "[server]\nwrokers = 1\n", 1)
    });
    let (_, printed) = machine.under_load(|| machine.install("2.0"));
    assert!(
        printed.contains("unknown key `wrokers`") && printed.contains("the version before continues"),
        "{printed}"
    );
    assert_eq!(machine.property("MainPID"), process);
    // A fault that only the service's own environment shows.
    machine.configure(|file| file.replacen("wrokers = 1", "workers = \"${WORKERS}\"", 1));
    let (_, printed) = machine.under_load(|| machine.install("2.0"));
    assert!(printed.contains("not upgraded: process"), "{printed}");
    assert_eq!(machine.property("MainPID"), process);
    assert!(machine.property("StatusText").starts_with("not upgraded: process"));
    // As the message says.
    machine.configure(|file| file.replacen("workers = \"${WORKERS}\"", "workers = 1", 1));
    machine.under_load(|| {
        machine.system.good(&["systemctl", "kill", "--kill-whom=main", "-s", "USR2", "tollgate"]);
        eventually("another process", || (machine.property("MainPID") != process).then_some(()));
    });
}

/// systemd restarts, stops and starts what it takes for the main process: the one that took over.
fn follows_the_service_manager(machine: &Machine) {
    let process = machine.property("MainPID");
    machine.system.good(&["kill", "-KILL", &process]);
    eventually("systemd to restart the service", || {
        (machine.property("NRestarts") == "1" && machine.property("ActiveState") == "active").then_some(())
    });
    machine.upgrade_under_load("2.0");
    machine.system.good(&["systemctl", "disable", "--now", "tollgate"]);
    assert_eq!(machine.property("Result"), "success", "it drained: {}", machine.log());
    let log = machine.log();
    let rejected = log.lines().find(|line| line.contains("notification message"));
    assert_eq!(rejected, None, "systemd accepts what it is told");
    // A service that is stopped and disabled stays so.
    machine.install("2.0");
    assert_eq!(machine.property("ActiveState"), "inactive");
    machine.system.good(&["systemctl", "enable", "--now", "tollgate"]);
}

/// As in images of containers, and on machines whose administrator starts services by hand.
fn obeys_a_policy_against_starts(machine: &Machine) {
    let policy = machine.system.path("/usr/sbin/policy-rc.d");
    std::fs::write(&policy, "#!/bin/sh\nexit 101\n").expect("it can be written");
    machine.system.good(&["chmod", "755", "/usr/sbin/policy-rc.d"]);
    let process = machine.property("MainPID");
    machine.under_load(|| machine.install("2.0"));
    assert_eq!(machine.property("MainPID"), process, "the process of the version before continues");
    // As the page says.
    machine.under_load(|| {
        machine.system.good(&["systemctl", "kill", "--kill-whom=main", "-s", "USR2", "tollgate"]);
        eventually("another process", || (machine.property("MainPID") != process).then_some(()));
    });
    // systemd waits for the process that has taken over, which ends by itself.
    machine.system.good(&["systemctl", "stop", "tollgate"]);
    assert_eq!(machine.property("Result"), "success", "{}", machine.log());
    machine.install("2.0");
    assert_eq!(
        machine.property("ActiveState"),
        "inactive",
        "an installation starts nothing: {}",
        machine.log()
    );
    std::fs::remove_file(policy).expect("it is there");
    machine.system.good(&["systemctl", "start", "tollgate"]);
}

/// systemd holds the socket, also through an upgrade.
fn serves_by_the_socket_of_the_package(machine: &Machine) {
    machine.system.good(&["systemctl", "stop", "tollgate.service"]);
    machine.system.good(&["systemctl", "enable", "--now", "tollgate.socket"]);
    machine.system.good(&["systemctl", "start", "tollgate.service"]);
    machine.upgrade_under_load("2.0");
    machine.system.good(&["systemctl", "restart", "tollgate.service"]);
    assert_eq!(machine.property("ActiveState"), "active");
    machine.system.good(&["systemctl", "disable", "--now", "tollgate.socket"]);
    machine.system.good(&["systemctl", "restart", "tollgate.service"]);
}

fn is_removed_and_purged(machine: &Machine) {
    let process = machine.property("MainPID");
    machine.system.good(&["dpkg", "--remove", "tollgate"]);
    assert!(!machine.system.run(&["kill", "-0", &process]).0, "it is stopped");
    machine.system.good(&["test", "-f", "/etc/tollgate/gateway.toml"]);
    machine.system.good(&["dpkg", "--purge", "tollgate"]);
}

/// A key without a passphrase, and the public half in the copy. Its home is a directory of its own.
fn signing_key(home: &Path, machine: &Machine) -> &'static str {
    let name = "tollgate test <test@example.com>";
    let gpg = |arguments: &[&str]| {
        let mut command = tools::needed("gpg");
        command.arg("--homedir").arg(home).args(["--batch", "--quiet", "--passphrase", ""]).args(arguments);
        let output = command.output().expect("it starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    };
    gpg(&["--quick-generate-key", name, "ed25519", "sign", "never"]);
    let place = machine.system.path("/usr/share/keyrings/tollgate.gpg");
    std::fs::write(place, gpg(&["--export", name])).expect("it can be written");
    name
}

/// As docs/releasing.md says. apt asks no other repository.
#[test]
fn apt_installs_and_upgrades_from_a_signed_repository() {
    let Some(machine) = Machine::start() else { return };
    let home = tempfile::tempdir().expect("a temporary directory");
    let key = signing_key(home.path(), &machine);
    let repository = machine.system.path("/srv/tollgate");
    std::fs::create_dir(&repository).expect("it can be made");
    let publish = |version: &str, key: &str| {
        let package = machine.system.path(&format!("/tmp/{version}.deb"));
        let name = format!("tollgate_{version}-1_amd64.deb");
        std::fs::copy(package, repository.join(name)).expect("it can be copied");
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/apt-repository");
        let mut command = Command::new(script);
        command.arg(&repository).env("GNUPGHOME", home.path()).env("TOLLGATE_SIGNING_KEY", key);
        let output = command.output().expect("it starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    let list = "deb [signed-by=/usr/share/keyrings/tollgate.gpg] file:/srv/tollgate ./\n";
    std::fs::write(machine.system.path("/etc/apt/tollgate.list"), list).expect("it can be written");
    let apt = |arguments: &[&str]| {
        let only = [
            "apt-get",
            "-y",
            "-o",
            "Dir::Etc::SourceList=/etc/apt/tollgate.list",
            "-o",
            "Dir::Etc::SourceParts=-",
        ];
        machine.system.run(&[&only[..], arguments].concat())
    };
    publish("1.0", "");
    let (_, told) = apt(&["update"]);
    assert!(told.contains("is not signed"), "{told}");
    publish("1.0", key);
    let installed = |arguments: &[&str]| {
        for steps in [&["update"][..], arguments] {
            let (good, told) = apt(steps);
            assert!(good, "{steps:?}: {told}");
        }
    };
    installed(&["install", "--no-install-recommends", "tollgate"]);
    assert_eq!(machine.property("ActiveState"), "active", "{}", machine.log());
    let process = machine.property("MainPID");
    publish("2.0", key);
    let (statuses, ()) = machine.under_load(|| installed(&["install", "--only-upgrade", "tollgate"]));
    assert!(statuses.keys().all(|status| [200, 429].contains(status)), "{statuses:?}");
    let version = machine.system.good(&["dpkg-query", "-W", "-f", "${Version}", "tollgate"]);
    assert_eq!((version.as_str(), machine.property("MainPID") != process), ("2.0-1", true));
}

/// A binary that does not run here: the file says for which machine it is. Another one prints the manual page.
#[test]
fn a_package_for_arm64_is_made_on_another_machine() {
    let builder = PackageBuilder::new();
    let mut arm = std::fs::read(builder.directory.path().join("tollgate")).expect("it is there");
    // `e_machine` of the ELF header: EM_AARCH64.
    arm[18..20].copy_from_slice(&183_u16.to_le_bytes());
    let foreign = builder.directory.path().join("tollgate-arm64");
    std::fs::write(&foreign, arm).expect("it can be written");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/deb");
    let mut command = Command::new(script);
    command.arg(&foreign).arg(builder.directory.path()).arg(builder.directory.path().join("tollgate"));
    command.env("TOLLGATE_VERSION", "1.0").env("TOLLGATE_COMPRESSOR", "none");
    let output = command.output().expect("it starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let package = builder.directory.path().join("tollgate_1.0-1_arm64.deb");
    let asked = |arguments: &[&str]| {
        let output = tools::needed("dpkg-deb").args(arguments).arg(&package).output().expect("it starts");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert!(asked(&["--info"]).contains(" Architecture: arm64\n"));
    let files = asked(&["--contents"]);
    for file in ["/usr/bin/tollgate\n", "/usr/share/man/man1/tollgate.1.gz\n"] {
        assert!(files.contains(file), "{files}");
    }
}

#[test]
fn the_same_input_makes_the_same_file() {
    let builder = PackageBuilder::new();
    let [one, two] = ["one", "two"].map(|folder| builder.package("1.0", folder, "none"));
    assert!(std::fs::read(one).expect("it is there") == std::fs::read(two).expect("it is there"));
}
