//! The service manager: notifications of the process's state (`sd_notify(3)`; without a service manager nothing is
//! sent), and listening sockets that it opened (systemd's socket activation, `sd_listen_fds(3)`).
//!
//! A passed socket is used for the listener with its address in the config file. Its name (`FileDescriptorName=`)
//! matters only if it is `admin`: then its address must be the admin listener's.

use std::env;
use std::io;
use std::net::{self, TcpListener};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process;
use std::time::Duration;

use listenfd::ListenFd;
use rustix::net::sockopt::socket_acceptconn;

use super::ServeError;
use crate::clock;
use crate::plan::Plan;

/// The timeout for a message. A service manager that is busy for longer misses it.
const TIMEOUT: Duration = Duration::from_secs(1);

/// The service manager, if there is one.
#[derive(Clone, Debug)]
pub(super) struct Systemd {
    /// `NOTIFY_SOCKET`.
    address: Option<SocketAddr>,
}

impl Systemd {
    /// The service manager named in the environment.
    pub(super) fn from_environment() -> Self {
        let named = env::var("NOTIFY_SOCKET").ok();
        let address = named.as_deref().and_then(|named| match named.strip_prefix('@') {
            Some(name) => SocketAddr::from_abstract_name(name).ok(),
            None => SocketAddr::from_pathname(named).ok(),
        });
        Self { address }
    }

    /// Reports that this process accepts connections. Also the end of a reload.
    pub(super) fn ready(&self, status: &str) {
        self.tell(&format!("READY=1\nMAINPID={}\nSTATUS={status}", process::id()));
    }

    /// Reports that a reload has begun.
    pub(super) fn reloading(&self) {
        self.tell(&format!("RELOADING=1\nMONOTONIC_USEC={}", clock::monotonic().0));
    }

    /// Reports that the process drains and ends.
    pub(super) fn stopping(&self, status: &str) {
        self.tell(&format!("STOPPING=1\nSTATUS={status}"));
    }

    /// Reports what the process does, in words for people.
    pub(super) fn status(&self, status: &str) {
        self.tell(&format!("STATUS={status}"));
    }

    /// Reports that another process is now the service's main process.
    pub(super) fn handed_over_to(&self, process: i32) {
        self.tell(&format!("MAINPID={process}"));
    }

    /// Sends watchdog notifications, twice as often as required. Ends at once if none are required.
    pub(super) async fn keep_watchdog(self) {
        let number = |name| env::var(name).ok().and_then(|text: String| text.parse::<u64>().ok());
        let is_ours = number("WATCHDOG_PID").is_none_or(|process| process == u64::from(process::id()));
        let Some(microseconds) = number("WATCHDOG_USEC").filter(|max| is_ours && *max > 1) else { return };
        loop {
            self.tell("WATCHDOG=1");
            tokio::time::sleep(Duration::from_micros(microseconds / 2)).await;
        }
    }

    fn tell(&self, words: &str) {
        let Some(address) = &self.address else { return };
        if let Err(error) = send(address, words) {
            tracing::warn!(%error, "the service manager cannot be told `{}`", words.escape_debug());
        }
    }
}

fn send(address: &SocketAddr, words: &str) -> io::Result<()> {
    let socket = UnixDatagram::unbound()?;
    socket.set_write_timeout(Some(TIMEOUT))?;
    socket.send_to_addr(words.as_bytes(), address).map(drop)
}

/// The name of the admin listener's socket.
const ADMIN: &str = "admin";

/// The sockets opened for this process. Called once, before there are threads: it clears the environment.
///
/// # Errors
///
/// A socket that does not listen on TCP, or has an address that the file does not name.
pub(super) fn of_service_manager(plan: &Plan) -> Result<Vec<TcpListener>, ServeError> {
    let names = env::var("LISTEN_FDNAMES").unwrap_or_default();
    let mut passed = ListenFd::from_env();
    let mut sockets = Vec::with_capacity(passed.len());
    let names = names.split(':').map(Some).chain(std::iter::repeat(None));
    for (number, name) in (0..passed.len()).zip(names) {
        let to_error =
            |error| ServeError::Listen(format!("inherited socket {number} cannot be used: {error}"));
        let listener = passed.take_tcp_listener(number).and_then(listening).map_err(to_error)?;
        let address = listener.local_addr().map_err(to_error)?;
        check(address, name, plan)?;
        sockets.push(listener);
    }
    Ok(sockets)
}

fn listening(inherited: Option<TcpListener>) -> io::Result<TcpListener> {
    let listener = inherited.ok_or(io::ErrorKind::NotFound)?;
    if !socket_acceptconn(&listener)? {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it does not listen"));
    }
    Ok(listener)
}

fn check(address: net::SocketAddr, name: Option<&str>, plan: &Plan) -> Result<(), ServeError> {
    let is_admins = plan.admin.as_ref().is_some_and(|admin| admin.listen == address);
    let is_named = plan.server.listen.iter().any(|listener| listener.address == address);
    match name {
        Some(ADMIN) if is_admins => Ok(()),
        Some(ADMIN) => Err(ServeError::Listen(format!(
            "the inherited socket named `{ADMIN}` listens on {address}, but [admin] does not\n  = help: give both the same address"
        ))),
        _ if is_admins || is_named => Ok(()),
        _ => Err(ServeError::Listen(format!(
            "an inherited socket listens on {address}, which the file does not name\n  = help: add it to `listen` in [server], or \
             leave it out of the socket unit"
        ))),
    }
}
