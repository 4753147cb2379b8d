//! Notifies a service manager of the process's state (`sd_notify(3)`). Without one, nothing is sent.

use std::env;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process;
use std::time::Duration;

use crate::clock;

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
            tracing::warn!(%error, "the service manager can not be told `{}`", words.escape_debug());
        }
    }
}

fn send(address: &SocketAddr, words: &str) -> io::Result<()> {
    let socket = UnixDatagram::unbound()?;
    socket.set_write_timeout(Some(TIMEOUT))?;
    socket.send_to_addr(words.as_bytes(), address).map(drop)
}
