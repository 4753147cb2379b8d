//! TLS on a socket, with rustls' own buffers: at most one incomplete record, and 64 KiB waiting to be sent; and the
//! settings of TLS to a server: the trusted roots, and the gateway's certificate.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io::{self, BufRead as _, IoSlice, Read, Write};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::BytesMut;
use rustls::pki_types::ServerName;
use rustls::server::{AcceptedAlert, Acceptor, ClientHello};
use rustls::{ClientConfig, ClientConnection, Connection, ServerConfig, ServerConnection};
use socket2::SockRef;
use tokio::io::Interest;
use tokio::net::TcpStream;

use super::client_certificate::ClientCertificate;
use super::{Peek, has_input, is_drained, write_last};

/// Maximum number of reads of TLS messages on an unused connection: session tickets, key updates. A connection with
/// more is not quiet.
const MAX_ASIDES: usize = 8;

/// The protocol negotiated by TLS (ALPN, RFC 7301).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alpn {
    /// `http/1.1`.
    Http1,
    /// `h2`.
    Http2,
}

/// A socket with a TLS session on it.
#[derive(Debug)]
pub struct TlsStream {
    socket: TcpStream,
    /// Never borrowed across a poll.
    session: RefCell<Connection>,
    /// Bytes that the socket accepted.
    bytes_written: Cell<u64>,
}

/// A session without its socket.
#[derive(Debug)]
pub(super) struct TlsSession {
    connection: Connection,
    bytes_written: u64,
}

impl TlsStream {
    pub(super) async fn accept(socket: TcpStream, config: Arc<ServerConfig>) -> io::Result<Self> {
        let session = ServerConnection::new(config).map_err(io::Error::other)?;
        Self::handshake(socket, session.into()).await
    }

    /// As [`Self::accept`], by the settings that `choose` gives for a client that begins like this.
    pub(super) async fn accept_by(
        socket: TcpStream,
        choose: impl FnOnce(&ClientHello<'_>) -> Arc<ServerConfig>,
    ) -> io::Result<Self> {
        let mut acceptor = Acceptor::default();
        let refuse = |(error, mut alert): (rustls::Error, AcceptedAlert)| {
            // The peer is sent the alert, if the socket accepts it now.
            alert.write_all(&mut Wire { socket: &socket, last: false }).ok();
            io::Error::new(io::ErrorKind::InvalidData, error)
        };
        let accepted = loop {
            socket.readable().await?;
            match acceptor.read_tls(&mut Wire { socket: &socket, last: false }) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                Err(error) => return Err(error),
            }
            if let Some(accepted) = acceptor.accept().map_err(refuse)? {
                break accepted;
            }
        };
        let config = choose(&accepted.client_hello());
        let session = accepted.into_connection(config).map_err(refuse)?;
        Self::handshake(socket, session.into()).await
    }

    pub(super) async fn connect(
        socket: TcpStream,
        config: Arc<ClientConfig>,
        name: ServerName<'static>,
    ) -> io::Result<Self> {
        let session = ClientConnection::new(config, name).map_err(io::Error::other)?;
        Self::handshake(socket, session.into()).await
    }

    async fn handshake(socket: TcpStream, session: Connection) -> io::Result<Self> {
        let tls = Self { socket, session: RefCell::new(session), bytes_written: Cell::new(0) };
        poll_fn(|context| tls.poll_handshake(context)).await?;
        Ok(tls)
    }

    /// Separates the socket from its session.
    pub(super) fn detach(self) -> (TcpStream, TlsSession) {
        let session =
            TlsSession { connection: self.session.into_inner(), bytes_written: self.bytes_written.get() };
        (self.socket, session)
    }

    /// Joins socket and session again.
    pub(super) fn resume(socket: TcpStream, session: TlsSession) -> Self {
        let TlsSession { connection, bytes_written } = session;
        Self { socket, session: RefCell::new(connection), bytes_written: Cell::new(bytes_written) }
    }

    fn poll_handshake(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let session = &mut *self.session.borrow_mut();
        while session.is_handshaking() {
            ready!(self.poll_push(session, context, false))?;
            if ready!(self.poll_pull(session, context))? == 0 {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
        }
        #[expect(
            clippy::let_underscore_must_use,
            reason = "the end of the handshake goes on ahead of the first message; a failure shows there"
        )]
        let _: Poll<io::Result<()>> = self.poll_push(session, context, false);
        Poll::Ready(Ok(()))
    }

    pub(super) fn poll_read(
        &self,
        context: &mut Context<'_>,
        buffer: &mut BytesMut,
        max: usize,
    ) -> Poll<io::Result<usize>> {
        let session = &mut *self.session.borrow_mut();
        loop {
            if let Some(read) = take_plain(session, buffer, max) {
                return Poll::Ready(read);
            }
            match self.poll_push(session, context, false) {
                // The kernel reports only once that the peer acknowledges nothing.
                Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::TimedOut => {
                    return Poll::Ready(Err(error));
                }
                // A client that accepts nothing may still send; a broken socket shows when it is read.
                _ => {}
            }
            // At its end the session knows whether there was a close_notify.
            ready!(self.poll_pull(session, context))?;
        }
    }

    pub(super) fn poll_write(
        &self,
        context: &mut Context<'_>,
        first: &[u8],
        second: &[u8],
    ) -> Poll<io::Result<usize>> {
        let session = &mut *self.session.borrow_mut();
        ready!(self.poll_push(session, context, false))?;
        let bytes_written = session.writer().write_vectored(&[IoSlice::new(first), IoSlice::new(second)])?;
        match self.poll_push(session, context, false)? {
            // The session sends the bytes when the socket accepts them.
            Poll::Ready(()) | Poll::Pending => Poll::Ready(Ok(bytes_written)),
        }
    }

    /// As [`Self::poll_write`], for the last bytes before the sending side is closed. The close_notify is sent with them.
    pub(super) fn poll_write_last(&self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let session = &mut *self.session.borrow_mut();
        ready!(self.poll_push(session, context, false))?;
        let bytes_written = session.writer().write(bytes)?;
        let is_end = bytes_written == bytes.len();
        if is_end {
            session.send_close_notify();
        }
        match self.poll_push(session, context, is_end)? {
            // The session sends the bytes when the socket accepts them.
            Poll::Ready(()) | Poll::Pending => Poll::Ready(Ok(bytes_written)),
        }
    }

    pub(super) fn poll_flush(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_push(&mut self.session.borrow_mut(), context, false)
    }

    /// See [`super::Stream::has_input`].
    pub(super) fn has_input(&self) -> bool {
        let waits = peek_session(&mut self.session.borrow_mut()) != Peek::Silence;
        waits || (has_input(&self.socket) && self.peek() != Peek::Silence)
    }

    /// See [`super::Stream::peek`].
    pub(super) fn peek(&self) -> Peek {
        let session = &mut *self.session.borrow_mut();
        let socket = SockRef::from(&self.socket);
        for _ in 0..MAX_ASIDES {
            match peek_session(session) {
                Peek::Silence => {}
                seen => return seen,
            }
            // Bypasses the runtime, which may not know of the input yet.
            match session.read_tls(&mut &*socket) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    is_drained(&self.socket);
                    return Peek::Silence;
                }
                Ok(_) if session.process_new_packets().is_ok() => {}
                _ => return Peek::Broken,
            }
        }
        Peek::Bytes
    }

    /// Sends a close_notify, if the socket accepts it now.
    pub(super) fn send_close_notify(&self) {
        let session = &mut *self.session.borrow_mut();
        session.send_close_notify();
        self.push_now(session);
    }

    pub(super) fn bytes_written(&self) -> u64 {
        self.bytes_written.get()
    }

    /// The peer's certificate. `None` if it sent none.
    pub(super) fn peer_certificate(&self) -> Option<ClientCertificate> {
        let session = self.session.borrow();
        ClientCertificate::read(session.peer_certificates()?.first()?)
    }

    pub(super) fn alpn(&self) -> Option<Alpn> {
        let session = self.session.borrow();
        session.alpn_protocol().map(|name| if name == b"h2" { Alpn::Http2 } else { Alpn::Http1 })
    }

    pub(super) fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// Sends all pending bytes of the session. `last`: the sending side is closed after them.
    fn poll_push(
        &self,
        session: &mut Connection,
        context: &mut Context<'_>,
        last: bool,
    ) -> Poll<io::Result<()>> {
        while session.wants_write() {
            ready!(self.socket.poll_write_ready(context))?;
            match session.write_tls(&mut Wire { socket: &self.socket, last }) {
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Ok(written) => self.bytes_written.set(self.bytes_written.get() + written as u64),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Sends the bytes that the socket accepts now.
    fn push_now(&self, session: &mut Connection) {
        while session.wants_write()
            && session.write_tls(&mut Wire { socket: &self.socket, last: false }).is_ok_and(|sent| sent > 0)
        {
        }
    }

    /// Passes received bytes to the session. Ready with 0 at the socket's end.
    fn poll_pull(&self, session: &mut Connection, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.socket.poll_read_ready(context))?;
            let read = match session.read_tls(&mut Wire { socket: &self.socket, last: false }) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                read => read?,
            };
            if let Err(fault) = session.process_new_packets() {
                // The peer is sent the alert.
                self.push_now(session);
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, fault)));
            }
            return Poll::Ready(Ok(read));
        }
    }
}

/// The state of the decrypted input.
fn peek_session(session: &mut Connection) -> Peek {
    match session.reader().fill_buf() {
        Ok([]) => Peek::End,
        Ok(_) => Peek::Bytes,
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Peek::Silence,
        Err(_) => Peek::Broken,
    }
}

/// Moves at most `max` decrypted bytes. `None` if there are none yet.
fn take_plain(session: &mut Connection, buffer: &mut BytesMut, max: usize) -> Option<io::Result<usize>> {
    let mut reader = session.reader();
    let mut read = 0;
    while read < max {
        let consumed = match reader.fill_buf() {
            Ok([]) => return Some(Ok(read)),
            Ok(plain) => {
                let consumed = plain.len().min(max - read);
                buffer.extend_from_slice(plain.get(..consumed).unwrap_or(plain));
                consumed
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock || read > 0 => break,
            Err(error) => return Some(Err(error)),
        };
        reader.consume(consumed);
        read += consumed;
    }
    (read > 0).then_some(Ok(read))
}

/// The socket as rustls reads and writes it: without waiting.
struct Wire<'s> {
    socket: &'s TcpStream,
    /// The sending side is closed after the bytes: see [`super::poll_write_last`].
    last: bool,
}

impl Read for Wire<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.socket.try_read(buffer)?;
        if 0 < read && read < buffer.len() {
            is_drained(self.socket);
        }
        Ok(read)
    }
}

impl Write for Wire<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.socket.try_write(bytes)
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match self.last {
            true => self.socket.try_io(Interest::WRITABLE, || write_last(self.socket, slices)),
            false => self.socket.try_write_vectored(slices),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// TLS to a server. Sessions are resumed among all connections with the same `config`.
#[derive(Clone, Debug)]
pub struct TlsClientConfig {
    /// The trusted roots, and the gateway's certificate.
    pub config: Arc<ClientConfig>,
    /// The name that the server's certificate must carry; `None`: the host's.
    pub server_name: Option<ServerName<'static>>,
    /// A hash of all files it was made of.
    pub files: [u8; 32],
}

impl TlsClientConfig {
    /// The name that the certificate of the server at `host` must carry. `None` if no certificate can carry it.
    pub fn name(&self, host: &str) -> Option<ServerName<'static>> {
        let name = || ServerName::try_from(host.strip_suffix('.').unwrap_or(host).to_owned()).ok();
        self.server_name.clone().or_else(name)
    }
}

impl PartialEq for TlsClientConfig {
    fn eq(&self, other: &Self) -> bool {
        self.server_name == other.server_name && self.files == other.files
    }
}

impl Eq for TlsClientConfig {}
