//! A new process takes the listening sockets of the running one, so that no connection is refused or lost between them.
//!
//! The running process waits at one Unix socket for each of its addresses, in the abstract namespace (which is as wide as
//! that of its ports, and leaves no files behind). The new one connects there. Then:
//! 1. running: [`HELLO`], the number of its sockets, and the sockets, [`BATCH`] at a time;
//! 2. new: [`SERVING`], when its workers take connections;
//! 3. running: [`LEAVING`]; it is at its sockets no more, drains and ends.
//!
//! Whatever breaks before 2 leaves the running process as it was.

mod ask;
mod offer;

use std::fmt::Display;
use std::net::SocketAddr;
use std::time::Duration;

pub(super) use ask::{Predecessor, ask};
pub(super) use offer::{Offer, Successor};

/// How the running process begins: the name and the version of what follows.
const HELLO: &[u8; 4] = b"TGT1";
/// Sockets in one message; the kernel takes up to 253.
const BATCH: usize = 64;
/// More than any process has.
const MOST_SOCKETS: usize = 1 << 16;
/// What the new process says.
const SERVING: u8 = b'S';
/// What the running one answers.
const LEAVING: u8 = b'L';
/// How long the new process waits for the running one, at each step.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long the running process waits for the new one to serve.
const STARTING: Duration = Duration::from_secs(20);

/// Where the process of this user waits that listens on `address`.
fn name(user: impl Display, address: SocketAddr) -> String {
    format!("tollgate/{user}/{address}")
}

/// Whether to deal with a process of this user: our own, or root's.
fn is_trusted(user: u32) -> bool {
    user == 0 || user == rustix::process::geteuid().as_raw()
}
