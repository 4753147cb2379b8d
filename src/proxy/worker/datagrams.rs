//! The UDP sockets of listeners with HTTP/3: one per worker and address, which they share by SO_REUSEPORT.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;

use socket2::{Domain, Protocol, Socket, Type};

use super::listen::claim;
use crate::net::quic::{PacketInbox, PacketRoutes, QuicSecrets};

/// Bytes of datagrams that the kernel holds for a socket, if it allows as many.
const DATAGRAM_BUFFER: usize = 2 << 20;

/// One worker's UDP socket of a listener with HTTP/3.
#[derive(Debug)]
pub struct QuicListener {
    /// The index in `server.listen`.
    pub index: usize,
    /// The number of the socket among those of the address, by which connection ids name it.
    pub number: u16,
    /// The socket.
    pub socket: UdpSocket,
    /// The ways to all workers.
    pub routes: Arc<PacketRoutes>,
    /// What others pass on.
    pub inbox: PacketInbox,
    /// The secrets of its connections.
    pub secrets: QuicSecrets,
}

/// One UDP socket for each worker, after making sure that no other process has the address.
pub fn bind_datagrams(address: SocketAddr, workers: usize) -> io::Result<Vec<UdpSocket>> {
    let sockets = || {
        drop(datagrams(address, false)?);
        (0..workers).map(|_| datagrams(address, true)).collect::<io::Result<_>>()
    };
    sockets()
        .map_err(|error| io::Error::new(error.kind(), format!("cannot receive UDP on {address}: {error}")))
}

/// Why UDP cannot be received on an address on which TCP can be accepted, or cannot for another reason. Nothing else is
/// wrong with such an address, and a running gateway, which has both, is none of them.
pub fn datagrams_fault(address: SocketAddr) -> Option<io::Error> {
    let fault = datagrams(address, false).err()?;
    (claim(address).err().map(|error| error.kind()) != Some(fault.kind())).then_some(fault)
}

/// A UDP socket on an address that this user's gateways share.
pub fn shared_datagrams(address: SocketAddr) -> io::Result<UdpSocket> {
    datagrams(address, true)
}

fn datagrams(address: SocketAddr, shared: bool) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_reuse_port(shared)?;
    socket.set_nonblocking(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    // The kernel caps it by net.core.rmem_max.
    socket.set_recv_buffer_size(DATAGRAM_BUFFER)?;
    socket.set_send_buffer_size(DATAGRAM_BUFFER)?;
    socket.bind(&address.into())?;
    Ok(socket.into())
}
