//! The new process's side of a takeover. It blocks: nothing else runs yet.

use std::io::{self, IoSliceMut, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use rustix::net::sockopt::socket_peercred;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustix::process::geteuid;
use socket2::{Domain, SockAddr, Socket, Type};

use super::{BATCH, HELLO, LEAVING, MAX_SOCKETS, SERVING, SOCKETS, TIMEOUT, is_trusted, name, names};

/// The process that listened before this one.
#[derive(Debug)]
pub(in crate::serve) struct Predecessor {
    stream: UnixStream,
    /// Its process id.
    pub(in crate::serve) process: i32,
}

/// Asks the process that listens on one of `addresses` for its sockets. `None` if there is none.
///
/// # Errors
///
/// A trusted process is there, but does not answer within 5 s, or with other bytes.
pub(in crate::serve) fn ask(
    addresses: impl Iterator<Item = SocketAddr>,
) -> io::Result<Option<(Predecessor, Vec<TcpListener>)>> {
    let listed = std::fs::read_to_string(SOCKETS).unwrap_or_default();
    let mut failed = None;
    for name in addresses.flat_map(|address| names(name(geteuid(), address), &listed)) {
        match connect(&name).and_then(Predecessor::new).and_then(Predecessor::sockets) {
            Ok(asked) => return Ok(Some(asked)),
            Err(error) => match error.kind() {
                io::ErrorKind::ConnectionRefused => {}
                // Another user may have taken the name to hide the process being looked for.
                io::ErrorKind::PermissionDenied => tracing::warn!("{error}, and is passed over"),
                io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidData => failed = Some(error),
                _ => return Err(error),
            },
        }
    }
    failed.map_or(Ok(None), Err)
}

impl Predecessor {
    fn new(stream: UnixStream) -> io::Result<Self> {
        let peer = socket_peercred(&stream)?;
        let process = peer.pid.as_raw_nonzero().get();
        if !is_trusted(peer.uid.as_raw(), process) {
            let message = format!("process {process} is another user's, or in another mount namespace");
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, message));
        }
        Ok(Self { stream, process })
    }

    fn sockets(mut self) -> io::Result<(Self, Vec<TcpListener>)> {
        let (mut hello, mut count) = ([0; 4], [0; 4]);
        self.stream.read_exact(&mut hello)?;
        self.stream.read_exact(&mut count)?;
        let count = usize::try_from(u32::from_le_bytes(count)).unwrap_or(usize::MAX);
        if hello != *HELLO || count > MAX_SOCKETS {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "it speaks in words of another version"));
        }
        let mut sockets = Vec::with_capacity(count);
        while sockets.len() < count {
            receive(&self.stream, &mut sockets)?;
        }
        Ok((self, sockets.into_iter().map(TcpListener::from).collect()))
    }

    /// Tells the previous process that this one serves, and waits until it leaves.
    ///
    /// # Errors
    ///
    /// It is gone, or does not answer within 5 s. This process has its sockets nevertheless.
    pub(in crate::serve) fn relieve(mut self) -> io::Result<()> {
        self.stream.write_all(&[SERVING])?;
        let mut answer = [0];
        self.stream.read_exact(&mut answer)?;
        if answer != [LEAVING] {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(())
    }
}

/// Connects at once, and bounds each later step by 5 s.
pub(super) fn connect(name: &str) -> io::Result<UnixStream> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_write_timeout(Some(TIMEOUT))?;
    socket.set_read_timeout(Some(TIMEOUT))?;
    // A full queue is not waited for: its owner is unknown yet. If the owner is the process with the listener, it keeps
    // its address.
    socket.set_nonblocking(true)?;
    socket.connect(&SockAddr::unix(format!("\0{name}"))?).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => io::ErrorKind::ConnectionRefused.into(),
        _ => error,
    })?;
    socket.set_nonblocking(false)?;
    Ok(OwnedFd::from(socket).into())
}

/// Receives the sockets of one message.
pub(super) fn receive(stream: &UnixStream, sockets: &mut Vec<OwnedFd>) -> io::Result<()> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(BATCH))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC;
    let received = recvmsg(stream, &mut [IoSliceMut::new(&mut byte)], &mut ancillary, flags)?;
    let before = sockets.len();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(passed) = message {
            sockets.extend(passed);
        }
    }
    // No byte: the peer has closed. No socket: this process may hold no more.
    if received.bytes == 0 || sockets.len() == before {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it did not pass all its sockets"));
    }
    Ok(())
}
