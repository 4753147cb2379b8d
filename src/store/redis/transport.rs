//! The bytes between the gateway and a server, with or without TLS. No protocol, no timeouts: the caller bounds the
//! wait.

use std::io;
use std::os::fd::OwnedFd;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf as _, BufMut as _, BytesMut};
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncReadExt as _, AsyncWrite as _};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::errors::ConnectionTrouble;
use super::settings::RedisServer;
use crate::net::{self, Peek, TlsClientConfig};

/// Buffer capacity for one read.
const READ: usize = 16 << 10;
/// A connection that is idle for this long is probed by TCP keep-alive, so that firewalls in between do not drop it.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// A connection.
#[derive(Debug)]
pub(super) enum Transport {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Transport {
    /// Connects to the first of the host's addresses that accepts, and performs the TLS handshake.
    pub(super) async fn open(
        server: &RedisServer,
        tls: Option<&TlsClientConfig>,
    ) -> Result<Self, ConnectionTrouble> {
        if let Some(path) = server.unix_socket() {
            // The calls that read and write it are those of TCP, so its type is the same.
            let socket = UnixStream::connect(path).await?.into_std()?;
            return Ok(Self::Plain(TcpStream::from_std(OwnedFd::from(socket).into())?));
        }
        let stream = TcpStream::connect((&*server.host, server.port)).await?;
        // Calls must not wait for acknowledgements; a socket that supports neither option still works.
        let _ = stream.set_nodelay(true);
        let _ = SockRef::from(&stream).set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEP_ALIVE));
        let Some(tls) = tls else { return Ok(Self::Plain(stream)) };
        let name = tls.name(&server.host).ok_or(ConnectionTrouble::CertificateName)?;
        let connecting = TlsConnector::from(tls.config.clone()).connect(name, stream);
        Ok(Self::Tls(Box::new(connecting.await?)))
    }

    /// Appends received bytes to `buffer`. Ready with 0 at the end.
    pub(super) fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut BytesMut,
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Plain(stream) => net::poll_read(stream, context, buffer, READ),
            Self::Tls(stream) => {
                buffer.reserve(READ);
                // Bytes that a poll has read are in the buffer: the future itself holds nothing.
                pin!(stream.read_buf(&mut buffer.limit(READ))).poll(context)
            }
        }
    }

    /// Whether bytes can be read, even if the runtime has not noticed yet. Costs a system call.
    pub(super) fn has_unread(&self) -> bool {
        let stream = match self {
            Self::Plain(stream) => stream,
            Self::Tls(stream) => stream.get_ref().0,
        };
        net::peek(stream) != Peek::Silence
    }

    /// Sends all of `buffer`, which is empty once this is ready.
    pub(super) fn poll_send(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut BytesMut,
    ) -> Poll<io::Result<()>> {
        while !buffer.is_empty() {
            let sent = match self {
                Self::Plain(stream) => ready!(net::poll_write(stream, context, buffer, &[]))?,
                Self::Tls(stream) => ready!(Pin::new(stream).poll_write(context, buffer))?,
            };
            if sent == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            buffer.advance(sent);
        }
        match self {
            Self::Plain(_) => Poll::Ready(Ok(())),
            Self::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }
}
