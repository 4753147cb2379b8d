//! Listening sockets: one per worker and address. Workers share an address by SO_REUSEPORT; other processes may not.

use std::io;
use std::net::{SocketAddr, TcpListener};

use socket2::{Domain, Protocol, SockRef, Socket, Type};

/// Connections that the kernel holds before they are accepted.
const BACKLOG: i32 = 4096;

/// One worker's listeners, each with its index in `server.listen`: at least one for each index.
pub type Listeners = Vec<(usize, TcpListener)>;

/// Listens on every address of `server.listen` with every worker; returns one list per worker. All listeners of
/// `inherited` that are bound to one of the addresses are used, so that no connection waiting in one of them is lost.
/// Without an inherited listener, the function makes sure that no other process listens on the address. Port 0 is
/// resolved once; all workers share the port.
pub fn bind(
    addresses: impl Iterator<Item = SocketAddr>,
    workers: usize,
    inherited: &mut Vec<TcpListener>,
) -> io::Result<Vec<Listeners>> {
    let mut listeners: Vec<Listeners> = (0..workers).map(|_| Vec::new()).collect();
    for (index, address) in addresses.enumerate() {
        let mut sockets = take(inherited, address);
        if sockets.is_empty() {
            sockets = fresh(address, workers).map_err(|error| at(address, &error))?;
        }
        while let (true, Some(first)) = (sockets.len() < workers, sockets.first()) {
            let another = another(first, address).map_err(|error| at(address, &error))?;
            sockets.push(another);
        }
        // There may be more sockets than workers: some workers serve several.
        for (number, socket) in sockets.into_iter().enumerate() {
            listeners[number % workers].push((index, socket));
        }
    }
    Ok(listeners)
}

/// Removes the listeners bound to `address` from `inherited` and returns them.
pub fn take(inherited: &mut Vec<TcpListener>, address: SocketAddr) -> Vec<TcpListener> {
    let is_there = |socket: &mut TcpListener| socket.local_addr().is_ok_and(|bound| bound == address);
    inherited.extract_if(.., is_there).collect()
}

/// One listener per worker, after making sure that no other process listens on the address.
fn fresh(address: SocketAddr, workers: usize) -> io::Result<Vec<TcpListener>> {
    let mut address = claim(address)?.local_addr()?.as_socket().unwrap_or(address);
    let mut sockets = Vec::with_capacity(workers);
    for _ in 0..workers {
        let socket = listen(address)?;
        address = socket.local_addr()?;
        sockets.push(socket);
    }
    Ok(sockets)
}

/// One more listener beside `first`: a socket of its own if `first` shares its address, else a duplicate of `first`.
fn another(first: &TcpListener, address: SocketAddr) -> io::Result<TcpListener> {
    if SockRef::from(first).reuse_port().unwrap_or(false)
        && let Ok(own) = listen(address)
    {
        return Ok(own);
    }
    first.try_clone()
}

/// Binds without SO_REUSEPORT: fails if another process listens there, even one that would share the address. The
/// socket does not listen: a client connected to it would be reset when it is closed.
pub(super) fn claim(address: SocketAddr) -> io::Result<Socket> {
    let socket = socket(address)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = socket(address)?;
    socket.set_reuse_port(true)?;
    socket.set_nonblocking(true)?;
    // Accepted sockets inherit it from their listener, which saves a system call for each.
    socket.set_tcp_nodelay(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

fn socket(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    // Connections of the last run in TIME_WAIT do not block the port.
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        // `[::]` means IPv6 only; a file that wants IPv4 too lists both addresses.
        socket.set_only_v6(true)?;
    }
    Ok(socket)
}

fn at(address: SocketAddr, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot listen on {address}: {error}"))
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use super::*;

    #[test]
    fn a_claim_accepts_no_connection() {
        let claimed = claim("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = claimed.local_addr().unwrap().as_socket().unwrap();
        let refused = TcpStream::connect(address).map_err(|error| error.kind());
        assert_eq!(
            refused.err(),
            Some(io::ErrorKind::ConnectionRefused),
            "it would be reset when the claim ends"
        );
    }
}
