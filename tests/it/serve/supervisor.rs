//! What the service manager is told: `sd_notify`.

use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;

use rustix::process::Signal;

use crate::harness::upgraded::Upgraded;
use crate::harness::{Backend, Gateway, TIMEOUT, everything_to, free_address};

/// Hears what is said to a service manager.
struct Supervisor {
    directory: tempfile::TempDir,
    socket: UnixDatagram,
}

impl Supervisor {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let socket = UnixDatagram::bind(directory.path().join("notify")).expect("it can be bound");
        socket.set_read_timeout(Some(TIMEOUT)).expect("a time-out");
        Self { directory, socket }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("notify")
    }

    /// The next message that is not about the watchdog.
    fn next(&self) -> String {
        loop {
            let message = self.any();
            if message != "WATCHDOG=1" {
                return message;
            }
        }
    }

    fn any(&self) -> String {
        let mut bytes = [0; 4096];
        let length = self.socket.recv(&mut bytes).expect("something is said");
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    }
}

fn start(supervisor: &Supervisor, toml: &str, arguments: &[&str], environment: &[(&str, &str)]) -> Gateway {
    let path = supervisor.path();
    let socket = [("NOTIFY_SOCKET", path.to_str().expect("text"))];
    Gateway::start_in(toml, arguments, &[&socket, environment].concat())
}

#[test]
fn readiness_reloads_and_the_end_are_told() {
    let (supervisor, backend) = (Supervisor::new(), Backend::ok());
    let toml = everything_to(&backend, "");
    let mut gateway = start(&supervisor, &toml, &[], &[]);
    let ready = supervisor.next();
    let expected = format!("READY=1\nMAINPID={}\nSTATUS=1 routes on {}", gateway.pid(), gateway.addr());
    assert_eq!(ready, expected);
    gateway.get("/").expect(200);
    gateway.reload(&toml, "reloaded: ");
    let reloading = supervisor.next();
    let since_boot = reloading.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").expect("a reload");
    assert!(since_boot.parse::<u64>().expect("a number") > 0);
    assert!(supervisor.next().starts_with("READY=1\n"));
    gateway.reload("[routes", "not reloaded");
    assert!(supervisor.next().starts_with("RELOADING=1\n"));
    let after = supervisor.next();
    assert!(after.starts_with("READY=1\n") && after.ends_with("; the file has faults"), "{after}");
    gateway.signal(Signal::TERM);
    assert_eq!(supervisor.next(), "STOPPING=1\nSTATUS=draining");
    assert_eq!(gateway.wait_for_exit().code(), Some(0));
}

#[test]
fn a_takeover_tells_whose_the_service_is_now() {
    let (supervisor, backend) = (Supervisor::new(), Backend::ok());
    let mut gateway = start(&supervisor, &everything_to(&backend, ""), &[], &[]);
    assert!(supervisor.next().starts_with("READY=1\n"));
    let listen = format!("[server]\nlisten = [\"{}\"]\nworkers = 2", gateway.addr());
    let next = start(&supervisor, &everything_to(&backend, &listen), &["--takeover"], &[]);
    let told = [supervisor.next(), supervisor.next()];
    let relieved = format!("MAINPID={}", next.pid());
    assert!(
        told.contains(&relieved),
        "the one that leaves may say it where the other is not known: {told:?}"
    );
    assert!(
        told.iter().any(|told| told.starts_with(&format!("READY=1\nMAINPID={}\n", next.pid()))),
        "{told:?}"
    );
    assert_eq!(gateway.wait_for_exit().code(), Some(0));
    assert!(!told.iter().any(|told| told.contains("STOPPING")), "the service goes on");
}

#[test]
fn an_upgrade_tells_whose_the_service_is_and_a_failed_one_says_so() {
    let (supervisor, backend) = (Supervisor::new(), Backend::ok());
    let listen = format!("[server]\nlisten = [\"{}\"]\nworkers = 2", free_address());
    let toml = everything_to(&backend, &listen);
    let gateway = start(&supervisor, &toml, &[], &[("WATCHDOG_USEC", "50000"), ("WATCHDOG_PID", "1")]);
    let mut upgraded = Upgraded::new(gateway);
    assert!(supervisor.next().starts_with("READY=1\n"));
    upgraded.gateway.write_config("[routes");
    upgraded.signal(Signal::USR2);
    assert!(supervisor.next().ends_with(" starts, to take over"));
    let failed = supervisor.next();
    assert!(failed.starts_with("STATUS=not upgraded: process "), "{failed}");
    upgraded.gateway.write_config(&toml);
    upgraded.upgrade();
    assert!(supervisor.next().ends_with(" starts, to take over"));
    assert_eq!(supervisor.next(), format!("MAINPID={}", upgraded.process()));
    assert!(supervisor.next().starts_with(&format!("READY=1\nMAINPID={}\n", upgraded.process())));
    // `WATCHDOG_PID` was another process's. It is not passed on, since the new process is another one, too.
    while supervisor.any() != "WATCHDOG=1" {}
}

#[test]
fn the_watchdog_is_kept() {
    let (supervisor, backend) = (Supervisor::new(), Backend::ok());
    let _gateway = start(&supervisor, &everything_to(&backend, ""), &[], &[("WATCHDOG_USEC", "100000")]);
    for _ in 0..3 {
        while supervisor.any() != "WATCHDOG=1" {}
    }
}

#[test]
fn a_service_manager_that_is_gone_holds_nothing_up() {
    let backend = Backend::ok();
    let environment = [("NOTIFY_SOCKET", "/nonexistent/notify"), ("WATCHDOG_USEC", "soon")];
    let gateway = Gateway::start_in(&everything_to(&backend, ""), &[], &environment);
    gateway.get("/").expect(200);
}
