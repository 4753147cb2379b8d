//! Addresses that a test knows before the process that listens there starts.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};

use socket2::{Domain, Socket, Type};

/// A free port of the loopback address. It stays reserved until this process ends: a bound socket that does not listen
/// keeps the kernel from giving the port to another listener or outgoing connection, and a listener that sets
/// SO_REUSEADDR can still bind it.
pub(crate) fn free_address() -> SocketAddr {
    reserved(Ipv4Addr::LOCALHOST)
}

/// The same for a listener on all addresses: a socket on any other address of the machine would keep it from the port.
pub(crate) fn free_address_of_all() -> SocketAddr {
    reserved(Ipv4Addr::UNSPECIFIED)
}

/// The same for TCP and UDP. Its port is below those that the kernel gives to sockets by itself, since a socket cannot keep a
/// port of UDP free for another one.
pub(crate) fn free_address_of_datagrams() -> SocketAddr {
    let reserve = || {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, fastrand::u16(20_000..32_000)));
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).ok()?;
        // Not before, since two sockets that both set it may reserve the same port.
        socket.bind(&address.into()).and_then(|()| socket.set_reuse_address(true)).ok()?;
        UdpSocket::bind(address).ok()?;
        std::mem::forget(socket);
        Some(address)
    };
    std::iter::repeat_with(reserve).take(1_000).flatten().next().expect("a free port")
}

fn reserved(address: Ipv4Addr) -> SocketAddr {
    let reserve = || {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.set_reuse_address(true)?;
        socket.bind(&SocketAddr::from((address, 0)).into())?;
        let address = socket.local_addr()?;
        std::mem::forget(socket);
        std::io::Result::Ok(address)
    };
    reserve().expect("a free port").as_socket().expect("an address of IPv4")
}
