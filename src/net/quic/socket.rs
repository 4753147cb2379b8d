//! The UDP socket of a worker, which passes on packets for other workers and processes.

use std::fmt;
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use parking_lot::{Mutex, RwLock};
use quinn::udp::{EcnCodepoint, RecvMeta, Transmit};
use quinn::{AsyncUdpSocket, Runtime as _, TokioRuntime, UdpPoller};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use super::connection_id::{ConnectionIds, ServerId};

/// Packets that wait for a worker. Further ones are dropped, as by a socket whose buffer is full.
const MAX_WAITING: usize = 1_024;

/// A datagram that another worker or process has received.
#[derive(Debug)]
pub struct Packet {
    /// The client.
    pub from: SocketAddr,
    /// The address that it was sent to, if known.
    pub to: Option<IpAddr>,
    /// Its mark of congestion.
    pub ecn: Option<EcnCodepoint>,
    /// Its bytes.
    pub bytes: Box<[u8]>,
}

/// The packets for one worker that others have received.
pub type PacketInbox = Receiver<Packet>;

/// The processes before this one, which still serve connections.
#[derive(Clone, Debug)]
pub struct EarlierProcesses {
    /// Their numbers. Empty: the process before this one does not tell them, so it gets the packets of all others.
    pub numbers: Vec<u32>,
    /// The way to the last of them, which passes on what is for those before it.
    pub way: Sender<(ServerId, Packet)>,
}

impl EarlierProcesses {
    /// Whether a packet may be for one of them.
    fn has(&self, process: u32) -> bool {
        self.numbers.is_empty() || self.numbers.contains(&process)
    }
}

/// The ways to the workers of one address.
#[derive(Debug)]
pub struct PacketRoutes {
    process: u32,
    workers: Vec<Sender<Packet>>,
    earlier: RwLock<Option<EarlierProcesses>>,
    /// The process after this one reads the sockets; what is for this one comes by the inboxes.
    is_handed_over: AtomicBool,
}

impl PacketRoutes {
    /// The ways to this many workers of the process with this number, and where each receives.
    pub fn new(process: u32, workers: usize) -> (Arc<Self>, Vec<PacketInbox>) {
        let (workers, inboxes) = (0..workers).map(|_| channel(MAX_WAITING)).unzip();
        (
            Arc::new(Self {
                process,
                workers,
                earlier: RwLock::default(),
                is_handed_over: AtomicBool::new(false),
            }),
            inboxes,
        )
    }

    /// Packets of these processes go their way from now on. `None`: they have ended.
    pub fn set_earlier(&self, earlier: Option<EarlierProcesses>) {
        *self.earlier.write() = earlier;
    }

    /// The numbers of this process and of those before it that still serve connections. Empty: one of them is not known.
    pub fn processes(&self) -> Vec<u32> {
        match &*self.earlier.read() {
            Some(earlier) if earlier.way.is_closed() => vec![self.process],
            Some(earlier) if earlier.numbers.is_empty() => Vec::new(),
            Some(earlier) => [&[self.process], &*earlier.numbers].concat(),
            None => vec![self.process],
        }
    }

    /// Another process reads the sockets from now on.
    pub fn hand_over(&self) {
        self.is_handed_over.store(true, Ordering::Relaxed);
    }

    /// Passes a packet on to the server that it names. Returns the packet if there is none.
    ///
    /// # Errors
    ///
    /// The packet names no server that is known.
    pub fn pass(&self, server: ServerId, packet: impl FnOnce() -> Packet) -> Result<(), NoSuchServer> {
        let is_passed = if server.process == self.process {
            let way = self.workers.get(usize::from(server.worker)).ok_or(NoSuchServer)?;
            way.try_send(packet()).map_err(|error| matches!(error, TrySendError::Closed(_)))
        } else {
            let earlier = self.earlier.read();
            let earlier = earlier.as_ref().filter(|earlier| earlier.has(server.process));
            let way = &earlier.ok_or(NoSuchServer)?.way;
            way.try_send((server, packet())).map_err(|error| matches!(error, TrySendError::Closed(_)))
        };
        match is_passed {
            Err(true) => Err(NoSuchServer),
            // A way that is full drops the packet, and its client sends it again.
            Ok(()) | Err(false) => Ok(()),
        }
    }
}

/// A packet names no server that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoSuchServer;

/// The UDP socket of a worker.
pub struct WorkerSocket {
    socket: Arc<dyn AsyncUdpSocket>,
    ids: ConnectionIds,
    routes: Arc<PacketRoutes>,
    inbox: Mutex<PacketInbox>,
    /// The last packets came from the inbox, so the socket is next: neither may keep the other waiting.
    socket_is_next: AtomicBool,
}

impl fmt::Debug for WorkerSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerSocket")
            .field("socket", &self.socket)
            .field("ids", &self.ids)
            .finish_non_exhaustive()
    }
}

impl WorkerSocket {
    /// Needs a tokio runtime around it.
    ///
    /// # Errors
    ///
    /// The runtime does not take the socket.
    pub fn new(
        socket: UdpSocket,
        ids: ConnectionIds,
        routes: Arc<PacketRoutes>,
        inbox: PacketInbox,
    ) -> io::Result<Self> {
        let socket = TokioRuntime.wrap_udp_socket(socket)?;
        Ok(Self { socket, ids, routes, inbox: Mutex::new(inbox), socket_is_next: AtomicBool::new(false) })
    }

    /// Takes packets that others have received.
    fn poll_inbox(
        &self,
        context: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> usize {
        let mut inbox = self.inbox.lock();
        let mut taken = 0;
        while let (Some(buffer), Some(meta)) = (bufs.get_mut(taken), meta.get_mut(taken)) {
            let Poll::Ready(Some(packet)) = inbox.poll_recv(context) else { break };
            // Longer than any packet that this process asks for: it is dropped, as the socket would cut it.
            let Some(into) = buffer.get_mut(..packet.bytes.len()) else { continue };
            into.copy_from_slice(&packet.bytes);
            *meta = RecvMeta {
                addr: packet.from,
                len: packet.bytes.len(),
                stride: packet.bytes.len(),
                ecn: packet.ecn,
                dst_ip: packet.to,
            };
            taken += 1;
        }
        taken
    }

    /// Takes packets that the kernel has received.
    fn poll_socket(
        &self,
        context: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        let received = ready!(self.socket.poll_recv(context, bufs, meta))?;
        for (buffer, meta) in bufs.iter_mut().zip(meta).take(received) {
            self.keep_own(buffer, meta);
        }
        Poll::Ready(Ok(received))
    }

    /// Passes on the datagrams of one message that are for others, and keeps the rest.
    fn keep_own(&self, buffer: &mut [u8], meta: &mut RecvMeta) {
        let received = buffer.get_mut(..meta.len).unwrap_or_default();
        meta.len = retain_datagrams(received, meta.stride, |datagram| {
            let named = self.ids.server_of(datagram).filter(|server| *server != self.ids.own);
            named.is_none_or(|server| {
                let packet =
                    || Packet { from: meta.addr, to: meta.dst_ip, ecn: meta.ecn, bytes: datagram.into() };
                self.routes.pass(server, packet).is_err()
            })
        });
    }
}

/// Removes the datagrams that `keeps` does not keep from those of one message, which have `stride` bytes each, and the last
/// one perhaps fewer. Returns the length of the rest.
pub fn retain_datagrams(received: &mut [u8], stride: usize, mut keeps: impl FnMut(&[u8]) -> bool) -> usize {
    let stride = stride.max(1);
    let mut kept = 0;
    for begin in (0..received.len()).step_by(stride) {
        let end = (begin + stride).min(received.len());
        if received.get(begin..end).is_some_and(&mut keeps) {
            if kept < begin {
                received.copy_within(begin..end, kept);
            }
            kept += end - begin;
        }
    }
    kept
}

impl AsyncUdpSocket for WorkerSocket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Arc::clone(&self.socket).create_io_poller()
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        self.socket.try_send(transmit)
    }

    fn poll_recv(
        &self,
        context: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        let reads_socket = !self.routes.is_handed_over.load(Ordering::Relaxed);
        if self.socket_is_next.swap(false, Ordering::Relaxed)
            && reads_socket
            && let Poll::Ready(received) = self.poll_socket(context, bufs, meta)
        {
            return Poll::Ready(received);
        }
        let taken = self.poll_inbox(context, bufs, meta);
        if taken > 0 {
            self.socket_is_next.store(true, Ordering::Relaxed);
            return Poll::Ready(Ok(taken));
        }
        if reads_socket { self.poll_socket(context, bufs, meta) } else { Poll::Pending }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    fn max_transmit_segments(&self) -> usize {
        self.socket.max_transmit_segments()
    }

    fn max_receive_segments(&self) -> usize {
        self.socket.max_receive_segments()
    }

    fn may_fragment(&self) -> bool {
        self.socket.may_fragment()
    }
}

#[cfg(test)]
mod tests;
