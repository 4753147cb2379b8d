//! SIGUSR2: the process starts the binary at its path, which takes over, and no client notices.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::Signal;

use crate::harness::upgraded::{Upgraded, process_in, send};
use crate::harness::{Backend, Client, Gateway, Load, Next, binary, everything_to, free_address, get};

fn toml(backend: &Backend, rest: &str) -> String {
    everything_to(backend, &format!("[server]\nlisten = [\"{}\"]\nworkers = 2\n{rest}", free_address()))
}

/// Starts this binary, perhaps another one than that of all tests.
fn start(path: &Path, toml: &str) -> Upgraded {
    let mut command = Command::new(path);
    command.arg("run").stdin(Stdio::null());
    Upgraded::new(Gateway::start_by(toml, command))
}

#[test]
fn three_upgrades_under_load_lose_no_request() {
    let backend = Backend::ok();
    let gateway = Gateway::start_with(&toml(&backend, ""), &["run", "--watch"]);
    let (address, mut upgraded) = (gateway.addr(), Upgraded::new(gateway));
    let load = Load { requests: 200, concurrency: 4 };
    let (statuses, ()) = load.during(address, || (), || (0..3).for_each(|_| upgraded.upgrade()));
    assert_eq!(statuses.keys().copied().collect::<Vec<_>>(), [200], "of each of {statuses:?}");
    let arguments = std::fs::read_to_string(upgraded.proc("cmdline")).expect("it runs");
    let count = |word| arguments.split('\0').filter(|argument| *argument == word).count();
    assert_eq!(["run", "--watch", "--takeover", "-c"].map(count), [1; 4], "{arguments}");
    // The last one watches the file as the first one did.
    upgraded.gateway.write_config(&toml(&backend, "wrokers = 1"));
    upgraded.wait_for(1, "not reloaded");
}

#[test]
fn the_file_at_the_path_is_started_and_links_are_followed_anew() {
    let (backend, directory) = (Backend::ok(), tempfile::tempdir().expect("a temporary directory"));
    let [one, two, link] = ["one", "two", "current"].map(|name| directory.path().join(name));
    std::fs::copy(binary(), &one).expect("it can be copied");
    std::fs::copy(binary(), &two).expect("it can be copied");
    symlink(&one, &link).expect("a free name");
    let mut upgraded = start(&link, &toml(&backend, ""));
    let runs = |upgraded: &Upgraded| std::fs::read_link(upgraded.proc("exe")).expect("it runs");
    assert_eq!(runs(&upgraded), one);
    symlink(&two, directory.path().join("next")).expect("a free name");
    std::fs::rename(directory.path().join("next"), &link).expect("it can be renamed");
    upgraded.upgrade();
    assert_eq!(runs(&upgraded), two);
    // As package managers replace files.
    std::fs::rename(&one, &two).expect("it can be renamed");
    assert!(runs(&upgraded).to_string_lossy().ends_with("(deleted)"));
    upgraded.upgrade();
    assert_eq!(runs(&upgraded), two);
    upgraded.gateway.get("/").expect(200);
}

#[test]
fn a_process_that_does_not_start_changes_nothing() {
    let (backend, directory) = (Backend::ok(), tempfile::tempdir().expect("a temporary directory"));
    let path = directory.path().join("tollgate");
    std::fs::copy(binary(), &path).expect("it can be copied");
    let good = toml(&backend, "");
    let mut upgraded = start(&path, &good);
    let continues = |upgraded: &Upgraded, count, reason: &str| {
        upgraded.signal(Signal::USR2);
        let line = upgraded.wait_for(count, "not upgraded: ");
        assert!(line.contains(reason) && line.ends_with("this process continues"), "{line}");
        assert_eq!(upgraded.children(), "", "it is reaped");
        upgraded.gateway.get("/").expect(200);
    };
    upgraded.gateway.write_config(&toml(&backend, "wrokers = 1"));
    continues(&upgraded, 1, "ended with exit status: 2");
    upgraded.wait_for(1, "unknown key `wrokers`");
    upgraded.gateway.write_config(&good);
    std::fs::rename(&path, directory.path().join("away")).expect("it can be renamed");
    continues(&upgraded, 2, "No such file or directory");
    std::fs::write(&path, "no program").expect("it can be written");
    continues(&upgraded, 3, "Permission denied");
    std::fs::rename(directory.path().join("away"), &path).expect("it can be renamed");
    upgraded.upgrade();
    upgraded.gateway.get("/").expect(200);
}

/// Answers when the gate opens.
fn gated() -> Backend {
    Backend::start(|exchange| {
        exchange.wait_at_gate();
        exchange.write("HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\ndone");
        Next::KeepAlive
    })
}

/// A client with a request that waits at the gate.
fn busy(upgraded: &Upgraded, backend: &Backend) -> Client {
    let mut client = Client::connect(upgraded.gateway.addr());
    client.write("GET / HTTP/1.1\r\nhost: test\r\n\r\n");
    backend.wait_for(1);
    client
}

/// A service manager that stops the service signals both processes.
#[test]
fn a_stop_after_an_upgrade_waits_for_requests_of_the_process_before() {
    let backend = gated();
    let mut upgraded = Upgraded::new(Gateway::start(&toml(&backend, "")));
    let mut client = busy(&upgraded, &backend);
    upgraded.hand_over();
    upgraded.gateway.signal(Signal::TERM);
    upgraded.wait_for(1, "SIGTERM: already draining");
    assert!(upgraded.gateway.alive());
    backend.open_gate();
    client.read().expect(200);
    assert_eq!(upgraded.gateway.wait_for_exit().code(), Some(0));
}

/// At a stop, systemd waits for a main process that is its own child, and kills another one at once.
#[test]
fn the_new_process_is_no_child_of_the_process_before() {
    let backend = gated();
    let mut upgraded = Upgraded::new(Gateway::start(&toml(&backend, "")));
    let mut client = busy(&upgraded, &backend);
    upgraded.hand_over();
    assert!(upgraded.gateway.alive(), "it drains");
    assert_eq!(upgraded.children(), "", "the process in between has ended");
    backend.open_gate();
    client.read().expect(200);
    assert_eq!(upgraded.gateway.wait_for_exit().code(), Some(0));
}

#[test]
fn signals_during_an_upgrade_or_a_drain_are_ignored() {
    let backend = gated();
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("tollgate");
    std::fs::copy(binary(), &path).expect("it can be copied");
    let mut upgraded = start(&path, &toml(&backend, ""));
    // A program that neither takes over nor ends.
    let hangs = directory.path().join("hangs");
    std::fs::write(&hangs, "#!/bin/sh\nexec sleep 600\n").expect("it can be written");
    std::fs::set_permissions(&hangs, std::fs::Permissions::from_mode(0o755)).expect("it is ours");
    std::fs::rename(hangs, &path).expect("it can be renamed");
    upgraded.signal(Signal::USR2);
    let started = upgraded.wait_for(1, "starts, to take over");
    upgraded.signal(Signal::USR2);
    upgraded.wait_for(1, "SIGUSR2: ignored");
    send(process_in(&started).expect("a number"), Signal::TERM);
    let line = upgraded.wait_for(1, "not upgraded: ");
    assert!(line.contains("ended with signal: 15 (SIGTERM)"), "{line}");
    let mut client = busy(&upgraded, &backend);
    upgraded.signal(Signal::TERM);
    upgraded.wait_for(1, "SIGTERM: draining");
    upgraded.signal(Signal::USR2);
    upgraded.wait_for(2, "SIGUSR2: ignored");
    backend.open_gate();
    client.read().expect(200);
    assert_eq!(upgraded.gateway.wait_for_exit().code(), Some(0));
}

/// Two processes would run if the new one started as usual.
#[test]
fn addresses_may_all_change() {
    let backend = Backend::ok();
    let mut upgraded = Upgraded::new(Gateway::start(&toml(&backend, "")));
    let address = free_address();
    let server = format!("[server]\nlisten = [\"{address}\"]\nworkers = 1\n");
    upgraded.gateway.write_config(&everything_to(&backend, &server));
    upgraded.upgrade();
    get(address, "/").expect(200);
    crate::harness::refuses_connections(upgraded.gateway.addr());
}

#[test]
fn a_configuration_from_standard_input_cannot_be_upgraded() {
    let backend = Backend::ok();
    let mut command = Command::new(binary());
    command.args(["-c", "-"]).env("NO_COLOR", "1").stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    let written = child.stdin.take().expect("piped").write_all(toml(&backend, "").as_bytes());
    written.expect("it is read");
    let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines().map_while(Result::ok);
    let mut wait = |words: &str| lines.find(|line| line.contains(words)).expect("it is logged");
    wait("1 route");
    send(child.id(), Signal::USR2);
    wait("not upgraded: the configuration came from standard input");
    child.kill().expect("it still runs");
    child.wait().expect("it ends");
}
