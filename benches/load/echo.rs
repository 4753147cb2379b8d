//! A backend that accepts WebSocket connections and sends each byte back.
//!
//! One thread, one epoll. It takes no notice of frames: the gateway between must not change a byte of them.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};

use rustix::event::epoll;

/// The response to a `sec-websocket-key` that is the example of RFC 6455, section 1.3.
const ACCEPTED: &[u8] = b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n\
    sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";
/// The listener's number among the events; a connection has its index.
const LISTENER: u64 = u64::MAX;
const EVENTS: usize = 256;

/// A connection, and whether its request has been accepted.
struct Client {
    stream: TcpStream,
    is_accepted: bool,
}

/// Serves until it is killed.
pub(crate) fn run(address: SocketAddr) -> io::Result<()> {
    let listener = TcpListener::bind(address)?;
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    epoll::add(&poll, &listener, epoll::EventData::new_u64(LISTENER), epoll::EventFlags::IN)?;
    let mut clients: Vec<Option<Client>> = Vec::new();
    let mut events = Vec::with_capacity(EVENTS);
    let mut buffer = vec![0; 16 * 1024];
    loop {
        events.clear();
        epoll::wait(&poll, rustix::buffer::spare_capacity(&mut events), None)?;
        for event in &events {
            if event.data.u64() == LISTENER {
                let (stream, _) = listener.accept()?;
                stream.set_nodelay(true)?;
                stream.set_nonblocking(true)?;
                let data = epoll::EventData::new_u64(clients.len() as u64);
                epoll::add(&poll, &stream, data, epoll::EventFlags::IN)?;
                clients.push(Some(Client { stream, is_accepted: false }));
                continue;
            }
            let index = usize::try_from(event.data.u64()).map_err(io::Error::other)?;
            if clients[index].as_mut().is_some_and(|client| !client.echo(&mut buffer)) {
                clients[index] = None;
            }
        }
    }
}

impl Client {
    /// Whether the connection goes on. What arrives at once is little, so that it always fits into the socket's buffer.
    fn echo(&mut self, buffer: &mut [u8]) -> bool {
        match self.stream.read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => true,
            Err(_) | Ok(0) => false,
            Ok(count) if self.is_accepted => self.stream.write_all(&buffer[..count]).is_ok(),
            // A head in parts would be an error here: the gateway writes it at once.
            Ok(count) => {
                self.is_accepted = buffer[..count].ends_with(b"\r\n\r\n");
                self.is_accepted && self.stream.write_all(ACCEPTED).is_ok()
            }
        }
    }
}
