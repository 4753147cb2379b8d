//! The UDP socket of a worker, which passes on packets for other workers and processes.

use std::fmt;
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use parking_lot::{Mutex, RwLock};
use quinn::udp::{EcnCodepoint, RecvMeta, Transmit};
use quinn::{AsyncUdpSocket, Runtime as _, TokioRuntime, UdpPoller};
use tokio::sync::mpsc::{Receiver, Sender, channel};

use super::connection_id::{ConnectionIds, Server};

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

/// The ways to the workers of one address.
#[derive(Debug)]
pub struct PacketRoutes {
    process: u32,
    workers: Vec<Sender<Packet>>,
    /// The way to the process before this one, which still serves connections.
    earlier: RwLock<Option<Sender<(Server, Packet)>>>,
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

    /// Packets of other processes go this way from now on.
    pub fn set_earlier(&self, earlier: Option<Sender<(Server, Packet)>>) {
        *self.earlier.write() = earlier;
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
    pub fn pass(&self, server: Server, packet: impl FnOnce() -> Packet) -> Result<(), NoSuchServer> {
        let sent = if server.process == self.process {
            self.workers.get(usize::from(server.worker)).map(|way| way.try_send(packet()).is_ok())
        } else {
            self.earlier.read().as_ref().map(|way| way.try_send((server, packet())).is_ok())
        };
        // A way that is full drops the packet, and its client sends it again.
        sent.map_or(Err(NoSuchServer), |_was_taken| Ok(()))
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
        Ok(Self { socket, ids, routes, inbox: Mutex::new(inbox) })
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
        for (buffer, meta) in bufs.iter_mut().zip(meta) {
            let Poll::Ready(Some(packet)) = inbox.poll_recv(context) else { break };
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

    /// Passes on the datagrams of one message that are for others, and keeps the rest.
    fn keep_own(&self, buffer: &mut [u8], meta: &mut RecvMeta) {
        let is_others =
            |datagram: &[u8]| self.ids.server_of(datagram).filter(|server| *server != self.ids.own);
        let stride = meta.stride.max(1);
        let received = buffer.get(..meta.len).unwrap_or_default();
        if !received.chunks(stride).any(|datagram| is_others(datagram).is_some()) {
            return;
        }
        let mut kept = 0;
        for begin in (0..meta.len).step_by(stride) {
            let end = (begin + stride).min(meta.len);
            let datagram = buffer.get(begin..end).unwrap_or_default();
            let passed = is_others(datagram).map(|server| {
                self.routes.pass(server, || Packet {
                    from: meta.addr,
                    to: meta.dst_ip,
                    ecn: meta.ecn,
                    bytes: datagram.into(),
                })
            });
            if passed != Some(Ok(())) {
                buffer.copy_within(begin..end, kept);
                kept += end - begin;
            }
        }
        meta.len = kept;
    }
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
        let taken = self.poll_inbox(context, bufs, meta);
        if taken > 0 {
            return Poll::Ready(Ok(taken));
        }
        if self.routes.is_handed_over.load(Ordering::Relaxed) {
            return Poll::Pending;
        }
        let received = std::task::ready!(self.socket.poll_recv(context, bufs, meta))?;
        for (buffer, meta) in bufs.iter_mut().zip(meta).take(received) {
            self.keep_own(buffer, meta);
        }
        Poll::Ready(Ok(received))
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
