//! The UDP sockets of listeners with HTTP/3, and what their connections have in common.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::mpsc::{Receiver, channel};
use tokio::task::AbortHandle;

use super::ServeError;
use super::takeover::{self, OwnDatagrams, PassedPacket, Predecessor};
use crate::net::quic::{EarlierProcesses, Packet, PacketRoutes, QuicSecrets, ServerId};
use crate::plan::Plan;
use crate::proxy::{Listeners, QuicListener, WorkerListeners, bind_datagrams, shared_datagrams};

/// Packets that wait for the process before this one.
const MAX_WAITING: usize = 1_024;

/// The UDP sockets of a process.
#[derive(Debug)]
pub(super) struct QuicSockets {
    secrets: QuicSecrets,
    listeners: Vec<QuicAddress>,
    earlier: Option<Earlier>,
    /// Duplicates of the sockets, for a process that takes over. While there is one, the kernel gives a socket packets, whether
    /// or not a worker reads it.
    duplicates: Arc<Mutex<Vec<UdpSocket>>>,
    /// The addresses whose sockets a process that takes over has, too.
    given: Arc<Mutex<Vec<SocketAddr>>>,
    /// The task that hands the duplicates over.
    offer: Option<AbortHandle>,
}

/// The processes before this one.
#[derive(Debug)]
struct Earlier {
    /// The way to the last of them.
    way: UnixStream,
    /// By address, their packets that this process has received.
    passed: Vec<(SocketAddr, Receiver<(ServerId, Packet)>)>,
}

/// The sockets of one address.
#[derive(Debug)]
struct QuicAddress {
    address: SocketAddr,
    routes: Arc<PacketRoutes>,
}

impl QuicSockets {
    /// Adds UDP sockets to the listeners of all workers: those of `predecessor`, if there is one, or new ones.
    pub(super) fn bind(
        streams: Vec<Listeners>,
        plan: &Plan,
        predecessor: Option<&Predecessor>,
        random: impl Fn() -> Result<[u8; 32], ServeError>,
    ) -> Result<(Self, Vec<WorkerListeners>), ServeError> {
        let mut all: Vec<_> =
            streams.into_iter().map(|streams| WorkerListeners { streams, quic: Vec::new() }).collect();
        let [number, id_key, reset_key, token_key] = [random()?, random()?, random()?, random()?];
        let process = number.first_chunk().copied().map(u32::from_ne_bytes).unwrap_or_default();
        let id_key = id_key.first_chunk().copied().unwrap_or_default();
        let mut this = Self {
            secrets: QuicSecrets { process, id_key, reset_key, token_key },
            listeners: Vec::new(),
            earlier: None,
            duplicates: Arc::default(),
            given: Arc::default(),
            offer: None,
        };
        let serving = || plan.server.listen.iter().enumerate().filter(|(_, listener)| listener.http3);
        let addresses: Vec<_> = serving().map(|(_, listener)| listener.address).collect();
        if addresses.is_empty() {
            return Ok((this, all));
        }
        let (mut inherited, mut way) = (Vec::new(), None);
        if let Some(offered) = predecessor.and_then(|predecessor| predecessor.datagrams(process, &addresses))
        {
            tracing::info!("the process before passes {} UDP sockets", offered.sockets.len());
            this.secrets = offered.secrets;
            way = Some((offered.processes, offered.way));
            inherited = offered.sockets;
        }
        for (index, listener) in serving() {
            this.listen((index, listener.address), &mut inherited, &mut all)
                .map_err(|error| ServeError::Listen(super::with_remedy(error.to_string(), &error)))?;
        }
        // Before the first packet is received.
        this.earlier = way.map(|(numbers, way)| Earlier { way, passed: this.routes_to(&numbers) });
        Ok((this, all))
    }

    /// Listens on an address with all workers. There may be more sockets than workers: each is read, since the kernel goes on
    /// to give it packets.
    fn listen(
        &mut self,
        (index, address): (usize, SocketAddr),
        inherited: &mut Vec<UdpSocket>,
        workers: &mut [WorkerListeners],
    ) -> io::Result<()> {
        let is_there = |socket: &mut UdpSocket| socket.local_addr().is_ok_and(|bound| bound == address);
        let mut sockets: Vec<_> = inherited.extract_if(.., is_there).collect();
        match sockets.is_empty() {
            true => sockets = bind_datagrams(address, workers.len())?,
            false => {
                while sockets.len() < workers.len() {
                    sockets.push(shared_datagrams(address)?);
                }
            }
        }
        let (routes, inboxes) = PacketRoutes::new(self.secrets.process, sockets.len());
        let duplicates = sockets.iter().map(UdpSocket::try_clone).collect::<io::Result<Vec<_>>>()?;
        self.duplicates.lock().extend(duplicates);
        let count = workers.len();
        for (number, (socket, inbox)) in sockets.into_iter().zip(inboxes).enumerate() {
            let (routes, secrets) = (Arc::clone(&routes), self.secrets.clone());
            let number_id = u16::try_from(number).map_err(io::Error::other)?;
            if let Some(worker) = workers.get_mut(number % count) {
                worker.quic.push(QuicListener { index, number: number_id, socket, routes, inbox, secrets });
            }
        }
        self.listeners.push(QuicAddress { address, routes });
        Ok(())
    }

    /// Has packets for the processes with these numbers wait until [`Self::start`] passes them on.
    fn routes_to(&self, numbers: &[u32]) -> Vec<(SocketAddr, Receiver<(ServerId, Packet)>)> {
        let route = |QuicAddress { address, routes, .. }: &QuicAddress| {
            let (way, passed) = channel(MAX_WAITING);
            routes.set_earlier(Some(EarlierProcesses { numbers: numbers.to_vec(), way }));
            (*address, passed)
        };
        self.listeners.iter().map(route).collect()
    }

    /// Passes packets on between this process and those before and after it. Needs a local runtime around it.
    pub(super) fn start(&mut self) {
        if let Some(Earlier { way, passed }) = self.earlier.take() {
            let (sender, packets) = channel(MAX_WAITING);
            for (listener, mut passed) in passed {
                let sender = sender.clone();
                drop(tokio::task::spawn_local(async move {
                    while let Some((server, packet)) = passed.recv().await {
                        if sender.send(PassedPacket { listener, server, packet }).await.is_err() {
                            return;
                        }
                    }
                }));
            }
            let routes: Vec<_> = self.listeners.iter().map(|listener| Arc::clone(&listener.routes)).collect();
            drop(tokio::task::spawn_local(async move {
                if let Err(error) = takeover::pass_back(way, packets).await {
                    tracing::debug!(%error, "packets of the process before this one are dropped");
                }
                // It has ended. A packet that names it is none of its clients', who may choose any id at first.
                routes.iter().for_each(|routes| routes.set_earlier(None));
            }));
        }
        let routes: Vec<_> =
            self.listeners.iter().map(|listener| (listener.address, Arc::clone(&listener.routes))).collect();
        let first = routes.first().map(|(_, routes)| Arc::clone(routes));
        let processes = move || first.as_ref().map(|routes| routes.processes()).unwrap_or_default();
        let take = move |PassedPacket { listener, server, packet }| {
            if let Some((_, routes)) = routes.iter().find(|(address, _)| *address == listener)
                && routes.pass(server, || packet).is_err()
            {
                tracing::debug!("a packet for a process that has ended");
            }
        };
        if !self.listeners.is_empty() {
            let (sockets, given) = (Arc::clone(&self.duplicates), Arc::clone(&self.given));
            let own = OwnDatagrams { secrets: self.secrets.clone(), sockets, given };
            let offer = takeover::offer_datagrams(own, processes, take);
            self.offer = Some(tokio::task::spawn_local(offer).abort_handle());
        }
    }

    /// No process takes over any more. The sockets of a worker that ends are closed then, so that the kernel gives their
    /// packets to the workers that are left.
    pub(super) fn withdraw(&self) {
        if let Some(offer) = &self.offer {
            offer.abort();
        }
        self.duplicates.lock().clear();
    }

    /// The process after this one reads the sockets that it has asked for from now on. The others are this process's alone, and
    /// are closed with their workers.
    pub(super) fn hand_over(&self) {
        self.duplicates.lock().clear();
        let given = self.given.lock();
        let is_given = |listener: &&QuicAddress| given.contains(&listener.address);
        self.listeners.iter().filter(is_given).for_each(|listener| listener.routes.hand_over());
    }
}
