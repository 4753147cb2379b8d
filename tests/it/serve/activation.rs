//! Sockets that a service manager opened: `LISTEN_FDS`, `LISTEN_PID`, `LISTEN_FDNAMES`.

use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, AsRawFd as _};
use std::process::{Command, Output, Stdio};

use rustix::io::{FdFlags, fcntl_setfd};

use crate::harness::upgraded::Upgraded;
use crate::harness::{Backend, Client, Gateway, binary, everything_to};

fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    (listener, address)
}

/// Starts the gateway as systemd does: with these sockets from descriptor 3 on, in a process that knows its own id.
fn activated(sockets: &[&dyn AsFd], names: &str) -> Command {
    let mut redirections = String::new();
    for (socket, number) in sockets.iter().zip(3..) {
        let fd = socket.as_fd();
        // Only this child's: each test runs in a process of its own.
        fcntl_setfd(fd, FdFlags::empty()).expect("it is open");
        redirections += &format!("exec {number}<&{}; ", fd.as_raw_fd());
    }
    let script = format!("{redirections}export LISTEN_PID=$$; exec \"$0\" \"$@\"");
    let mut command = Command::new("bash");
    command.args(["-c", &script, binary()]).stdin(Stdio::null());
    command.env("LISTEN_FDS", sockets.len().to_string()).env("LISTEN_FDNAMES", names);
    command
}

fn toml(backend: &Backend, listen: &str, rest: &str) -> String {
    everything_to(backend, &format!("[server]\nlisten = [{listen}]\nworkers = 2\n{rest}"))
}

/// Runs a process that is expected to end by itself.
fn attempt(mut command: Command, toml: &str) -> Output {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("gateway.toml");
    std::fs::write(&file, toml).expect("it can be written");
    command.arg("-c").arg(file).env("NO_COLOR", "1").output().expect("it starts")
}

#[test]
fn sockets_are_used_for_the_addresses_that_they_are_bound_to() {
    let backend = Backend::ok();
    let ((first, address), (second, admin)) = (listener(), listener());
    // This one waits in the queue since before the gateway was started.
    let mut early = Client::connect(address);
    early.write("GET / HTTP/1.1\r\nhost: test\r\n\r\n");
    let rest = format!("[admin]\nlisten = \"{admin}\"");
    let file = toml(&backend, &format!("\"127.0.0.1:0\", \"{address}\""), &rest);
    let mut gateway = Gateway::start_by(&file, activated(&[&second, &first], "admin:web"));
    assert_eq!((gateway.addresses()[1], gateway.admin_addr()), (address, admin));
    early.read().expect(200);
    for address in gateway.addresses() {
        crate::harness::get(*address, "/").expect(200);
    }
    gateway.admin("/readyz").expect(200);
    // The service manager keeps its socket: while the gateway restarts, connections wait.
    gateway.signal(rustix::process::Signal::TERM);
    assert_eq!(gateway.wait_for_exit().code(), Some(0));
    let mut waiting = Client::connect(address);
    waiting.write("GET / HTTP/1.1\r\nhost: test\r\n\r\n");
    let _restarted = Gateway::start_by(&file, activated(&[&second, &first], "admin:web"));
    waiting.read().expect(200);
}

#[test]
fn an_upgrade_passes_the_sockets_on() {
    let backend = Backend::ok();
    let (socket, address) = listener();
    let file = toml(&backend, &format!("\"{address}\""), "");
    let mut upgraded = Upgraded::new(Gateway::start_by(&file, activated(&[&socket], "web")));
    upgraded.upgrade();
    crate::harness::get(address, "/").expect(200);
    let environment = std::fs::read_to_string(upgraded.proc("environ")).expect("it runs");
    assert!(!environment.contains("LISTEN_"), "{environment}");
}

#[test]
fn a_socket_that_the_file_does_not_name_is_a_fault() {
    let backend = Backend::ok();
    let ((unnamed, address), (admin, at)) = (listener(), listener());
    let file = toml(&backend, "\"127.0.0.1:0\"", "");
    let output = attempt(activated(&[&unnamed], "web"), &file);
    let stderr = String::from_utf8_lossy(&output.stderr);
    let words = format!("an inherited socket listens on {address}, which the file does not name");
    assert!(output.status.code() == Some(1) && stderr.contains(&words), "{stderr}");
    // The name decides nothing that the address does not.
    let file = toml(&backend, &format!("\"{at}\""), "[admin]\nlisten = \"127.0.0.1:0\"");
    let output = attempt(activated(&[&admin], "admin"), &file);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && stderr.contains("but [admin] does not"), "{stderr}");
}

#[test]
fn what_is_no_listener_is_a_fault() {
    let backend = Backend::ok();
    let (unix, _other) = std::os::unix::net::UnixStream::pair().expect("a pair");
    let (listening, address) = listener();
    let connected = std::net::TcpStream::connect(address).expect("it listens");
    drop(listening);
    let file = toml(&backend, "\"127.0.0.1:0\"", "");
    for socket in [&unix as &dyn AsFd, &connected] {
        let output = attempt(activated(&[socket], "web"), &file);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(1) && stderr.contains("inherited socket 0"), "{stderr}");
    }
}

#[test]
fn sockets_for_another_process_are_left_alone() {
    let backend = Backend::ok();
    let environment = [("LISTEN_FDS", "1"), ("LISTEN_PID", "1")];
    let gateway = Gateway::start_in(&everything_to(&backend, ""), &[], &environment);
    gateway.get("/").expect(200);
}

#[test]
fn activated_sockets_can_be_taken_over() {
    let backend = Backend::ok();
    let (socket, address) = listener();
    let file = toml(&backend, &format!("\"{address}\""), "");
    let mut gateway = Gateway::start_by(&file, activated(&[&socket], "web"));
    drop(socket);
    let next = Gateway::start_with(&file, &["--takeover"]);
    assert_eq!(gateway.wait_for_exit().code(), Some(0));
    next.get("/").expect(200);
}
