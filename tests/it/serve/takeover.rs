//! `--takeover`: a new process takes the sockets of the running one, and no client notices.

use std::net::{SocketAddr, TcpListener};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixListener};
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;

use crate::harness::tools;
use crate::harness::{
    Authority, Backend, Client, Gateway, Next, binary, everything_to, free_address, get, refuses_connections,
};

fn toml(backend: &Backend, listen: &[SocketAddr], workers: usize, rest: &str) -> String {
    let listen: Vec<String> = listen.iter().map(|address| format!("\"{address}\"")).collect();
    let server = format!("[server]\nlisten = [{}]\nworkers = {workers}\n", listen.join(", "));
    everything_to(backend, &format!("{server}{rest}"))
}

/// Starts the next process and waits for the end of the one before.
fn succeed(before: &mut Gateway, toml: &str) -> Gateway {
    let next = Gateway::start_with(toml, &["run", "--takeover"]);
    assert_eq!(before.wait_for_exit().code(), Some(0), "the one before drains and ends");
    next
}

/// Runs a process that is expected to end by itself.
fn attempt(toml: &str) -> Output {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("gateway.toml");
    std::fs::write(&file, toml).expect("it can be written");
    let mut command = Command::new(binary());
    command.arg("--takeover").arg("-c").arg(file).env("NO_COLOR", "1").output().expect("it starts")
}

/// Answers when the gate opens.
fn gated() -> Backend {
    Backend::start(|exchange| {
        exchange.wait_at_gate();
        exchange.write("HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\ndone");
        Next::KeepAlive
    })
}

#[test]
fn three_takeovers_under_load_lose_no_connection() {
    let backend = Backend::ok();
    let mut gateway = Gateway::start(&everything_to(&backend, ""));
    let address = gateway.addr();
    let (stop, served) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let clients: Vec<_> = (0..6)
        .map(|_| {
            let (stop, served) = (Arc::clone(&stop), Arc::clone(&served));
            thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    // Panics when it is refused, reset, or answered with anything else.
                    get(address, "/").expect(200);
                    served.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    for workers in [4, 1, 2] {
        let before = served.load(Ordering::Relaxed);
        gateway = succeed(&mut gateway, &toml(&backend, &[address], workers, ""));
        assert!(served.load(Ordering::Relaxed) > before, "there is a load");
        thread::sleep(Duration::from_millis(200));
    }
    stop.store(true, Ordering::Relaxed);
    let failures = clients.into_iter().filter_map(|client| client.join().err()).count();
    assert_eq!(failures, 0, "of {} requests", served.load(Ordering::Relaxed));
}

#[test]
fn what_was_begun_is_finished() {
    let backend = gated();
    let mut gateway = Gateway::start(&everything_to(&backend, ""));
    let address = gateway.addr();
    let mut busy = Client::connect(address);
    busy.write("GET / HTTP/1.1\r\nhost: test\r\n\r\n");
    backend.wait_for(1);
    // Connected, it may have been accepted by the process that leaves, and says nothing yet.
    let mut silent: Vec<Client> = (0..8).map(|_| Client::connect(address)).collect();
    let next = Gateway::start_with(&toml(&backend, &[address], 2, ""), &["--takeover"]);
    assert!(gateway.alive(), "it waits for the request");
    for client in &mut silent {
        client.write("GET / HTTP/1.1\r\nhost: test\r\n\r\n");
    }
    backend.open_gate();
    let answer = busy.read().expect(200);
    assert!(answer.text() == "done" && (answer.closed || busy.closes()), "{}", answer.head);
    for client in &mut silent {
        client.read().expect(200);
    }
    assert_eq!(gateway.wait_for_exit().code(), Some(0));
    next.get("/").expect(200);
}

#[test]
fn handshakes_that_are_under_way_are_finished() {
    let (backend, authority) = (Backend::ok(), Authority::new());
    authority.certify("a", &["a.test"]);
    let mut gateway = Gateway::start(&everything_to(&backend, &authority.server("a")));
    let address = gateway.addr();
    // Accepted, but silent until the other process serves.
    let begun: Vec<_> = (0..2).map(|_| std::net::TcpStream::connect(address).expect("it listens")).collect();
    thread::sleep(Duration::from_millis(50));
    let _next = Gateway::start_with(&toml(&backend, &[address], 2, &authority.server("a")), &["--takeover"]);
    for mut stream in begun {
        let mut session = crate::harness::tls_session(&authority.client(), "a.test");
        session.complete_io(&mut stream).expect("a handshake");
    }
    assert_eq!(gateway.wait_for_exit().code(), Some(0));
}

#[test]
fn other_lists_of_listeners_and_the_admins_are_taken_over() {
    let backend = Backend::ok();
    let admin = "[admin]\nlisten = \"127.0.0.1:0\"";
    let two = "[server]\nlisten = [\"127.0.0.1:0\", \"127.0.0.1:0\"]\nworkers = 2\n";
    let mut gateway = Gateway::start(&everything_to(&backend, &format!("{two}{admin}")));
    let (stays, goes, comes) = (gateway.addresses()[0], gateway.addresses()[1], free_address());
    let admin = format!("[admin]\nlisten = \"{}\"", gateway.admin_addr());
    // The admin listener is asked at the very moment.
    let next = Gateway::start_with(&toml(&backend, &[comes, stays], 3, &admin), &["--takeover"]);
    next.admin("/readyz").expect(200);
    assert_eq!(gateway.wait_for_exit().code(), Some(0));
    next.admin("/readyz").expect(200);
    get(stays, "/").expect(200);
    get(comes, "/").expect(200);
    refuses_connections(goes);
    assert!(next.metric("tollgate_build_info", &[]) > 0.5);
}

#[test]
fn one_worker_serves_the_sockets_of_many() {
    let backend = Backend::ok();
    // More than one message holds.
    let many = "[server]\nlisten = [\"127.0.0.1:0\"]\nworkers = 70\n";
    let mut gateway = Gateway::start(&everything_to(&backend, many));
    let address = gateway.addr();
    let next = succeed(&mut gateway, &toml(&backend, &[address], 1, ""));
    // The kernel spreads connections over all sockets: an unserved socket would show as a failure.
    for _ in 0..300 {
        next.get("/").expect(200);
    }
}

#[test]
fn a_process_that_fails_leaves_the_running_one_as_it_was() {
    let backend = Backend::ok();
    let mut gateway = Gateway::start(&everything_to(&backend, ""));
    let address = gateway.addr();
    let faulty = attempt(&toml(&backend, &[address], 2, "wrokers = 1"));
    assert_eq!(faulty.status.code(), Some(2), "{}", String::from_utf8_lossy(&faulty.stderr));
    gateway.get("/").expect(200);
    assert!(!gateway.stderr().contains("asks for"), "it was not even asked: {}", gateway.stderr());
    // It has the sockets, but cannot have another address that it wants.
    let stranger = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let taken = stranger.local_addr().expect("it is bound");
    let late = attempt(&toml(&backend, &[address, taken], 2, ""));
    let stderr = String::from_utf8_lossy(&late.stderr);
    assert!(late.status.code() == Some(1) && stderr.contains("cannot listen on"), "{stderr}");
    for _ in 0..20 {
        gateway.get("/").expect(200);
    }
    assert!(gateway.alive());
    gateway.wait_for_log("did not take over");
    // And it can still be taken over.
    succeed(&mut gateway, &toml(&backend, &[address], 2, "")).get("/").expect(200);
}

#[test]
fn without_a_running_process_it_starts_as_usual() {
    let backend = Backend::ok();
    let gateway = Gateway::start_with(&toml(&backend, &[free_address()], 2, ""), &["--takeover"]);
    gateway.get("/").expect(200);
    gateway.wait_for_log("no running process to take over from");
}

#[test]
fn a_process_that_hangs_is_not_waited_for() {
    let backend = Backend::ok();
    let gateway = Gateway::start(&everything_to(&backend, ""));
    gateway.signal(Signal::STOP);
    let attempt = attempt(&toml(&backend, &[gateway.addr()], 2, ""));
    let stderr = String::from_utf8_lossy(&attempt.stderr);
    assert!(attempt.status.code() == Some(1) && stderr.contains("did not answer within 5 s"), "{stderr}");
    gateway.signal(Signal::CONT);
    gateway.get("/").expect(200);
}

#[test]
fn a_stranger_on_the_address_is_still_a_fault() {
    let backend = Backend::ok();
    let stranger = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let attempt = attempt(&toml(&backend, &[stranger.local_addr().expect("bound")], 2, ""));
    let stderr = String::from_utf8_lossy(&attempt.stderr);
    assert!(attempt.status.code() == Some(1) && stderr.contains("another process listens"), "{stderr}");
}

/// Root of a container that shares the network has the same name and user id, but other mounts.
#[test]
fn a_process_of_another_mount_namespace_takes_nothing_over() {
    let Some(()) = tools::namespaces() else { return };
    let backend = Backend::ok();
    let mut gateway = Gateway::start(&everything_to(&backend, ""));
    let toml = toml(&backend, &[gateway.addr()], 2, "");
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("gateway.toml");
    std::fs::write(&file, &toml).expect("it can be written");
    let contained = |command: &[&str]| {
        let mut unshare = tools::needed("unshare");
        unshare.arg("--mount").args(command).env("NO_COLOR", "1").output().expect("it starts")
    };
    // The new process trusts no stranger under the name.
    let file = file.to_string_lossy();
    let output = contained(&[binary(), "run", "--takeover", "-c", &file]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && stderr.contains("in another mount namespace"), "{stderr}");
    // The running one gives a stranger no socket.
    let name = format!("tollgate/{}/{}", rustix::process::geteuid(), gateway.addr());
    let mut python = tools::python(&[]);
    let ask =
        format!("import socket; s = socket.socket(socket.AF_UNIX); s.connect('\\0{name}'); print(s.recv(4))");
    let answer = |output: Output| String::from_utf8_lossy(&output.stdout).trim().to_owned();
    assert_eq!(answer(contained(&[&python.get_program().to_string_lossy(), "-c", &ask])), "b''");
    let near = python.args(["-c", &ask]).output().expect("it starts");
    assert_eq!(answer(near), "b'TGT1'", "the name is right");
    succeed(&mut gateway, &toml).get("/").expect(200);
}

/// Any user of the machine may take the name first under which a process waits to be taken over.
#[test]
fn a_name_that_was_taken_before_prevents_no_takeover() {
    let backend = Backend::ok();
    let address = free_address();
    let plain = format!("tollgate/{}/{address}", rustix::process::geteuid());
    let name = UnixAddress::from_abstract_name(plain).expect("a name");
    let squatter = UnixListener::bind_addr(&name).expect("a free name");
    // It takes connections and says nothing of use.
    thread::spawn(move || squatter.incoming().for_each(drop));
    let toml = toml(&backend, &[address], 2, "");
    let mut first = Gateway::start(&toml);
    first.wait_for_log("another process has taken the name");
    let mut second = succeed(&mut first, &toml);
    second.get("/").expect(200);
    succeed(&mut second, &toml).get("/").expect(200);
}
