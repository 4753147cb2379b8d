//! Tells a service manager how we are (`sd_notify(3)`). Without one, nothing is said.

use std::env;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process;
use std::time::Duration;

use crate::clock;

/// How long a message may take. A service manager that is busy for longer misses it.
const PATIENCE: Duration = Duration::from_secs(1);

/// The service manager, if there is one.
#[derive(Clone, Debug)]
pub(super) struct Systemd {
    /// `NOTIFY_SOCKET`.
    address: Option<SocketAddr>,
}

impl Systemd {
    /// The one that the environment names.
    pub(super) fn from_environment() -> Self {
        let named = env::var("NOTIFY_SOCKET").ok();
        let address = named.as_deref().and_then(|named| match named.strip_prefix('@') {
            Some(name) => SocketAddr::from_abstract_name(name).ok(),
            None => SocketAddr::from_pathname(named).ok(),
        });
        Self { address }
    }

    /// Connections are taken, by this process. Also the end of a reload.
    pub(super) fn ready(&self, status: &str) {
        self.tell(&format!("READY=1\nMAINPID={}\nSTATUS={status}", process::id()));
    }

    /// A reload has begun.
    pub(super) fn reloading(&self) {
        self.tell(&format!("RELOADING=1\nMONOTONIC_USEC={}", clock::monotonic().0));
    }

    /// The process drains and ends.
    pub(super) fn stopping(&self, status: &str) {
        self.tell(&format!("STOPPING=1\nSTATUS={status}"));
    }

    /// Another process is the service's now.
    pub(super) fn handed_over_to(&self, process: i32) {
        self.tell(&format!("MAINPID={process}"));
    }

    /// Says that we are alive, twice as often as is asked for. Ends at once where nobody asks.
    pub(super) async fn keep_watchdog(self) {
        let number = |name| env::var(name).ok().and_then(|text: String| text.parse::<u64>().ok());
        let is_ours = number("WATCHDOG_PID").is_none_or(|process| process == u64::from(process::id()));
        let Some(microseconds) = number("WATCHDOG_USEC").filter(|most| is_ours && *most > 1) else { return };
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
    socket.set_write_timeout(Some(PATIENCE))?;
    socket.send_to_addr(words.as_bytes(), address).map(drop)
}
