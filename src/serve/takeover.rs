//! A new process takes over the listening sockets of the running one, so that no connection is refused or lost in
//! between.
//!
//! The running process waits at one Unix socket for each of its addresses, in the abstract namespace (which has the
//! same scope as that of its ports, and leaves no files behind). Any user of the machine may have taken a name before:
//! then the running process waits under the same name with random digits appended. The new process tries all such names
//! that exist, and skips those of other users and other mount namespaces. After the new process has connected:
//!
//! 1. running: [`HELLO`], the number of its sockets, and the sockets, [`BATCH`] at a time;
//! 2. new: [`SERVING`], when its workers accept connections;
//! 3. running: [`LEAVING`]; it no longer accepts connections, drains and ends.
//!
//! Any failure before step 2 leaves the running process as it was.
//!
//! Between step 1 and 2 counters in memory change hands, over another Unix socket that names the running process. A
//! process of a version before that had none, and keeps its counters for itself.
//!
//! 1. new: [`COUNTERS`]; running: [`CountersHello`];
//! 2. new, just before its workers start: [`FREEZE`] or [`FREEZE_WITH_USAGE`]; running: it decides nothing from now on, and sends its counters
//!    and the places of its requests in flight;
//! 3. running: calls for what it has to decide, until it ends; new: the replies (`store::hand_over`).
//!
//! If the new process ends, the running one decides again.
//!
//! Where both count in a shared store, the new process asks for the bans and overrides that the running one knows, since
//! the store may be away: new: [`LISTS`]; running: [`HandedLists`].

mod ask;
#[cfg(feature = "http3")]
mod datagrams;
mod give_counters;
mod offer;
mod take_counters;

use std::fmt::Display;
use std::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::{self, Clock};
use crate::limit::units::{Micros, Timestamp};
use crate::limit::wall_clock::{self, WallClock};
use crate::store::snapshot::KnownLists;

pub(super) use ask::{Predecessor, ask};
#[cfg(feature = "http3")]
pub(super) use datagrams::{OwnDatagrams, PassedPacket, offer as offer_datagrams, pass_back};
pub(super) use give_counters::CounterOffer;
pub(super) use offer::{Offer, Successor};
pub(super) use take_counters::{Asking, OfferedCounters};

/// The environment variable with the addresses of the process that started this one to be taken over. With it, a process
/// that finds none to take over from ends, since two would run otherwise.
pub(super) const PREDECESSOR: &str = "TOLLGATE_PREDECESSOR";

/// The running process's first bytes: name and version of the protocol.
const HELLO: &[u8; 4] = b"TGT1";
/// The new process's first bytes where it asks for counters: name and version of the protocol, and of all that it sends.
const COUNTERS: &[u8; 4] = b"TGC1";
/// The new process's first bytes where counters are shared, and it asks for bans and overrides.
const LISTS: &[u8; 4] = b"TGL1";
/// The new process's message: it takes the counters now.
const FREEZE: u8 = b'F';
/// The same message of a process that keeps usage, to one whose [`CountersHello`] says that it does.
const FREEZE_WITH_USAGE: u8 = b'U';
/// Sockets in one message; the kernel takes up to 253.
const BATCH: usize = 64;
/// The maximum number of sockets, more than any process has.
const MAX_SOCKETS: usize = 1 << 16;
/// The new process's message.
const SERVING: u8 = b'S';
/// The running process's reply.
const LEAVING: u8 = b'L';
/// How long the new process waits for the running one, at each step.
const TIMEOUT: Duration = Duration::from_secs(5);
/// How long the running process waits for the new one to serve.
const STARTING: Duration = Duration::from_secs(20);

/// The kernel's list of Unix sockets, in this network namespace.
const SOCKETS: &str = "/proc/net/unix";
/// The mark of a listening socket in that list.
const LISTENS: &str = "00010000";

/// The clocks of the running process.
#[derive(Debug, Serialize, Deserialize)]
struct ClockReading {
    /// The clock of its counters, in µs.
    at: u64,
    /// The kernel's monotonic clock at the same moment, in µs.
    monotonic: u64,
    /// The wall clock beside it, and its last steps.
    wall_offset: i64,
    wall_steps: Vec<(u64, i64)>,
}

impl ClockReading {
    /// The clocks at this moment.
    fn of(clock: &Clock) -> Self {
        let (at, monotonic) = (clock.now(), clock::monotonic());
        let wall_clock = wall_clock::system().copy();
        Self {
            at: at.0,
            monotonic: monotonic.0,
            wall_offset: wall_clock.offset(),
            wall_steps: wall_clock.steps().map(|(at, before)| (at.0, before)).collect(),
        }
    }

    /// The clock of the counters, in this process, whose wall clock goes on as the other's.
    fn resume(&self) -> Clock {
        let steps = self.wall_steps.iter().map(|(at, before)| (Timestamp(*at), *before));
        wall_clock::system().resume(WallClock::resumed(self.wall_offset, steps));
        let passed = clock::monotonic().0.saturating_sub(self.monotonic);
        Clock::system_from(Timestamp(self.at).plus(Micros(passed)))
    }
}

/// The bans and overrides that the running process knows, by its clocks.
#[derive(Debug, Serialize, Deserialize)]
struct HandedLists {
    clock: ClockReading,
    lists: KnownLists,
}

/// What the running process counts by.
#[derive(Debug, Serialize, Deserialize)]
struct CountersHello {
    #[serde(flatten)]
    clock: ClockReading,
    /// The secret of its keys.
    secret: [u8; 16],
    /// The number of sets of its table.
    sets: u64,
    /// It keeps usage, and tells a successor of it that does, too.
    #[serde(default)]
    usage: bool,
}

/// The value of [`PREDECESSOR`].
pub(super) fn listed(addresses: &[SocketAddr]) -> String {
    let addresses: Vec<_> = addresses.iter().map(SocketAddr::to_string).collect();
    addresses.join(",")
}

/// The addresses in the value of [`PREDECESSOR`].
pub(super) fn unlisted(value: &str) -> impl Iterator<Item = SocketAddr> {
    value.split(',').filter_map(|address| address.parse().ok())
}

/// The name at which this user's process with the listener `address` waits, unless it is taken.
fn name(user: impl Display, address: SocketAddr) -> String {
    format!("tollgate/{user}/{address}")
}

/// The name at which the process with this id waits for one that takes its counters over, unless it is taken.
fn counters_name(process: i32) -> String {
    format!("tollgate/counters/{process}")
}

/// Whether to trust a process: one of the own user or of root, in the same mount namespace. A container that shares the
/// network has the same names, and may have the same user ids or root: it is another system all the same.
fn is_trusted(user: u32, process: i32) -> bool {
    let is_own = user == 0 || user == rustix::process::geteuid().as_raw();
    is_own && root_mount(process).is_some_and(|root| Some(root) == root_mount(own_process()))
}

fn own_process() -> i32 {
    rustix::process::getpid().as_raw_nonzero().get()
}

/// The id of the mount that is the root of a process: each mount namespace has one of its own. The link in
/// `/proc/PID/ns` says the same, but an unprivileged process cannot read that of root. `None`: there is no such process,
/// or it is hidden.
fn root_mount(process: i32) -> Option<u64> {
    let mounts = std::fs::read_to_string(format!("/proc/{process}/mountinfo")).ok()?;
    let is_root = |line: &&str| line.split(' ').nth(4) == Some("/");
    // Of several mounts there the last one is seen.
    mounts.lines().rfind(is_root)?.split(' ').next()?.parse().ok()
}

/// The plain name, and those names in the kernel's list that have random digits appended.
fn names(plain: String, sockets: &str) -> Vec<String> {
    let listening = sockets.lines().filter(|line| line.split_whitespace().nth(3) == Some(LISTENS));
    let others = listening.filter_map(|line| line.split_whitespace().nth(7)?.strip_prefix('@'));
    let is_another = |other: &&str| {
        let digits = other.strip_prefix(&*plain).and_then(|rest| rest.strip_prefix('/'));
        digits.is_some_and(|digits| digits.len() == 16 && digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
    };
    let others: Vec<String> = others.filter(is_another).map(str::to_owned).collect();
    std::iter::once(plain).chain(others).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_addresses_of_the_process_before_are_read_as_they_were_written() {
        let addresses = ["127.0.0.1:80", "[::1]:9900"].map(|address| address.parse().unwrap());
        assert_eq!(unlisted(&listed(&addresses)).collect::<Vec<_>>(), addresses);
        assert_eq!(unlisted("").count(), 0);
    }

    #[test]
    fn only_processes_of_this_system_are_trusted() {
        let user = rustix::process::geteuid().as_raw();
        assert!(is_trusted(user, own_process()) && is_trusted(0, own_process()));
        assert!(!is_trusted(user.wrapping_add(1), own_process()), "another user's");
        // A peer that this process cannot see has the number 0.
        assert!(!is_trusted(user, 0) && !is_trusted(user, i32::MAX));
    }

    #[test]
    fn names_with_digits_are_found_in_the_kernels_list() {
        let list = "Num       RefCount Protocol Flags    Type St Inode Path\n\
            0: 00000002 00000000 00010000 0001 01 1 @tollgate/0/127.0.0.1:80\n\
            0: 00000002 00000000 00010000 0001 01 2 @tollgate/0/127.0.0.1:80/0123456789abcdef\n\
            0: 00000003 00000000 00000000 0001 03 3 @tollgate/0/127.0.0.1:80/1123456789abcdef\n\
            0: 00000002 00000000 00010000 0001 01 4 @tollgate/0/127.0.0.1:8080/2123456789abcdef\n\
            0: 00000002 00000000 00010000 0001 01 5 @tollgate/0/127.0.0.1:80/x\n\
            0: 00000002 00000000 00010000 0001 01 6 /run/tollgate/0/127.0.0.1:80/3123456789abcdef\n\
            0: 00000002 00000000 00010000 0001 01 7\n";
        let plain = "tollgate/0/127.0.0.1:80";
        assert_eq!(names(plain.to_owned(), list), [plain, "tollgate/0/127.0.0.1:80/0123456789abcdef"]);
        assert_eq!(names(plain.to_owned(), ""), [plain]);
    }
}
