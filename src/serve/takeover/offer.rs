//! The running process's side of a takeover.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixListener as StdListener};
use std::task::Poll;
use std::time::Duration;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::geteuid;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, Interest};
use tokio::net::{UnixListener, UnixStream};
use tokio::time::timeout;

use super::{BATCH, HELLO, LEAVING, SERVING, STARTING, TIMEOUT, is_trusted, name};

/// How long accepting pauses when the process is out of descriptors.
pub(super) const REST: Duration = Duration::from_millis(200);
/// After this many connections of processes that are not trusted, accepting pauses, so that they cost the control thread
/// little, however fast they come.
pub(super) const STRANGERS: u32 = 32;
/// How long it pauses then.
pub(super) const PAUSE: Duration = Duration::from_millis(20);

/// The listening sockets, offered to a successor. Dropped, they are no longer held open by this.
#[derive(Debug)]
pub(in crate::serve) struct Offer {
    /// Those of this process's listeners.
    pub(in crate::serve) addresses: Vec<SocketAddr>,
    names: Vec<UnixListener>,
    sockets: Vec<TcpListener>,
    /// Whether to trust a process with this user and this id.
    trusts: fn(u32, i32) -> bool,
}

/// A process that has taken the sockets over and serves.
#[derive(Debug)]
pub(in crate::serve) struct Successor {
    stream: UnixStream,
    /// Its process id.
    pub(in crate::serve) process: i32,
}

impl Offer {
    /// Waits for another process under the name of each of `addresses`. A name that cannot be used is only logged: the
    /// gateway serves without takeovers. Needs a tokio runtime around it.
    pub(in crate::serve) fn new(
        addresses: impl Iterator<Item = SocketAddr>,
        sockets: Vec<TcpListener>,
    ) -> Self {
        let wait = |address| match listen(&name(geteuid(), address)) {
            Ok(listener) => Some(listener),
            Err(error) => {
                tracing::warn!(%error, "{address} cannot be taken over from this process");
                None
            }
        };
        let addresses: Vec<_> = addresses.collect();
        let names = addresses.iter().copied().filter_map(wait).collect();
        Self { addresses, names, sockets, trusts: is_trusted }
    }

    /// Waits until another process serves on the sockets. A takeover that fails on the way changes nothing.
    pub(in crate::serve) async fn taken(&self) -> Successor {
        let mut strangers = 0;
        loop {
            match self.next().await {
                Ok(stream) => match timeout(STARTING, self.hand_over(stream)).await {
                    Ok(Ok(successor)) => return successor,
                    // Any user of this machine can cause it at any rate, so it is not logged for operators.
                    Ok(Err(error)) if error.kind() == io::ErrorKind::PermissionDenied => {
                        tracing::debug!(%error, "no process to hand over to");
                        strangers += 1;
                        if strangers % STRANGERS == 0 {
                            tokio::time::sleep(PAUSE).await;
                        }
                    }
                    Ok(Err(error)) => tracing::warn!(%error, "another process did not take over"),
                    Err(_) => tracing::warn!("another process did not take over within {STARTING:?}"),
                },
                Err(error) => {
                    tracing::warn!(%error, "cannot accept takeover requests; trying again");
                    tokio::time::sleep(REST).await;
                }
            }
        }
    }

    async fn next(&self) -> io::Result<UnixStream> {
        poll_fn(|context| {
            for name in &self.names {
                if let Poll::Ready(accepted) = name.poll_accept(context) {
                    return Poll::Ready(accepted.map(|(stream, _)| stream));
                }
            }
            Poll::Pending
        })
        .await
    }

    async fn hand_over(&self, mut stream: UnixStream) -> io::Result<Successor> {
        let peer = stream.peer_cred()?;
        let process = peer.pid().unwrap_or_default();
        if !(self.trusts)(peer.uid(), process) {
            let message = "it is another user's, or in another mount namespace";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, message));
        }
        tracing::info!("process {process} asks for the listening sockets");
        let count = u32::try_from(self.sockets.len()).unwrap_or(u32::MAX);
        stream.write_all(HELLO).await?;
        stream.write_all(&count.to_le_bytes()).await?;
        for batch in self.sockets.chunks(BATCH) {
            let batch: Vec<BorrowedFd<'_>> = batch.iter().map(|socket| socket.as_fd()).collect();
            stream.async_io(Interest::WRITABLE, || pass(&stream, &batch)).await?;
        }
        match stream.read_u8().await? {
            SERVING => Ok(Successor { stream, process }),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

impl Successor {
    /// Tells the successor that this process leaves. A successor that misses the message has the sockets nevertheless.
    pub(in crate::serve) async fn acknowledge(mut self) {
        let sent = timeout(TIMEOUT, self.stream.write_all(&[LEAVING])).await;
        if !matches!(sent, Ok(Ok(()))) {
            tracing::warn!("process {} took over, but does not answer any more", self.process);
        }
    }
}

/// Listens under the plain name if it is free, so that older versions find it too; else with random digits appended,
/// which no process takes beforehand.
pub(super) fn listen(plain: &str) -> io::Result<UnixListener> {
    let listener = match bind(plain) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            tracing::warn!("another process has taken the name {plain} for takeovers: using one beside it");
            bind(&format!("{plain}/{:016x}", fastrand::u64(..)))?
        }
        bound => bound?,
    };
    listener.set_nonblocking(true)?;
    UnixListener::from_std(listener)
}

fn bind(name: &str) -> io::Result<StdListener> {
    StdListener::bind_addr(&UnixAddress::from_abstract_name(name)?)
}

/// Sends one message with these sockets. It has one byte, since sockets cannot be sent alone.
pub(super) fn pass(stream: &UnixStream, sockets: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(BATCH))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !ancillary.push(SendAncillaryMessage::ScmRights(sockets)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    sendmsg(stream, &[IoSlice::new(&[0])], &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::unix::net::UnixStream as StdStream;

    use tokio::time::Instant;

    use super::*;

    /// However many connections come, only so many are accepted between two pauses.
    #[tokio::test(start_paused = true)]
    async fn strangers_are_accepted_at_a_bounded_rate() {
        let name = format!("tollgate-test/{:016x}", fastrand::u64(..));
        let listener = bind(&name).expect("a free name");
        listener.set_nonblocking(true).expect("a socket");
        let names = vec![UnixListener::from_std(listener).expect("a runtime")];
        let offer = Offer { addresses: Vec::new(), names, sockets: Vec::new(), trusts: |_, _| false };
        let address = UnixAddress::from_abstract_name(&name).expect("a name");
        let rounds = 3;
        let mut clients = Vec::new();
        for _ in 0..rounds * STRANGERS {
            clients.push(StdStream::connect_addr(&address).expect("room in the queue"));
        }
        let begun = Instant::now();
        let served = PAUSE * rounds - PAUSE / 2;
        assert!(timeout(served, offer.taken()).await.is_err(), "nobody is trusted");
        assert!(Instant::now() - begun >= served, "it pauses");
        for mut client in clients {
            client.set_nonblocking(true).expect("a socket");
            assert_eq!(client.read(&mut [0]).expect("it is closed"), 0, "all of them in the end");
        }
    }
}
