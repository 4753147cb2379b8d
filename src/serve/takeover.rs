//! A new process takes the listening sockets of the running one, so that no connection is refused or lost between them.
//!
//! The running process waits at one Unix socket for each of its addresses, in the abstract namespace (which is as wide as
//! that of its ports, and leaves no files behind). Any user of the machine may have taken a name before: the running process then
//! waits under the same with random digits behind it, and the new one looks at all such names that there are, passing over those
//! of other users. The new one connects there. Then:
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

/// The kernel's list of Unix sockets, in this network namespace.
const SOCKETS: &str = "/proc/net/unix";
/// How that marks a socket that takes connections.
const LISTENS: &str = "00010000";

/// Where the process of this user waits that listens on `address`, unless the name is taken.
fn name(user: impl Display, address: SocketAddr) -> String {
    format!("tollgate/{user}/{address}")
}

/// Whether to deal with a process of this user: our own, or root's.
fn is_trusted(user: u32) -> bool {
    user == 0 || user == rustix::process::geteuid().as_raw()
}

/// The name, and what of it stands in the kernel's list with random digits behind it.
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
