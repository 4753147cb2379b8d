//! The UDP sockets of listeners with HTTP/3, and what their connections have in common.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use crate::net::quic::{PacketRoutes, QuicSecrets};
use crate::plan::Listener;
use crate::proxy::{QuicListener, bind_datagrams};

/// The UDP sockets of a process.
#[derive(Debug)]
pub(super) struct QuicSockets {
    /// Those of each worker.
    pub(super) of_workers: Vec<Vec<QuicListener>>,
    /// The ways to the workers, by address.
    pub(super) routes: Vec<(SocketAddr, Arc<PacketRoutes>)>,
}

impl QuicSockets {
    /// Binds a socket for each worker to each of `listeners` that has HTTP/3.
    ///
    /// # Errors
    ///
    /// Another process has the address, or this one may not bind to it.
    pub(super) fn bind(listeners: &[Listener], workers: usize, secrets: &QuicSecrets) -> io::Result<Self> {
        let mut of_workers: Vec<Vec<QuicListener>> = (0..workers).map(|_| Vec::new()).collect();
        let mut all_routes = Vec::new();
        for (index, listener) in listeners.iter().enumerate().filter(|(_, listener)| listener.http3) {
            let sockets = bind_datagrams(listener.address, workers)?;
            let (routes, inboxes) = PacketRoutes::new(secrets.process, workers);
            for ((of_worker, socket), inbox) in of_workers.iter_mut().zip(sockets).zip(inboxes) {
                let (routes, secrets) = (Arc::clone(&routes), secrets.clone());
                of_worker.push(QuicListener { index, socket, routes, inbox, secrets });
            }
            all_routes.push((listener.address, routes));
        }
        Ok(Self { of_workers, routes: all_routes })
    }
}
