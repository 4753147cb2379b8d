//! Listening sockets: one per worker and address, shared by SO_REUSEPORT among workers but not with strangers.

use std::io;
use std::net::{SocketAddr, TcpListener};

use socket2::{Domain, Protocol, Socket, Type};

/// Connections that the kernel holds before they are accepted.
const BACKLOG: i32 = 4096;

/// One worker's listeners, in the order of `server.listen`.
pub type Listeners = Vec<TcpListener>;

/// Binds every address of `server.listen` once per worker, after making sure that no other process listens there.
/// Returns one list per worker. Port 0 is resolved once; all workers share the port.
pub fn bind(addresses: impl Iterator<Item = SocketAddr>, workers: usize) -> io::Result<Vec<Listeners>> {
    let mut listeners: Vec<Listeners> = (0..workers).map(|_| Vec::new()).collect();
    for address in addresses {
        let claimed = claim(address).and_then(|claim| claim.local_addr());
        let mut address = claimed.map_err(|error| at(address, &error))?.as_socket().unwrap_or(address);
        for worker in &mut listeners {
            let listener = listen(address).map_err(|error| at(address, &error))?;
            address = listener.local_addr()?;
            worker.push(listener);
        }
    }
    Ok(listeners)
}

/// Binds alone, without SO_REUSEPORT: fails if anybody listens there, even one who would share. Does not listen: whoever
/// connected to this socket would be reset when it is closed.
fn claim(address: SocketAddr) -> io::Result<Socket> {
    let socket = socket(address)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = socket(address)?;
    socket.set_reuse_port(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

fn socket(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    // Connections of the last run that linger in TIME_WAIT do not hold the port.
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        // `[::]` means IPv6 only; who wants both lists both.
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
    fn nobody_is_taken_in_by_a_claim() {
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
