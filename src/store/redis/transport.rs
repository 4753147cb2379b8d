//! The bytes between us and a server, with or without TLS. No protocol, no time-outs: who calls bounds the wait.

use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf as _, BufMut as _, BytesMut};
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncReadExt as _, AsyncWrite as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::errors::ConnectionTrouble;
use super::settings::RedisServer;
use crate::net::{self, Peek, TlsClientConfig};

/// Room made for one read.
const READ: usize = 16 << 10;
/// A connection that rests for so long is asked after, so that what lies in between does not forget it.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// A connection.
#[derive(Debug)]
pub(super) enum Transport {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Transport {
    /// Connects to the first of the host's addresses that takes it, and agrees on TLS.
    pub(super) async fn open(
        server: &RedisServer,
        tls: Option<&TlsClientConfig>,
    ) -> Result<Self, ConnectionTrouble> {
        let stream = TcpStream::connect((&*server.host, server.port)).await?;
        // Calls must not wait for acknowledgements; a socket that refuses either still works.
        let _ = stream.set_nodelay(true);
        let _ = SockRef::from(&stream).set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEP_ALIVE));
        let Some(tls) = tls else { return Ok(Self::Plain(stream)) };
        let name = tls.name(&server.host).ok_or(ConnectionTrouble::CertificateName)?;
        let connecting = TlsConnector::from(tls.config.clone()).connect(name, stream);
        Ok(Self::Tls(Box::new(connecting.await?)))
    }

    /// Reads what has come behind what is in `buffer`. Ready with 0 at the end.
    pub(super) fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut BytesMut,
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Plain(stream) => net::poll_read(stream, context, buffer, READ),
            Self::Tls(stream) => {
                buffer.reserve(READ);
                // What a poll has read is in the buffer: the future itself holds nothing.
                pin!(stream.read_buf(&mut buffer.limit(READ))).poll(context)
            }
        }
    }

    /// Whether something is there to read, even if the runtime has not heard of it. Costs a system call.
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
