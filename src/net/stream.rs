//! A connection, with or without TLS. It is used through a shared reference, like a socket.
//!
//! A [`Detached`] one has no runtime, so that it can be moved from one thread's runtime to another's.

use std::io;
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::BytesMut;
use rustls::pki_types::ServerName;
use rustls::server::ClientHello;
use rustls::{ClientConfig, ServerConfig};
use socket2::SockRef;
use tokio::net::TcpStream;

use super::client_certificate::ClientCertificate;
use super::socket::Socket;
use super::tls::{Alpn, TlsSession, TlsStream};
use super::{Peek, close_sending, poll_peek, reset_on_close};

#[cfg(test)]
use super::pipe::Pipe;

/// A connection.
#[derive(Debug)]
pub enum Stream {
    /// A plain socket.
    Plain(Socket),
    /// A TLS session after its handshake.
    Tls(Box<TlsStream>),
    /// A test's pipe.
    #[cfg(test)]
    Pipe(Pipe),
}

impl Stream {
    /// Performs the TLS handshake with a client. No timeout: the caller bounds the wait.
    ///
    /// # Errors
    ///
    /// The client speaks no TLS or no supported version, rejects the gateway's certificate, lacks a certificate of its
    /// own, or has left.
    pub async fn accept(socket: TcpStream, config: Arc<ServerConfig>) -> io::Result<Self> {
        let tls = Box::new(TlsStream::accept(socket, config).await?);
        Ok(Self::Tls(tls))
    }

    /// As [`Self::accept`], by the settings that `choose` gives for a client that begins like this.
    ///
    /// # Errors
    ///
    /// See [`Self::accept`].
    pub async fn accept_by(
        socket: TcpStream,
        choose: impl FnOnce(&ClientHello<'_>) -> Arc<ServerConfig>,
    ) -> io::Result<Self> {
        let tls = Box::new(TlsStream::accept_by(socket, choose).await?);
        Ok(Self::Tls(tls))
    }

    /// Performs the TLS handshake with a server, which needs a certificate for `name`. No timeout: the caller bounds
    /// the wait.
    ///
    /// # Errors
    ///
    /// The server speaks no TLS or no supported version, has a certificate for another name or an untrusted one,
    /// rejects the gateway's, or has left. A server that speaks TLS 1.3 may reject the gateway's certificate only at
    /// the first read.
    pub async fn connect_tls(
        socket: TcpStream,
        config: Arc<ClientConfig>,
        name: ServerName<'static>,
    ) -> io::Result<Self> {
        let tls = Box::new(TlsStream::connect(socket, config, name).await?);
        Ok(Self::Tls(tls))
    }

    /// Appends at most `max` bytes to `buffer`. Ready with 0 at the end of the stream; a TLS stream that ends without
    /// close_notify is an error.
    // Inlined for plain sockets, like the next two: with one more call for each of the five or six reads and writes of
    // a request, the choice between three would cost more than any of them does.
    #[inline(always)]
    pub fn poll_read(
        &self,
        context: &mut Context<'_>,
        buffer: &mut BytesMut,
        max: usize,
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Plain(socket) => socket.poll_read(context, buffer, max),
            layered => layered.poll_read_layered(context, buffer, max),
        }
    }

    #[inline(never)]
    fn poll_read_layered(
        &self,
        context: &mut Context<'_>,
        buffer: &mut BytesMut,
        max: usize,
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Plain(socket) => socket.poll_read(context, buffer, max),
            Self::Tls(tls) => tls.poll_read(context, buffer, max),
            #[cfg(test)]
            Self::Pipe(pipe) => pipe.poll_read(context, buffer, max),
        }
    }

    /// Writes the accepted bytes of two slices. Bytes that TLS has accepted may still wait for the socket: see
    /// [`Self::poll_flush`].
    #[inline(always)]
    pub fn poll_write(
        &self,
        context: &mut Context<'_>,
        first: &[u8],
        second: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Plain(socket) => socket.poll_write(context, first, second),
            layered => layered.poll_write_layered(context, first, second),
        }
    }

    #[inline(never)]
    fn poll_write_layered(
        &self,
        context: &mut Context<'_>,
        first: &[u8],
        second: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Plain(socket) => socket.poll_write(context, first, second),
            Self::Tls(tls) => tls.poll_write(context, first, second),
            #[cfg(test)]
            Self::Pipe(pipe) => pipe.poll_write(context, first, second),
        }
    }

    /// As [`Self::poll_write`], for the last bytes before the sending side is closed: see [`super::poll_write_last`].
    pub fn poll_write_last(&self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self {
            Self::Plain(socket) => socket.poll_write_last(context, bytes),
            Self::Tls(tls) => tls.poll_write_last(context, bytes),
            #[cfg(test)]
            Self::Pipe(pipe) => pipe.poll_write(context, bytes, &[]),
        }
    }

    /// Ready once the socket has accepted all bytes written. Reading and writing send pending bytes, too.
    #[inline(always)]
    pub fn poll_flush(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Plain(_) => Poll::Ready(Ok(())),
            #[cfg(test)]
            Self::Pipe(_) => Poll::Ready(Ok(())),
            Self::Tls(tls) => tls.poll_flush(context),
        }
    }

    /// Bytes that the socket accepted while [`Self::poll_write`] is pending: a sign of activity.
    pub fn bytes_written(&self) -> u64 {
        match self {
            Self::Plain(_) => 0,
            #[cfg(test)]
            Self::Pipe(_) => 0,
            Self::Tls(tls) => tls.bytes_written(),
        }
    }

    /// Whether there is input or the end, as far as the runtime knows: see [`super::has_input`]. TLS messages of its
    /// own are processed, and are no input.
    pub fn has_input(&self) -> bool {
        match self {
            Self::Plain(socket) => socket.has_input(),
            Self::Tls(tls) => tls.has_input(),
            #[cfg(test)]
            Self::Pipe(pipe) => pipe.has_input(),
        }
    }

    /// Asks the kernel for the state of the input. Costs a system call. TLS messages of its own are processed, and
    /// count as silence.
    pub fn peek(&self) -> Peek {
        match self {
            Self::Plain(socket) => socket.peek(),
            Self::Tls(tls) => tls.peek(),
            #[cfg(test)]
            Self::Pipe(pipe) => pipe.peek(),
        }
    }

    /// Ready with the state of the input, other than silence. For a pipe only a broken one is reported.
    pub fn poll_peek(&self, context: &mut Context<'_>) -> Poll<Peek> {
        match self {
            Self::Plain(socket) => socket.poll_peek(context),
            Self::Tls(tls) => poll_peek(tls.socket(), context),
            #[cfg(test)]
            Self::Pipe(pipe) => pipe.poll_peek(context),
        }
    }

    /// Closes the sending side; TLS sends a close_notify first.
    pub fn close_sending(&self) -> io::Result<()> {
        match self {
            Self::Plain(socket) => socket.close_sending(),
            Self::Tls(tls) => {
                tls.send_close_notify();
                close_sending(tls.socket())
            }
            #[cfg(test)]
            Self::Pipe(pipe) => {
                pipe.close_sending();
                Ok(())
            }
        }
    }

    /// Makes the socket's close a reset: unsent bytes are dropped, and the peer detects a truncated stream.
    pub fn reset_on_close(&self) {
        // A pipe that is dropped without being closed is broken anyway.
        if let Some(socket) = self.socket() {
            reset_on_close(socket);
        }
    }

    /// Whether the runtime knows its socket: see [`Socket`].
    pub fn is_attached(&self) -> bool {
        !matches!(self, Self::Plain(socket) if !socket.is_attached())
    }

    /// Whether it is behind TLS.
    pub fn is_tls(&self) -> bool {
        matches!(self, Self::Tls(_))
    }

    /// The protocol negotiated by ALPN. `None`: there is no TLS, or the peer does not use ALPN.
    pub fn alpn(&self) -> Option<Alpn> {
        match self {
            Self::Plain(_) => None,
            #[cfg(test)]
            Self::Pipe(_) => None,
            Self::Tls(tls) => tls.alpn(),
        }
    }

    /// The peer's certificate. `None` if it sent none.
    pub fn peer_certificate(&self) -> Option<ClientCertificate> {
        match self {
            Self::Plain(_) => None,
            #[cfg(test)]
            Self::Pipe(_) => None,
            Self::Tls(tls) => tls.peer_certificate(),
        }
    }

    /// Its socket, if it leaves the process.
    pub fn socket(&self) -> Option<&TcpStream> {
        match self {
            Self::Plain(socket) => socket.attach().ok(),
            Self::Tls(tls) => Some(tls.socket()),
            #[cfg(test)]
            Self::Pipe(_) => None,
        }
    }
}

/// A connection without a runtime.
#[derive(Debug)]
pub struct Detached {
    socket: std::net::TcpStream,
    /// The TLS session, if there is one.
    session: Option<Box<TlsSession>>,
}

impl Detached {
    /// Whether the peer has closed it. Costs a system call.
    pub fn is_over(&self) -> bool {
        match SockRef::from(&self.socket).peek(&mut [MaybeUninit::uninit()]) {
            // TLS messages of its own are no end; other input is found when the connection is used.
            Ok(read) => read == 0 || self.session.is_none(),
            Err(error) => error.kind() != io::ErrorKind::WouldBlock,
        }
    }

    /// Attaches to the runtime of the calling thread.
    pub fn resume(self) -> io::Result<Stream> {
        let socket = TcpStream::from_std(self.socket)?;
        Ok(match self.session {
            None => Stream::Plain(Socket::attached(socket)),
            Some(session) => Stream::Tls(Box::new(TlsStream::resume(socket, *session))),
        })
    }
}

impl Stream {
    /// Detaches from the runtime.
    pub fn detach(self) -> io::Result<Detached> {
        let (socket, session) = match self {
            Self::Plain(socket) => (socket.into_attached()?, None),
            Self::Tls(tls) => {
                let (socket, session) = tls.detach();
                (socket, Some(Box::new(session)))
            }
            // An HTTP/2 stream serves one request.
            #[cfg(test)]
            Self::Pipe(_) => return Err(io::ErrorKind::Unsupported.into()),
        };
        Ok(Detached { socket: socket.into_std()?, session })
    }
}
