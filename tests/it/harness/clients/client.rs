//! A raw HTTP/1.1 client: sends the bytes it is given, reads strictly.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use rustls::{ClientConfig, ClientConnection};

use super::response::{Fault, Framing, Response, parse_field};
use super::tls;
use crate::harness::{TIMEOUT, eventually};

/// One connection.
#[derive(Debug)]
pub(crate) struct Client {
    stream: TcpStream,
    /// The session on it, where TLS is spoken.
    tls: Option<Box<ClientConnection>>,
    /// What came and was not yet looked at.
    buffer: Vec<u8>,
}

impl Client {
    /// Connects.
    pub(crate) fn connect(address: SocketAddr) -> Self {
        Self::over(TcpStream::connect_timeout(&address, TIMEOUT).expect("the gateway takes connections"))
    }

    /// Its own address.
    pub(crate) fn local_addr(&self) -> SocketAddr {
        self.stream.local_addr().expect("a socket")
    }

    /// Connects from another address of this machine, such as 127.0.0.2.
    pub(crate) fn connect_from(source: IpAddr, address: SocketAddr) -> Self {
        Self::try_connect_from(source, address).expect("the gateway takes connections")
    }

    /// As [`Self::connect_from`], or why it cannot: a connection may be reset before the client knows that there is one.
    pub(crate) fn try_connect_from(source: IpAddr, address: SocketAddr) -> std::io::Result<Self> {
        let socket = socket2::Socket::new(socket2::Domain::for_address(address), socket2::Type::STREAM, None);
        let socket = socket.expect("a socket");
        socket.bind(&SocketAddr::new(source, 0).into()).expect("an address of this machine");
        socket.connect_timeout(&address.into(), TIMEOUT)?;
        Ok(Self::over(socket.into()))
    }

    /// Connects with a receive buffer of about this size, so that back-pressure shows soon.
    pub(crate) fn connect_narrow(address: SocketAddr, receive_buffer: usize) -> Self {
        let socket = socket2::Socket::new(socket2::Domain::for_address(address), socket2::Type::STREAM, None);
        let socket = socket.expect("a socket");
        socket.set_recv_buffer_size(receive_buffer).expect("a size");
        socket.connect_timeout(&address.into(), TIMEOUT).expect("the gateway takes connections");
        Self::over(socket.into())
    }

    /// Connects and agrees on TLS, asking for `name`.
    pub(crate) fn connect_tls(address: SocketAddr, config: &Arc<ClientConfig>, name: &str) -> Self {
        Self::try_connect_tls(address, config, name).expect("a handshake")
    }

    /// As [`Self::connect_tls`], or why it cannot.
    pub(crate) fn try_connect_tls(
        address: SocketAddr,
        config: &Arc<ClientConfig>,
        name: &str,
    ) -> std::io::Result<Self> {
        Self::connect(address).agree_on_tls(config, name)
    }

    /// Agrees on TLS from here on.
    pub(crate) fn agree_on_tls(mut self, config: &Arc<ClientConfig>, name: &str) -> std::io::Result<Self> {
        let mut session = tls::session(config, name);
        while session.is_handshaking() {
            session.complete_io(&mut self.stream)?;
        }
        self.tls = Some(Box::new(session));
        Ok(self)
    }

    /// The session, where TLS is spoken.
    pub(crate) fn tls(&self) -> &ClientConnection {
        self.tls.as_ref().expect("TLS is spoken")
    }

    fn over(stream: TcpStream) -> Self {
        stream.set_nodelay(true).expect("a socket option");
        stream.set_read_timeout(Some(TIMEOUT)).expect("a socket option");
        stream.set_write_timeout(Some(TIMEOUT)).expect("a socket option");
        Self { stream, tls: None, buffer: Vec::new() }
    }

    /// Sends bytes as they are. A peer that has closed is not a fault here: its answer tells.
    pub(crate) fn write(&mut self, bytes: impl AsRef<[u8]>) {
        let bytes = bytes.as_ref();
        match &mut self.tls {
            Some(tls) => rustls::Stream::new(&mut **tls, &mut self.stream).write_all(bytes).ok(),
            None => self.stream.write_all(bytes).ok(),
        };
    }

    /// Sends as much of `bytes` as the peer takes within `timeout`; gives the count.
    pub(crate) fn write_within(&mut self, bytes: &[u8], timeout: Duration) -> usize {
        self.stream.set_write_timeout(Some(timeout)).expect("a socket option");
        let mut sent = 0;
        while sent < bytes.len() {
            match self.stream.write(&bytes[sent..]) {
                Ok(count) if count > 0 => sent += count,
                _ => break,
            }
        }
        self.stream.set_write_timeout(Some(TIMEOUT)).expect("a socket option");
        sent
    }

    /// Sends bytes from a thread of their own, while this one reads.
    pub(crate) fn write_in_background(&self, bytes: Vec<u8>) -> JoinHandle<()> {
        let mut stream = self.stream.try_clone().expect("a second handle");
        std::thread::spawn(move || {
            stream.write_all(&bytes).ok();
        })
    }

    /// Sends one byte a segment, `pause` apart.
    pub(crate) fn write_bytewise(&mut self, bytes: impl AsRef<[u8]>, pause: Duration) {
        for byte in bytes.as_ref() {
            self.write([*byte]);
            std::thread::sleep(pause);
        }
    }

    /// Half-closes: nothing more will be sent.
    pub(crate) fn finish(&mut self) {
        if let Some(tls) = &mut self.tls {
            // The end of the session only: the socket stays open.
            tls.send_close_notify();
            tls.complete_io(&mut self.stream).ok();
            return;
        }
        self.stream.shutdown(Shutdown::Write).ok();
    }

    /// Sends a request and reads its response.
    #[track_caller]
    pub(crate) fn exchange(&mut self, request: impl AsRef<[u8]>) -> Response {
        let request = request.as_ref();
        self.write(request);
        self.read_for(method_of(request))
    }

    /// `GET path` on this connection, with further fields.
    #[track_caller]
    pub(crate) fn get(&mut self, path: &str, fields: &str) -> Response {
        self.exchange(format!("GET {path} HTTP/1.1\r\nhost: test\r\n{fields}\r\n"))
    }

    /// Reads a response to any method but HEAD.
    #[track_caller]
    pub(crate) fn read(&mut self) -> Response {
        self.read_for("GET")
    }

    /// Reads a response to `method`.
    #[track_caller]
    pub(crate) fn read_for(&mut self, method: &str) -> Response {
        self.try_read(method).unwrap_or_else(|fault| panic!("{fault}"))
    }

    /// Reads a response to `method`, or tells why there is none.
    pub(crate) fn try_read(&mut self, method: &str) -> Result<Response, Fault> {
        let mut interim = Vec::new();
        loop {
            let mut response = self.read_head()?;
            if (100..200).contains(&response.status) && response.status != 101 {
                interim.push(response);
                continue;
            }
            let framing = response.framing(method)?;
            response.closed |= framing == Framing::UntilClose && response.status != 101;
            if response.status != 101 {
                self.read_body(framing, &mut response)?;
            }
            response.interim = interim;
            return Ok(response);
        }
    }

    /// Reads one head, interim or final.
    pub(crate) fn read_head(&mut self) -> Result<Response, Fault> {
        let head = self.read_through(b"\r\n\r\n", true)?;
        Response::parse_head(&head)
    }

    /// Reads exactly `count` bytes.
    pub(crate) fn read_exact(&mut self, count: usize) -> Result<Vec<u8>, Fault> {
        while self.buffer.len() < count {
            self.fill(false)?;
        }
        Ok(self.buffer.drain(..count).collect())
    }

    /// Reads some bytes: at least one, at most `max`. Empty at the end of the stream.
    pub(crate) fn read_some(&mut self, max: usize) -> Vec<u8> {
        if self.buffer.is_empty() && self.fill(true).is_err() {
            return Vec::new();
        }
        let count = max.min(self.buffer.len());
        self.buffer.drain(..count).collect()
    }

    /// Whether the peer closes without sending anything further.
    pub(crate) fn closes(&mut self) -> bool {
        self.buffer.is_empty() && matches!(self.fill(true), Err(Fault::Closed | Fault::Cut(_)))
    }

    /// Whether the peer neither sends nor closes for so long.
    pub(crate) fn silent_for(&mut self, span: Duration) -> bool {
        self.stream.set_read_timeout(Some(span)).expect("a socket option");
        let silent = self.buffer.is_empty() && matches!(self.fill(true), Err(Fault::Timeout));
        self.stream.set_read_timeout(Some(TIMEOUT)).expect("a socket option");
        silent
    }

    /// Drops the connection with a reset.
    pub(crate) fn reset(self) {
        socket2::SockRef::from(&self.stream).set_linger(Some(Duration::ZERO)).expect("a socket option");
    }

    fn read_body(&mut self, framing: Framing, response: &mut Response) -> Result<(), Fault> {
        match framing {
            Framing::Length(length) => response.body = self.read_exact(length)?,
            Framing::Chunked => {
                while self.read_chunk(&mut response.body)? {}
                response.trailers = self.read_trailers()?;
            }
            Framing::UntilClose => {
                while self.fill(true) != Err(Fault::Closed) {}
                response.body = std::mem::take(&mut self.buffer);
            }
        }
        Ok(())
    }

    /// Appends one chunk; false at the last, whose trailers are not read.
    pub(crate) fn read_chunk(&mut self, body: &mut Vec<u8>) -> Result<bool, Fault> {
        let line = self.read_through(b"\r\n", false)?;
        let digits = String::from_utf8_lossy(&line[..line.len() - 2]).into_owned();
        let size = usize::from_str_radix(&digits, 16)
            .map_err(|_| Fault::Malformed(format!("odd chunk size {digits:?}")))?;
        if size == 0 {
            return Ok(false);
        }
        body.extend(self.read_exact(size)?);
        let end = self.read_exact(2)?;
        if end != b"\r\n" {
            return Err(Fault::Malformed(format!("{end:?} after a chunk")));
        }
        Ok(true)
    }

    fn read_trailers(&mut self) -> Result<Vec<(String, String)>, Fault> {
        let mut trailers = Vec::new();
        loop {
            let line = self.read_through(b"\r\n", false)?;
            if line == b"\r\n" {
                return Ok(trailers);
            }
            trailers.push(parse_field(&String::from_utf8_lossy(&line[..line.len() - 2]))?);
        }
    }

    /// Reads up to and with `mark`.
    fn read_through(&mut self, mark: &[u8], first: bool) -> Result<Vec<u8>, Fault> {
        let mut searched = 0;
        loop {
            if let Some(at) = memchr::memmem::find(&self.buffer[searched..], mark) {
                let end = searched + at + mark.len();
                return Ok(self.buffer.drain(..end).collect());
            }
            searched = self.buffer.len().saturating_sub(mark.len() - 1);
            self.fill(first && self.buffer.is_empty())?;
        }
    }

    /// Takes what has come. `may_close`: the end of the stream is [`Fault::Closed`] here, else the message is cut.
    fn fill(&mut self, may_close: bool) -> Result<(), Fault> {
        let mut bytes = [0; 64 * 1024];
        loop {
            let read = match &mut self.tls {
                Some(tls) => rustls::Stream::new(&mut **tls, &mut self.stream).read(&mut bytes),
                None => self.stream.read(&mut bytes),
            };
            match read {
                Ok(0) if may_close => return Err(Fault::Closed),
                Ok(0) => return Err(Fault::Cut(format!("after {:?}", lossy(&self.buffer)))),
                Ok(count) => {
                    self.buffer.extend_from_slice(&bytes[..count]);
                    return Ok(());
                }
                Err(fault) if fault.kind() == ErrorKind::Interrupted => {}
                Err(fault) if matches!(fault.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    return Err(Fault::Timeout);
                }
                Err(fault) => return Err(Fault::Cut(fault.to_string())),
            }
        }
    }
}

/// Whether connecting to `address` comes to be refused.
pub(crate) fn refuses_connections(address: SocketAddr) {
    eventually("connections to be refused", || {
        TcpStream::connect_timeout(&address, TIMEOUT).is_err().then_some(())
    });
}

fn method_of(request: &[u8]) -> &str {
    if request.starts_with(b"HEAD ") { "HEAD" } else { "GET" }
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(200)]).into_owned()
}
