//! The hand-over of UDP sockets with HTTP/3, over a Unix socket that names the running process. A process of a version
//! before that had none, and one without such sockets says so.
//!
//! 1. new: [`DATAGRAMS`], and the addresses at which it serves HTTP/3; running: [`DatagramsHello`], and the sockets of these
//!    addresses, [`BATCH`](super::BATCH) at a time;
//! 2. new, for as long as the running process lives: packets that name another process.
//!
//! Both have these sockets from step 1 on. The running process stops reading them when it leaves, and goes on with others.

use std::io::{self, Write as _};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::net::UnixStream as StdStream;
use std::sync::Arc;

use parking_lot::Mutex;
use quinn::udp::EcnCodepoint;
use rustix::net::sockopt::socket_peercred;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, Interest};
use tokio::net::UnixStream;
use tokio::sync::mpsc::Receiver;
use tokio::time::{sleep, timeout};

use super::ask::{Predecessor, connect, receive};
use super::give_counters::next;
use super::offer::{PAUSE, REST, STRANGERS, listen, pass};
use super::take_counters::read_with_length;
use super::{BATCH, MAX_SOCKETS, SOCKETS, TIMEOUT, is_trusted, names, own_process};
use crate::net::quic::{Packet, QuicSecrets, ServerId};

/// The new process's first bytes: name and version of the protocol.
const DATAGRAMS: &[u8; 4] = b"TGQ1";
/// The maximum length of the addresses.
const MAX_ADDRESSES: usize = 64 << 10;
/// The maximum length of a packet with its head; UDP has no longer one.
const MAX_PACKET: usize = 66 << 10;

/// What the running process says of its UDP sockets.
#[derive(Debug, Default, Serialize, Deserialize)]
struct DatagramsHello {
    id_key: [u8; 16],
    reset_key: [u8; 32],
    token_key: [u8; 32],
    /// The number of its sockets.
    sockets: usize,
    /// Its number in connection ids, and those of the processes before it that still serve connections. Empty: one of them
    /// does not tell its own, as those of older versions.
    #[serde(default)]
    processes: Vec<u32>,
}

/// A packet between processes: who it is for, and how it came. Its bytes follow.
#[derive(Debug, Serialize, Deserialize)]
struct PacketHead {
    listener: SocketAddr,
    process: u32,
    worker: u16,
    from: SocketAddr,
    to: Option<IpAddr>,
    ecn: u8,
}

/// A packet for a worker of another process, with the address that it came to.
#[derive(Debug)]
pub(in crate::serve) struct PassedPacket {
    pub(in crate::serve) listener: SocketAddr,
    pub(in crate::serve) server: ServerId,
    pub(in crate::serve) packet: Packet,
}

/// The UDP sockets of the running process.
#[derive(Debug)]
pub(in crate::serve) struct OfferedDatagrams {
    /// Its secrets, with the number of the new process.
    pub(in crate::serve) secrets: QuicSecrets,
    /// Its sockets.
    pub(in crate::serve) sockets: Vec<UdpSocket>,
    /// Its number in connection ids, and those before it. Empty: not known.
    pub(in crate::serve) processes: Vec<u32>,
    /// The way for packets that name one of these.
    pub(in crate::serve) way: StdStream,
}

/// The UDP sockets of this process, for those that take over from it.
#[derive(Debug)]
pub(in crate::serve) struct OwnDatagrams {
    pub(in crate::serve) secrets: QuicSecrets,
    /// Empty once a process has taken over.
    pub(in crate::serve) sockets: Arc<Mutex<Vec<UdpSocket>>>,
    /// The addresses whose sockets another process has now, too.
    pub(in crate::serve) given: Arc<Mutex<Vec<SocketAddr>>>,
}

/// The name at which the process with this id waits for one that takes its UDP sockets over, unless it is taken.
fn datagrams_name(process: i32) -> String {
    format!("tollgate/datagrams/{process}")
}

impl Predecessor {
    /// Its UDP sockets at these addresses, if it has any. `process`: the number of the new process.
    pub(in crate::serve) fn datagrams(
        &self,
        process: u32,
        addresses: &[SocketAddr],
    ) -> Option<OfferedDatagrams> {
        let listed = std::fs::read_to_string(SOCKETS).unwrap_or_default();
        let names = names(datagrams_name(self.process), &listed);
        names.iter().find_map(|name| self.datagrams_at(name, process, addresses).ok())
    }

    fn datagrams_at(
        &self,
        name: &str,
        process: u32,
        addresses: &[SocketAddr],
    ) -> io::Result<OfferedDatagrams> {
        let mut way = connect(name)?;
        let peer = socket_peercred(&way)?;
        let id = peer.pid.as_raw_nonzero().get();
        // Another user may have taken the name.
        if id != self.process || !is_trusted(peer.uid.as_raw(), id) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        way.write_all(&asking_for(addresses)?)?;
        let hello: DatagramsHello = read_with_length(&mut way)?;
        let DatagramsHello { id_key, reset_key, token_key, sockets: count, processes } = hello;
        if count > MAX_SOCKETS {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut sockets = Vec::with_capacity(count);
        while sockets.len() < count {
            receive(&way, &mut sockets)?;
        }
        let sockets = sockets.into_iter().map(UdpSocket::from).collect();
        let secrets = QuicSecrets { process, id_key, reset_key, token_key };
        Ok(OfferedDatagrams { secrets, sockets, processes, way })
    }
}

/// What a new process says first.
fn asking_for(addresses: &[SocketAddr]) -> io::Result<Vec<u8>> {
    let addresses = serde_json::to_vec(addresses)?;
    Ok([&DATAGRAMS[..], &(addresses.len() as u64).to_le_bytes(), &addresses].concat())
}

/// The addresses that a new process asks for.
async fn asked_for(stream: &mut UnixStream) -> io::Result<Vec<SocketAddr>> {
    let mut name = [0; DATAGRAMS.len()];
    stream.read_exact(&mut name).await?;
    if name != *DATAGRAMS {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let length = usize::try_from(stream.read_u64_le().await?).unwrap_or(usize::MAX);
    if length > MAX_ADDRESSES {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut addresses = vec![0; length];
    stream.read_exact(&mut addresses).await?;
    Ok(serde_json::from_slice(&addresses)?)
}

/// Sends the process before this one the packets that are its own, until it ends.
pub(in crate::serve) async fn pass_back(
    way: StdStream,
    mut packets: Receiver<PassedPacket>,
) -> io::Result<()> {
    way.set_nonblocking(true)?;
    let mut way = UnixStream::from_std(way)?;
    loop {
        let passed = tokio::select! {
            passed = packets.recv() => passed,
            // It sends nothing, so this is its end.
            _ = way.readable() => None,
        };
        let Some(passed) = passed else { return Ok(()) };
        timeout(TIMEOUT, way.write_all(&written(passed)?)).await??;
    }
}

/// A packet as it is sent to another process: two lengths, the head and the bytes.
fn written(passed: PassedPacket) -> io::Result<Vec<u8>> {
    let PassedPacket { listener, server: ServerId { process, worker }, packet } = passed;
    let Packet { from, to, ecn, bytes } = packet;
    let ecn = ecn.map_or(0, |ecn| ecn as u8);
    let head = serde_json::to_vec(&PacketHead { listener, process, worker, from, to, ecn })?;
    let lengths = [head.len() + bytes.len(), head.len()];
    let [all, of_head] = lengths.map(|length| u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes());
    Ok([&all[..], &of_head, &head, &bytes].concat())
}

/// The packet in what follows the lengths; the head has `head` bytes.
fn read(bytes: &[u8], head: usize) -> io::Result<PassedPacket> {
    let (head, bytes) = bytes.split_at_checked(head).ok_or(io::ErrorKind::InvalidData)?;
    let PacketHead { listener, process, worker, from, to, ecn } = serde_json::from_slice(head)?;
    let packet = Packet { from, to, ecn: EcnCodepoint::from_bits(ecn), bytes: bytes.into() };
    Ok(PassedPacket { listener, server: ServerId { process, worker }, packet })
}

/// Offers the sockets to processes that take over, and takes the packets that they pass back. `processes`: the numbers of
/// this process and of those before it.
pub(in crate::serve) async fn offer(
    own: OwnDatagrams,
    processes: impl Fn() -> Vec<u32>,
    take: impl Fn(PassedPacket),
) {
    let listener = match listen(&datagrams_name(own_process())) {
        Ok(listener) => listener,
        Err(error) => return tracing::warn!(%error, "the UDP sockets of this process cannot be handed over"),
    };
    let mut strangers = 0;
    loop {
        match next(&listener).await {
            Ok(stream) => {
                let given = give(stream, &own, processes(), &take).await;
                own.given.lock().clear();
                if let Err(error) = given {
                    tracing::debug!(%error, "the UDP sockets were not handed over, or only until now");
                }
            }
            // Any user of this machine can cause it at any rate.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                strangers += 1;
                if strangers % STRANGERS == 0 {
                    sleep(PAUSE).await;
                }
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept processes that take UDP sockets over; trying again");
                sleep(REST).await;
            }
        }
    }
}

/// Hands the sockets to a process, and takes packets from it until it ends.
async fn give(
    mut stream: UnixStream,
    OwnDatagrams { secrets, sockets, given }: &OwnDatagrams,
    processes: Vec<u32>,
    take: &impl Fn(PassedPacket),
) -> io::Result<()> {
    let addresses = timeout(TIMEOUT, asked_for(&mut stream)).await??;
    let sockets: Vec<_> = {
        let sockets = sockets.lock();
        let is_asked_for =
            |socket: &&UdpSocket| socket.local_addr().is_ok_and(|address| addresses.contains(&address));
        sockets.iter().filter(is_asked_for).map(UdpSocket::try_clone).collect::<io::Result<_>>()?
    };
    let QuicSecrets { id_key, reset_key, token_key, .. } = *secrets;
    let hello = DatagramsHello { id_key, reset_key, token_key, sockets: sockets.len(), processes };
    let hello = serde_json::to_vec(&hello)?;
    stream.write_u64_le(hello.len() as u64).await?;
    timeout(TIMEOUT, stream.write_all(&hello)).await??;
    for batch in sockets.chunks(BATCH) {
        let batch: Vec<BorrowedFd<'_>> = batch.iter().map(|socket| socket.as_fd()).collect();
        timeout(TIMEOUT, stream.async_io(Interest::WRITABLE, || pass(&stream, &batch))).await??;
    }
    // One that is held here is given packets that no worker may read.
    drop(sockets);
    *given.lock() = addresses;
    loop {
        let (length, head) = (stream.read_u32_le().await?, stream.read_u32_le().await?);
        let (length, head) = (length as usize, head as usize);
        if length > MAX_PACKET || head > length {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut bytes = vec![0; length];
        timeout(TIMEOUT, stream.read_exact(&mut bytes)).await??;
        take(read(&bytes, head)?);
    }
}

#[cfg(test)]
mod tests;
